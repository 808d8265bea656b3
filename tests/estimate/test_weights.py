"""Stored weights of published checkpoints, and what one rank holds of them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuguide.catalog.formats import rows_by_name
from gpuguide.catalog.models import Models
from gpuguide.catalog.package import data_folder, read_table
from gpuguide.estimate.weights import recurrent_params, replicated_bytes, stored_weights, weight_bytes_per_gpu
from gpuguide.spec.plan import Plan
from gpuguide.spec.precision import WeightFormat
from gpuguide.units import GB, GIB

FORMATS = rows_by_name(read_table("weight_formats"), WeightFormat)
MODELS = Models(data_folder())

CHECKPOINTS = [  # size [GB], tolerance, model, format
    pytest.param(141.107, 0.0001, "llama-3.1-70b", "bf16", id="Llama 3.1 70B: accelerate issue 3379, not 64.7"),
    pytest.param(65.249, 0.07, "gpt-oss-120b", "mxfp4", id="gpt-oss-120b: hf-mem issue 60; kernels pad 6.7 %"),
    pytest.param(673.15, 0.001, "deepseek-v3", "fp8", id="DeepSeek-V3: FP8 with block scales, 16-bit embedding"),
    pytest.param(42.52, 0.01, "llama-3-70b", "Q4_K_M", id="Llama 3 70B Q4_K_M: GPU-Benchmarks-on-LLM-Inference"),
    pytest.param(4.918, 0.01, "llama-3.1-8b", "Q4_K_M", id="Llama 3.1 8B Q4_K_M 4.58 GiB: llama.cpp quantize README"),
    pytest.param(8.536, 0.01, "llama-3.1-8b", "Q8_0", id="Llama 3.1 8B Q8_0 7.95 GiB: llama.cpp quantize README"),
    pytest.param(4.478, 0.01, "llama-3.1-8b", "IQ4_XS", id="Llama 3.1 8B IQ4_XS 4.17 GiB: llama.cpp quantize README"),
    pytest.param(2.008, 0.01, "llama-3.1-8b", "IQ1_S", id="Llama 3.1 8B IQ1_S 1.87 GiB: llama.cpp quantize README"),
]


@pytest.mark.parametrize(("size_gb", "tolerance", "model", "form"), CHECKPOINTS)
def test_stored_weights_of_published_checkpoints(size_gb, tolerance, model, form):
    """A label taken for true bits, or a part that stays in 16 bit forgotten, would show here."""
    actual = stored_weights(model=MODELS.get(model), weight_format=FORMATS[form]).total / GB

    assert actual == pytest.approx(size_gb, rel=tolerance)


LOADED = [  # GiB on the first rank, model, format, plan
    pytest.param(14.99, "llama-3.1-8b", "bf16", {}, id="8B on one GPU: vLLM issue 10517"),
    pytest.param(5.203, "qwen2.5-7b", "awq", {}, id="7B in 4 bits keeps 2 GiB in 16 bit: vLLM issue 13882"),
    pytest.param(17.983, "qwen2.5-72b", "gptq-int8", {"tensor_parallel": 4.0}, id="72B 8 bit, TP 4: vLLM issue 5993"),
    pytest.param(21.21, "deepseek-r1", "awq", {"tensor_parallel": 16.0}, id="R1 4 bit, TP 16: vLLM PR 14447"),
    pytest.param(64.38, "gpt-oss-120b", "mxfp4", {}, id="gpt-oss-120b loaded: llm-d-planner"),
    pytest.param(33.88, "llama-3.3-70b", "fp8-tensor", {"tensor_parallel": 2.0}, id="70B FP8, TP 2: llm-d-planner"),
    pytest.param(4.26, "llama-3.1-8b", "bf16", {"pipeline_parallel": 4.0}, id="8B, PP 4: llm-d-planner vLLM 0.19"),
    pytest.param(5.48, "qwen3-8b", "bf16", {"pipeline_parallel": 3.0}, id="Qwen3 8B, PP 3: llm-d-planner vLLM 0.19"),
    pytest.param(29.43, "deepseek-v2-lite", "bf16", {}, id="V2-Lite with absorbed projections: llm-d-planner 0.19"),
    pytest.param(14.28, "qwen3.5-27b", "fp8", {"tensor_parallel": 2.0}, id="27B hybrid FP8, TP 2: vLLM recipes"),
]


@pytest.mark.parametrize(("loaded_gib", "model", "form", "degrees"), LOADED)
def test_what_a_rank_loads(loaded_gib, model, form, degrees):
    """A replicated part counted as split, or the reverse, would show here."""
    plan = Plan(**degrees)
    actual = weight_bytes_per_gpu(model=MODELS.get(model), weight_format=FORMATS[form], plan=plan) / GIB

    assert float(actual) == pytest.approx(loaded_gib, rel=0.015)


def test_first_stage_of_an_uneven_pipeline():
    """Three dense layers lead DeepSeek-V3: its first stage is the lightest of four. Source: DeepSeek-V3 issue 205."""
    plan = Plan(tensor_parallel=8.0, pipeline_parallel=4.0)
    model, form = MODELS.get("deepseek-v3"), FORMATS["fp8"]
    first = weight_bytes_per_gpu(model=model, weight_format=form, plan=plan, stage="first") / GIB
    fullest = weight_bytes_per_gpu(model=model, weight_format=form, plan=plan) / GIB

    assert float(first) == pytest.approx(16.96, rel=0.02)
    assert float(fullest) > 1.2 * float(first)


def test_all_experts_are_held_not_the_active_ones():
    """Memory by active parameters would put a 122B mixture on one 48 GB card. Source: llmfit issue 230."""
    model = MODELS.get("qwen3-235b-a22b")
    stored = stored_weights(model=model, weight_format=FORMATS["Q4_K_M"]).total

    assert stored > 0.55 * model.params
    assert stored > 4 * model.params_active * FORMATS["Q4_K_M"].bytes_per_weight


def test_experts_are_split_over_tensor_and_expert_ranks_alike():
    """Splitting experts by both degrees would halve them twice."""
    model, form = MODELS.get("deepseek-v3"), FORMATS["fp8"]

    def held(**degrees):
        return float(weight_bytes_per_gpu(model=model, weight_format=form, plan=Plan(**degrees)))

    by_tensor = held(tensor_parallel=8.0)
    assert held(tensor_parallel=8.0, expert_parallel=8.0) == pytest.approx(by_tensor)
    assert held(tensor_parallel=8.0, expert_parallel=16.0) < by_tensor
    alone = weight_bytes_per_gpu(
        model=model, weight_format=form, plan=Plan(tensor_parallel=8.0), attention_data_parallel=True
    )
    assert float(alone) > by_tensor


def test_recurrent_mixers_of_a_hybrid():
    """48 gated-delta layers of a 27B hybrid hold about a fifth of it."""
    model = MODELS.get("qwen3.5-27b")

    assert recurrent_params(model=model) / model.params == pytest.approx(0.2, abs=0.03)
    assert recurrent_params(model=MODELS.get("llama-3.1-8b")) == 0


def test_every_format_is_ordered_by_its_bits():
    """A typing error in the table would put a format out of order."""
    model = MODELS.get("llama-3.1-70b")
    linear = sorted((f for f in FORMATS.values() if not f.experts_only), key=lambda f: f.bits_per_weight)
    totals = [stored_weights(model=model, weight_format=form).blocks for form in linear]

    assert totals == sorted(totals)
    assert all(1 <= form.bits_per_weight <= 32 for form in FORMATS.values())


@given(
    tensor=st.sampled_from([1.0, 2.0, 4.0, 8.0, 16.0]),
    pipeline=st.sampled_from([1.0, 2.0, 3.0, 4.0]),
    name=st.sampled_from(["llama-3.1-70b", "deepseek-v3", "gpt-oss-20b", "qwen3-next-80b-a3b", "gemma-3-27b"]),
    form=st.sampled_from(["bf16", "fp8", "awq", "Q4_K_M", "nvfp4"]),
)
def test_splitting_never_adds_and_all_ranks_hold_everything(tensor, pipeline, name, form):
    """A part lost or counted twice in the split would break one of the bounds."""
    model, weight_format = MODELS.get(name), FORMATS[form]
    whole = float(weight_bytes_per_gpu(model=model, weight_format=weight_format, plan=Plan()))
    plan = Plan(tensor_parallel=tensor, pipeline_parallel=pipeline)
    held = float(weight_bytes_per_gpu(model=model, weight_format=weight_format, plan=plan))

    assert held <= whole * (1 + 1e-9)
    assert held * tensor * pipeline >= 0.999 * stored_weights(model=model, weight_format=weight_format).total


def test_array_of_plans_equals_one_by_one():
    """A branch that works for scalars only would show here."""
    model, form = MODELS.get("deepseek-v3"), FORMATS["fp8"]
    tensor, pipeline = np.array([[1.0], [8.0], [4.0], [2.0]]), np.array([[1.0], [1.0], [2.0], [4.0]])
    together = weight_bytes_per_gpu(
        model=model, weight_format=form, plan=Plan(tensor_parallel=tensor, pipeline_parallel=pipeline)
    )
    alone = [
        float(
            weight_bytes_per_gpu(
                model=model, weight_format=form, plan=Plan(tensor_parallel=float(t), pipeline_parallel=float(p))
            )
        )
        for t, p in zip(tensor.ravel(), pipeline.ravel(), strict=True)
    ]

    np.testing.assert_allclose(np.ravel(together), alone)


STAGES = [  # layers of 32 on the fullest stage, whether it holds a table beside them, stages
    pytest.param(32, 2, 1.0, id="one stage: both tables"),
    pytest.param(16, 1, 2.0, id="two: one table each"),
    pytest.param(11, 1, 3.0, id="three: 11 + table, 11, 10 + table"),
    pytest.param(7, 0, 5.0, id="five: the odd two in the middle weigh more than a table"),
    pytest.param(8, 1, 4.0, id="four"),
]


@pytest.mark.parametrize(("layers", "tables", "stages"), STAGES)
def test_stages_by_hand(layers, tables, stages):
    """Llama 3.1 8B in 16 bit: whole layers, embedding on the first stage, head on the last."""
    model = MODELS.get("llama-3.1-8b")
    layer, table = 2 * model.params_linear / 32, 2 * model.params_embedding
    found = weight_bytes_per_gpu(model=model, weight_format=FORMATS["bf16"], plan=Plan(pipeline_parallel=stages))
    beside = [few * layer + extra * table for few, extra in ((layers, tables), (layers, 0), (32 // stages, 1))]

    assert float(found) == pytest.approx(max(beside) if stages > 1 else beside[0])


def test_stages_of_a_mixture_by_hand():
    """Qwen3 30B has experts in every layer; DeepSeek-V3 three dense layers first: its first of 61 / 4 holds 12 with."""
    for name, dense in (("qwen3-30b-a3b", 0), ("deepseek-v3", 3)):
        model, form = MODELS.get(name), FORMATS["bf16"]
        stored = stored_weights(model=model, weight_format=form)
        extra = replicated_bytes(model=model, weight_format=form, tensor_parallel=np.float64(1.0))
        few = model.layers // 4
        layer, experts = (stored.blocks + extra) / model.layers, stored.experts / model.moe_layers
        first = weight_bytes_per_gpu(model=model, weight_format=form, plan=Plan(pipeline_parallel=4.0), stage="first")
        assert float(first) == pytest.approx(stored.embedding + stored.vision + few * layer + (few - dense) * experts)
        last = stored.head + few * (layer + experts)
        middle = (few + (model.layers % 4 > 0)) * (layer + experts)
        whole = weight_bytes_per_gpu(model=model, weight_format=form, plan=Plan(pipeline_parallel=4.0))
        assert float(whole) == pytest.approx(max(float(first), last, middle))


def test_what_every_rank_holds_by_hand():
    """Routers in 16 bit; a KV head for each rank beyond the eight; latents down, and up again absorbed."""
    llama, form = MODELS.get("llama-3.1-8b"), FORMATS["bf16"]
    assert replicated_bytes(model=llama, weight_format=form, tensor_parallel=8.0) == 0.0
    assert replicated_bytes(model=llama, weight_format=form, tensor_parallel=16.0) == 2 * 4096 * 128 * 0.5 * 32 * 2
    moe = MODELS.get("qwen3-30b-a3b")  # 4 KV heads
    router = 2048 * 128 * 48 * 2 * 7 / 8
    heads = 2 * 2048 * 128 * 0.5 * 48 * 2
    assert replicated_bytes(model=moe, weight_format=form, tensor_parallel=8.0) == router + heads
    deepseek = MODELS.get("deepseek-v3")
    router = 7168 * 256 * 58 * 2 * 7 / 8
    down = 7168 * (1536 + 512 + 64) * 61 * 2 * 7 / 8
    up = 512 * 128 * (128 + 128) * 61
    held = replicated_bytes(model=deepseek, weight_format=form, tensor_parallel=8.0)
    assert held == pytest.approx(router + down + up * 2 / 8)
    packed = FORMATS["Q8_0"]
    gguf = replicated_bytes(model=deepseek, weight_format=packed, tensor_parallel=8.0)
    assert gguf == pytest.approx(router + down / 2 * packed.bytes_per_weight)


def test_mixers_by_hand():
    """What blocks hold beyond MLPs and experts, shared by the layers that mix; Qwen3.5 27B: 48 of 64 recur."""
    model = MODELS.get("qwen3.5-27b")
    mlp = 3 * model.hidden * model.layers * model.ffn

    assert recurrent_params(model=model) == pytest.approx((model.params_linear - mlp) * 48 / 64)
    jamba = MODELS.get("jamba-v0.1")
    mlp = 3 * jamba.hidden * (jamba.layers - jamba.moe_layers) * jamba.ffn
    mixers = jamba.params_linear - jamba.params_routed_experts - mlp
    mixing = jamba.layers_full + jamba.layers_recurrent
    assert jamba.is_moe
    assert recurrent_params(model=jamba) == pytest.approx(mixers * jamba.layers_recurrent / mixing)


def test_a_mixture_on_ranks_by_hand():
    """Expert parallel deals out whole experts: 128 over 3 ranks are 43; attention data parallel splits nothing else."""
    model, form = MODELS.get("qwen3-30b-a3b"), FORMATS["bf16"]
    stored = stored_weights(model=model, weight_format=form)
    rest = stored.embedding + stored.head + stored.blocks
    dealt = weight_bytes_per_gpu(model=model, weight_format=form, plan=Plan(expert_parallel=3.0))
    assert float(dealt) == pytest.approx(rest + stored.experts * 43 / 128)
    plan = Plan(tensor_parallel=4.0, expert_parallel=4.0)
    each = weight_bytes_per_gpu(model=model, weight_format=form, plan=plan, attention_data_parallel=True)
    assert float(each) == pytest.approx(rest + stored.experts / 4)
