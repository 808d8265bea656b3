"""Parts of a training step by hand: multiplications, small kernels, the optimizer, launches, what hides behind what."""

from dataclasses import replace

import numpy as np
import pytest

from gpuguide.estimate.compute import matmul_flops_per_s, memory_bytes_per_s, training_flops_per_token
from gpuguide.estimate.exchange import data_parallel_s, mlp_layers, split_of, sublayers, tensor_s
from gpuguide.estimate.network import link_efficiency
from gpuguide.estimate.training import training_speed
from gpuguide.spec.plan import Plan
from tests.estimate.training_cases import assumptions, job, machines, model

PLAIN = assumptions().replace(
    training_speed_rest=(1.0, 1.0, 1.0), training_speed_small_kernels=(1.0, 1.0, 1.0),
    training_speed_layer_launch_s=(0.0, 0.0, 0.0), training_speed_overlap=(0.0, 0.0, 0.0),
    training_speed_tensor_overlap=(0.25, 0.25, 0.25), compute_matmul_share=(0.5, 0.5, 0.5),
    compute_attention_share=(0.8, 0.8, 0.8),
)  # fmt: skip
ONE, EIGHT = machines(("A100-80GB-SXM", 1, 1)), machines(("A100-80GB-SXM", 8, 1))
LLAMA = model("llama-2-7b")  # 32 layers, 4,096 wide, MLP of 11,008, 32,000 words
RATE = float(matmul_flops_per_s(nodes=ONE, precision="bf16")[0])
MOVED = float(memory_bytes_per_s(ONE, PLAIN.value("compute_memory_share"))[0])


def speed(plan=None, asked=None, nodes=ONE, of=LLAMA, known=PLAIN):
    asked = asked or job(global_batch=1.0)
    return training_speed(model=of, job=asked, plan=plan or Plan(), nodes=nodes, assumptions=known)


def part(result, name):
    return float(getattr(result, name)[1, 0, 0])


