"""The catalog as a whole."""

from datetime import date

import pytest

from gpuguide import Catalog, Scenario, load_catalog
from gpuguide.catalog import catalog as module
from gpuguide.errors import InvalidScenario, UnknownName


def test_the_age_of_prices_is_counted_from_the_day_of_the_question(monkeypatch):
    """A server that runs for weeks would call old prices fresh."""

    class Tomorrow(date):
        @classmethod
        def today(cls):
            return cls.fromordinal(date.today().toordinal() + 1)

    now = load_catalog()
    assert load_catalog() is now, "read anew for every question"
    monkeypatch.setattr(module, "date", Tomorrow)
    later = load_catalog()
    assert (later.market["age_days"] - now.market["age_days"]).dropna().eq(1).all()


REFUSED = [  # scenario, error, words; each would otherwise be a plan for a job that cannot be
    pytest.param({"workload": "full", "global_batch": 2, "micro_batch": 4}, InvalidScenario, "least the 4", id="batch"),
    pytest.param({"workload": "lora", "lora_targets": ("q", "qkv")}, InvalidScenario, "choose from", id="target"),
    pytest.param({"workload": "lora", "lora_rank": 4096}, InvalidScenario, "1024 wide", id="rank beyond the KV heads"),
    pytest.param({"prompt_tokens": 131_000, "output_tokens": 1000}, InvalidScenario, "at most 131072", id="too long"),
    pytest.param({"sequence_length": 200_000, "workload": "full"}, InvalidScenario, "at most 131072", id="sequence"),
    pytest.param({"max_context": 1000, "prompt_tokens": 900, "output_tokens": 200}, InvalidScenario, "1100", id="both"),
    pytest.param({"kv_format": "int3"}, UnknownName, "KV cache format", id="cache format"),
    pytest.param({"concurrency": 4, "requests_per_s": 2.0}, InvalidScenario, "either concurrency", id="two loads"),
    pytest.param({"workload": "image"}, InvalidScenario, "is a language model", id="a language model paints"),
    pytest.param({"model": "flux.1-dev"}, InvalidScenario, "makes image", id="a painter talks"),
    pytest.param({"params_b": 7.0}, InvalidScenario, "either a model", id="two models"),
]  # fmt: skip


@pytest.mark.parametrize(("keys", "error", "words"), REFUSED)
def test_a_job_that_cannot_be_is_one_sentence(keys, error, words):
    """Numbers that contradict each other or the model."""
    with pytest.raises(error, match=words):
        load_catalog().resolve(Scenario(**({"workload": "serve", "model": "llama-3.1-8b"} | keys)))


def test_defaults_follow_the_model():
    """Sequence, batch and context that a short model cannot have would refuse every default question."""
    catalog = load_catalog()
    short = catalog.resolve(Scenario(workload="full", model="gpt2")).scenario
    served = catalog.resolve(Scenario(workload="serve", model="gpt2", prompt_tokens=512, output_tokens=256)).scenario

    assert short.sequence_length == 1024 == served.max_context
    pretrained = catalog.resolve(Scenario(workload="pretrain", model="gpt2", micro_batch=8, data_parallel=512)).scenario
    assert pretrained.global_batch == 8 * 512


SHAPES = [
    pytest.param({"gpus_per_node": 0}, "gpus_per_node", id="no GPU"),
    pytest.param({"nodes": 2.5}, "nodes", id="half a machine"),
    pytest.param({"fabric": 400}, "fabric", id="a number for a network"),
    pytest.param({"fabric_gbps": -1.0}, "fabric_gbps", id="a rate below zero"),
    pytest.param({"bridged": "two"}, "bridged", id="words for a number"),
]


@pytest.mark.parametrize(("keys", "field"), SHAPES)
def test_an_impossible_machine_is_refused(keys, field):
    """A shape of it would give infinite or negative times."""
    with pytest.raises(InvalidScenario, match=field):
        load_catalog().nodes("H100-SXM", **keys)


@pytest.mark.parametrize("most", ["80", float("nan")])
def test_memory_to_look_for_is_a_number(most):
    """Compared with a word or with nothing, no card would be large enough."""
    with pytest.raises(InvalidScenario, match="gigabytes"):
        load_catalog().offers(min_memory_gb=most)


def test_a_catalog_of_no_folder_and_no_day_is_refused():
    """A traceback from deep inside would be all a reader sees."""
    for build in (lambda: Catalog(folder=1), lambda: Catalog(today="2026-11-30"), lambda: load_catalog(3)):
        with pytest.raises(InvalidScenario):
            build()


def test_a_provider_goes_by_the_name_that_is_shown():
    """What a page or a table shows could not be typed back."""
    asked = Scenario(workload="lora", providers=("Packet.ai", "RUNPOD"))
    assert load_catalog().resolve(asked).scenario.providers == ("packetai", "runpod")
