"""A decode step: experts touched, achieved bandwidth, links, and what must hold between batch, plan and time."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuguide.estimate.decode import busiest_rank, cache_bytes, decode_step, experts_touched
from gpuguide.estimate.network import SMALLEST_MESSAGE_BYTES, all_reduce_s, all_to_all_s, link_efficiency, send_s
from gpuguide.estimate.serving_links import reduce_of, reduce_on, split_work
from gpuguide.estimate.serving_rates import (
    Rates,
    achieved_bandwidth,
    achieved_flops,
    compute_flops,
    engine_class,
    rates,
    sm_clocks_per_s,
)
from gpuguide.spec.plan import Plan
from gpuguide.units import GB, TFLOP
from tests.estimate.serving_cases import ASSUMPTIONS, ENGINES, FORMATS, MODELS, job, machines, plans, question, typical

PARTS = ("overhead_s", "weights_s", "compute_s", "cache_s", "tensor_parallel_s", "expert_parallel_s")


def step(running, model="llama-3.1-8b", asked=None, plan=None, nodes=None, context=1024.0):
    asked_for = question(model, asked or job(), plan, nodes)
    known = rates(**{key: asked_for[key] for key in ("model", "job", "nodes", "assumptions")})
    reduce = reduce_of(**{key: asked_for[key] for key in ("job", "plan", "nodes", "assumptions")})
    return decode_step(running=running, context=context, known=known, reduce=reduce, **asked_for)


@pytest.mark.parametrize(
    ("expected", "experts", "per_token", "tokens"),
    [
        pytest.param(0.25, 8, 2, 1, id="Mixtral, one token: its own two of eight"),
        pytest.param(0.4375, 8, 2, 2, id="Mixtral, two tokens: 1 - 0.75^2"),
        pytest.param(0.6379, 256, 8, 32, id="DeepSeek-V3, 32 tokens: 1 - (1 - 8/256)^32"),
        pytest.param(1.0, 256, 8, 4096, id="DeepSeek-V3, a large batch: all"),
        pytest.param(0.0, 0, 0, 32, id="dense"),
    ],
)
def test_experts_touched(expected, experts, per_token, tokens):
    """Counting active parameters for every token, or all experts always, would show here."""
    assert float(experts_touched(experts=experts, experts_per_token=per_token, tokens=tokens)) == pytest.approx(
        expected, abs=1e-4
    )


def test_busiest_rank_of_experts():
    """One rank has no busiest; with many tokens ranks even out."""
    assert float(busiest_rank(tokens=64, experts_per_token=8, ranks=1)) == 1.0
    assert float(busiest_rank(tokens=8, experts_per_token=8, ranks=8)) == pytest.approx(1.72, abs=0.01)
    assert float(busiest_rank(tokens=1e6, experts_per_token=8, ranks=8)) < 1.01


@pytest.mark.parametrize(
    ("clocks", "gpu"),
    [
        pytest.param(108 * 1.41e9, "A100-80GB-SXM", id="A100: 108 multiprocessors at 1.41 GHz, data sheet"),
        pytest.param(128 * 2.52e9, "RTX4090", id="RTX 4090: 128 at 2.52 GHz, data sheet"),
        pytest.param(84 * 1.80e9, "RTX-A6000", id="RTX A6000: 84 at 1.80 GHz, data sheet"),
    ],
)
def test_multiprocessor_clocks(clocks, gpu):
    """Lanes per multiprocessor differ by architecture; a slip is a factor of two."""
    assert sm_clocks_per_s(machines((gpu, 1)))[0] == pytest.approx(clocks, rel=0.02)


@pytest.mark.parametrize(
    ("expected", "tolerance", "engine", "gpu"),
    [
        pytest.param(2900, 0.05, "vllm", "H100-SXM", id="H100 SXM, single-token products, aiconfigurator"),
        pytest.param(4080, 0.05, "vllm", "H200-SXM", id="H200, single-token products, aiconfigurator"),
        pytest.param(877, 0.06, "llama.cpp", "RTX4090", id="llama.cpp 8B F16, 2.5 ms of overhead, XiongjieDai"),
        pytest.param(920, 0.15, "llama.cpp", "A100-80GB-SXM", id="llama.cpp 8B F16 on A100: half the data sheet"),
        pytest.param(1220, 0.15, "llama.cpp", "H100-PCIe", id="llama.cpp 8B F16 on H100 PCIe"),
    ],
)
def test_achieved_bandwidth(expected, tolerance, engine, gpu):
    """A pure share of the data sheet overstates HBM cards under portable kernels by up to two."""
    found = achieved_bandwidth(nodes=machines((gpu, 1)), engine=ENGINES[engine], assumptions=ASSUMPTIONS)

    assert typical(found) / GB == pytest.approx(expected, rel=tolerance)


def test_precision_a_gpu_lacks_is_widened():
    """FP8 on A100 computes in 16 bit; NVFP4 on Hopper too; on Blackwell at its own rate."""
    nodes = machines(("A100-80GB-SXM", 1), ("H100-SXM", 1), ("B200", 1))
    fp8, fp8_width = compute_flops(nodes=nodes, precision="fp8")
    fp4, fp4_width = compute_flops(nodes=nodes, precision="fp4")

    assert fp8 / TFLOP == pytest.approx([312, 1979, 4500])
    assert list(fp8_width) == [2.0, 1.0, 1.0]
    assert fp4 / TFLOP == pytest.approx([312, 989, 9000])
    assert list(fp4_width) == [2.0, 2.0, 0.5]


def test_arithmetic_stays_below_the_peak():
    """An efficiency above one would beat physics in the fastest band."""
    nodes = machines(("A100-80GB-SXM", 1), ("H100-SXM", 1), ("B200", 1), ("L40S", 1), ("RTX4090", 1))
    for form in ("bf16", "fp8", "nvfp4", "awq"):
        peak, _ = compute_flops(nodes=nodes, precision=FORMATS[form].compute_precision)
        found = achieved_flops(
            nodes=nodes, weight_format=FORMATS[form], engine=ENGINES["vllm"], assumptions=ASSUMPTIONS
        )
        assert np.all(found <= peak)


def test_engine_classes():
    """Graphs decide between eager and compiled; unknown families count as compiled."""
    found = {name: engine_class(ENGINES[name]) for name in ("vllm", "llama.cpp", "transformers", "gpt-fast")}
    expected = {"vllm": "server", "llama.cpp": "native", "transformers": "eager", "gpt-fast": "compiled"}
    assert found == expected


def test_parts_sum_to_the_step():
    """A part left out of the total, or counted twice, would show here."""
    found = step(
        64.0, "deepseek-v3", job(form="fp8", concurrency=64.0), Plan(tensor_parallel=8), machines(("H200-SXM", 8))
    )
    assert np.allclose(found.total, sum(getattr(found, part) for part in PARTS))


@pytest.mark.parametrize("gpu", ["L40S", "RTXPRO6000-Server", "RTX4090", "RTX-A6000", "A100-80GB-PCIe", "H100-PCIe"])
@pytest.mark.parametrize("running", [1.0, 32.0, 512.0])
def test_eight_gpus_over_pcie_gain_little_over_four(gpu, running):
    """Measured -4 % to +31 % on L40S with TensorRT-LLM 0.17; a promise of twice the speed misled buyers."""
    found = step(running, "llama-3.1-70b", job(form="fp8"), plans((4, 1, 1), (8, 1, 1)), machines((gpu, 8)))
    four, eight = np.asarray(found.total)[:, 0, 0], np.asarray(found.total)[:, 1, 0]
    assert np.all(four / eight <= 1.35)


def test_work_divides_by_ranks_over_a_fast_link():
    """Only PCIe groups of more than four divide their work by less."""
    nodes = machines(("H100-SXM", 8), ("L40S", 8))
    split = np.broadcast_to(split_work(ranks=np.array([[4.0], [8.0]]), nodes=nodes), (2, 2))
    assert split[:, 0] == pytest.approx([4.0, 8.0])
    assert split[:, 1] == pytest.approx([4.0, 5.24], abs=0.01)


@pytest.mark.parametrize(
    ("expected", "model", "tokens", "tensor"),
    [
        pytest.param(131_072, "llama-3.1-8b", 1, 1, id="Llama 3.1 8B, one token"),
        pytest.param(16_384, "llama-3.1-8b", 1, 16, id="more ranks than KV heads: one head each"),
        pytest.param(70_272, "deepseek-v3", 1, 8, id="latent cache: whole on every rank"),
    ],
)
def test_cache_read(expected, model, tokens, tensor):
    """A latent cache divided by ranks, or heads below one, would read too little."""
    assert cache_bytes(model=MODELS.get(model), tokens=tokens, job=job(), tensor_parallel=tensor) == expected


@given(
    first=st.floats(1, 400),
    more=st.floats(1, 4),
    context=st.floats(16, 30_000),
    model=st.sampled_from(["llama-3.1-8b", "mixtral-8x7b"]),
)
def test_more_requests_take_no_less_time(first, more, context, model):
    """A step of more requests reads and computes more; it takes less than proportionally longer."""
    once = np.asarray(step(first, model, context=context).total)
    twice = np.asarray(step(first * more, model, context=context).total)
    assert np.all(twice >= once * (1 - 1e-9))
    assert np.all(twice <= once * more * (1 + 1e-9))


def test_plans_and_shapes_at_once_are_one_by_one():
    """The same formula serves a slider and a search: an axis mixed up would show here."""
    shapes = [("H100-SXM", 8), ("L40S", 8), ("B200", 8)]
    degrees = [(1, 1, 1), (2, 1, 4), (8, 1, 1), (4, 2, 1)]
    together = np.asarray(step(32.0, "llama-3.1-70b", job(form="fp8"), plans(*degrees), machines(*shapes)).total)
    for row, degree in enumerate(degrees):
        for column, shape in enumerate(shapes):
            alone = np.asarray(step(32.0, "llama-3.1-70b", job(form="fp8"), plans(degree), machines(shape)).total)
            assert alone[:, 0, 0] == pytest.approx(together[:, row, column])


def test_layers_split_over_cards_add_room_not_speed():
    """llama.cpp on 1 to 8 RTX 4090: 54.3, 53.3, 52.7, 52.1 tokens/s for 8B F16 (XiongjieDai)."""
    asked = job("llama.cpp-2024", "fp16")
    found = step(1.0, "llama-3-8b", asked, plans((1, 1, 1), (1, 8, 1)), machines(("RTX4090", 8)), context=512.0)
    one, eight = np.asarray(found.total)[1, :, 0]
    assert 1 / one == pytest.approx(54.3, rel=0.1)
    assert eight / one == pytest.approx(1.04, abs=0.05)


def test_speculation_pays_at_small_batches_only():
    """Drafts ride along while memory binds; at a large batch they cost arithmetic."""
    plain, drafting = job(form="fp8"), job(form="fp8", speculative_tokens=1.5)

    def per_token(asked, running, context):
        return np.asarray(step(running, asked=asked, context=context).total)[1] / (1 + asked.speculative_tokens)

    assert per_token(drafting, 1.0, 1024.0) < 0.6 * per_token(plain, 1.0, 1024.0)
    assert per_token(drafting, 2000.0, 64.0) > 0.9 * per_token(plain, 2000.0, 64.0)


# ---- every part counted by hand --------------------------------------------------------------------------------------

ROUND = Rates(  # 10 GB shared and 40 GB of experts at 1 TB/s, cache at half of that, 100 TFLOP/s
    bandwidth=np.float64(1e12), cache_bandwidth=np.float64(5e11), flops=np.float64(1e14), shared_bytes=1e10,
    expert_bytes=4e10, shared_flops=1e10, expert_flops=2e9, host_s=3e-3,
)  # fmt: skip


def step_by_hand(model, running, plan=None, asked=None, nodes=None, reduce=None):
    asked_for = question(model, asked or job(), plan, nodes)
    return decode_step(running=running, context=1000.0, known=ROUND, reduce=reduce, **asked_for)


def test_a_dense_step_by_hand():
    """100 requests: 10 ms of reading beside 10 ms of arithmetic; 100 caches of 1,000 tokens of 131,072 bytes."""
    found = step_by_hand("llama-3.1-8b", 100.0)

    assert float(found.weights_s) == 1e-2
    assert float(found.weights_s + found.compute_s) == pytest.approx(np.hypot(1e-2, 100 * 1e10 / 1e14))
    assert float(found.cache_s) == pytest.approx(100 * 1000 * 131_072 / 5e11)
    assert float(found.overhead_s) == 3e-3
    parts = sum(getattr(found, part) for part in PARTS)
    assert float(found.total) == pytest.approx(float(parts))


def test_tensor_ranks_by_hand():
    """Two ranks halve reading, arithmetic and cache, and reduce twice a layer."""
    plan, nodes = Plan(tensor_parallel=2.0), machines(("H100-SXM", 8))
    reduce = reduce_of(job=job(), plan=plan, nodes=nodes, assumptions=ASSUMPTIONS)
    one, two = step_by_hand("llama-3.1-8b", 64.0), step_by_hand("llama-3.1-8b", 64.0, plan, nodes=nodes, reduce=reduce)

    assert float(two.weights_s) == float(one.weights_s) / 2
    assert float(two.compute_s) == pytest.approx(float(one.compute_s) / 2)
    assert float(two.cache_s) == pytest.approx(float(one.cache_s) / 2)
    assert typical(two.tensor_parallel_s) == pytest.approx(2 * 32 * typical(reduce.seconds(64 * 4096 * 2.0)))


def test_stages_by_hand():
    """Each of four stages has a quarter of the requests; three hand over their states."""
    nodes = machines(("H100-SXM", 8))
    one = step_by_hand("llama-3.1-8b", 16.0)
    four = step_by_hand("llama-3.1-8b", 64.0, Plan(pipeline_parallel=4.0), nodes=nodes)
    hand_over = send_s(message_bytes=16 * 4096 * 2.0, nodes=nodes, assumptions=ASSUMPTIONS)

    assert float(four.cache_s) == float(one.cache_s)
    assert float(four.compute_s) == float(one.compute_s)
    assert typical(four.overhead_s) == pytest.approx(3e-3 + 3 * typical(hand_over))


def test_experts_by_hand():
    """Mixtral, 4 tokens: 1 - 0.75^4 of the experts are read; each token works through its own two."""
    found = step_by_hand("mixtral-8x7b", 4.0)
    read = (1e10 + 4e10 * (1 - 0.75**4)) / 1e12

    assert float(found.weights_s) == pytest.approx(read)
    assert float(found.weights_s + found.compute_s) == pytest.approx(np.hypot(read, 4 * (1e10 + 2e9) / 1e14))


def test_shared_experts_by_hand():
    """Attention data parallel on 8 ranks: each decodes an eighth, experts are dealt over all, tokens sent and back."""
    plan, nodes = Plan(tensor_parallel=8.0, expert_parallel=8.0), machines(("H200-SXM", 8))
    asked = job("sglang", attention_data_parallel=True)
    found = step_by_hand("mixtral-8x7b", 64.0, plan, asked, nodes)
    busiest = float(busiest_rank(tokens=64.0, experts_per_token=2.0, ranks=8.0))
    touched = 1 - 0.75**64
    hop = all_to_all_s(message_bytes=8 * 4096 * 2.0 * 2, ranks=np.float64(8.0), nodes=nodes, assumptions=ASSUMPTIONS)

    assert typical(found.weights_s) == pytest.approx((1e10 + 4e10 * min(touched * busiest, 1.0) / 8) / 1e12)
    assert typical(found.expert_parallel_s) == pytest.approx(2 * 32 * typical(hop))
    flops = 8 * 1e10 + 2e9 * 64 * busiest / 8
    assert typical(found.weights_s + found.compute_s) == pytest.approx(np.hypot(typical(found.weights_s), flops / 1e14))
    assert typical(found.cache_s) == pytest.approx(8 * 1000 * 131_072 / 5e11)


def test_drafted_tokens_by_hand():
    """1.4 accepted of 2 drafted: three tokens a request through the model, 5 % of a step for each draft."""
    plain, drafted = (
        step_by_hand("llama-3.1-8b", 10.0),
        step_by_hand("llama-3.1-8b", 10.0, asked=job(speculative_tokens=1.4)),
    )
    work = np.hypot(1e-2, 10 * 3 * 1e10 / 1e14)

    assert float(drafted.weights_s + drafted.compute_s) == pytest.approx(work)
    assert float(drafted.cache_s) == float(plain.cache_s)
    assert float(drafted.overhead_s) == pytest.approx(3e-3 + 0.05 * 2 * (work + 3e-3))


def test_eager_launches_hide_behind_work():
    """The host launches ahead: 3 ms of launches are seen where the work takes less."""
    eager = next(name for name, engine in ENGINES.items() if engine_class(engine) == "eager")
    slow = replace(ROUND, host_s=30e-3)
    asked_for = question("llama-3.1-8b", job(eager))
    hidden = decode_step(running=1.0, context=1000.0, known=ROUND, reduce=None, **asked_for)
    seen = decode_step(running=1.0, context=1000.0, known=slow, reduce=None, **asked_for)

    assert float(hidden.overhead_s) == 0.0
    assert float(seen.total) == pytest.approx(30e-3)


def test_busiest_rank_by_hand():
    """64 tokens x 2 over 8 ranks are 16 each: 1 + sqrt(2 ln 8 / 16); no more than all of the work."""
    assert float(busiest_rank(tokens=64, experts_per_token=2, ranks=8)) == pytest.approx(
        1 + np.sqrt(2 * np.log(8) / 16)
    )
    assert float(busiest_rank(tokens=1e-3, experts_per_token=1, ranks=4)) == 4.0


def test_cache_of_a_rank_by_hand():
    """8 KV heads over 3 ranks: one holds three of them."""
    whole = 1000 * 2 * 32 * 8 * 128 * 2
    found = [
        cache_bytes(model=MODELS.get("llama-3.1-8b"), tokens=1000.0, job=job(), tensor_parallel=ranks)
        for ranks in (1.0, 2.0, 3.0, 16.0)
    ]

    assert [float(size) for size in found] == pytest.approx([whole, whole / 2, whole * 3 / 8, whole / 8])


def test_fewer_requests_than_stages():
    """Two requests over four stages: a stage works for one at a time, not for half of one."""
    found = step_by_hand("llama-3.1-8b", 2.0, Plan(pipeline_parallel=4.0), nodes=machines(("H100-SXM", 8)))

    assert float(found.cache_s) == pytest.approx(1000 * 131_072 / 5e11)


def test_eight_ranks_over_pcie_by_hand():
    """Beyond four, twice the ranks divide the work by 1.31; the cache of a rank is an eighth all the same."""
    plan, nodes = Plan(tensor_parallel=8.0), machines(("L40S", 8))
    found = step_by_hand("llama-3.1-8b", 10.0, plan, nodes=nodes)
    split = 4 * 2**0.39

    assert typical(found.weights_s) == pytest.approx(1e-2 / split)
    assert typical(found.cache_s) == pytest.approx(10 * 1000 * 131_072 / 8 * (8 / split) / 5e11)


def test_all_reduce_of_an_engine_by_hand():
    """Over NVLink a share of the library's start-up is saved; over PCIe none, and the ring is as fast as its links."""
    share = ASSUMPTIONS["serving_speed_reduce_start"]
    for gpu in ("H100-SXM", "L40S"):
        nodes = machines((gpu, 8))
        reduce = reduce_on(ranks=np.float64(4.0), nodes=nodes, assumptions=ASSUMPTIONS)
        start = all_reduce_s(message_bytes=SMALLEST_MESSAGE_BYTES, ranks=np.float64(4.0), nodes=nodes)
        library = all_reduce_s(message_bytes=1e8, ranks=np.float64(4.0), nodes=nodes)
        link = link_efficiency(nodes, ASSUMPTIONS)
        if gpu == "L40S":
            ring = start + 2 * (1 - 1 / 4) * 1e8 / (0.45 * nodes.pcie_bytes_per_s)
            expected = np.minimum(library, ring) / link
        else:
            expected = (library - (1 - share) * start) / link
        assert typical(reduce.seconds(1e8)) == pytest.approx(typical(expected))


@pytest.mark.parametrize(
    ("form", "gpu", "widened"),
    [("fp8", "H100-SXM", False), ("fp8", "A100-80GB-SXM", True), ("bf16", "L4", False), ("awq", "H100-SXM", True)],
)
def test_narrow_weights_are_widened_where_the_card_cannot_multiply_them(form, gpu, widened):
    """A100 has no FP8; 4-bit weights are multiplied in 16 bit everywhere."""
    asked = {"model": MODELS.get("llama-3.1-8b"), "nodes": machines((gpu, 1)), "assumptions": ASSUMPTIONS}
    known = rates(job=job(form=form), **asked)
    plain = achieved_bandwidth(nodes=asked["nodes"], engine=ENGINES["vllm"], assumptions=ASSUMPTIONS)
    share = ASSUMPTIONS["serving_speed_dequantised"] if widened else 1.0

    np.testing.assert_allclose(known.bandwidth, plain * share)
