"""What a step costs before the batch is known, by hand: clocks, launches, bytes and products of every kind of model."""

from dataclasses import replace

import numpy as np
import pytest

from gpuguide.estimate.serving_rates import (
    achieved_bandwidth,
    achieved_flops,
    beside,
    compute_flops,
    rates,
    sm_clocks_per_s,
    smaller,
)
from tests.estimate.hand_cases import DENSE, MIX, ROUTED, TABLE, stored
from tests.estimate.serving_cases import ASSUMPTIONS, ENGINES, FORMATS, job, machines

NODES = machines(("H100-SXM", 1), ("A100-80GB-SXM", 1), ("T4", 1), ("L4", 1), ("RTX4090", 1))


def known(name):
    return ASSUMPTIONS[name].ravel()


def test_multiprocessors_times_clock():
    """64 lanes in Volta, Turing and the A100, 128 elsewhere; two operations each."""
    peaks = NODES.flops["fp32"]

    np.testing.assert_allclose(sm_clocks_per_s(NODES), peaks / np.array([256, 128, 128, 256, 256]), rtol=1e-12)
    unknown = replace(NODES, flops=dict(NODES.flops) | {"fp32": np.full(5, np.nan)})
    assert np.all(np.isinf(sm_clocks_per_s(unknown)))


def test_rate_of_memory():
    """A share by the kind of memory; portable kernels also by clocks, the two rounded where they meet."""
    hbm, gddr = known("serving_speed_bandwidth_hbm"), known("serving_speed_bandwidth_gddr")
    shares = np.stack([hbm, hbm, gddr, gddr, gddr], axis=1)
    plain = shares * NODES.memory_bandwidth_bytes_per_s
    limit = known("serving_speed_native_bytes_per_clock")[:, None] * sm_clocks_per_s(NODES)
    asked = {"nodes": NODES, "assumptions": ASSUMPTIONS}

    np.testing.assert_allclose(achieved_bandwidth(engine=ENGINES["vllm"], **asked)[:, 0], plain)
    native = achieved_bandwidth(engine=ENGINES["llama.cpp"], **asked)[:, 0]
    np.testing.assert_allclose(native, plain / (1 + (plain / limit) ** 4) ** 0.25)
    assert smaller(3.0, 4.0) == pytest.approx(3 / (1 + 0.75**4) ** 0.25)
    assert beside(3.0, 4.0) == 5.0


def test_peaks_of_each_precision():
    """What a GPU lacks is multiplied in 16 bit; T4 has no bf16, and without either half there is FP32."""
    half = np.where(np.isnan(NODES.flops["bf16"]), NODES.flops["fp16"], NODES.flops["bf16"])
    for precision, narrow in (("bf16", 2.0), ("fp8", 1.0), ("int8", 1.0), ("fp4", 0.5)):
        peak, width = compute_flops(nodes=NODES, precision=precision)
        found = np.isfinite(NODES.flops[precision]) & (narrow < 2.0)
        np.testing.assert_array_equal(width, np.where(found, narrow, 2.0))
        np.testing.assert_array_equal(peak, np.where(found, NODES.flops[precision], half))
    bare = dict(NODES.flops) | {"bf16": np.full(5, np.nan), "fp16": np.full(5, np.nan)}
    peak, width = compute_flops(nodes=replace(NODES, flops=bare), precision="bf16")
    np.testing.assert_array_equal(peak, NODES.flops["fp32"])
    four = dict(NODES.flops) | {"fp4": np.full(5, 9e15)}
    peak, width = compute_flops(nodes=replace(NODES, flops=four), precision="fp4")
    assert np.all(peak == 9e15)
    assert np.all(width == 0.5)


def test_rate_of_multiplications():
    """Peak, what was measured of it (0.8 where not, at least 0.4), what an engine reaches by width."""
    own = replace(NODES, measured_bf16_flops=NODES.flops["bf16"] * np.array([0.7, 0.3, np.nan, np.nan, 1.2]))
    reached = np.array([0.7, 0.4, 0.8, 0.8, 1.0])
    four = replace(own, flops=dict(own.flops) | {"fp4": np.full(5, 9e15)})
    half, _ = compute_flops(nodes=own, precision="bf16")
    asked = {"assumptions": ASSUMPTIONS}
    vllm = asked | {"engine": ENGINES["vllm"]}

    found = achieved_flops(nodes=own, weight_format=stored(16), **vllm)[:, 0]
    np.testing.assert_allclose(found, known("serving_speed_matmul_16bit")[:, None] * half * reached)
    narrow = stored(4, compute_precision="fp4")
    found = achieved_flops(nodes=four, weight_format=narrow, **vllm)[:, 0]
    np.testing.assert_allclose(found, known("serving_speed_matmul_4bit")[:, None] * 9e15 * reached)
    eight, width = compute_flops(nodes=own, precision="fp8")
    share = np.where(
        width == 1.0, known("serving_speed_matmul_8bit")[:, None], known("serving_speed_matmul_16bit")[:, None]
    )
    found = achieved_flops(nodes=own, weight_format=stored(8, compute_precision="fp8"), **vllm)[:, 0]
    np.testing.assert_allclose(found, share * eight * reached)

    native = asked | {"engine": ENGINES["llama.cpp"], "weight_format": stored(16)}
    tensor = known("serving_speed_native_matmul")[:, None] * half * np.array([1, 1, 1, 1, 2])
    powered = known("serving_speed_native_flops_per_joule")[:, None] * NODES.tdp_w
    np.testing.assert_allclose(achieved_flops(nodes=own, **native)[:, 0], 1 / (1 / tensor + 1 / powered))
    unpowered = replace(own, tdp_w=np.zeros(5))
    np.testing.assert_allclose(achieved_flops(nodes=unpowered, **native)[:, 0], tensor)


