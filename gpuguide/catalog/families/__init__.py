"""Model families: for each `model_type` the function that lists the tensors and the cache of its class."""

from __future__ import annotations

from gpuguide.catalog.families import dense, encoder_decoder, gemma, hybrid, sparse
from gpuguide.catalog.families.multimodal import Parser, mllama, multimodal

_BY_PARSER: dict[Parser, tuple[str, ...]] = {
    dense.llama: (
        "llama", "mistral", "ministral", "ministral3", "qwen2", "qwen3", "gemma", "gemma2", "gemma3_text", "phi3",
        "glm", "glm4", "olmo", "olmo2", "olmo3", "smollm3", "granite", "seed_oss", "exaone4", "ernie4_5",
        "hunyuan_v1_dense", "arcee", "apertus", "internlm3", "vaultgemma",
        "qwen2_vl_text", "qwen2_5_vl_text", "qwen3_vl_text",
    ),
    dense.cohere: ("cohere", "cohere2"),
    dense.layer_norm_decoder: ("phi", "nemotron", "starcoder2", "stablelm", "persimmon"),
    dense.gpt: ("gpt2", "gptj", "gpt_neo", "codegen", "gpt_bigcode"),
    dense.gpt_neox: ("gpt_neox",),
    dense.bloom: ("bloom",),
    dense.mpt: ("mpt",),
    dense.falcon: ("falcon",),
    dense.opt: ("opt",),
    dense.lfm2: ("lfm2", "lfm2_moe"),
    sparse.mixtral: ("mixtral", "olmoe", "phimoe", "granitemoe", "minimax_m2", "flex_olmo", "hunyuan_v1_moe"),
    sparse.qwen_moe: ("qwen2_moe", "qwen3_moe", "qwen3_vl_moe_text"),
    sparse.gpt_oss: ("gpt_oss",),
    sparse.llama4: ("llama4_text",),
    sparse.deepseek: (
        "deepseek_v2", "deepseek_v3", "deepseek_v32", "glm_moe_dsa", "glm4_moe", "glm4_moe_lite", "dots1", "exaone_moe",
        "minicpm3",
    ),
    sparse.ernie_moe: ("ernie4_5_moe",),
    sparse.dbrx: ("dbrx",),
    hybrid.mamba: ("mamba", "falcon_mamba"),
    hybrid.mamba2: ("mamba2",),
    hybrid.jamba: ("jamba",),
    hybrid.bamba: ("bamba",),
    hybrid.falcon_h1: ("falcon_h1",),
    hybrid.granite_hybrid: ("granitemoehybrid",),
    hybrid.nemotron_h: ("nemotron_h",),
    hybrid.qwen_next: ("qwen3_next", "qwen3_5_text", "qwen3_5_moe_text"),
    hybrid.minimax: ("minimax",),
    hybrid.kimi_linear: ("kimi_linear",),
    gemma.gemma3n: ("gemma3n_text",),
    gemma.gemma4: ("gemma4_text",),
    encoder_decoder.t5: ("t5", "mt5", "umt5"),
    encoder_decoder.bart: ("bart", "mbart"),
    encoder_decoder.whisper: ("whisper",),
}  # fmt: skip

DECODERS: dict[str, Parser] = {name: parser for parser, names in _BY_PARSER.items() for name in names}
FAMILIES: dict[str, Parser] = {
    **DECODERS,
    **dict.fromkeys(
        (
            "qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe", "qwen3_5", "qwen3_5_moe", "gemma3", "gemma4",
            "paligemma", "llava", "llava_next", "mistral3", "llama4", "internvl", "kimi_k25",
        ),
        multimodal(DECODERS),
    ),
    "mllama": mllama,
}  # fmt: skip
"""Parsers by `model_type`."""

SAME_AS = {
    "kimi_k2": "deepseek_v3", "RefinedWebModel": "falcon", "RefinedWeb": "falcon", "mllama_text_model": "mllama",
}  # fmt: skip
"""Other names of a class, as written by the code that came with a checkpoint."""
