"""A model from a count alone has usual proportions and says so; architecture keys change what they name, exactly."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuguide.catalog.catalog import load_catalog
from gpuguide.catalog.config import parse_config
from gpuguide.catalog.models import Models
from gpuguide.catalog.typical import typical, with_architecture_keys
from gpuguide.errors import InvalidScenario, NotModelled
from gpuguide.spec.scenario import Scenario

DATA = Path(__file__).parents[2] / "data"
MODELS = Models(DATA)


def asked(**values: object):
    return with_architecture_keys(Scenario(**values), MODELS.get, "llama-3.1-8b")


PUBLISHED = [
    pytest.param("llama-3.1-8b", 0.15, id="Llama 3.1 8B"),
    pytest.param("llama-3.1-70b", 0.15, id="Llama 3.1 70B"),
    pytest.param("llama-3.1-405b", 0.15, id="Llama 3.1 405B"),
    pytest.param("qwen3-14b", 0.15, id="Qwen3 14B"),
    pytest.param("mistral-small-24b", 0.5, id="Mistral Small 24B"),
    pytest.param("qwen2.5-72b", 0.15, id="Qwen2.5 72B"),
    pytest.param("olmo-2-13b", 0.5, id="OLMo 2 13B"),
]


@pytest.mark.parametrize(("name", "tolerance"), PUBLISHED)
def test_shape_is_like_published_ones(name, tolerance):
    """A parameter count alone would give a model that nobody would build."""
    known = MODELS.get(name)
    model = typical(known.params)
    assert model.layers == pytest.approx(known.layers, rel=tolerance)
    assert model.hidden == pytest.approx(known.hidden, rel=tolerance)


@given(st.floats(1e7, 2e13))
def test_count_is_the_one_asked_for(params):
    """The derived architecture would not have the parameters that the reader gave."""
    model = typical(params)
    assert model.params == model.params_active == params
    assert model.derived
    assert model.heads % model.kv_heads == 0
    assert min(model.layers, model.hidden, model.ffn, model.kv_heads, model.head_dim) >= 1


@given(st.floats(1e9, 1e13), st.integers(2, 512), st.integers(1, 16))
def test_experts_are_active_in_part(params, experts, top_k):
    """All experts would count as active, or none."""
    model = typical(params, experts=experts, experts_per_token=min(top_k, experts))
    assert 0 < model.params_active <= model.params
    assert model.params_routed_experts <= model.params
    assert model.is_moe


def test_dimensions_alone():
    """Dimensions of a plain decoder would be counted otherwise than its config."""
    keys = {
        "num_hidden_layers": 32, "hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32,
        "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 128_256, "tie_word_embeddings": False,
    }  # fmt: skip
    model = asked(**keys)
    assert model.params == parse_config(keys | {"model_type": "llama"}).params == 8_030_261_248
    assert model.kv_elements_full == 65_536


def test_count_with_dimensions_on_top():
    """A dimension that the reader knows would be overruled by the usual one."""
    model = asked(params_b=8, num_key_value_heads=4, vocab_size=50_000, sliding_window=1024, num_hidden_layers=40)
    assert (model.kv_heads, model.vocab, model.layers, model.kv_window) == (4, 50_000, 40, 1024)
    assert model.layers_windowed == 40
    assert model.params == 8e9


CHANGES = [
    {"num_hidden_layers": 20}, {"hidden_size": 2048}, {"intermediate_size": 8192}, {"num_key_value_heads": 4},
    {"head_dim": 64}, {"vocab_size": 32_000}, {"tie_word_embeddings": True},
    {"num_attention_heads": 16, "head_dim": 64},
]  # fmt: skip


@pytest.mark.parametrize("change", CHANGES, ids=[",".join(change) for change in CHANGES])
@pytest.mark.parametrize("file", ["llama-3.1-8b", "mixtral-8x7b", "mistral-7b"])
def test_changed_dimension_counts_as_a_changed_config(file, change):
    """A model with one dimension changed would be counted otherwise by key than by file."""
    config = json.loads((DATA / "hf_configs" / f"{file}.json").read_text())
    # The width of a head stays when the hidden size changes.
    config.setdefault("head_dim", config["hidden_size"] // config["num_attention_heads"])
    expected, found = parse_config(config | change), asked(model=file, **change)
    for name in ("params", "params_active", "kv_elements_full", "kv_elements_windowed", "layers"):
        assert getattr(found, name) == getattr(expected, name), name
    assert found.derived


def test_window_key_makes_every_layer_local():
    """The cache would go on growing although the reader gave a window."""
    model = asked(model="llama-3.1-8b", sliding_window=2048)
    assert (model.layers_full, model.layers_windowed, model.kv_window) == (0, 32, 2048)
    assert model.params == MODELS.get("llama-3.1-8b").params


def test_alternating_layers_stay_so_when_there_are_fewer():
    """Half the layers of gpt-oss are local, whatever their number."""
    model = asked(model="gpt-oss-20b", num_hidden_layers=12)
    assert (model.layers_full, model.layers_windowed, model.moe_layers) == (6, 6, 12)


def test_context_alone_changes_no_count():
    """Setting the longest context would lose the model's exact bytes."""
    model, known = asked(model="deepseek-v3", max_position_embeddings=8192), MODELS.get("deepseek-v3")
    assert (model.params, model.native_bytes, model.max_context) == (known.params, known.native_bytes, 8192)


REFUSED = [
    pytest.param({"model": "deepseek-v3", "num_hidden_layers": 10}, NotModelled, id="latent attention"),
    pytest.param({"model": "jamba", "hidden_size": 1024}, NotModelled, id="hybrid"),
    pytest.param({"model": "llama-3.1-8b", "num_local_experts": 8}, InvalidScenario, id="experts on a dense model"),
    pytest.param({"model": "llama-3.1-8b", "num_key_value_heads": 7}, InvalidScenario, id="heads not divided"),
    pytest.param({"model": "mixtral-8x7b", "num_experts_per_tok": 9}, InvalidScenario, id="too many"),
    pytest.param({"model": "flux.1-dev", "hidden_size": 64}, InvalidScenario, id="image model"),
    pytest.param({"params_b": 8, "num_local_experts": 4, "num_experts_per_tok": 8}, InvalidScenario, id="too few"),
]  # fmt: skip


@pytest.mark.parametrize(("values", "error"), REFUSED)
def test_change_that_makes_no_sense_is_refused(values, error):
    """An impossible architecture would be given a price."""
    with pytest.raises(error):
        asked(**values)


def test_default_model():
    """A scenario without a model would be refused."""
    assert asked().name == "llama-3.1-8b"


def test_heads_that_do_not_share_keys_evenly_are_refused():
    """12 heads over 5 KV heads: no model is built so."""
    with pytest.raises(InvalidScenario, match="divide the 12 attention heads"):
        load_catalog().resolve(Scenario(workload="lora", params_b=1, num_attention_heads=12, num_key_value_heads=5))
