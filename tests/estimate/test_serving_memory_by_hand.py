"""What a server holds beside weights, part by part: buffers of each layout, slack, graphs, limits, the cache."""

from dataclasses import replace

import numpy as np
import pytest

from gpuguide.estimate.kv_cache import cache_bytes_per_sequence
from gpuguide.estimate.serving_activations import (
    activation_peak_bytes,
    expert_workspace_bytes,
    pass_tokens,
    prepared_sequences,
    sequences_per_rank,
)
from gpuguide.estimate.serving_memory import (
    kv_room_bytes,
    max_concurrency_that_fits,
    needed_cache_bytes,
    serving_fits_limit,
    serving_memory,
)
from gpuguide.estimate.weights import weight_bytes_per_gpu
from gpuguide.spec.plan import Plan
from gpuguide.units import GIB
from tests.estimate.hand_cases import MIX, stored
from tests.estimate.serving_cases import ASSUMPTIONS, ENGINES, MODELS, job, machines

NODES = machines(("H100-SXM", 8))
CARD = float(NODES.memory_bytes[0])
CACHED = replace(MIX, kv_elements_full=2.0 * 3 * 3 * 16, kv_elements_windowed=2.0 * 2 * 3 * 16)


def known(name):
    return ASSUMPTIONS[f"serving_memory_{name}"].ravel()


def asked(plan=None, model=CACHED, bits=16, **changes):
    changes = {"prompt_tokens": 300.0, "output_tokens": 80.0, "max_context": 500.0, "concurrency": 10.0} | changes
    own = replace(job(**changes), weight_format=stored(bits))
    return {"model": model, "job": own, "plan": plan or Plan(), "nodes": NODES, "assumptions": ASSUMPTIONS}


def bands(value):
    return np.broadcast_to(value, (3, 1, 1)).ravel()


LAYOUTS = [  # share of the engine's buffers, whether all-to-all has its own; degrees
    pytest.param(0.0, 0, {}, id="alone"),
    pytest.param(0.0, 0, {"data_parallel": 8.0}, id="replicas do not talk"),
    pytest.param(1.0, 0, {"tensor_parallel": 2.0}, id="tensor ranks"),
    pytest.param(0.1, 0, {"pipeline_parallel": 2.0}, id="stages pass states on"),
    pytest.param(1.0, 0, {"tensor_parallel": 2.0, "pipeline_parallel": 2.0}, id="both"),
    pytest.param(1.0, 0, {"tensor_parallel": 2.0, "expert_parallel": 2.0}, id="experts on tensor ranks"),
    pytest.param(1.0, 1, {"expert_parallel": 2.0}, id="experts over replicas"),
    pytest.param(1.0, 1, {"tensor_parallel": 2.0, "expert_parallel": 4.0}, id="experts over groups"),
]


@pytest.mark.parametrize(("share", "spread", "degrees"), LAYOUTS)
def test_communication_of_each_layout(share, spread, degrees):
    """Context and libraries always; an engine's buffers as its ranks talk; all-to-all beyond tensor ranks."""
    found = serving_memory(**asked(Plan(**degrees)))
    buffers = share * ENGINES["vllm"].communication_gib * known("communication_share")
    expected = known("context_gib") + known("libraries_gib") + buffers + spread * known("all_to_all_gib")

    np.testing.assert_allclose(bands(found.reserved), expected * GIB, rtol=1e-12)


@pytest.mark.parametrize(("bits", "share"), [(16, "weight_share"), (11, "packed_share"), (12, "weight_share")])
def test_weights_and_slack(bits, share):
    """Packed weights load larger; a framework that grows its cache holds a share of all it keeps besides."""
    for engine, slack in (("vllm", 0.0), ("transformers", known("allocator_share"))):
        arguments = asked(engine=engine, bits=bits)
        found = serving_memory(**arguments)
        loaded = weight_bytes_per_gpu(model=CACHED, weight_format=stored(bits), plan=Plan()) * known(share)
        cache = bands(needed_cache_bytes(**arguments))
        graphs = known("graphs_gib") * GIB if engine == "vllm" else 0.0

        np.testing.assert_allclose(bands(found.weights), loaded, rtol=1e-12)
        np.testing.assert_allclose(bands(found.buffers), graphs + slack * (loaded + cache), rtol=1e-12)


def test_what_the_setting_leaves_out():
    """The context, and graphs captured late; never more than the card."""
    context, graphs = (float(ASSUMPTIONS.value(f"serving_memory_{name}_gib")) * GIB for name in ("context", "graphs"))
    for engine, share, beside in (
        ("vllm", 0.5, context), ("vllm-0.19", 0.5, context + graphs), ("vllm-0.19", 1.0, 1e12), ("sglang", None, None),
    ):  # fmt: skip
        own = job(engine, memory_utilization=share)
        setting = ENGINES[engine].utilization if share is None else share
        beside = context + graphs if beside is None else beside
        found = serving_fits_limit(job=own, nodes=NODES, assumptions=ASSUMPTIONS)
        assert found[0] == pytest.approx(min(CARD, setting * CARD + beside), rel=1e-12)
    eager = job("vllm-0.19", memory_utilization=0.5, cuda_graphs=False)
    found = serving_fits_limit(job=eager, nodes=NODES, assumptions=ASSUMPTIONS)
    assert found[0] == pytest.approx(0.5 * CARD + context, rel=1e-12)
    found = serving_fits_limit(job=job("llama.cpp"), nodes=NODES, assumptions=ASSUMPTIONS)
    assert found[0] == CARD


