"""Serving memory against engines' own logs: activation peak, cache room, limits, and the two inverses."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuguide.catalog.formats import assumptions_from_table, rows_by_name
from gpuguide.catalog.gpus import gpus_from_table
from gpuguide.catalog.models import Models
from gpuguide.catalog.package import data_folder, read_table
from gpuguide.catalog.shapes import Shape, nodes_of
from gpuguide.estimate.results import PARTS
from gpuguide.estimate.serving_activations import activation_peak_bytes, expert_workspace_bytes
from gpuguide.estimate.serving_memory import (
    kv_room_bytes,
    max_concurrency_that_fits,
    max_context_that_fits,
    needed_cache_bytes,
    serving_fits_limit,
    serving_memory,
)
from gpuguide.spec.engine import Engine
from gpuguide.spec.job import ServingJob
from gpuguide.spec.plan import Plan
from gpuguide.spec.precision import WeightFormat
from gpuguide.units import GIB, HIGH, TYPICAL

MODELS = Models(data_folder())
GPUS = gpus_from_table(read_table("gpus"))
FORMATS = rows_by_name(read_table("weight_formats"), WeightFormat)
ENGINES = rows_by_name(read_table("engines"), Engine)
ASSUMPTIONS = assumptions_from_table(read_table("assumptions"))


def machine(*names, gpus=1, memory_gib=None):
    nodes = nodes_of([Shape(name, gpus) for name in names], GPUS)
    return nodes if memory_gib is None else replace(nodes, memory_bytes=np.full(len(names), memory_gib * GIB))


def job(engine="vllm", form="bf16", **changes):
    values = {
        "weight_format": FORMATS[form], "kv_bytes_per_element": 2.0, "prompt_tokens": 1024.0, "output_tokens": 256.0,
        "max_context": 8192.0, "concurrency": 1.0, "engine": ENGINES[engine],
    }  # fmt: skip
    return ServingJob(**{**values, **changes})


def asked(model, asked_job, nodes, **degrees):
    plan = Plan(**degrees)
    return {"model": MODELS.get(model), "job": asked_job, "plan": plan, "nodes": nodes, "assumptions": ASSUMPTIONS}


def typical(value):
    return float(np.broadcast_to(value, np.broadcast_shapes(np.shape(value), (3, 1, 1)))[TYPICAL].ravel()[0])


def verdict(model, asked_job, nodes, **degrees):
    arguments = asked(model, asked_job, nodes, **degrees)
    total = np.ravel(serving_memory(**arguments).total)
    limit = serving_fits_limit(job=asked_job, nodes=nodes, assumptions=ASSUMPTIONS)[0]
    return "fits" if total[HIGH] <= limit else "tight" if total[TYPICAL] <= limit else "no"


# ---- activation peak ------------------------------------------------------------------------------------------------

PEAKS = [  # GiB, engine, model, GPU, what the server was told
    pytest.param(1.26, "vllm-v0", "llama-3-8b", "A100-80GB-SXM", {}, id="0.6 8B, sampler of 256: vLLM PR 10511"),
    pytest.param(2.07, "vllm-v0", "llama-3.1-8b", "RTX3090", {"max_context": 20_000.0}, id="0.6, 20k: issue 10517"),
    pytest.param(2.99, "vllm-v0", "llama-3.1-8b", "RTX3090", {"max_context": 29_000.0}, id="0.6, 29k: issue 10517"),
    pytest.param(1.42, "vllm-v0", "qwen2.5-7b", "RTX3090", {"max_context": 4096.0}, id="0.7 Qwen2.5 7B: issue 13882"),
    pytest.param(4.76, "vllm-0.11", "llama-3.1-8b", "H100-SXM", {}, id="0.11 8B: llm-d-planner"),
    pytest.param(5.56, "vllm-0.11", "qwen3-0.6b", "H100-SXM", {}, id="0.11 0.6B needs more than 8B: llm-d-planner"),
    pytest.param(5.64, "vllm-0.11", "qwen3-32b", "H100-SXM", {}, id="0.11 32B: llm-d-planner"),
    pytest.param(1.89, "vllm-0.19", "llama-3.1-8b", "H100-SXM", {}, id="0.19 8B: llm-d-planner"),
    pytest.param(2.21, "vllm-0.19", "qwen2.5-7b", "H100-SXM", {}, id="0.19 Qwen2.5 7B: llm-d-planner"),
    pytest.param(2.68, "vllm-0.19", "qwen3-30b-a3b", "H100-SXM", {}, id="0.19 30B-A3B, experts: llm-d-planner"),
    pytest.param(1.93, "vllm-0.19", "deepseek-v2-lite", "H100-SXM", {}, id="0.19 V2-Lite, experts: llm-d-planner"),
    pytest.param(1.52, "vllm-0.19", "phi-4", "H100-SXM", {}, id="0.19 phi-4: llm-d-planner"),
]


@pytest.mark.parametrize(("expected_gib", "engine", "model", "gpu", "told"), PEAKS)
def test_activation_peak(expected_gib, engine, model, gpu, told):
    """A peak that grows with the model's size, or not with its vocabulary, would show here."""
    actual = typical(activation_peak_bytes(**asked(model, job(engine, **told), machine(gpu)))) / GIB

    assert actual == pytest.approx(expected_gib, rel=0.05)


