"""Variants of known classes that are counted by another rule, or not at all: the sentence names the key."""

import json
from pathlib import Path

import pytest

from gpuguide.catalog.config import parse_config
from gpuguide.errors import InvalidScenario, NotModelled, UnknownName

ORACLE = [json.loads(line) for line in (Path(__file__).parent / "oracle_configs.jsonl").read_text().splitlines()[1:]]
CLASSES = {row["config"]["model_type"]: row["config"] for row in reversed(ORACLE)}

REFUSED = [  # class, change, words of the sentence; the id says what would be miscounted
    pytest.param("gpt2", {"add_cross_attention": True}, "cross-attention", id="matrices to another model's states"),
    pytest.param("mpt", {"attn_config": {"attn_type": "multiquery_attention"}}, "multi-query", id="one KV head"),
    pytest.param("lfm2", {"layer_types": ["mamba"] * 99}, "layer_types", id="layers of another kind"),
    pytest.param("glm_moe_dsa", {"index_topk_freq": 2}, "indexer", id="indexers that layers share"),
    pytest.param("gemma4_text", {"per_layer_config": {"0": {}}}, "per_layer_config", id="layers of different widths"),
    pytest.param("gemma4", {"audio_config": {"hidden_size": 8}}, "audio tower", id="an audio tower"),
    pytest.param("llama4_text", {"no_rope_layers": [1]}, "no_rope_layers", id="a list that is too short"),
    pytest.param("smollm3", {"no_rope_layers": [1]}, "no_rope_layers", id="the same in a dense class"),
    pytest.param("nemotron_h", {"hybrid_override_pattern": "MXM"}, "hybrid_override_pattern", id="an unknown letter"),
    pytest.param(
        "nemotron_h", {"hybrid_override_pattern": None, "layers_block_type": None}, "hybrid_override_pattern",
        id="no pattern at all",
    ),
    pytest.param("llava", {"vision_config": {"model_type": "resnet"}}, "vision tower", id="an unknown tower"),
    pytest.param("llava", {"text_config": {"model_type": "bert"}}, "decoder", id="an unknown decoder"),
    pytest.param("llava", {"vision_config": [1]}, "vision_config", id="no nested object"),
    pytest.param("dbrx", {"d_model": 1, "n_heads": 8}, "d_model", id="heads wider than the model"),
    pytest.param("gptj", {"n_embd": 1, "n_head": 8}, "n_embd|hidden_size", id="the same in an older class"),
    pytest.param("bart", {"d_model": 25}, "d_model", id="heads of broken width"),
    pytest.param("gemma3n_text", {"num_kv_shared_layers": 99}, "num_kv_shared_layers", id="more sharers than layers"),
    pytest.param("gemma3n_text", {"intermediate_size": [7]}, "intermediate_size", id="a width for one layer alone"),
    pytest.param("bamba", {"mamba_n_heads": 7, "mamba_d_head": 5}, "mamba_n_heads", id="heads that do not fill"),
    pytest.param(
        "granitemoehybrid", {"layer_types": ["conv"] * 3, "num_hidden_layers": 3}, "layer_types", id="Granite 4, conv"
    ),
    pytest.param(
        "gemma3_text", {"layer_types": ["novel"] * 3, "num_hidden_layers": 3}, "novel", id="a layer of a new type"
    ),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "change", "words"), REFUSED)
def test_what_is_counted_otherwise_is_refused(kind, change, words):
    """A sibling's rule would give a plausible and wrong number of parameters."""
    with pytest.raises((InvalidScenario, NotModelled, UnknownName), match=words):
        parse_config(CLASSES[kind] | change)


SAME = [  # class, how a config says it, how another may
    pytest.param("lfm2", {}, {"layer_types": ["full_attention"] * 8}, id="attention in every layer"),
    pytest.param(
        "qwen3_next", {}, {"layer_types": [*["linear_attention"] * 3, "full_attention"] * 2},
        id="every fourth layer attends",
    ),
    pytest.param(
        "minimax", {}, {"layer_types": ["full_attention", "linear_attention"] * 4}, id="every other layer attends"
    ),
    pytest.param(
        "nemotron_h", {"hybrid_override_pattern": "M*-M"},
        {"layers_block_type": ["mamba", "attention", "mlp", "linear_attention"]}, id="letters or words",
    ),
    pytest.param("exaone4", {"sliding_window_pattern": "LLLG"}, {"sliding_window_pattern": 4}, id="letters or number"),
]  # fmt: skip
SAID_OTHERWISE = (
    "layer_types", "layers_block_type", "hybrid_override_pattern", "full_attention_interval", "full_attn_idxs",
)  # fmt: skip


