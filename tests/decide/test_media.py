"""Media jobs on every shape of the market: which plans are legal, and answers a renter can check."""

import numpy as np
import pytest

from gpuguide.catalog.catalog import load_catalog
from gpuguide.catalog.media import media, media_training
from gpuguide.decide.fit import NO, VERDICTS, flat
from gpuguide.decide.media import estimate_media, media_pairs
from gpuguide.decide.pipeline import decide
from gpuguide.errors import InvalidScenario
from gpuguide.estimate.results import PARTS
from gpuguide.spec.scenario import Question, Scenario


def ask(**values):
    catalog = load_catalog()
    scenario = Scenario.from_mapping(values)
    model = catalog.model(scenario.model)
    filled, job = (media if scenario.is_media else media_training)(scenario, model, catalog)
    shapes = [catalog.nodes(gpu, count) for gpu in ("RTX4090", "L40S", "H100-SXM") for count in (1, 8)]
    index = {(str(nodes.gpu[0]), int(nodes.gpus[0])): place for place, nodes in enumerate(shapes)}
    table, market = catalog._market_for(filled)
    wanted = [
        next(
            place
            for place in range(len(market))
            if (market.gpu[place], market.gpus[place], market.nodes[place]) == (gpu, count, 1)
        )
        for gpu, count in index
    ]
    question = Question(
        scenario=filled, model=model, job=job, shapes=market.take(np.array(wanted)), market=table,
        assumptions=catalog.assumptions, again=catalog.resolve,
    )  # fmt: skip
    return question, estimate_media(question, model, job), index


def verdict(found, place):
    return VERDICTS[found.fit.verdict[np.flatnonzero(found.fit.shape == place)[0]]]


def test_flux_on_a_24_gb_card():
    """BF16 does not fit; FP8 or offload does; auto finds offload by itself."""
    for change, fits in (
        ({}, False),
        ({"quantization": "fp8"}, True),
        ({"offload": "all"}, True),
        ({"offload": "auto"}, True),
    ):
        _, found, index = ask(model="flux.1-dev", workload="image", **change)
        assert (verdict(found, index["RTX4090", 1]) != NO) is fits, change
        assert verdict(found, index["H100-SXM", 1]) != NO


def test_offload_only_where_it_must():
    """A large card that waits for the host link although everything fits."""
    _, found, index = ask(model="flux.1-dev", workload="image", offload="auto")
    places = {place: np.flatnonzero(found.fit.shape == place)[0] for place in index.values()}

    assert found.fit.plan.offload[places[index["RTX4090", 1]]] == 2.0
    assert found.fit.plan.offload[places[index["H100-SXM", 1]]] == 0.0


def test_copies_side_by_side():
    """Eight GPUs that make eight images take as long as one image; one image uses one GPU of them."""
    _, many, index = ask(model="sdxl", workload="image", items=8000)
    eight, one = (np.flatnonzero(many.fit.shape == index["H100-SXM", count])[0] for count in (8, 1))
    assert many.work_s[1, one] / many.work_s[1, eight] == pytest.approx(8.0)
    assert many.fit.plan.data_parallel[eight] == 8.0


def test_a_single_clip_is_shared():
    """Seven GPUs idle while one makes the only clip."""
    _, found, index = ask(model="hunyuanvideo", workload="video", items=1)
    eight = np.flatnonzero(found.fit.shape == index["H100-SXM", 8])[0]

    assert found.fit.plan.context_parallel[eight] == 8.0


def test_fine_tuning_fits_where_it_should():
    """QLoRA of FLUX on 24 GB, LoRA on 48 GB, full SDXL on one H100."""
    _, qlora, index = ask(model="flux.1-dev", workload="qlora")
    assert verdict(qlora, index["RTX4090", 1]) != NO
    _, lora, index = ask(model="flux.1-dev", workload="lora")
    assert verdict(lora, index["RTX4090", 1]) == NO
    assert verdict(lora, index["L40S", 1]) != NO
    _, full, index = ask(model="sdxl", workload="full")
    assert verdict(full, index["H100-SXM", 1]) != NO
    assert np.all(full.work_s > 0)


