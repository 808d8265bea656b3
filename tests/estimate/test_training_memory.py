"""Memory of training: published peaks, and what must hold whatever the job."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuguide.errors import NotModelled
from gpuguide.estimate.results import PARTS, PHASES
from gpuguide.estimate.training_memory import process_bytes, training_memory
from gpuguide.spec.model import Model
from gpuguide.spec.plan import OFFLOAD, RECOMPUTE, Plan
from gpuguide.units import BILLION, GB, HIGH, LOW, MIB, TYPICAL
from tests.estimate import training_cases as cases

NONE, SELECTIVE, FULL = (float(RECOMPUTE.index(level)) for level in ("none", "selective", "full"))
NODES = cases.machines(("A100-80GB-SXM", 8, 1))


def dense(params: float, **shape: float | bool) -> Model:
    """A dense decoder by its numbers."""
    table = float(shape["vocab"]) * float(shape["hidden"])
    values = {
        "kv_heads": shape["heads"],
        "head_dim": shape["hidden"] / shape["heads"],
        "tied_embeddings": False,
    } | shape
    return Model(
        name="dense", kind="dense", source="test", params=params, params_active=params, params_embedding=table,
        params_lm_head=table, **values,
    )  # fmt: skip


def llama_layers(layers: int = 4, **changes: float | bool) -> Model:
    """Some layers of Llama 3.1 8B, as in the traces."""
    shape = {"layers": layers, "hidden": 4096, "ffn": 14336, "heads": 32, "kv_heads": 8, "vocab": 128_256} | changes
    blocks = layers * (2 * 4096 * 4096 + 2 * 4096 * 1024 + 3 * 4096 * 14336 + 2 * 4096) + 4096
    return dense(blocks + (1 if shape.get("tied_embeddings") else 2) * 128_256 * 4096, **shape)


def memory(model: Model, plan: Plan, nodes=NODES, **changes):
    """The estimate of a job given by what is special about it."""
    return training_memory(
        model=model, job=cases.job(**changes), plan=plan, nodes=nodes, assumptions=cases.assumptions()
    )


def allocated(model: Model, plan: Plan, **changes) -> float:
    """Typical tensors alone. [bytes]"""
    found = memory(model, plan, **changes)
    return float(np.broadcast_to(found.total - found.reserved, (3, 1, 1))[TYPICAL, 0, 0])


TRACED = {"foreach_optimizer": True, "masked_attention": True, "adapter_bytes": 2.0}
PEAKS = [  # allocated bytes traced over the transformers implementation of four layers of Llama 3.1 8B
    pytest.param(
        38_462_513_820, "amp-fp32-master", "full", 1024, 1, NONE, id="tm001: mixed precision, the step is fullest"
    ),
    pytest.param(19_231_261_340, "pure-bf16", "full", 1024, 1, NONE, id="tm002: pure bf16, the step is fullest"),
    pytest.param(6_532_088_552, "pure-bf16", "lora", 1024, 1, NONE, id="tm003: LoRA, the loss is fullest"),
    pytest.param(22_587_777_700, "pure-bf16", "full", 2048, 2, NONE, id="tm008: pure bf16, the loss is fullest"),
    pytest.param(11_510_358_760, "pure-bf16", "lora", 2048, 2, FULL, id="tm012: LoRA with recompute"),
    pytest.param(49_789_289_124, "amp-fp32-master", "full", 8192, 1, NONE, id="tm013: mixed precision at 8k tokens"),
    pytest.param(39_785_677_476, "amp-fp32-master", "full", 8192, 1, FULL, id="tm015: the same with recompute"),
]


@pytest.mark.parametrize(("expected", "recipe", "method", "tokens", "batch", "recompute"), PEAKS)
def test_traced_peaks(expected, recipe, method, tokens, batch, recompute):
    """A tensor that autograd keeps and we forget, or a moment that is fuller than the one we weigh."""
    lora = {"lora_rank": 16.0, "lora_targets": ("all",)} if method == "lora" else {}
    plan = Plan(micro_batch=float(batch), recompute=recompute)

    actual = allocated(
        llama_layers(), plan, recipe=recipe, method=method, sequence_length=float(tokens), global_batch=float(batch),
        **TRACED, **lora,
    )  # fmt: skip

    assert actual == pytest.approx(expected, rel=0.01)


FAMILIES = {  # four layers each; no constant was derived from these
    "qwen3-8b": {"hidden": 4096, "ffn": 12288, "heads": 32, "kv_heads": 8, "vocab": 151_936},
    "gemma-2b": {"hidden": 2048, "ffn": 16384, "heads": 8, "kv_heads": 1, "vocab": 256_000, "tied_embeddings": True},
    "starcoder2-3b": {
        "hidden": 3072, "ffn": 12288, "heads": 24, "kv_heads": 2, "vocab": 49_152, "tied_embeddings": True,
        "gated_mlp": False,
    },
    "granite-2b": {"hidden": 2560, "ffn": 10240, "heads": 32, "kv_heads": 8, "vocab": 49_152},
}  # fmt: skip
OTHERS = [  # allocated bytes at 2 x 2048 tokens, traced under fake tensors: transformers 5.24, torch 2.13
    pytest.param("qwen3-8b", 2_016_449_536, "amp-fp32-master", "full", NONE, 40_335_684_292, id="Qwen3, mixed"),
    pytest.param("qwen3-8b", 2_016_449_536, "pure-bf16", "lora", FULL, 12_985_445_096, id="Qwen3, LoRA"),
    pytest.param("gemma-2b", 964_708_352, "amp-fp32-master", "full", NONE, 31_571_526_820, id="Gemma, mixed"),
    pytest.param("gemma-2b", 964_708_352, "pure-bf16", "full", FULL, 20_629_869_730, id="Gemma, recompute"),
    pytest.param("gemma-2b", 964_708_352, "pure-bf16", "lora", NONE, 19_410_392_298, id="Gemma, LoRA"),
    pytest.param("starcoder2-3b", 534_917_120, "pure-bf16", "full", NONE, 7_758_930_708, id="StarCoder2, bf16"),
    pytest.param("starcoder2-3b", 534_917_120, "pure-bf16", "lora", FULL, 4_042_810_056, id="StarCoder2, LoRA"),
    pytest.param("granite-2b", 631_790_080, "amp-fp32-master", "full", NONE, 14_355_724_772, id="Granite, mixed"),
    pytest.param("granite-2b", 631_790_080, "pure-bf16", "full", NONE, 9_112_051_172, id="Granite, bf16"),
]


@pytest.mark.parametrize(("family", "params", "recipe", "method", "recompute", "expected"), OTHERS)
def test_traced_peaks_of_other_families(family, params, recipe, method, recompute, expected):
    """A count that holds for the models it was made from, and for no others."""
    shape = FAMILIES[family]
    model = dense(params, layers=4, head_dim={"qwen3-8b": 128}.get(family, shape["hidden"] / shape["heads"]), **shape)
    lora = {"lora_rank": 16.0, "lora_targets": ("all",)} if method == "lora" else {}

    actual = allocated(
        model, Plan(micro_batch=2.0, recompute=recompute), recipe=recipe, method=method, sequence_length=2048.0,
        global_batch=2.0, **TRACED, **lora,
    )  # fmt: skip

    assert actual == pytest.approx(expected, rel=0.03)


MEGATRON = [  # Figure 1 of Korthikanti et al. 2022, per GPU of the first stage, as transcribed in calculon
    pytest.param(112.5, 22, (48, 6144, 24576, 64), (8, 1, 1, 4.0, 4), NONE, id="22B"),
    pytest.param(59.2, 22, (48, 6144, 24576, 64), (8, 1, 1, 4.0, 4), SELECTIVE, id="22B, sequence parallel"),
    pytest.param(120.7, 175, (96, 12288, 49152, 96), (8, 8, 3, 1.0, 64), NONE, id="175B"),
    pytest.param(62.2, 175, (96, 12288, 49152, 96), (8, 8, 3, 1.0, 64), SELECTIVE, id="175B, sequence parallel"),
    pytest.param(176.3, 1008, (128, 25600, 102400, 160), (8, 64, 1, 1.0, 512), NONE, id="1T"),
    pytest.param(63.9, 1008, (128, 25600, 102400, 160), (8, 64, 1, 1.0, 512), SELECTIVE, id="1T, sequence parallel"),
]


@pytest.mark.parametrize(("expected_gb", "params_b", "shape", "degrees", "recompute"), MEGATRON)
def test_megatron_figures(expected_gb, params_b, shape, degrees, recompute):
    """Activations split wrongly over tensor parallel ranks, or micro-batches in flight miscounted."""
    layers, hidden, ffn, heads = shape
    tensor, pipeline, virtual, micro, batch = degrees
    model = dense(
        params_b * BILLION,
        layers=layers,
        hidden=hidden,
        ffn=ffn,
        heads=heads,
        vocab=51_200,
        gated_mlp=False,
        tied_embeddings=True,
    )
    plan = Plan(
        tensor_parallel=float(tensor), pipeline_parallel=float(pipeline), virtual_pipeline=float(virtual),
        micro_batch=micro, recompute=recompute,
    )  # fmt: skip

    actual = allocated(
        model, plan, sequence_length=2048.0, global_batch=float(batch), attention="eager", fused_norms=True,
        inplace_loss=True, dropout=True, sequence_parallel=recompute == SELECTIVE,
    )  # fmt: skip

    assert actual == pytest.approx(expected_gb * GB, rel=0.12)


STATES = [  # bytes per parameter of weights, gradients and states on one GPU, and sharded over 8
    pytest.param("megatron-bf16", 0, 18, id="Megatron, theoretical_memory_usage.py"),
    pytest.param("megatron-bf16", 1, 6 + 12 / 8, id="Megatron's distributed optimizer"),
    pytest.param("zero-bf16", 1, 4 + 12 / 8, id="ZeRO-1, arXiv 1910.02054"),
    pytest.param("zero-bf16", 2, 2 + 14 / 8, id="ZeRO-2, arXiv 1910.02054"),
    pytest.param("zero-bf16", 3, 16 / 8, id="ZeRO-3, arXiv 1910.02054"),
    pytest.param("pure-bf16", 0, 8, id="pure bf16, LLaMA-Factory rule"),
    pytest.param("fp32", 0, 16, id="fp32, ml-engineering"),
]


@pytest.mark.parametrize(("recipe", "stage", "per_parameter"), STATES)
def test_states_per_parameter(recipe, stage, per_parameter):
    """Master copies counted twice or not at all, or a stage that shards the wrong thing."""
    model = llama_layers()
    plan = Plan(data_parallel=8.0, zero_stage=float(stage), recompute=FULL)

    found = memory(model, plan, recipe=recipe, sequence_length=8.0, global_batch=64.0)

    standing = found.weights + found.gradients + found.optimizer
    assert np.allclose(standing, per_parameter * model.params, rtol=1e-6)


OPTIMIZERS = [  # bytes of states per parameter inside blocks
    pytest.param("adamw-8bit", 2 * (1 + 4 / 256), id="8-bit AdamW, arXiv 2110.02861"),
    pytest.param("sgd", 0, id="SGD"),
    pytest.param("sgd-momentum", 4, id="SGD with momentum"),
    pytest.param("lion", 4, id="Lion, arXiv 2302.06675"),
    pytest.param("adamw", 8, id="AdamW"),
]


@pytest.mark.parametrize(("optimizer", "expected"), OPTIMIZERS)
def test_states_of_optimizers(optimizer, expected):
    """An optimizer that answers for another."""
    model = llama_layers()

    found = memory(model, Plan(), recipe="fp32", optimizer=optimizer, sequence_length=8.0)

    assert np.allclose(found.optimizer, expected * model.params)


@pytest.mark.parametrize("optimizer", ["adafactor", "galore", "apollo", "galore-8bit"])
def test_factored_and_projected_states_are_small(optimizer):
    """States kept at full size would hide what these optimizers are for."""
    model = llama_layers(layers=32)
    full = memory(model, Plan(), recipe="pure-bf16", sequence_length=8.0)
    small = memory(model, Plan(), recipe="pure-bf16", optimizer=optimizer, sequence_length=8.0)

    assert np.all(small.optimizer < 0.6 * full.optimizer)


def test_step_in_backward_keeps_one_layer_of_gradients():
    """Gradients of the whole model beside a fused step: the point of it is lost."""
    model = llama_layers(layers=32)
    fused = memory(model, Plan(), recipe="pure-bf16", optimizer="adamw-fused-backward", sequence_length=8.0)
    usual = memory(model, Plan(), recipe="pure-bf16", sequence_length=8.0)

    assert np.all(fused.gradients < 0.15 * usual.gradients)


def test_quantised_base_keeps_head_and_norms_wide():
    """0.5 bytes for every parameter: wrong by half on small models with large vocabularies."""
    model = cases.model("qwen2.5-1.5b")
    job = {
        "method": "qlora",
        "recipe": "pure-bf16",
        "quantization": "nf4",
        "lora_rank": 32.0,
        "lora_targets": ("q", "k", "v", "o"),
    }

    found = memory(model, Plan(recompute=FULL), upcast_unquantised=True, sequence_length=1024.0, **job)

    # fitcheck sweep: packed weights, their scales, FP32 embedding and norms, FP32 adapters.
    assert float(np.max(found.weights)) == pytest.approx((624.75 + 78.106 + 890.803 + 33.25) * MIB, rel=0.002)


def test_wide_head_pays_sixteen_bytes_a_logit():
    """Fourteen bytes in 16 bit, sixteen in FP32, as measured; nothing of the kind with a fused loss."""
    model, tokens = cases.model("qwen2.5-1.5b"), 8192.0
    lora = {"method": "lora", "lora_rank": 8.0, "lora_targets": ("all",), "recipe": "pure-bf16"}

    def logits(**changes) -> float:
        found = memory(model, Plan(recompute=FULL), sequence_length=tokens, **(lora | changes))
        return float(np.broadcast_to(found.logits, (3, 1, 1))[TYPICAL, 0, 0])

    assert logits() == 14 * tokens * model.vocab
    assert logits(method="qlora", quantization="nf4", upcast_unquantised=True) == 16 * tokens * model.vocab
    assert logits(fused_loss=True) < 0.1 * logits()


plans = st.builds(
    Plan,
    tensor_parallel=st.sampled_from([1.0, 2.0, 8.0]),
    pipeline_parallel=st.sampled_from([1.0, 2.0, 4.0]),
    context_parallel=st.sampled_from([1.0, 2.0]),
    data_parallel=st.sampled_from([1.0, 2.0, 16.0]),
    micro_batch=st.sampled_from([1.0, 3.0]),
    zero_stage=st.sampled_from([0.0, 1.0, 2.0, 3.0]),
    recompute=st.sampled_from([NONE, SELECTIVE, FULL]),
    offload=st.sampled_from([float(place) for place in range(len(OFFLOAD))]),
    virtual_pipeline=st.sampled_from([1.0, 2.0]),
    shard_in_node=st.sampled_from([0.0, 1.0]),
)
jobs = st.fixed_dictionaries(
    {
        "recipe": st.sampled_from(sorted(cases.tables()["recipes"])),
        "optimizer": st.sampled_from(sorted(cases.tables()["optimizers"])),
        "sequence_length": st.sampled_from([512.0, 8192.0]),
        "global_batch": st.sampled_from([48.0, 960.0]),
        "attention": st.sampled_from(["fused", "eager"]),
        "fused_loss": st.booleans(),
        "fused_norms": st.booleans(),
        "method": st.sampled_from(["full", "lora", "qlora"]),
        "quantization": st.just("nf4-dq"),
        "lora_rank": st.sampled_from([8.0, 64.0]),
        "lora_targets": st.sampled_from([("all",), ("q", "v")]),
    }
)
MODELS = ("llama-3.1-8b", "qwen3-30b-a3b", "deepseek-v3", "gpt2-xl")


def run(name: str, plan: Plan, job: dict, nodes=NODES):
    """One drawn case; a format belongs to QLoRA alone."""
    job = dict(job, quantization=job["quantization"] if job["method"] == "qlora" else None)
    return memory(cases.model(name), plan, nodes, **job)


@given(name=st.sampled_from(MODELS), plan=plans, job=jobs)
def test_parts_sum_to_the_total(name, plan, job):
    """A part that the total forgets, a negative one, or bands in the wrong order."""
    found = run(name, plan, job)
    parts = [np.broadcast_to(getattr(found, part), (3, 1, 1)) for part in PARTS]

    total = np.broadcast_to(found.total, (3, 1, 1))[:, 0, 0]
    assert np.allclose(sum(parts)[:, 0, 0], total)
    assert all(np.all(part >= 0) for part in parts)
    assert total[LOW] <= total[TYPICAL] <= total[HIGH]
    assert np.all(np.isin(found.phase, range(len(PHASES))))


@given(name=st.sampled_from(MODELS), plan=plans, job=jobs, factor=st.sampled_from([2.0, 4.0]))
def test_more_tokens_never_need_less(name, plan, job, factor):
    """A longer sequence or a larger micro-batch that takes less memory."""
    total = run(name, plan, job).total

    assert np.all(
        run(name, plan, job | {"sequence_length": factor * job["sequence_length"]}).total >= total * (1 - 1e-12)
    )
    wider = replace(plan, micro_batch=factor * plan.micro_batch)
    assert np.all(run(name, wider, job | {"global_batch": factor * job["global_batch"]}).total >= total * (1 - 1e-12))


@given(name=st.sampled_from(MODELS), plan=plans, job=jobs)
def test_recompute_never_needs_more_kept(name, plan, job):
    """Full recompute that takes more than none once there are many layers."""
    none = run(name, replace(plan, recompute=NONE, pipeline_parallel=1.0), job).total
    full = run(name, replace(plan, recompute=FULL, pipeline_parallel=1.0), job).total

    assert np.all(full <= none * 1.02)


@given(job=jobs, drawn=st.lists(plans, min_size=2, max_size=4))
def test_a_table_is_what_its_cells_are(job, drawn):
    """Broadcasting over bands, plans and machines that gives another answer than one value at a time."""
    nodes = cases.machines(("A100-80GB-SXM", 8, 1), ("H100-SXM", 4, 2), ("T4", 1, 1))
    columns = {name: np.array([[getattr(plan, name)] for plan in drawn]) for name in Plan.__slots__}

    table = np.broadcast_to(run("llama-3.1-8b", Plan(**columns), job, nodes).total, (3, len(drawn), 3))

    for place, plan in enumerate(drawn):
        row = np.broadcast_to(run("llama-3.1-8b", plan, job, nodes).total, (3, 1, 3))[:, 0]
        assert np.allclose(table[:, place], row)


def test_process_holds_more_with_company():
    """One GPU that pays for communication, or experts exchanged for free."""
    alone, several, experts = (
        process_bytes(plan=plan, assumptions=cases.assumptions())
        for plan in (Plan(), Plan(data_parallel=2.0), Plan(data_parallel=2.0, expert_parallel=2.0))
    )

    assert np.all(alone < several)
    assert np.all(several < experts)


UNKNOWN = [
    pytest.param({"method": "distil"}, "method", id="method"),
    pytest.param({"attention": "linear"}, "attention", id="attention"),
    pytest.param({"method": "qlora"}, "weight format", id="QLoRA in no format"),
]


@pytest.mark.parametrize(("changes", "word"), UNKNOWN)
def test_refuses_what_is_not_modelled(changes, word):
    """An answer for something else is worse than none."""
    with pytest.raises(NotModelled, match=word):
        memory(llama_layers(), Plan(), **changes)
