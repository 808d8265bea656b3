"""Fine-tuning the toy model: states under every sharding, each moment, and what stands beside, in plain numbers."""

from dataclasses import replace

import numpy as np
import pytest

from gpuguide.errors import NotModelled
from gpuguide.estimate.diffusion import denoiser_pass
from gpuguide.estimate.media_training import media_step_s, media_training_memory, saved_bytes, states_of, trained_params
from gpuguide.estimate.results import PHASES
from gpuguide.spec.plan import Plan
from tests.estimate.hand_cases import stored
from tests.estimate.media_cases import TOY, catalog, job, nodes

KNOWN = catalog().assumptions.typical()
RECIPES, OPTIMIZERS = catalog().recipes, catalog().optimizers
TRAINED = 2e9
ADAPTED = 16 * 20 * 8 * 2048.0


def asked(method="full", recipe="pure-bf16", optimizer="adamw", **changes):
    values = {
        "method": method, "recipe": RECIPES[recipe], "optimizer": OPTIMIZERS[optimizer], "lora_rank": 16.0,
        "adapter_bytes": 4.0, "foreach_optimizer": True, "latents_precomputed": True, "width": 512.0, "height": 512.0,
    }  # fmt: skip
    return job(**(values | changes))


def known(name):
    return float(np.ravel(KNOWN[name])[0])


def one(value):
    return float(np.ravel(value)[0])


def found(own, plan, model=TOY):
    states = states_of(model=model, job=own, plan=plan)
    return [one(getattr(states, part)) for part in ("base", "gradients", "optimizer", "step", "casts", "trained")]


SHARDED = [  # GPUs that share weights, gradients, states
    pytest.param(1, 1, 1, 0.0, id="plain"),
    pytest.param(1, 1, 8, 1.0, id="states"),
    pytest.param(1, 8, 8, 2.0, id="gradients"),
    pytest.param(8, 8, 8, 3.0, id="weights"),
]


@pytest.mark.parametrize(("weights", "gradients", "states", "stage"), SHARDED)
def test_states_under_sharding(weights, gradients, states, stage):
    """Each ZeRO stage divides one kind of state more; an average in FP32 is whole on every GPU."""
    plan = Plan(data_parallel=8.0, zero_stage=stage)
    full = found(asked("full", "megatron-bf16"), plan)
    assert full == pytest.approx(
        [2 * TRAINED / weights, 4 * TRAINED / gradients, 12 * TRAINED / states, 4 * TRAINED / states, 0, TRAINED]
    )
    averaged = found(asked("full", "megatron-bf16", keeps_average=True), plan)
    assert averaged[0] - full[0] == pytest.approx(4 * TRAINED)
    few = found(asked("lora", "amp-fp32-master"), plan)
    base = (4 * ADAPTED + 2 * TRAINED) / weights
    assert few == pytest.approx([base, 4 * ADAPTED / gradients, 8 * ADAPTED / states, 4 * ADAPTED / states, 0, ADAPTED])


@pytest.mark.parametrize("place", [1.0, 2.0])
def test_states_on_the_host(place):
    """No states nor step on the GPU, half of the gradients."""
    away = found(asked("full", "amp-fp32-master"), Plan(offload=place, data_parallel=2.0, zero_stage=2.0))
    assert away == pytest.approx([4 * TRAINED, 4 * TRAINED / 2 / 2, 0, 0, 2 * TRAINED, TRAINED])


def test_optimizers_and_bases():
    """8-bit states need no copy, nor do optimizers without any; a quantised base is as narrow as its format."""
    plan = Plan()
    assert found(asked(optimizer="adamw-8bit"), plan)[2:4] == [2 * TRAINED, 0]
    assert found(asked(optimizer="sgd"), plan)[2:4] == [0, 0]
    assert found(asked(optimizer="adafactor"), plan)[2:4] == [0, 0]
    assert found(asked(foreach_optimizer=False), plan)[3] == 0
    assert found(asked("lora", quantization=stored(5)), plan)[0] == pytest.approx(4 * ADAPTED + TRAINED * 5 / 8)
    assert found(asked("lora", recipe="fp32"), plan)[0] == pytest.approx(4 * ADAPTED + 4 * TRAINED)
    unet = replace(TOY, denoiser_layers=None, denoiser_hidden=None, denoiser_type="unet")
    assert trained_params(model=unet, job=asked("lora")) == pytest.approx(16 * 2.3e-4 * TRAINED)
    for missing in ({"recipe": None}, {"optimizer": None}):
        with pytest.raises(NotModelled, match="recipe"):
            states_of(model=TOY, job=replace(asked(), **missing), plan=plan)


