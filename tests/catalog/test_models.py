"""Names of the catalog: every spelling that can only mean one model finds it, and nothing else does."""

import json
import time
from pathlib import Path

import pytest

from gpuguide.catalog.models import Models
from gpuguide.errors import DataError, UnknownName
from gpuguide.spec.model import MediaModel, Model

DATA = Path(__file__).parents[2] / "data"


@pytest.fixture(scope="module")
def models() -> Models:
    return Models(DATA)


SPELLINGS = [
    ("llama-3.1-8b", "meta-llama/Llama-3.1-8B"),
    ("meta-llama/Llama-3.1-8B", "meta-llama/Llama-3.1-8B"),
    ("Llama_3_1 8B", "meta-llama/Llama-3.1-8B"),
    ("META-LLAMA/llama-3.1-8b-instruct", "meta-llama/Llama-3.1-8B"),
    ("someone/Llama-3.1-8B", "meta-llama/Llama-3.1-8B"),
    ("Llama-3-8B", "meta-llama/Meta-Llama-3-8B"),
    ("llama-2-7b-hf", "meta-llama/Llama-2-7b-hf"),
    ("Mixtral-8x7B", "mistralai/Mixtral-8x7B-v0.1"),
    ("mistral-7b", "mistralai/Mistral-7B-v0.1"),
    ("mistral-7b-v0.3", "mistralai/Mistral-7B-v0.3"),
    ("GPT-OSS-20B", "openai/gpt-oss-20b"),
    ("deepseek v3", "deepseek-ai/DeepSeek-V3"),
    ("qwen3-30b-a3b", "Qwen/Qwen3-30B-A3B"),
    ("llama-4-scout", "meta-llama/Llama-4-Scout-17B-16E-Instruct"),
    ("Nemotron-3-Nano", "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16"),
    ("kimi k2", "moonshotai/Kimi-K2-Instruct"),
    ("sdxl", "stabilityai/stable-diffusion-xl-base-1.0"),
    ("flux.1-dev", "black-forest-labs/FLUX.1-dev"),
]


@pytest.mark.parametrize(("spelling", "identity"), SPELLINGS)
def test_spelling_finds_its_model(models, spelling, identity):
    """A person who writes a model's usual name would be told that it does not exist."""
    assert models.get(spelling).hub_id == identity


@pytest.mark.parametrize(
    "name", ["llama", "qwen", "qwen2-57b", "llama-3.1", "gpt", "", "   ", "llama-3.1-8", "a" * 5000]
)
def test_name_of_several_or_of_none_is_refused(models, name):
    """An unclear name would silently be read as some model."""
    with pytest.raises(UnknownName):
        models.get(name)


def test_refusal_names_the_nearest(models):
    """The reader would not learn how the model is written here."""
    with pytest.raises(UnknownName) as caught:
        models.get("llama-3.1-8")
    assert "llama-3.1-8b" in caught.value.near


def test_every_id_and_short_name_finds_itself(models):
    """Two models would share a name, and one of them could not be asked for."""
    assert len(set(models.names())) == len(models.names()) == len(models.ids)
    for name, identity in zip(models.names(), models.ids, strict=True):
        assert models.get(name).hub_id == models.get(identity).hub_id == identity
        assert models.get(name).name == name


def test_every_field_is_mapped(models):
    """A count of the file would be lost or land in another field of the model."""
    for name in models.names():
        model, entry = models.get(name), models.entry(name)
        assert model.params == entry["params_total"]
        if isinstance(model, MediaModel):
            assert model.kind in ("diffusion", "audio")
            continue
        assert model.params_active == entry["params_active"]
        assert 2 * (model.kv_elements_full + model.kv_elements_windowed) == entry["kv_bytes_per_token_bf16"]
        assert 2 * model.kv_elements_full == entry["kv_bytes_per_token_bf16_beyond_window"]
        assert model.native_bytes == entry["weight_bytes_native"]
        if model.is_moe:
            expected = model.params_routed_experts * model.experts_per_token / model.experts
            assert model.params_active == pytest.approx(model.params - model.params_routed_experts + expected, abs=1)


def test_expert_layers_make_up_the_routed_parameters(models):
    """Dense first layers or interleaved experts would be counted as expert layers."""
    for name in models.names():
        model = models.get(name)
        if isinstance(model, Model) and model.is_moe:
            matrices = 3 if model.gated_mlp else 2
            width = models.entry(name)["moe"].get("expert_width", model.hidden)
            weights = matrices * width * model.moe_ffn * model.experts * model.moe_layers
            assert model.params_routed_experts == pytest.approx(weights, rel=1e-3), name  # gpt-oss has biases


def test_loading_is_fast():
    """Each start of the command line would be late by the time to build every model."""
    began = time.perf_counter()
    Models(DATA)
    assert time.perf_counter() - began < 0.2  # about 8 ms alone; the machine may be busy


def test_broken_file_is_a_sentence(tmp_path):
    """A damaged data folder would end in a traceback."""
    (tmp_path / "models.json").write_text(json.dumps([])[:-1])
    with pytest.raises(DataError, match=r"models\.json: cannot be read"):
        Models(tmp_path)
