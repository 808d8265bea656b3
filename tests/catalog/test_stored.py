"""Bytes of a checkpoint, matrix by matrix: weights, scales and zero points as each format lays them out, by hand."""

import json
from pathlib import Path

import pytest

from gpuguide.catalog.config import parse_config
from gpuguide.catalog.source import facts

CONFIGS = Path(__file__).parents[2] / "data" / "hf_configs"


def test_gpt_oss_120b_checkpoint():
    """Packed expert weights would be counted at two bytes; 65,248,815,744 is in hf-mem's issue 60."""
    config = json.loads((CONFIGS / "gpt-oss-20b.json").read_text()) | {
        "num_hidden_layers": 36,
        "num_local_experts": 128,
    }
    config["layer_types"] = ["sliding_attention", "full_attention"] * 18
    assert parse_config(config).native_bytes == 65_248_815_744


SMALL = {
    "model_type": "llama", "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 100, "dtype": "bfloat16",
}  # fmt: skip
WIDE = 2 * (2 * 100 * 256 + 2 * 2 * 256 + 256)  # embedding, head and norms at two bytes
MATRICES = [(256, 256), (128, 256), (128, 256), (256, 256), (512, 256), (512, 256), (256, 512)] * 2  # outputs, inputs


def compressed(**weights) -> dict:
    return {
        "quant_method": "compressed-tensors",
        "config_groups": {"group_0": {"weights": {"symmetric": True} | weights}},
    }