@pytest.mark.parametrize("engine", ["vllm", "vllm-0.19", "sglang", "tensorrt-llm", "llama.cpp"])
def test_room_of_talking_ranks(engine):
    """Every part of two ranks once, to the last byte: buffers of an engine count as its memory setting does."""
    arguments = asked(Plan(tensor_parallel=2.0), engine=engine)
    parts, own = serving_memory(**arguments), ENGINES[engine]
    weights, peak = bands(parts.weights), bands(parts.activations)
    talk = own.communication_gib * known("communication_share") * GIB
    context, libraries = known("context_gib") * GIB, known("libraries_gib") * GIB
    graphs = known("graphs_gib") * GIB
    share = own.utilization
    expected = {
        "vllm": share * CARD - weights - peak - libraries - talk - graphs,
        "vllm-0.19": share * CARD - weights - peak - libraries - talk,
        "sglang": share * (CARD - context - talk) - weights,
        "tensorrt-llm": share * (CARD - weights - peak - libraries - talk - context - graphs),
        "llama.cpp": CARD - weights - peak - libraries - talk - context - graphs,
    }[engine]

    np.testing.assert_allclose(bands(kv_room_bytes(**arguments)), expected, rtol=1e-13)
    requests = np.floor(expected / each_on_rank(arguments, 380.0))
    np.testing.assert_allclose(bands(max_concurrency_that_fits(**arguments)), requests)


def each_on_rank(arguments, tokens, *, ranks=2, stages=1):
    """Two of three KV heads lie on the fuller of two ranks, four of seven layers on the fuller of two stages."""
    own = arguments["job"]
    whole = cache_bytes_per_sequence(
        model=arguments["model"], tokens=tokens, bytes_per_element=2.0, state_bytes_per_element=0.0,
        policy=own.engine.window_policy, chunk_tokens=pass_tokens(job=own, nodes=NODES),
        page_tokens=own.engine.page_tokens,
    )  # fmt: skip
    heads, layers = np.ceil(3 / ranks) / 3, np.ceil(7 / stages) / 7
    return bands(whole) * heads * layers + known("state_bytes_per_element") * 5000 / ranks / stages


@pytest.mark.parametrize(("ranks", "stages", "replicas"), [(1, 1, 1), (2, 1, 1), (2, 2, 1), (1, 2, 4), (4, 3, 3)])
def test_cache_of_running_sequences(ranks, stages, replicas):
    """Half of each answer at least, all at most; a replica of ten requests over four has three."""
    plan = Plan(tensor_parallel=float(ranks), pipeline_parallel=float(stages), data_parallel=float(replicas))
    arguments = asked(plan)
    sequences = np.ceil(10 / replicas)
    half, full = (each_on_rank(arguments, tokens, ranks=ranks, stages=stages) for tokens in (340.0, 380.0))
    running = sequences * np.array([half[0], full[1], full[2]])

    np.testing.assert_allclose(bands(needed_cache_bytes(**arguments)), running, rtol=1e-12)
    longest = each_on_rank(asked(plan), 500_000.0, ranks=ranks, stages=stages)
    long = asked(plan, max_context=500_000.0)
    np.testing.assert_allclose(bands(needed_cache_bytes(**long)), np.maximum(running, longest), rtol=1e-12)
    room = bands(kv_room_bytes(**arguments))
    np.testing.assert_allclose(
        bands(max_concurrency_that_fits(**arguments)), np.floor(room / full * (1 + 1e-12)) * replicas
    )
    np.testing.assert_allclose(
        bands(max_concurrency_that_fits(**arguments, tokens=340.0)), np.floor(room / half * (1 + 1e-12)) * replicas
    )


def test_ranks_with_requests_of_their_own():
    """Under attention data parallel a rank holds whole heads and an eighth of the requests; all ranks count."""
    plan = Plan(tensor_parallel=4.0, data_parallel=2.0)
    arguments = asked(plan, attention_data_parallel=True)
    full = each_on_rank(arguments, 380.0, ranks=1)

    assert sequences_per_rank(job=arguments["job"], plan=plan) == 2
    np.testing.assert_allclose(bands(needed_cache_bytes(**arguments))[1:], 2 * full[1:], rtol=1e-12)
    room = bands(kv_room_bytes(**arguments))
    np.testing.assert_allclose(bands(max_concurrency_that_fits(**arguments)), np.floor(room / full) * 8)


# ---- the largest pass ------------------------------------------------------------------------------------------------