@pytest.mark.parametrize(
    "values",
    [
        {"model": "flux.1-dev", "workload": "image"},
        {"model": "wan2.2-ti2v-5b", "workload": "video", "offload": "auto"},
        {"model": "whisper-large-v3", "workload": "audio", "audio_seconds": 3600},
        {"model": "musicgen-small", "workload": "audio", "batch": 4},
        {"model": "stable-audio-open-1.0", "workload": "audio", "audio_seconds": 30},
        {"model": "cogvideox-5b", "workload": "lora"},
    ],
    ids=lambda values: values["model"],
)
def test_form_of_an_answer(values):
    """Axes, bands or parts that cost and ranking could not read."""
    question, found, _ = ask(**values)
    entries = len(found.fit.shape)

    assert found.work_s.shape == (3, entries)
    assert flat(found.fit.memory.total).shape == (3, entries)
    assert np.all(np.diff(found.work_s, axis=0) >= 0)
    for values_of in found.banded.values():
        assert values_of.shape == (3, entries)
        assert np.all(np.isfinite(values_of) & (values_of > 0))
    for single in found.single.values():
        assert single.shape == (entries,)
    total = sum(np.asarray(getattr(found.fit.memory, part)) for part in PARTS)
    np.testing.assert_allclose(
        flat(found.fit.memory.total), np.broadcast_to(total, (3, 1, entries)).reshape(3, entries)
    )
    assert len(found.able) == len(question.shapes)


def test_impossible_splits_are_refused():
    """A tensor-parallel image pipeline, or speech shared by GPUs."""
    for values in (
        {"model": "flux.1-dev", "workload": "image", "tensor_parallel": 2},
        {"model": "whisper-large-v3", "workload": "audio", "context_parallel": 2},
        {"model": "flux.1-dev", "workload": "lora", "recompute": "selective"},
        {"model": "flux.1-dev", "workload": "lora", "offload": "all"},
    ):
        with pytest.raises(InvalidScenario):
            ask(**values)


def test_legal_plans_use_all_gpus():
    """Copies times GPUs per clip that are not the machine's GPUs."""
    question, _, _ = ask(model="hunyuanvideo", workload="video", offload="auto")
    pairs = media_pairs(question.model, question.job, question.scenario, question.shapes)

    np.testing.assert_allclose(
        pairs.plan.data_parallel * pairs.plan.context_parallel, question.shapes.gpus[pairs.shape]
    )


FIXED = [
    pytest.param({"workload": "video", "model": "hunyuanvideo", "context_parallel": 4}, "context_parallel", id="ranks"),
    pytest.param({"workload": "image", "model": "sdxl", "data_parallel": 8}, "data_parallel", id="copies"),
    pytest.param({"workload": "full", "model": "sdxl", "zero_stage": 2}, "zero_stage", id="sharding"),
    pytest.param({"workload": "full", "model": "sdxl", "data_parallel": 8}, "data_parallel", id="replicas"),
    pytest.param({"workload": "full", "model": "sdxl", "micro_batch": 2}, "micro_batch", id="micro-batch"),
]


@pytest.mark.parametrize(("values", "field"), FIXED)
def test_what_the_reader_fixes_is_kept(values, field):
    """A plan with another degree than the one asked for would be launched wrongly."""
    _, found, _ = ask(**values)

    assert len(found.fit.shape) > 0
    assert set(np.broadcast_to(getattr(found.fit.plan, field), (len(found.fit.shape),))) == {float(values[field])}


def test_checkpoints_are_of_what_is_trained():
    """Images are kept one by one; adapters are small; all of a denoiser with its states is not."""
    catalog = load_catalog()
    paid = {
        workload: decide(catalog.resolve(Scenario(workload=workload, model="sdxl"))).best["cost_checkpoints_usd"]
        for workload in ("image", "lora", "full")
    }

    assert paid["image"] == 0.0
    assert 0.0 < paid["lora"] < paid["full"]
