"""Fine-tuning diffusion models: published peaks, what each choice saves, and laws of scaling."""

from dataclasses import replace

import numpy as np
import pytest

from gpuguide.errors import NotModelled
from gpuguide.estimate.compute import matmul_flops_per_s, memory_bytes_per_s
from gpuguide.estimate.diffusion import attention_rate, denoiser_pass
from gpuguide.estimate.media_training import (
    media_step_s,
    media_training_memory,
    saved_bytes,
    states_of,
    trained_params,
)
from gpuguide.estimate.network import all_gather_s, all_reduce_s
from gpuguide.estimate.results import PARTS
from gpuguide.spec.plan import Plan
from gpuguide.units import GIB
from tests.estimate.media_cases import TOY, catalog, clip, job, model, nodes, typical

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


# ---- every part counted by hand --------------------------------------------------------------------------------------

KNOWN = catalog().assumptions
UNET = replace(
    TOY, denoiser_type="unet", denoiser_layers=None, denoiser_hidden=None, head_dim=40.0,
    attention_flops_per_pair=16_000.0, flops_per_token=1e8, saved_bytes_per_token=4e5, traffic_bytes_per_token=4e5,
    live_bytes_per_token=2e4, kernels=700.0,
)  # fmt: skip


def test_adapters_by_hand():
    """Rank 16 on query, key, value and output of 20 layers, each 2,048 wide: two matrices of rank x width each."""
    assert trained_params(model=TOY, job=training()) == 16 * 20 * 4 * 2 * 2048
    assert trained_params(model=TOY, job=training("full")) == 2e9
    with_text = training("full", trains_text_encoder=True)
    assert trained_params(model=TOY, job=with_text) == 2.9e9


KEPT = [  # bytes an example keeps, model, job; 1024 x 1024 are 4,096 tokens
    pytest.param(23 * 2 * 20 * 2048 * 4096 * 2, TOY, training("full"), id="full: 23 x width x 4 bytes a layer"),
    pytest.param(
        23 * 2 * 20 * 2048 * (0.53 + 0.75 * 0.47) * 4096, TOY, training(), id="adapters: between frozen and full"
    ),
    pytest.param(4e5 * 16_384 * 2, UNET, training("full"), id="as traced, in 4 bytes"),
    pytest.param(4e5 * (0.53 + 0.75 * 0.47) * 16_384, UNET, training(), id="as traced, adapters"),
]


@pytest.mark.parametrize(("expected", "of", "asked"), KEPT)
def test_activations_by_hand(expected, of, asked):
    """A layer, the width of a value or the share of adapters counted otherwise."""
    patch = {"patch": 2.0} if of is TOY else {"patch": 1.0}
    still = replace(asked, width=1024.0, height=1024.0, frames=1.0)
    of = replace(of, **patch)
    wide = still.recipe.activation_bytes / 2
    saved, layer = saved_bytes(model=of, job=still, work=denoiser_pass(model=of, job=still))

    assert float(saved) == pytest.approx(expected * wide / (2 if still.method == "full" else 1))
    assert float(layer) == pytest.approx(float(saved) / (of.denoiser_layers or 12))


def test_scores_of_eager_attention_by_hand():
    """Heads of all layers x tokens squared: 16,000 FLOP a pair are 100 heads of 40."""
    still = training(width=512.0, height=512.0, frames=1.0, eager_attention=True)
    unet = replace(UNET, patch=1.0)
    work = denoiser_pass(model=unet, job=still)
    eager, eager_layer = saved_bytes(model=unet, job=still, work=work)
    fused, fused_layer = saved_bytes(model=unet, job=replace(still, eager_attention=False), work=work)
    scores = 100 * 4096**2 * still.recipe.activation_bytes

    assert float(eager - fused) == pytest.approx(scores)
    assert float(eager_layer - fused_layer) == pytest.approx(scores / 5)


def test_checkpointed_unet_keeps_a_share():
    """Inputs of its blocks are 12 % of everything they keep; one block of twelve is worked on at a time."""
    unet = replace(UNET, patch=1.0)
    still = training(width=1024.0, height=1024.0, frames=1.0, encodes_first=False)
    saved = float(saved_bytes(model=unet, job=still, work=denoiser_pass(model=unet, job=still))[0])

    def kept(plan):
        found = media_training_memory(model=unet, job=still, plan=plan, nodes=nodes(), assumptions=KNOWN)
        return typical(found.activations)

    assert kept(replace(FULL, recompute=0.0)) == pytest.approx(saved + 2 * saved / 12)
    assert kept(CHECKPOINTED) == pytest.approx(0.12 * saved + 2 * saved / 12)
    assert kept(FOUR) == pytest.approx(4 * kept(CHECKPOINTED))


STEPS = [  # passes over the forward work, plan, job
    pytest.param(3.0, FULL, training("full"), id="full: forward, and twice backward"),
    pytest.param(2.0, FULL, training(), id="adapters: no gradients of frozen weights"),
    pytest.param(4.0, CHECKPOINTED, training("full"), id="full, recomputed"),
    pytest.param(3.0, CHECKPOINTED, training(), id="adapters, recomputed"),
    pytest.param(6.0, FULL, training("full", images_per_example=2.0), id="two images an example (DreamBooth)"),
    pytest.param(24.0, replace(FULL, micro_batch=8.0), training("full", batch=8.0), id="eight examples"),
    pytest.param(3.0, replace(FULL, data_parallel=8.0), training("full", batch=8.0), id="eight examples on eight GPUs"),
]


