"""Scores of training memory: the promised accuracy on published runs, and what rows are read as."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from gpuguide.accuracy.table import SCORED, summarise
from gpuguide.accuracy.training_jobs import Skip, sharding
from gpuguide.accuracy.training_memory import CALIBRATED, SCORERS, Answer, as_printed
from gpuguide.accuracy.training_rows import ask, usable_bytes_of
from gpuguide.estimate.results import MemoryBreakdown
from gpuguide.spec.plan import OFFLOAD, RECOMPUTE
from gpuguide.units import GIB

PROMISED = [  # table, median error, 90th percentile, share within the band, high over low
    pytest.param("torch_memory", 0.03, 0.08, 0.0, 1.4, id="traced"),
    pytest.param("training_memory", 0.08, 0.25, 0.80, 1.4, id="published"),
    pytest.param("training_memory_components", 0.10, 0.25, 0.60, 1.4, id="parts"),
]


def measurements(name, catalog):
    return pd.read_csv(catalog.folder / "measurements" / f"{name}.csv")


@pytest.fixture(scope="module")
def published(catalog):
    """The largest table, scored once."""
    return SCORERS["training_memory"](measurements("training_memory", catalog), catalog)


@pytest.mark.parametrize(("table", "median", "p90", "within", "ratio"), PROMISED)
def test_promised_accuracy(table, median, p90, within, ratio, catalog):
    """A change that worsens the estimates beyond what the accuracy page promises."""
    scored = SCORERS[table](measurements(table, catalog), catalog)
    score = summarise(scored)

    assert tuple(scored.columns) == SCORED
    assert score.median_abs_error <= median
    assert score.p90_abs_error <= p90
    assert score.within_band >= within
    assert score.median_band_ratio <= ratio


def test_out_of_memory_is_foreseen(published):
    """A run that died is said to fit; a longest context is said not to fit, or to fit twice."""
    asked = published[published["skip"] == ""]
    died, fitted = asked[asked["expected"] == "no"], asked[asked["expected"] == "fits"]

    assert np.mean(died["verdict"] != "fits") >= 0.95
    assert np.mean(fitted["verdict"] != "no") >= 0.80


def test_few_rows_are_skipped(published):
    """Accuracy bought by leaving out what is hard."""
    skip = published["skip"]
    left_out = (skip != "") & ~skip.str.startswith("not scoreable")

    assert left_out.sum() <= 0.10 * (left_out.sum() + (skip == "").sum())


def test_every_part_of_a_peak(catalog):
    """A total that is right by errors that cancel."""
    scored = SCORERS["training_memory_components"](measurements("training_memory_components", catalog), catalog)
    error = (scored["typical"] / scored["measured"] - 1).abs()

    assert error.groupby(scored["row_id"].str.split(":").str[1]).median().max() <= 0.10


def test_no_source_carries_the_score(published):
    """A median that rests on one source: without any one of them it must hold within half as much again."""
    kept = published[(published["skip"] == "") & published["measured"].notna()]
    error = (kept["typical"] / kept["measured"] - 1).abs()

    for source in kept["source_id"].unique():
        assert error[kept["source_id"] != source].median() <= 1.5 * 0.08


def test_few_constants_are_calibrated(catalog):
    """Constants beyond what physics allows, or so many that a fit proves nothing."""
    rows = {name: row for name, row in catalog.assumptions.rows.items() if name.startswith("training_memory_")}

    assert {name for name, row in rows.items() if row.calibrated} == set(CALIBRATED)
    for name, (low, high) in CALIBRATED.items():
        assert low <= rows[name].typical <= high


BASE = {
    "row_id": "row", "source_id": "source", "model": "Llama-2-7B", "params_b": 6.738, "layers": 32, "hidden": 4096,
    "heads": 32, "kv_heads": 32, "head_dim": 128, "ffn_hidden": 11008, "vocab": 32000, "method": "lora",
    "optimizer": "adamw", "precision": "bf16", "seq_len": 1024, "micro_batch": 2, "activation_checkpointing": "full",
    "gpus": 8, "gpu": "A100-80GB-SXM",
}  # fmt: skip
PLANS = [  # words of a row, and the plan fields they stand for
    pytest.param({"zero_stage": "deepspeed zero3"}, {"zero_stage": 3, "data_parallel": 8}, id="ZeRO-3"),
    pytest.param({"zero_stage": "ZeRO-2"}, {"zero_stage": 2}, id="ZeRO-2 with a dash"),
    pytest.param({"zero_stage": 1.0}, {"zero_stage": 1}, id="stage as a number"),
    pytest.param({"zero_stage": "fsdp hybrid_shard"}, {"zero_stage": 3, "shard_in_node": 1}, id="hybrid sharding"),
    pytest.param({"dp_strategy": "fsdp"}, {"zero_stage": 3}, id="another column"),
    pytest.param({"zero_stage": "ddp"}, {"zero_stage": 0, "data_parallel": 8}, id="replicas"),
    pytest.param(
        {"zero_stage": "megatron tp2 pp2 ep1 cp2 + distributed optimizer"},
        {"tensor_parallel": 2, "pipeline_parallel": 2, "context_parallel": 2, "data_parallel": 1, "zero_stage": 1},
        id="Megatron",
    ),
    pytest.param({"zero_stage": "none (tp8 pp1, interleave 3)"}, {"virtual_pipeline": 3}, id="interleaved"),
    pytest.param({"offload": "cpu optimizer"}, {"offload": OFFLOAD.index("optimizer")}, id="optimizer on the host"),
    pytest.param({"offload": "cpu params"}, {"offload": OFFLOAD.index("all")}, id="weights on the host"),
    pytest.param({"activation_checkpointing": "selective"}, {"recompute": RECOMPUTE.index("selective")}, id="part"),
    pytest.param({"activation_checkpointing": np.nan}, {"recompute": 0}, id="blank"),
]
JOBS = [  # words of a row, and the job fields they stand for
    pytest.param({"target_modules": "c_attn,attn.c_proj"}, {"lora_targets": ("q", "k", "v", "o")}, id="joint"),
    pytest.param({"target_modules": "query,value (default)"}, {"lora_targets": ("v", "q")}, id="query and value"),
    pytest.param({"precision": "bf16-true"}, {"adapter_bytes": 2.0}, id="everything in bf16"),
    pytest.param({"flash_attention": "no"}, {"attention": "eager"}, id="eager"),
    pytest.param({"fused_ce": "liger"}, {"fused_loss": True, "fused_norms": True}, id="Liger"),
    pytest.param({"flash_attention": "yes (unsloth)"}, {"fused_adapters": True, "fused_loss": True}, id="Unsloth"),
    pytest.param({"zero_stage": "megatron tp8 pp1"}, {"inplace_loss": True, "fused_loss": False}, id="Megatron"),
    pytest.param({"method": "qlora", "source_date": "2023-10-20"}, {"keeps_quantised_inputs": True}, id="early QLoRA"),
    pytest.param({"method": "qlora", "source_date": "2025-01"}, {"keeps_quantised_inputs": False}, id="later QLoRA"),
]
NAMES = [  # words of a row, and the table rows they stand for: recipe, optimizer, format
    pytest.param({"method": "full", "zero_stage": "zero3"}, ("zero-bf16", "adamw", None), id="ZeRO"),
    pytest.param({"method": "full"}, ("pure-bf16", "adamw", None), id="one GPU"),
    pytest.param({"precision": "bf16-mixed (fp32 weights)"}, ("amp-fp32-master", "adamw", None), id="autocast"),
    pytest.param({"method": "qlora", "quant": "nf4 (no double quant)"}, ("pure-bf16", "adamw", "nf4"), id="NF4"),
    pytest.param(
        {"method": "qlora", "quant": "nf4-dq", "optimizer": "paged_adamw_8bit"},
        ("pure-bf16", "paged-adamw-8bit", "nf4-dq"), id="double quantisation",
    ),
    pytest.param({"quant": "8bit"}, ("pure-bf16", "adamw", "bnb-int8"), id="LoRA on 8 bit"),
    pytest.param(
        {"method": "full", "optimizer": "galore_adamw8bit_per_layer rank 512"},
        ("pure-bf16", "galore-8bit", None), id="GaLore",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("words", "expected"), PLANS)
def test_plan_of_a_row(words, expected, catalog):
    """Sharding read from one spelling only."""
    plan = ask(BASE | words, catalog).plan

    assert {name: getattr(plan, name) for name in expected} == expected


@pytest.mark.parametrize(("words", "expected"), JOBS)
def test_job_of_a_row(words, expected, catalog):
    """Kernels and adapters read from one spelling only."""
    job = ask(BASE | words, catalog).job

    found = {name: getattr(job, name) for name in expected}
    assert {name: set(value) if isinstance(value, tuple) else value for name, value in found.items()} == {
        name: set(value) if isinstance(value, tuple) else value for name, value in expected.items()
    }


@pytest.mark.parametrize(("words", "expected"), NAMES)
def test_tables_named_by_a_row(words, expected, catalog):
    """An optimizer, recipe or format that answers for another."""
    job = ask(BASE | words, catalog).job

    assert (job.recipe.name, job.optimizer.name, job.quantization.name if job.quantization else None) == expected


def test_shape_explains_the_parameter_count(catalog):
    """A plain MLP taken for a gated one, or a tied head counted twice."""
    plain = {"params_b": 1.418, "layers": 24, "hidden": 2048, "head_dim": 64, "ffn_hidden": 8192, "vocab": 51200}
    tied = {"params_b": 1.236, "layers": 16, "hidden": 2048, "kv_heads": 8, "head_dim": 64, "ffn_hidden": 8192}

    assert not ask(BASE | plain, catalog).model.gated_mlp
    assert ask(BASE | tied | {"vocab": 128256}, catalog).model.tied_embeddings


SKIPPED = [
    pytest.param({"optimizer": "badam"}, "optimizer", id="optimizer"),
    pytest.param({"method": "prefix"}, "method", id="method"),
    pytest.param({"layers": np.nan, "model": "no such model 7B"}, "architecture", id="architecture"),
    pytest.param({"zero_stage": "device_map"}, "device_map", id="one layer at a time"),
]


@pytest.mark.parametrize(("words", "reason"), SKIPPED)
def test_what_cannot_be_asked_says_why(words, reason, catalog):
    """A row scored as something it is not."""
    with pytest.raises(Skip, match=reason):
        ask(BASE | words, catalog)


def test_card_by_name_or_size(catalog):
    """A card's label taken for what a process can use."""
    assert usable_bytes_of({"gpu": "t4"}, catalog) == catalog.gpus["T4"].memory_bytes
    assert 23 * GIB < usable_bytes_of({"gpu": "24GB GPU"}, catalog) < 24 * GIB
    assert usable_bytes_of({"gpu": np.nan}, catalog) is None
    assert sharding({"zero_stage": np.nan}) == ""


def test_tools_print_different_sums():
    """nvidia-smi compared with tensors alone, which is the commonest mistake with such tables."""
    answer = Answer(breakdown=MemoryBreakdown(), allocated=np.ones(3), reserved=2 * np.ones(3), process=3 * np.ones(3))
    printed = SimpleNamespace(
        allocated=as_printed(answer, "torch.cuda.max_memory_allocated"),
        reserved=as_printed(answer, "peak reserved"),
        process=as_printed(answer, "nvidia-smi screenshot"),
    )

    assert (printed.allocated[0], printed.reserved[0], printed.process[0]) == (1, 2, 3)