STORED = [
    pytest.param(None, "bf16", WIDE + sum(2 * o * i for o, i in MATRICES), id="bf16"),
    pytest.param(
        {"quant_method": "fp8", "weight_block_size": [128, 128]}, "fp8",
        WIDE + sum(o * i + 4 * (o // 128) * (i // 128) for o, i in MATRICES), id="fp8, scale of 128 x 128",
    ),
    pytest.param(
        {"quant_method": "awq", "bits": 4, "group_size": 128}, "awq",
        WIDE + sum(o * i / 2 + o * (i // 128) * 2.5 for o, i in MATRICES), id="awq, 16-bit scale and 4-bit zero of 128",
    ),
    pytest.param(
        {"quant_method": "gptq", "bits": 4, "group_size": 128}, "gptq",
        WIDE + sum(o * i / 2 + o * (i // 128) * 2.5 + 4 * i for o, i in MATRICES), id="gptq, group index of the inputs",
    ),
    pytest.param(
        {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}, "nf4",
        WIDE + sum(o * i / 2 + 4 * (o * i // 64) for o, i in MATRICES), id="nf4, fp32 of 64",
    ),
    pytest.param(
        {"quant_method": "compressed-tensors", "config_groups": {"group_0": {
            "weights": {"num_bits": 8, "type": "float", "strategy": "channel"}, "targets": ["Linear"]}},
            "ignore": ["lm_head"]},
        "fp8-tensor", WIDE + sum(o * i + 2 * o for o, i in MATRICES), id="compressed-tensors fp8, scale of an output",
    ),
    pytest.param(
        {"quant_method": "fp8", "weight_block_size": [128, 128],
         "modules_to_not_convert": ["self_attn", "model.layers.1.mlp"]},
        "fp8",
        WIDE + sum(2 * o * i for o, i in MATRICES[:4] * 2 + MATRICES[4:7])
        + sum(o * i + 4 * (o // 128) * (i // 128) for o, i in MATRICES[4:7]), id="modules that stay wide",
    ),
    pytest.param({"quant_method": "novel"}, "novel", None, id="unknown method: not known rather than guessed"),
    pytest.param(
        {"quant_method": "fp8"}, "fp8-tensor", WIDE + sum(o * i + 4 for o, i in MATRICES), id="fp8, scale of a matrix"
    ),
    pytest.param(
        {"quant_method": "fbgemm_fp8"}, "fp8-tensor", WIDE + sum(o * i + 4 * o for o, i in MATRICES),
        id="FBGEMM fp8, scale of an output",
    ),
    pytest.param(
        {"quant_method": "awq", "w_bit": 4, "q_group_size": 64}, "awq-g64",
        WIDE + sum(o * i / 2 + o * (i // 64) * 2.5 for o, i in MATRICES), id="older names of AWQ's keys",
    ),
    pytest.param(
        {"quant_method": "gptq", "bits": 3, "group_size": 128}, "gptq-3bit",
        WIDE + sum(o * i * 3 / 8 + o * (i // 128) * 2.375 + 4 * i for o, i in MATRICES), id="gptq of 3 bits",
    ),
    pytest.param(
        {"quant_method": "gptq", "bits": 4, "group_size": -1}, "gptq-channel",
        WIDE + sum(o * i / 2 + o * 2.5 + 4 * i for o, i in MATRICES), id="gptq, one group an output",
    ),
    pytest.param({"quant_method": "gptq", "group_size": 128}, "gptq", None, id="gptq of unstated width"),
    pytest.param(
        {"load_in_8bit": True}, "bnb-int8", WIDE + sum(o * i + 4 * o for o, i in MATRICES), id="LLM.int8"
    ),
    pytest.param(
        {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4", "bnb_4bit_use_double_quant": True}, "nf4-dq",
        WIDE + sum(o * i / 2 + o * i // 64 + 4 * -(-o * i // 64 // 256) for o, i in MATRICES),
        id="double quantisation: a byte of 64, fp32 of 256 of those",
    ),
    pytest.param(
        {"quant_method": "modelopt", "quant_algo": "NVFP4"}, "nvfp4",
        WIDE + sum(o * i / 2 + o * (i // 16) + 8 for o, i in MATRICES), id="NVFP4, fp8 of 16 and two fp32",
    ),
    pytest.param(
        {"quant_method": "modelopt", "quant_algo": "FP8"}, "fp8-tensor",
        WIDE + sum(o * i + 8 for o, i in MATRICES), id="ModelOpt fp8, scales of weights and inputs",
    ),
    pytest.param({"quant_method": "modelopt", "quant_algo": "W4A8"}, "modelopt", None, id="ModelOpt, other"),
    pytest.param(
        compressed(num_bits=4, strategy="group", group_size=128), "w4a16",
        WIDE + sum(o * i / 2 + o * (i // 128) * 2 for o, i in MATRICES), id="w4a16, symmetric",
    ),
    pytest.param(
        compressed(num_bits=4, strategy="group", group_size=128, symmetric=False), "w4a16",
        WIDE + sum(o * i / 2 + o * (i // 128) * 2.5 for o, i in MATRICES), id="w4a16 with zero points",
    ),
    pytest.param(
        compressed(num_bits=8, strategy="tensor"), "int8-weight", WIDE + sum(o * i + 2 for o, i in MATRICES),
        id="int8, scale of a matrix",
    ),
    pytest.param(
        compressed(num_bits=4, type="float", strategy="tensor_group", group_size=16), "nvfp4",
        WIDE + sum(o * i / 2 + o * (i // 16) + 8 for o, i in MATRICES), id="compressed-tensors NVFP4",
    ),
    pytest.param(
        compressed(num_bits=8, type="float", strategy="block", block_structure=[128, 128]), "fp8",
        WIDE + sum(o * i + 4 * (o // 128) * (i // 128) for o, i in MATRICES), id="compressed-tensors fp8 of blocks",
    ),
    pytest.param(compressed(num_bits=8, strategy="token"), "int8-weight", None, id="scales of a kind not known"),
    pytest.param(compressed(strategy="channel"), "compressed-tensors", None, id="width not stated"),
    pytest.param(
        {"quant_method": "compressed-tensors", "config_groups": {"a": {}, "b": {}}}, "compressed-tensors", None,
        id="two groups are not told apart",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("quantization", "name", "expected"), STORED)
def test_stored_bytes(quantization, name, expected):
    """Scales or the matrices left in 16 bit would be missed."""
    model = parse_config(SMALL | ({"quantization_config": quantization} if quantization else {}))
    assert (model.native_dtype, model.native_bytes) == (name, expected)


def test_unstated_dtype_is_not_guessed():
    """A checkpoint of unknown width would be given two bytes a weight."""
    known = facts(parse_config({key: value for key, value in SMALL.items() if key != "dtype"}))
    assert known["weight_bytes_native"] is None


FP8 = {"quant_method": "fp8"}
LEFT = [  # patterns of modules that stay wide, matrices that do
    pytest.param(["re:.*self_attn.*"], MATRICES[:4] * 2, id="a regular expression of dots and stars"),
    pytest.param(["re:^model\\.layers\\.0\\.mlp\\..*"], MATRICES[4:7], id="anchored, with escaped dots"),
    pytest.param(["model.layers.*.mlp.*_proj"], MATRICES[4:7] * 2, id="a glob with two stars"),
    pytest.param(["layers.*.nothing.*_proj"], [], id="a glob that matches nothing"),
    pytest.param(["lm_head", "embed_tokens"], [], id="what is wide anyway"),
    pytest.param(["model.layers.1.self_attn.q_proj.weight"], MATRICES[:1], id="one tensor of one layer"),
]


@pytest.mark.parametrize(("patterns", "wide"), LEFT)
def test_modules_left_wide(patterns, wide):
    """Checkpoints that keep attention or a layer in 16 bit would be called smaller than they are."""
    model = parse_config(SMALL | {"quantization_config": FP8 | {"ignored_layers": patterns}})

    assert model.native_bytes == WIDE + sum(o * i + 4 for o, i in MATRICES) + sum(o * i - 4 for o, i in wide)


NOT_READ = [
    pytest.param("self_attn", id="no list"),
    pytest.param(["re:layers\\.(0|1)\\.mlp"], id="alternatives"),
    pytest.param([f"layers.*.{number}.*" for number in range(101)], id="more globs than are tried"),
]


@pytest.mark.parametrize("patterns", NOT_READ)
def test_patterns_that_are_not_understood_leave_the_bytes_unknown(patterns):
    """A guess at which modules are narrow would be shown as the size of a file."""
    model = parse_config(SMALL | {"quantization_config": FP8 | {"ignored_layers": patterns}})

    assert (model.native_dtype, model.native_bytes) == ("fp8-tensor", None)
