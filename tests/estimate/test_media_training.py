"""Fine-tuning diffusion models: published peaks, what each choice saves, and laws of scaling."""

from dataclasses import replace

import numpy as np
import pytest

from gpuguide.errors import NotModelled
from gpuguide.estimate.media_training import (
    media_step_s,
    media_training_memory,
    states_of,
    trained_params,
)
from gpuguide.estimate.results import PARTS
from gpuguide.spec.plan import Plan
from gpuguide.units import GIB
from tests.estimate.media_cases import catalog, clip, job, model, nodes, typical

FULL, CHECKPOINTED = Plan(micro_batch=1.0), Plan(micro_batch=1.0, recompute=2.0)


def training(method="lora", optimizer="adamw", **changes):
    recipe = "pure-bf16" if method == "lora" else "amp-fp32-master"
    base = clip(
        720, 480, 49, method=method, recipe=catalog().recipes[recipe], optimizer=catalog().optimizers[optimizer],
        latents_precomputed=True, encodes_first=True, lora_rank=16.0,
        foreach_optimizer=optimizer == "adamw",
    )  # fmt: skip
    return replace(base, **changes)


def memory(asked, plan=FULL, name="cogvideox-2b"):
    return media_training_memory(
        model=model(name), job=asked, plan=plan, nodes=nodes(), assumptions=catalog().assumptions
    )


FOUR = replace(CHECKPOINTED, micro_batch=4.0)
PUBLISHED = [  # GiB allocated, model, job, plan. Source: finetrainers, legacy CogVideoX training README
    pytest.param(43.8, "cogvideox-2b", training(), FULL, id="2B LoRA, all kept"),
    pytest.param(12.9, "cogvideox-2b", training(), CHECKPOINTED, id="2B LoRA, checkpointed"),
    pytest.param(21.8, "cogvideox-2b", training(), FOUR, id="2B LoRA, batch 4"),
    pytest.param(19.7, "cogvideox-5b", training(), CHECKPOINTED, id="5B LoRA, encoding first is fullest"),
    pytest.param(46.5, "cogvideox-5b", training(), FOUR, id="5B LoRA, batch 4"),
    pytest.param(33.9, "cogvideox-2b", training("full"), CHECKPOINTED, id="2B full, the step is fullest"),
    pytest.param(52.8, "cogvideox-5b", training("full", "adamw-8bit"), CHECKPOINTED, id="5B full, 8-bit states"),
    pytest.param(66.6, "cogvideox-5b", training("full", "adamw-8bit"), FOUR, id="5B full, 8-bit states, batch 4"),
]


@pytest.mark.parametrize(("gib", "name", "asked", "plan"), PUBLISHED)
def test_published_peaks(gib, name, asked, plan):
    """Estimates left the range of published runs."""
    found = memory(asked, plan, name)

    assert typical(found.total - found.reserved) / GIB == pytest.approx(gib, rel=0.12)


def test_states_of_full_training():
    """16 bytes a parameter: fp32 weights, gradients and two moments."""
    states = states_of(model=model("cogvideox-2b"), job=training("full"), plan=FULL)
    params = model("cogvideox-2b").component_params("denoiser")

    assert states.base + states.gradients + states.optimizer == pytest.approx(16 * params)


def test_adapters_of_stable_diffusion():
    """SD 1.5 at rank 4: 797,184 trained parameters. Source: diffusers LoRA documentation."""
    asked = training(lora_rank=4.0)

    assert trained_params(model=model("stable-diffusion-v1-5"), job=asked) == pytest.approx(797_184, rel=0.02)


def test_each_choice_saves():
    """Adapters, checkpointing, smaller states or sharding that free nothing."""
    full = typical(memory(training("full")).total)
    for cheaper, plan in (
        (training("lora"), FULL),
        (training("full"), CHECKPOINTED),
        (training("full"), replace(FULL, data_parallel=8.0, zero_stage=3.0)),
    ):
        assert typical(memory(cheaper, plan).total) < full
    states = [typical(memory(training("full", name), CHECKPOINTED).optimizer) for name in ("adamw", "adamw-8bit")]
    assert states[1] == pytest.approx(states[0] / 4)
    assert typical(memory(training("full"), replace(CHECKPOINTED, offload=1.0)).optimizer) == 0.0
    beside = replace(training(), latents_precomputed=False, encodes_first=False)
    assert typical(memory(beside, CHECKPOINTED).total) > typical(
        memory(replace(beside, latents_precomputed=True), CHECKPOINTED).total
    )


def test_parts_sum_to_the_total():
    """A part that is counted in the total alone, or twice."""
    found = memory(training("full"))

    np.testing.assert_allclose(found.total, sum(np.asarray(getattr(found, part)) for part in PARTS))


def test_steps_take_longer_with_more_to_do_and_less_with_more_gpus():
    """A recomputed pass for nothing, or replicas that do not share the work."""

    def step(plan, count=1, batch=8.0):
        return typical(
            media_step_s(
                model=model("cogvideox-5b"), job=training(batch=batch), plan=plan, nodes=nodes("H100-SXM", count),
                assumptions=catalog().assumptions,
            )
        )  # fmt: skip

    assert step(CHECKPOINTED) > step(FULL)
    assert step(FULL, batch=16.0) == pytest.approx(2 * step(FULL), rel=0.05)
    assert step(replace(FULL, data_parallel=8.0, zero_stage=2.0), 8) < step(FULL) / 6


def test_what_is_not_trained_here_is_refused():
    """Music models answered with formulas of diffusion; a run without a recipe."""
    with pytest.raises(NotModelled, match="only diffusion models"):
        memory(training(), name="musicgen-small")
    with pytest.raises(NotModelled, match="recipe"):
        memory(job(method="lora"), name="flux.1-dev")