@pytest.mark.parametrize(("kind", "one", "other"), SAME)
def test_two_ways_to_say_the_same(kind, one, other):
    """Older and newer files of one model would be counted differently."""
    config = {key: value for key, value in CLASSES[kind].items() if key not in SAID_OTHERWISE}
    config |= {"num_hidden_layers": 8}
    first, second = parse_config(config | one), parse_config(config | other)

    assert first.params == second.params
    assert first.layers_full == second.layers_full


LLAMA = CLASSES["llama"]
WRONG = [  # class, change, key that the sentence names
    pytest.param("llama", {"tie_word_embeddings": "yes"}, "tie_word_embeddings", id="words for true"),
    pytest.param("nemotron_h", {"hybrid_override_pattern": 7}, "hybrid_override_pattern", id="a number for a word"),
    pytest.param("gemma3_text", {"layer_types": "full"}, "layer_types", id="a word for a list"),
    pytest.param("gemma3_text", {"layer_types": ["full_attention"] * 99}, "layer_types", id="a list too long"),
    pytest.param("llama4_text", {"no_rope_layers": "all"}, "no_rope_layers", id="a word for numbers"),
    pytest.param("mpt", {"d_model": 24.5}, "d_model", id="half a value"),
    pytest.param("internvl", {"downsample_ratio": True}, "downsample_ratio", id="true for a fraction"),
    pytest.param("minimax", {"layer_types": ["conv"] * 3, "num_hidden_layers": 3}, "layer_types", id="MiniMax, conv"),
    pytest.param(
        "qwen3_next", {"layer_types": ["conv"] * 3, "num_hidden_layers": 3}, "layer_types", id="Qwen3-Next, conv"
    ),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "change", "key"), WRONG)
def test_a_value_of_another_type_is_named(kind, change, key):
    """A cast in silence would count another model."""
    with pytest.raises((InvalidScenario, NotModelled, UnknownName), match=key):
        parse_config(CLASSES[kind] | change)


def test_whole_numbers_may_be_written_with_a_point():
    """4096.0 in a config written by another tool."""
    assert parse_config(LLAMA | {"hidden_size": float(LLAMA["hidden_size"])}).params == parse_config(LLAMA).params


EXPERTS = [  # class, change, what it does to the count of MoE layers
    pytest.param("llama4_text", {"moe_layers": []}, 0, id="Llama 4 without experts"),
    pytest.param("dbrx", {}, None, id="DBRX, experts in every layer"),
    pytest.param("nemotron_h", {"hybrid_override_pattern": "M*E-"}, 1, id="Nemotron 3, one layer of experts"),
    pytest.param(
        "nemotron_h", {"hybrid_override_pattern": "M*E-", "moe_latent_size": 8}, 1, id="experts in a narrower space"
    ),
    pytest.param("nemotron_h", {"hybrid_override_pattern": "**--"}, 0, id="no recurrent layer, no experts"),
]


@pytest.mark.parametrize(("kind", "change", "layers"), EXPERTS)
def test_layers_of_experts(kind, change, layers):
    """Experts counted in layers that have none, or the reverse."""
    found = parse_config(CLASSES[kind] | change)

    assert found.moe_layers == (found.layers if layers is None else layers)
    assert (found.params_routed_experts > 0) == (layers != 0)


def test_a_narrower_space_of_experts_by_hand():
    """Two matrices of hidden x latent lead in and out; experts are as wide as the latent space."""
    plain = CLASSES["nemotron_h"] | {"hybrid_override_pattern": "M*E-", "mlp_bias": False}
    hidden, width, count = plain["hidden_size"], plain["moe_intermediate_size"], plain["n_routed_experts"]
    wide, narrow = parse_config(plain), parse_config(plain | {"moe_latent_size": 8})

    assert wide.params - narrow.params == count * 2 * width * (hidden - 8) - 2 * hidden * 8


def test_no_more_experts_than_there_are():
    """A token that asks for nine of eight gets eight."""
    few = CLASSES["mixtral"] | {"num_experts_per_tok": 99}

    assert parse_config(few).experts_per_token == parse_config(few).experts