WIDE = replace(MIX, ffn=4000.0, vocab=3.0)  # the MLP is at its peak
QUIET = replace(MIX, ffn=1.0, vocab=3.0)  # attention is


@pytest.mark.parametrize("ranks", [1.0, 4.0])
def test_largest_pass(ranks):
    """A few hidden states and the widest projection, or the logits of every sequence; experts' buffers on top."""
    own = replace(ENGINES["vllm"], hidden_copies=3.0, logit_bytes=15.0)
    told = {"prefill_chunk_tokens": 1000.0, "max_sequences": 200.0, "engine": "vllm"}

    def found(model, **changes):
        arguments = asked(Plan(tensor_parallel=ranks), model=model, **(told | changes))
        arguments["job"] = replace(arguments["job"], engine=own, text_only=True)
        return bands(activation_peak_bytes(**arguments)) / known("activation_share")

    state = 1000 * 96 * 2
    experts = 1000 * 2 * (max(2 * 40 / ranks, 96) + max(40 / ranks, 96)) * 2
    np.testing.assert_allclose(found(WIDE), 3 * state + 1000 * 3 * 4000 / ranks * 2 + experts)
    plain = replace(WIDE, gated_mlp=False)
    np.testing.assert_allclose(found(plain), 3 * state + 1000 * 2 * 4000 / ranks * 2 + experts)
    attention = (2 * 12 + 2 * 3) * 16
    np.testing.assert_allclose(found(QUIET), 3 * state + 1000 * attention / ranks * 2 + experts)
    all_experts = replace(WIDE, moe_layers=7.0)  # no dense layer is left
    np.testing.assert_allclose(found(all_experts), 3 * state + 1000 * attention / ranks * 2 + experts)
    np.testing.assert_allclose(found(MIX), state + 200 * 1000 * 15 + experts)
    np.testing.assert_allclose(found(MIX, max_sequences=5000.0), state + 1000 * 1000 * 15 + experts)
    own = replace(own, all_logits=True)
    np.testing.assert_allclose(found(MIX), state + 1000 * 1000 * 15 + experts)
    own = replace(own, all_logits=False, score_bytes=7.0)
    scores = 10 * 12 * 300**2 / ranks * 7
    np.testing.assert_allclose(found(QUIET), 3 * state + 1000 * attention / ranks * 2 + scores + experts)


def test_tower_of_a_server_that_prepares():
    """What the tower needs is taken by engines that measure at their limit, unless it is not loaded."""
    tower = known("vision_gib") * GIB
    for engine, more in (("vllm", tower), ("sglang", 0.0)):
        seen, unseen = (bands(activation_peak_bytes(**asked(engine=engine, text_only=only))) for only in (False, True))
        np.testing.assert_allclose(seen - unseen, more, atol=1e-3)


def test_buffers_of_experts():
    """Rows for every token and expert it is sent to; wide experts need more; dealt out whole under expert parallel."""
    wide = replace(MIX, moe_ffn=400.0)
    told = {"job": replace(job(), weight_format=stored(16)), "tokens": 1000.0}

    def found(plan, model=wide, **changes):
        return float(expert_workspace_bytes(model=model, plan=plan, **(told | changes)))

    assert found(Plan()) == 2000 * (800 + 400) * 2
    assert found(Plan(tensor_parallel=5.0)) == 2000 * (160 + 96) * 2
    assert found(Plan(tensor_parallel=5.0, expert_parallel=5.0)) == 2000 * (800 + 400) * 2
    assert found(Plan(tensor_parallel=10.0)) == 2000 * (96 + 96) * 2
    assert found(Plan(), job=replace(job(), weight_format=stored(4, experts_only=True))) == 0
    assert found(Plan(), model=MODELS.get("llama-3.1-8b")) == 0


def test_tokens_and_sequences_of_a_pass():
    """What the server was told, else the engine's on that card; whole prompts unless they are too long."""
    plan = Plan(data_parallel=2.0)

    def tokens(engine="vllm", **changes):
        return float(np.ravel(pass_tokens(job=job(engine, **changes), nodes=NODES))[0])

    def sequences(engine="vllm", **changes):
        return float(np.ravel(prepared_sequences(job=job(engine, **changes), plan=plan, nodes=NODES))[0])

    assert tokens(prefill_chunk_tokens=777.0) == 777
    assert tokens() == ENGINES["vllm"].prefill_tokens_large
    assert tokens("vllm-v0", max_context=32_768.0) == 32_768
    assert tokens("vllm-v0", max_context=32_769.0) == 2048
    assert tokens("vllm-v0", max_context=100.0) == ENGINES["vllm-v0"].prefill_tokens_large
    assert tokens("transformers", prompt_tokens=300.0, concurrency=5.0) == 1500
    assert sequences() == 1024
    assert sequences(max_sequences=77.0) == 77
    assert sequences("sglang", concurrency=21.0) == 11
    assert sequences("sglang", concurrency=21.0, max_sequences=5.0) == 5
    assert sequences("sglang", concurrency=0.0) == 1