BESIDE = [  # bytes beside the denoiser while training, more while encoding; job
    pytest.param(0, 0, {}, id="latents computed before"),
    pytest.param(2e9, 0, {"latents_precomputed": False}, id="encoder and VAE in 16 bit"),
    pytest.param(2e8, 0, {"latents_precomputed": False, "encoders_resident": False}, id="VAE alone"),
    pytest.param(0, 2e9, {"encodes_first": True}, id="encoded first"),
]


@pytest.mark.parametrize(("beside", "encoding", "changes"), BESIDE)
@pytest.mark.parametrize(
    ("moment", "plan", "more"),
    [
        pytest.param("forward", Plan(micro_batch=64.0), {}, id="activations"),
        pytest.param("forward", Plan(micro_batch=64.0, recompute=2.0), {"images_per_example": 2.0}, id="layer inputs"),
        pytest.param("forward", Plan(micro_batch=48.0), {"method": "lora"}, id="adapters"),
        pytest.param("step", Plan(micro_batch=2.0), {}, id="the optimizer"),
        pytest.param("backward", Plan(micro_batch=8.0, recompute=2.0), {"foreach_optimizer": False}, id="gradients"),
        pytest.param("step", Plan(recompute=2.0), {"recipe": "amp-fp32-master"}, id="FP32 states"),
        pytest.param("forward", Plan(micro_batch=96.0, recompute=2.0), {"recipe": "amp-fp32-master"}, id="and casts"),
    ],
)
def test_each_moment(beside, encoding, changes, moment, plan, more):
    """Standing weights a little larger than counted; the allocator keeps a share of all; context on top."""
    own = asked(**({"method": "full"} | changes | more))
    base, gradients, optimizer, step, casts, _ = found(own, plan)
    work = denoiser_pass(model=TOY, job=own)
    saved, layer = (one(part) for part in saved_bytes(model=TOY, job=own, work=work))
    examples, factor = plan.micro_batch * own.images_per_example, known("media_training_activations")
    whole = plan.recompute == 2
    kept = examples * (20 * 1024 * 2048 * 2 if whole else saved) * factor
    inside = 2 * examples * layer * factor
    weights = known("media_memory_weights") * (base + beside)
    every = {
        "load": (known("media_memory_weights") * (base + beside + encoding), 0, 0, 0, 0),
        "forward": (weights, 0, optimizer, kept + inside, casts / 20 if whole else casts),
        "backward": (weights, gradients, optimizer, inside / 4, 0),
        "step": (weights, gradients, optimizer, 0, step),
    }
    fullest = max(every, key=lambda name: sum(every[name]))
    memory = media_training_memory(model=TOY, job=own, plan=plan, nodes=nodes(), assumptions=KNOWN)
    parts = ("weights", "gradients", "optimizer", "activations", "buffers")
    reserve = known("media_memory_context_bytes") + known("media_training_allocator") * sum(every[fullest])

    assert [one(getattr(memory, part)) for part in parts] == pytest.approx(list(every[fullest]), rel=1e-12)
    assert one(memory.reserved) == pytest.approx(reserve, rel=1e-12)
    assert PHASES[int(one(memory.phase))] == fullest
    assert fullest == moment


def test_text_beside_latents():
    """Text tokens in one sequence with the latents keep activations too, and their scores."""
    joint = replace(TOY, joint_text_tokens=100.0, attention_flops_per_pair=4.0 * 64 * 30, head_dim=None)
    own = asked(eager_attention=True)
    work = denoiser_pass(model=joint, job=own)
    saved, layer = saved_bytes(model=joint, job=own, work=work)
    per_token = 23 * 2 * 20 * 2048
    scores = 30 * 1124**2 * 2

    assert one(saved) == pytest.approx(per_token * 1124 + scores)
    assert one(layer) == pytest.approx(per_token * 1124 / 20 + scores / 20)


@pytest.mark.parametrize("gpus", [1.0, 2.0, 8.0])
def test_rounds_of_a_step(gpus):
    """A step of tiny pictures waits for launches of each round: 24 examples in threes over one, two or eight GPUs."""
    shape = nodes("H100-SXM", 8)
    tiny = asked("full", batch=24.0, width=32.0, height=32.0)
    plan = Plan(micro_batch=3.0, data_parallel=gpus)
    seconds = one(media_step_s(model=TOY, job=tiny, plan=plan, nodes=shape, assumptions=KNOWN))
    single = one(
        media_step_s(model=TOY, job=tiny, plan=replace(plan, micro_batch=100.0), nodes=shape, assumptions=KNOWN)
    )
    launches = 3 * 20 * 60 * known("media_kernel_s")

    assert seconds - single == pytest.approx((24 / 3 / gpus - 1) * launches, abs=1e-9)