MULTIPLIED = [  # passes over a block's multiplications, over attention's; plan, job
    pytest.param(3.0, 3.0, Plan(), job(global_batch=1.0), id="forward and twice backward"),
    pytest.param(3.0, 4.0, Plan(recompute=1.0), job(global_batch=1.0), id="attention again"),
    pytest.param(
        4.0 - 32 * 4096 * 11_008 / (32 * (4 * 4096**2 + 3 * 4096 * 11_008)), 4.0, Plan(recompute=2.0),
        job(global_batch=1.0), id="all again but the MLP's last product",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("passes", "attended", "plan", "asked"), MULTIPLIED)
def test_multiplications_by_hand(passes, attended, plan, asked):
    """4,096 tokens through blocks, head and causal attention, at the rates of each."""
    blocks = 2 * 32 * (4 * 4096**2 + 3 * 4096 * 11_008)
    head = 3 * 2 * 32_000 * 4096
    flops = training_flops_per_token(model=LLAMA, job=asked)
    seconds = 4096 * (passes * blocks / RATE + head / RATE + attended / 3 * flops.attention / (RATE * 0.8)) / 0.5

    assert flops.attention == pytest.approx(3 * 2 * 32 * 4096 * 4096)  # half of the pairs are masked
    assert part(speed(plan, asked), "compute_s") == pytest.approx(seconds, rel=1e-3)


def test_few_tokens_wait_for_weights():
    """16 tokens: weights of 2 bytes read in three passes, gradients of 4 bytes read and written."""
    short = job(global_batch=1.0, sequence_length=16.0)
    flops = training_flops_per_token(model=LLAMA, job=short)
    held = (2 * 3 + 2 * short.recipe.gradient_bytes) * LLAMA.params / MOVED
    rest = 16 * (flops.head / RATE + flops.attention / (RATE * 0.8))

    assert part(speed(asked=short), "compute_s") == pytest.approx((held + rest) / 0.5, rel=1e-6)
    adapters = job("pure-bf16", global_batch=1.0, sequence_length=16.0, method="lora", lora_rank=8.0)
    flops = training_flops_per_token(model=LLAMA, job=adapters)
    held = 2 * flops.block / flops.block_forward * LLAMA.params / MOVED
    rest = 16 * (flops.head / RATE + flops.attention / (RATE * 0.8))
    assert part(speed(asked=adapters), "compute_s") == pytest.approx((held + rest) / 0.5, rel=1e-6)


def test_experts_by_hand():
    """Mixtral: two of eight experts work, 2.2 times slower; all of them are read; what they do adds up."""
    mixtral, asked = model("mixtral-8x7b"), job(global_batch=1.0)
    flops = training_flops_per_token(model=mixtral, job=asked)
    routed = 2 * mixtral.params_routed_experts * 2 / 8
    held = 2 * 3 + 2 * asked.recipe.gradient_bytes
    slower = PLAIN.value("training_speed_expert_slowdown")
    seconds = 4096 * 3 * (flops.block_forward - routed) / RATE
    seconds += 4096 * 3 * routed * slower / RATE + held * mixtral.params_routed_experts / MOVED
    seconds += 4096 * (flops.head / RATE + flops.attention / (RATE * 0.8))

    assert part(speed(asked=asked, of=mixtral), "compute_s") == pytest.approx(seconds / 0.5)


def test_eager_attention_by_hand():
    """The masked half too, and 36 bytes for every score of 32 heads in 32 layers; a third more when run again."""
    for plan, again in ((Plan(), 0.0), (Plan(recompute=1.0), 1.0)):
        eager, fused = (speed(plan, job(global_batch=1.0, attention=kind)) for kind in ("eager", "fused"))
        attention = (1 + again / 3) * 3 * 2 * 32 * 4096 * 4096
        scores = 32 * 4096 * 32 * 36 * (1 + again / 3)
        more = 4096 * (2 * attention / RATE + scores / MOVED - attention / (RATE * 0.8)) / 0.5
        assert part(eager, "compute_s") - part(fused, "compute_s") == pytest.approx(more)


def test_unmasked_and_older_kernels_by_hand():
    """Kernels that compute the masked half take twice as long; ones written for Ampere reach 60 % on later cards."""
    attention = 4096 * 3 * 2 * 32 * 4096 * 4096 / (RATE * 0.8) / 0.5
    whole = part(speed(asked=job(global_batch=1.0, skips_masked=False)), "compute_s")
    assert whole - part(speed(), "compute_s") == pytest.approx(attention)
    hopper = machines(("H100-SXM", 1, 1))
    rate = float(matmul_flops_per_s(nodes=hopper, precision="bf16")[0])
    new, old = (
        part(speed(asked=job(global_batch=1.0, fused_norms=fused), nodes=hopper), "compute_s")
        for fused in (True, False)
    )
    assert old - new == pytest.approx(4096 * 3 * 2 * 32 * 4096**2 / (rate * 0.8) * (1 / 0.6 - 1) / 0.5)


def small_s(passes, scale=1.0, loss=30.0, of=LLAMA, forward=None):
    """Norms and residuals 12 values a mixer and MLP, products 6 a value of the MLP; logits."""
    forward = 12 * 64 * 4096 + 6 * 32 * 11_008 if forward is None else forward
    return 4096 * (scale * forward * passes + loss * of.vocab) / MOVED


SMALL = [  # seconds of one micro-batch, plan, job
    pytest.param(small_s(3.0), Plan(), {}, id="forward and twice backward"),
    pytest.param(small_s(3.5), Plan(recompute=1.0), {}, id="half of it again"),
    pytest.param(small_s(4.0), Plan(recompute=2.0), {}, id="all of it again"),
    pytest.param(small_s(3.0 * 0.6), Plan(), {"fused_norms": True}, id="fused norms"),
    pytest.param(small_s(3.0, loss=8.0), Plan(), {"fused_loss": True}, id="fused loss"),
]


def optimizer_s(asked, params=LLAMA.params):
    """Gradients, two states, master copy and weights, each read and written."""
    recipe = asked.recipe
    return (
        params
        * 2
        * (recipe.gradient_bytes + 2 * recipe.state_bytes + recipe.master_bytes + recipe.weight_bytes)
        / MOVED
    )


@pytest.mark.parametrize(("seconds", "plan", "changes"), SMALL)
def test_small_kernels_by_hand(seconds, plan, changes):
    """Bytes that no multiplication hides, and the optimizer's once a step."""
    asked = job(global_batch=1.0, **changes)

    assert part(speed(plan, asked), "memory_bound_s") == pytest.approx(seconds + optimizer_s(asked))


def test_the_optimizer_by_hand():
    """8-bit states move a byte each; shards are stepped side by side; on the host nothing is moved here."""
    asked = job(global_batch=8.0)
    plan = Plan(data_parallel=8.0)
    whole = part(speed(plan, asked, EIGHT), "memory_bound_s")
    sharded = part(speed(replace(plan, zero_stage=1.0), asked, EIGHT), "memory_bound_s")
    assert whole - sharded == pytest.approx(optimizer_s(asked) * 7 / 8)
    away = part(speed(Plan(offload=1.0), job(global_batch=1.0)), "memory_bound_s")
    assert away == pytest.approx(small_s(3.0))
    eight = job(global_batch=1.0, optimizer="adamw-8bit")
    less = part(speed(asked=job(global_batch=1.0)), "memory_bound_s") - part(speed(asked=eight), "memory_bound_s")
    assert less == pytest.approx(LLAMA.params * 4 * (asked.recipe.state_bytes - eight.optimizer.state_bytes) / MOVED)


def test_launches_by_hand():
    """The host issues 32 layers at 10 ms each; a recomputed forward pass is a third more."""
    slow = PLAIN.replace(training_speed_layer_launch_s=(0.01, 0.01, 0.01))
    short = job(global_batch=1.0, sequence_length=16.0)
    for plan, launches in ((Plan(), 0.32), (Plan(recompute=2.0), 0.32 * 4 / 3)):
        found = speed(plan, short, known=slow)
        busy = part(found, "compute_s") + part(found, "memory_bound_s") - optimizer_s(short)
        assert busy == pytest.approx(launches)


def test_pipeline_bubble_by_hand():
    """Seven stages wait for one micro-batch each, interleaved parts share the wait."""
    asked = job(global_batch=16.0)
    plan = Plan(pipeline_parallel=8.0)
    found = speed(plan, asked, EIGHT)
    each = (
        part(found, "compute_s") + part(found, "memory_bound_s") - optimizer_s(asked, LLAMA.params / 8)
        + part(found, "tensor_parallel_s")
    ) / 16  # fmt: skip

    assert part(found, "pipeline_bubble_s") == pytest.approx(7 * each)
    twice = speed(replace(plan, virtual_pipeline=2.0), asked, EIGHT)
    more = (part(twice, "tensor_parallel_s") - part(found, "tensor_parallel_s")) / 16
    assert part(twice, "pipeline_bubble_s") == pytest.approx(7 / 2 * (each + more))


def test_what_hides_behind_computing_by_hand():
    """A quarter of the tensor traffic; of replicas' as much as the share and the computing allow."""
    asked, plan = job(global_batch=32.0), Plan(tensor_parallel=2.0, data_parallel=4.0)
    split, link = split_of(LLAMA, asked, plan), link_efficiency(EIGHT, PLAIN)
    tensor = float((tensor_s(LLAMA, asked, plan, split, EIGHT) * 0.75 / link)[1, 0, 0])
    found = speed(plan, asked, EIGHT)
    assert part(found, "tensor_parallel_s") == pytest.approx(8 * tensor)
    _, reduced = data_parallel_s(LLAMA, asked, plan, split, EIGHT)
    sent = float((reduced / link)[1, 0, 0])
    assert part(found, "data_parallel_s") == pytest.approx(sent)
    half = PLAIN.replace(training_speed_overlap=(0.5, 0.5, 0.5))
    each = (part(found, "compute_s") + part(found, "tensor_parallel_s") + part(found, "memory_bound_s")) / 8
    each -= optimizer_s(asked, LLAMA.params / 2) / 8
    hidden = min(0.5 * sent, 0.5 * each)
    assert part(speed(plan, asked, EIGHT, known=half), "data_parallel_s") == pytest.approx(sent - hidden)
    little = PLAIN.replace(training_speed_overlap=(0.01, 0.01, 0.01))
    hidden = min(0.01 * sent, 0.01 * each)
    assert part(speed(plan, asked, EIGHT, known=little), "data_parallel_s") == pytest.approx(sent - hidden)


def test_rates_by_hand():
    """Tokens of the global batch over the step; MFU over the peak of all cards in 16 bit."""
    asked = job(global_batch=32.0)
    found = speed(Plan(data_parallel=8.0), asked, EIGHT)
    step = sum(
        part(found, name)
        for name in (
            "compute_s", "memory_bound_s", "tensor_parallel_s", "pipeline_bubble_s", "data_parallel_s",
            "expert_parallel_s", "offload_s",
        )
    )  # fmt: skip
    flops = training_flops_per_token(model=LLAMA, job=asked).total

    assert part(found, "step_s") == pytest.approx(step)
    assert part(found, "tokens_per_s") == pytest.approx(32 * 4096 / step)
    assert part(found, "mfu") == pytest.approx(32 * 4096 / step * flops / (8 * 312e12))
    longer = PLAIN.replace(training_speed_rest=(1.1, 1.1, 1.1))
    assert part(speed(Plan(data_parallel=8.0), asked, EIGHT, known=longer), "step_s") == pytest.approx(1.1 * step)


def test_unpacking_by_hand():
    """4-bit weights are read and written in 16 bit in every pass, at 30 % of the bandwidth."""
    changes = {"global_batch": 1.0, "lora_rank": 8.0, "recipe": "pure-bf16"}
    lora, qlora = (job(method=kind, quantization=form, **changes) for kind, form in (("lora", None), ("qlora", "nf4")))
    flops = training_flops_per_token(model=LLAMA, job=qlora)
    blocks = 32 * (4 * 4096**2 + 3 * 4096 * 11_008)
    moved = (qlora.quantization.bytes_per_weight + 2) * blocks * flops.block / flops.block_forward
    more = part(speed(asked=qlora), "compute_s") - part(speed(asked=lora), "compute_s")

    assert more == pytest.approx(moved / (MOVED * PLAIN.value("compute_dequantise_share")), rel=1e-3)


def test_first_band_is_the_fastest():
    """Of every constant the favourable end stands first."""
    found = speed(Plan(data_parallel=8.0, zero_stage=3.0), job(global_batch=32.0), EIGHT, known=assumptions())

    assert np.all(np.diff(found.step_s[:, 0, 0]) > 0)


def test_small_kernels_of_other_families_by_hand():
    """A plain MLP has one inner product of three; a recurrent layer moves 40 bytes for each of 1/128 of its state."""
    plain = model("gpt2-xl")
    asked = job(global_batch=1.0, sequence_length=1024.0)
    forward = 12 * 2 * plain.layers * plain.hidden + 6 * 2 / 3 * plain.layers * plain.ffn
    small = 1024 * (forward * 3 + 30 * plain.vocab) / MOVED
    assert part(speed(asked=asked, of=plain), "memory_bound_s") == pytest.approx(
        small + optimizer_s(asked, plain.params)
    )
    hybrid = model("qwen3.5-27b")
    forward = 12 * float(sublayers(hybrid)) * hybrid.hidden + 6 * float(mlp_layers(hybrid)) * hybrid.ffn
    forward += 40 * hybrid.recurrent_elements / 128
    small = 4096 * (forward * 3 + 30 * hybrid.vocab) / MOVED
    asked = job(global_batch=1.0)
    assert part(speed(asked=asked, of=hybrid), "memory_bound_s") == pytest.approx(
        small + optimizer_s(asked, hybrid.params)
    )