STEPS = [  # seconds of the host, engine, bits
    pytest.param(lambda k: k["step"] + 7 * k["layer"] + 5 * k["moe_layer"], "vllm", 16, id="server"),
    pytest.param(lambda k: k["step"] / 4 + 7 * k["layer"] + 5 * k["moe_layer"], "tensorrt-llm", 16, id="plans ahead"),
    pytest.param(lambda k: 7 * k["layer"] + 5 * k["moe_layer"], "llama.cpp", 16, id="no scheduler"),
    pytest.param(lambda k: (7 + 0.15 * 10 * 5) * k["eager_layer"], "transformers", 16, id="experts in turn"),
    pytest.param(lambda k: 2.5 * (7 + 0.15 * 10 * 5) * k["eager_layer"], "transformers", 8, id="8 bit in eager"),
    pytest.param(lambda k: (7 + 0.15 * 10 * 5) * k["eager_layer"], "transformers", 4, id="4 bit in eager"),
]


@pytest.mark.parametrize(("seconds", "engine", "bits"), STEPS)
def test_host_work_of_a_step(seconds, engine, bits):
    """Launches of seven layers, five of them with ten experts."""
    constants = {name: known(f"serving_speed_{name}_s") for name in ("step", "layer", "moe_layer", "eager_layer")}
    asked = replace(job(engine), weight_format=stored(bits))
    found = rates(model=MIX, job=asked, nodes=NODES, assumptions=ASSUMPTIONS)

    np.testing.assert_allclose(np.ravel(found.host_s), seconds(constants), rtol=1e-12)


@pytest.mark.parametrize("tied", [False, True])
def test_bytes_and_products_of_a_token(tied):
    """Blocks, head and experts; a tied table is the head as well; two of ten experts multiply, and slowly."""
    asked = replace(job(), weight_format=stored(5, keeps=False))
    model = replace(MIX, tied_embeddings=tied, params_embedding=TABLE + 1000, params_lm_head=TABLE)
    dense = DENSE + (TABLE - 1000 if tied else -1000)
    head = TABLE + 1000 if tied else TABLE
    found = rates(model=model, job=asked, nodes=NODES, assumptions=ASSUMPTIONS)

    assert found.shared_bytes == pytest.approx((dense + head) * 5 / 8)
    assert found.expert_bytes == pytest.approx(ROUTED * 5 / 8)
    assert found.shared_flops == pytest.approx(2 * (dense + head))
    np.testing.assert_allclose(np.ravel(found.expert_flops), 2 * ROUTED * 2 / 10 / known("serving_speed_expert_matmul"))


CACHES = [("vllm", "serving_speed_cache"), ("llama.cpp", "serving_speed_native_cache")]
CACHES += [("transformers", "serving_speed_eager_cache")]


@pytest.mark.parametrize(("engine", "share"), CACHES)
def test_narrow_weights_are_widened(engine, share):
    """By engines that multiply in 16 bit, where the GPU has no narrower product; the cache at its own share."""
    plain = achieved_bandwidth(nodes=NODES, engine=ENGINES[engine], assumptions=ASSUMPTIONS)
    slowed = ASSUMPTIONS["serving_speed_dequantised"] if engine != "llama.cpp" else 1.0
    for form, widened in (("bf16", False), ("awq", True), ("fp8", np.isnan(NODES.flops["fp8"]))):
        asked = replace(job(engine), weight_format=FORMATS[form])
        found = rates(model=MIX, job=asked, nodes=NODES, assumptions=ASSUMPTIONS)
        np.testing.assert_allclose(found.bandwidth, plain * np.where(widened, slowed, 1.0))
        np.testing.assert_allclose(found.cache_bandwidth, plain * ASSUMPTIONS[share])