@pytest.mark.parametrize("tensor", [1.0, 2.0, 4.0])
def test_sampler_is_whole_on_every_tensor_rank(tensor):
    """1.89 GiB at TP 1, 2 and 4. Source: llm-d-planner, vLLM 0.19."""
    nodes = machine("H100-SXM", gpus=4)
    actual = activation_peak_bytes(**asked("llama-3.1-8b", job("vllm-0.19"), nodes, tensor_parallel=tensor))

    assert typical(actual) / GIB == pytest.approx(1.89, abs=0.03)


def test_peak_depends_on_what_is_prepared_not_on_context():
    """Longer contexts leave the room as it is in V1, and shrink it in V0. Source: llm-d-planner; vLLM issue 10517."""
    for engine, same in (("vllm-0.19", True), ("vllm-v0", False)):
        short, long = (
            typical(activation_peak_bytes(**asked("llama-3.1-8b", job(engine, max_context=c), machine("H100-SXM"))))
            for c in (2048.0, 32_000.0)
        )
        assert (short == long) is same
    fewer = activation_peak_bytes(**asked("llama-3.1-8b", job("vllm-0.19", max_sequences=16.0), machine("H100-SXM")))
    assert typical(fewer) / GIB < 1.0


def test_dense_models_have_no_expert_workspace():
    """Dense layers run without the buffers of fused experts."""
    arguments = {"job": job(), "plan": Plan(), "tokens": 8192.0}

    assert expert_workspace_bytes(model=MODELS.get("llama-3.1-8b"), **arguments) == 0
    assert expert_workspace_bytes(model=MODELS.get("qwen3-30b-a3b"), **arguments) / GIB == pytest.approx(0.5, abs=0.03)


# ---- cache room -----------------------------------------------------------------------------------------------------