def forward_s(asked):
    """One forward pass of one example of the toy model."""
    work, shape = denoiser_pass(model=TOY, job=asked), nodes("H100-SXM", 8)
    rate = matmul_flops_per_s(nodes=shape, precision=asked.recipe.compute_precision)
    moved = work.traffic_bytes * KNOWN["media_eager_traffic"]
    return typical(
        work.matmul_flops / (rate * KNOWN["media_matmul_share"])
        + work.attention_flops / attention_rate(rate, TOY, shape, KNOWN)
        + moved / (memory_bytes_per_s(shape, 1.0) * KNOWN["compute_memory_share"])
    )


@pytest.mark.parametrize(("passes", "plan", "asked"), STEPS)
def test_a_step_by_hand(passes, plan, asked):
    """Passes, then one reading and writing of the states, then the sum over replicas."""
    shape = nodes("H100-SXM", 8)
    states = states_of(model=TOY, job=asked, plan=plan)
    moved = states.base + 2 * states.optimizer + states.gradients
    expected = passes * forward_s(asked)
    expected += typical(moved / (memory_bytes_per_s(shape, 1.0) * KNOWN["compute_memory_share"]))
    if plan.data_parallel > 1:
        width = asked.recipe.gradient_bytes
        expected += typical(all_reduce_s(message_bytes=2e9 * width, ranks=plan.data_parallel, nodes=shape))
    found = media_step_s(model=TOY, job=asked, plan=plan, nodes=shape, assumptions=KNOWN)

    assert typical(found) == pytest.approx(expected)


def test_a_tiny_picture_waits_for_launches():
    """20 layers x 60 kernels x 25 us, forward and backward."""
    tiny = training(width=64.0, height=64.0, frames=1.0)
    states = states_of(model=TOY, job=tiny, plan=FULL)
    moved = states.base + 2 * states.optimizer + states.gradients
    bandwidth = memory_bytes_per_s(nodes(), 1.0) * KNOWN["compute_memory_share"]
    found = media_step_s(model=TOY, job=tiny, plan=FULL, nodes=nodes(), assumptions=KNOWN)

    assert typical(found) == pytest.approx(2 * 20 * 60 * 2.5e-5 + typical(moved / bandwidth))


def test_gathering_sharded_weights_by_hand():
    """ZeRO-3 gathers all weights forward, backward and once more when recomputed; half of it shows."""
    shape, asked = nodes("H100-SXM", 8), training("full", batch=8.0)
    whole = replace(FULL, data_parallel=8.0, zero_stage=2.0)
    gather = typical(all_gather_s(message_bytes=2e9 * asked.recipe.weight_bytes, ranks=8.0, nodes=shape))

    def extra_s(**change):
        split = replace(whole, zero_stage=3.0, **change)
        seconds = [
            typical(media_step_s(model=TOY, job=asked, plan=plan, nodes=shape, assumptions=KNOWN))
            for plan in (split, replace(whole, **change))
        ]
        held = [states_of(model=TOY, job=asked, plan=plan).base for plan in (split, whole)]
        bandwidth = memory_bytes_per_s(shape, 1.0) * KNOWN["compute_memory_share"]
        return seconds[0] - seconds[1] + typical((held[1] - held[0]) / bandwidth)

    assert extra_s() == pytest.approx(0.5 * 2 * gather)
    assert extra_s(recompute=2.0) == pytest.approx(0.5 * 3 * gather)


STATES = [  # bytes a parameter: weights, gradients, states with master, copies; recipe, method
    pytest.param((4, 4, 8, 2), "amp-fp32-master", "full", id="autocast over FP32"),
    pytest.param((2, 4, 12, 0), "megatron-bf16", "full", id="16-bit weights with an FP32 master"),
    pytest.param((2, 2, 4, 0), "pure-bf16", "full", id="all in 16 bit"),
]


@pytest.mark.parametrize(("widths", "recipe", "method"), STATES)
def test_states_by_hand(widths, recipe, method):
    """A master copy or 16-bit casts that are not there, or not counted."""
    asked = training(method, recipe=catalog().recipes[recipe])
    found = states_of(model=TOY, job=asked, plan=FULL)

    assert (found.base, float(found.gradients), float(found.optimizer), found.casts) == pytest.approx(
        tuple(2e9 * width for width in widths)
    )
    adapters = states_of(model=TOY, job=training("lora", recipe=catalog().recipes[recipe]), plan=FULL)
    trained = 16 * 20 * 8 * 2048
    width = training("lora").adapter_bytes
    state = catalog().recipes[recipe].state_bytes
    assert float(adapters.gradients) == pytest.approx(trained * width)
    assert float(adapters.optimizer) == pytest.approx(trained * 2 * state)
    assert adapters.casts == 0.0
    assert adapters.base == pytest.approx(trained * width + 2e9 * 2)