ROOMS = [  # GiB, engine, setting, model, format, GPU, GiB of the card, degrees
    pytest.param(3.81, "vllm-v0", 0.9, "llama-3.1-8b", "bf16", "RTX3090", 23.58, {}, id="8B on 3090: vLLM 10517"),
    pytest.param(51.38, "vllm-0.11", 0.9, "llama-3.1-8b", "bf16", "H100-SXM", 79.18, {}, id="8B: llm-d-planner 0.11"),
    pytest.param(34.49, "vllm-0.11", 0.9, "qwen3-32b", "bf16", "H100-SXM", 79.18, {"tensor_parallel": 2.0}, id="32B"),
    pytest.param(58.11, "vllm-0.19", 0.95, "llama-3.1-8b", "bf16", "H100-SXM", 79.19, {}, id="8B: llm-d-planner 0.19"),
    pytest.param(58.53, "vllm-0.19", 0.95, "qwen2.5-7b", "bf16", "H100-SXM", 79.19, {}, id="7B: llm-d-planner 0.19"),
    pytest.param(
        64.61, "vllm-0.19", 0.95, "llama-3.1-8b", "fp8-tensor", "H100-SXM", 79.19, {}, id="8B FP8: llm-d-planner"
    ),
    pytest.param(
        8.11, "vllm-0.11", 0.9, "qwen3-235b-a22b", "fp8", "H100-SXM", 79.1, {"tensor_parallel": 4.0},
        id="235B in vLLM 0.9: vLLM issue 21348",
    ),
    pytest.param(
        16.46, "sglang", 0.93, "qwen3-235b-a22b", "fp8", "H100-SXM", 79.1, {"tensor_parallel": 4.0},
        id="235B in SGLang: vLLM issue 21348",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("expected_gib", "engine", "setting", "model", "form", "gpu", "card_gib", "degrees"), ROOMS)
def test_cache_room(expected_gib, engine, setting, model, form, gpu, card_gib, degrees):
    """An overhead forgotten, or counted against the wrong share of the card, would show here."""
    changes = {"memory_utilization": setting, "max_context": 20_000.0 if engine == "vllm-v0" else 8192.0}
    nodes = machine(gpu, gpus=4, memory_gib=card_gib)
    actual = typical(kv_room_bytes(**asked(model, job(engine, form, **changes), nodes, **degrees))) / GIB

    assert actual == pytest.approx(expected_gib, abs=1.0)


def test_room_is_what_the_parts_leave():
    """Room and need must come from the same parts: their sum is the engine's share of the card."""
    asked_job = job("vllm-0.19", memory_utilization=0.9)
    arguments = asked("llama-3.1-8b", asked_job, machine("H100-SXM"))
    need = serving_memory(**arguments)
    outside = ASSUMPTIONS["serving_memory_context_gib"] * GIB
    total = need.weights + need.activations + need.reserved - outside + kv_room_bytes(**arguments)

    np.testing.assert_allclose(total, np.full((3, 1, 1), 0.9 * GPUS["H100-SXM"].memory_bytes))


def test_reserving_is_not_needing():
    """An engine that fills the card needs no more for it: the total is below what vLLM would show in nvidia-smi."""
    arguments = asked("qwen3-0.6b", job(), machine("H100-SXM"))

    assert typical(serving_memory(**arguments).total) < 8 * GIB
    assert typical(kv_room_bytes(**arguments)) > 60 * GIB


# ---- anchors --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ["vllm", "vllm-0.11", "sglang", "llama.cpp", "transformers"])
@pytest.mark.parametrize("model", ["llama-2-7b", "llama-3.1-8b", "llama-2-13b"])
@pytest.mark.parametrize("gpu", ["RTX3090", "RTX4090", "L4", "A10G"])
def test_7b_to_13b_in_four_bits_serve_on_24_gb(engine, model, gpu):
    """The article's anchor: quantised 7B to 13B models fit 24 GB cards."""
    form = "Q4_K_M" if engine == "llama.cpp" else "awq"

    assert verdict(model, job(engine, form, max_context=4096.0), machine(gpu)) == "fits"


def test_70b_in_16_bit_needs_two_80_gb_cards():
    """The article's anchor: 70B at high precision is more than one 80 GB card."""
    for gpu in ("H100-SXM", "A100-80GB-SXM"):
        assert verdict("llama-3.1-70b", job(), machine(gpu)) == "no"
        assert verdict("llama-3.1-70b", job(), machine(gpu, gpus=2), tensor_parallel=2.0) != "no"
        assert verdict("llama-3.1-70b", job(), machine(gpu, gpus=4), tensor_parallel=4.0) == "fits"


def test_70b_in_four_bits_wants_48_gb():
    """Reported sizes: 39.6 GiB of weights on a 48 GB card, never on 24 GB."""
    quantised = job("llama.cpp", "Q4_K_M", max_context=4096.0)

    assert verdict("llama-3-70b", quantised, machine("RTX-A6000")) == "fits"
    assert verdict("llama-3-70b", quantised, machine("RTX4090")) == "no"
    assert verdict("llama-3-70b", quantised, machine("RTX4090", gpus=2), pipeline_parallel=2.0) != "no"


def test_cards_are_never_summed_without_a_split():
    """Two cards hold two replicas, not a model of twice the size. Source: llmfit PR 46."""
    plan = {"data_parallel": 2.0}

    assert verdict("llama-3.1-70b", job(form="fp8"), machine("H100-SXM", gpus=2), **plan) != "fits"
    assert verdict("llama-3.1-70b", job(), machine("H100-SXM", gpus=2), **plan) == "no"


# ---- inverses and properties ----------------------------------------------------------------------------------------


def test_longest_context_and_most_requests_fit_exactly():
    """An inverse that overshoots would promise a context that the engine refuses."""
    base = job("vllm-0.11", memory_utilization=0.9)
    arguments = asked("qwen3-32b", base, machine("H100-SXM", memory_gib=79.18))
    longest = max_context_that_fits(**arguments)[TYPICAL].ravel()[0]
    room = typical(kv_room_bytes(**arguments))

    assert 16_000 < longest < 32_000  # started at 16000, refused at 32000: llm-d-planner
    fitting, beyond = (
        needed_cache_bytes(**{**arguments, "job": replace(base, max_context=longest + more)}) for more in (0.0, 16.0)
    )
    assert typical(fitting) <= room < typical(beyond)
    most = max_concurrency_that_fits(**arguments)[TYPICAL].ravel()[0]
    crowd, more = (
        needed_cache_bytes(**{**arguments, "job": replace(base, concurrency=n, max_context=1280.0)})
        for n in (most, most + 1)
    )
    assert typical(crowd) <= room < typical(more)


def test_latent_cache_on_every_rank_limits_requests():
    """8 x H200 hold DeepSeek-V3 caches for about 90 sequences of 8k, not 8 times as many. Source: kvfit 87."""
    arguments = asked("deepseek-v3", job("vllm-0.19", "fp8"), machine("H200-SXM", gpus=8), tensor_parallel=8.0)
    most = max_concurrency_that_fits(**arguments, tokens=8192.0)[TYPICAL].ravel()[0]

    assert 50 < most < 120


def test_limit_keeps_a_share_of_the_card():
    """Memory filled to 100 % gave 384 requests where 72 ran. Source: aiconfigurator issue 1396."""
    capped, full = (
        max_concurrency_that_fits(
            **asked("kimi-k2", job("vllm", "nvfp4", memory_utilization=u), machine("B200", gpus=8), tensor_parallel=8.0)
        )[TYPICAL].ravel()[0]
        for u in (0.92, 1.0)
    )
    limit = serving_fits_limit(job=job(), nodes=machine("B200"), assumptions=ASSUMPTIONS)

    assert capped < full
    assert limit[0] < GPUS["B200"].memory_bytes


@given(
    engine=st.sampled_from(sorted(ENGINES)),
    model=st.sampled_from(["llama-3.1-8b", "gpt-oss-20b", "deepseek-v2-lite", "gemma-3-27b", "qwen3-next-80b-a3b"]),
    form=st.sampled_from(["bf16", "awq", "fp8", "Q4_K_M"]),
    concurrency=st.integers(1, 500),
    context=st.integers(2048, 100_000),
)
def test_parts_sum_bands_are_ordered_and_more_never_needs_less(engine, model, form, concurrency, context):
    """A part outside the total, bands out of order, or a need that falls as the job grows, would break this."""
    nodes = machine("H100-SXM", "RTX4090")
    small = job(engine, form, concurrency=float(concurrency), max_context=float(context))
    need = serving_memory(**asked(model, small, nodes))
    shape = (3, 1, 2)
    total = np.broadcast_to(need.total, shape)
    grown = replace(small, concurrency=small.concurrency + 7, max_context=small.max_context + 4096)
    more = np.broadcast_to(serving_memory(**asked(model, grown, nodes)).total, shape)

    np.testing.assert_allclose(total, sum(np.broadcast_to(getattr(need, part), shape) for part in PARTS))
    assert np.all(np.diff(total, axis=0) >= 0)
    assert np.all(more >= total * (1 - 1e-12))
    assert np.all(total > 0)
    assert np.all(serving_fits_limit(job=small, nodes=nodes, assumptions=ASSUMPTIONS) <= nodes.memory_bytes)


def test_array_of_plans_and_shapes_equals_one_by_one():
    """A branch that works for scalars only would show here."""
    nodes, names = machine("H100-SXM", "L40S", "A100-80GB-SXM", gpus=8), ["H100-SXM", "L40S", "A100-80GB-SXM"]
    tensor, stages = np.array([[1.0], [2.0], [8.0], [4.0]]), np.array([[1.0], [1.0], [1.0], [2.0]])
    asked_job = job("vllm-0.19", concurrency=64.0)
    together = serving_memory(
        **asked("llama-3.1-70b", asked_job, nodes, tensor_parallel=tensor, pipeline_parallel=stages)
    )
    room = kv_room_bytes(**asked("llama-3.1-70b", asked_job, nodes, tensor_parallel=tensor, pipeline_parallel=stages))

    assert np.broadcast_to(together.total, (3, 4, 3)).shape == together.total.shape == room.shape
    for p, (t, s) in enumerate(zip(tensor.ravel(), stages.ravel(), strict=True)):
        for n, name in enumerate(names):
            degrees = {"tensor_parallel": float(t), "pipeline_parallel": float(s)}
            alone = asked("llama-3.1-70b", asked_job, machine(name, gpus=8), **degrees)
            np.testing.assert_allclose(together.total[:, p, n], np.ravel(serving_memory(**alone).total))
            np.testing.assert_allclose(room[:, p, n], np.ravel(kv_room_bytes(**alone)))


def test_flat_pairs_of_plans_and_shapes():
    """The search asks about flat pairs: one entry per plan on its machine."""
    nodes = machine("H100-SXM", "L40S", gpus=8)
    pairs = nodes.take(np.array([0, 0, 1]))
    plan = Plan(tensor_parallel=np.array([1.0, 2.0, 4.0]), data_parallel=np.array([8.0, 4.0, 2.0]))
    total = serving_memory(
        model=MODELS.get("llama-3.1-8b"), job=job(), plan=plan, nodes=pairs, assumptions=ASSUMPTIONS
    ).total

    assert np.shape(total) == (3, 1, 3)


ROOMS = [  # cache room of a 40 GiB card from its parts, engine; one GPU talks to nobody
    pytest.param(
        lambda p: 0.92 * 40 - p["weights"] - p["peak"] - p["libraries"] - p["graphs"], "vllm", id="of the whole card"
    ),
    pytest.param(lambda p: 0.9 * 40 - p["weights"] - p["peak"] - p["libraries"], "vllm-0.11", id="graphs come later"),
    pytest.param(lambda p: 0.88 * (40 - p["context"]) - p["weights"], "sglang", id="of what the context leaves"),
    pytest.param(
        lambda p: 0.9 * (40 - p["weights"] - p["peak"] - p["libraries"] - p["context"] - p["graphs"]), "tensorrt-llm",
        id="of what is free",
    ),
    pytest.param(
        lambda p: 40 - p["weights"] - p["peak"] - p["libraries"] - p["context"] - p["graphs"], "llama.cpp", id="all"
    ),
]  # fmt: skip


@pytest.mark.parametrize(("room", "engine"), ROOMS)
def test_room_of_each_engine_by_hand(room, engine):
    """A setting applied to the card where the engine applies it to what is free, or a part left out."""
    shared = asked("llama-3.1-8b", job(engine), machine("A100-40GB-SXM", memory_gib=40))
    parts = serving_memory(**shared)

    def one(value):
        return float(np.broadcast_to(value, np.broadcast_shapes(np.shape(value), (3, 1, 1)))[TYPICAL].ravel()[0]) / GIB

    has_graphs = shared["job"].engine.graphs
    known = {
        "weights": one(parts.weights), "peak": one(parts.activations),
        "context": ASSUMPTIONS.value("serving_memory_context_gib"),
        "libraries": ASSUMPTIONS.value("serving_memory_libraries_gib"),
        "graphs": ASSUMPTIONS.value("serving_memory_graphs_gib") if has_graphs else 0.0,
    }  # fmt: skip

    assert one(kv_room_bytes(**shared)) == pytest.approx(room(known))
    assert one(parts.reserved) == pytest.approx(known["context"] + known["libraries"])
    eager = asked("llama-3.1-8b", job(engine, cuda_graphs=False), machine("A100-40GB-SXM", memory_gib=40))
    more = one(serving_memory(**eager).total) - one(parts.total)
    assert more == pytest.approx(-known["graphs"])


@pytest.mark.parametrize(("ranks", "card_gib"), [(1.0, 40), (2.0, 22)])
def test_longest_context_of_a_hybrid(ranks, card_gib):
    """Recurrent states are whole whatever the context; on two ranks each has half of states and of heads."""
    nodes = machine("H100-SXM", gpus=2, memory_gib=card_gib)

    def needed(context):
        at = asked("qwen3.5-27b", job(form="fp8", max_context=context), nodes, tensor_parallel=ranks)
        room, cache = (np.squeeze(of(**at))[TYPICAL] for of in (kv_room_bytes, needed_cache_bytes))
        return cache / room

    shared = asked("qwen3.5-27b", job(form="fp8"), nodes, tensor_parallel=ranks)
    longest = float(np.squeeze(max_context_that_fits(**shared))[TYPICAL])

    assert 10_000 < longest < MODELS.get("qwen3.5-27b").max_context
    assert needed(longest) <= 1.0 < needed(longest + 128)
