"""
Publicly reported cases: someone ran out of memory, or a calculator was wrong several times over.

Each row of `reported_cases_inference.csv` is asked as its reporter asked.
"""

import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from gpuguide.accuracy.serving_memory import run_of, verdict
from gpuguide.catalog.package import data_folder
from gpuguide.estimate.kv_cache import cache_bounds
from gpuguide.estimate.serving_memory import kv_room_bytes, needed_cache_bytes, serving_memory
from gpuguide.estimate.weights import weight_bytes_per_gpu
from gpuguide.spec.plan import Plan
from gpuguide.units import GIB, TYPICAL

CASES = pd.read_csv(data_folder() / "measurements" / "reported_cases_inference.csv").set_index("case_id", drop=False)


@pytest.fixture(scope="module")
def case(catalog):
    """A row of the table as a run, with anything changed that the table says in words alone."""

    def build(case_id, **changes):
        row = {key: value for key, value in CASES.loc[case_id].to_dict().items() if not _empty(value)}
        tensor, _, stages = str(row.get("tp_pp", "1/1")).partition("/")
        row |= {"tp": _number(tensor), "pp": _number(stages), "gpu_total_gib": _number(row.get("gpu_mem_gib"))}
        row |= {"gpu_memory_utilization": _number(row.get("gpu_memory_utilization"))}
        row |= {"max_model_len": _number(row.get("context_tokens")), "batch": 1.0}
        row |= {"engine_version": (re.findall(r"V0|\d+\.\d+[\w.]*", row["engine"]) or [""])[0]}
        return run_of(row | changes, catalog)

    return build


def _empty(value):
    return isinstance(value, float) and np.isnan(value)


def _number(value):
    found = re.search(r"\d+(?:\.\d+)?", str(value))
    return float(found.group()) if found else None


def _gib(value):
    return float(np.broadcast_to(value, (3, 1, 1))[TYPICAL].ravel()[0]) / GIB


def test_longer_context_shrinks_the_room_while_prompts_are_uncut(case):
    """ri01: an 8B starts on a 24 GB card at 20k and at 35k but not at 29k. Source: vLLM issue 10517."""
    refused = case("ri01")

    assert _gib(kv_room_bytes(**refused.arguments)) == pytest.approx(2.89, abs=0.5)
    assert verdict(refused) == "no"
    assert verdict(case("ri01", max_model_len=20_000.0)) != "no"
    assert verdict(case("ri01", max_model_len=35_000.0)) != "no"


def test_four_bits_leave_embeddings_wide(case):
    """ri02: a 7B in 4 bits loads 5.2 GiB and does not start on 8 GB at 0.70. Source: vLLM issue 13882."""
    run = case("ri02")
    loaded = weight_bytes_per_gpu(model=run.model, weight_format=run.job.weight_format, plan=run.plan)

    assert float(loaded) / GIB == pytest.approx(5.20, abs=0.05)
    assert verdict(run) == "no"
    assert verdict(case("ri02", gpu_memory_utilization=0.98, other_settings="--max-num-seqs 16")) != "no"


def test_experts_and_their_sampler_fill_an_80_gb_card(case):
    """ri03: gpt-oss-120b has no room for its cache on one H100 at defaults. Source: vLLM issue 23278."""
    run = case("ri03")

    assert _gib(kv_room_bytes(**run.arguments)) == pytest.approx(-2.14, abs=2.0)
    assert verdict(run) == "no"


def test_aggregate_memory_is_not_enough(case):
    """ri04: 32 x 24 GB hold less than 671 GB of FP8 when stages are uneven. Source: DeepSeek-V3 issue 205."""
    run = case("ri04")
    first = weight_bytes_per_gpu(model=run.model, weight_format=run.job.weight_format, plan=run.plan, stage="first")

    assert float(first) / GIB == pytest.approx(16.96, rel=0.02)
    assert verdict(run) == "no"


def test_windowed_layers_do_not_fill_a_long_context(case):
    """ri05: Gemma 3 27B at 85k takes about 32 GB over four cards, not 139. Source: gpustack issue 2101."""
    run = case("ri05", gpu_total_gib=22.0, kv_dtype="q8_0", tp=1.0)
    total = _gib(serving_memory(**run.arguments).total) * run.plan.pipeline_parallel

    assert total == pytest.approx(32, rel=0.35)
    assert verdict(run) == "fits"


def test_key_value_heads_by_layer_kind(catalog):
    """
    ri06: a 12B with 40 of 48 layers windowed runs 128k in 24 GB, where 58 was predicted. Source: llama-toolchest PR 58.
    """
    row = {"model": "Gemma-4-12B", "engine": "llama.cpp", "weight_format": "gguf Q4_K_M", "kv_dtype": "q8_0"}
    row |= {"gpu": "RTX3090", "n_gpus": 1, "max_model_len": 131_072, "source_date": "2026-06-08"}
    row |= {"n_layers": "48 (40 SWA window 1024, 8 full)", "n_kv_heads": 8, "head_dim": 256}
    run = run_of(row, catalog)
    total = _gib(serving_memory(**run.arguments).total)

    assert total < 24
    assert verdict(run) != "no"
    least, most = cache_bounds(model=run.model, tokens=131_072, bytes_per_element=1.0625)
    assert most > 4 * least


def test_graphs_need_memory_too(case):
    """ri07: a 27B in NVFP4 starts on 32 GB only without CUDA graphs. Source: vllm-project/recipes Qwen3.8-27B."""
    with_graphs = case("ri07", gpu_memory_utilization=0.93)
    eager = replace(with_graphs, job=replace(with_graphs.job, cuda_graphs=False))

    assert verdict(with_graphs) != "fits"
    assert verdict(eager) != "no"
    assert _gib(serving_memory(**eager.arguments).total) < _gib(serving_memory(**with_graphs.arguments).total)


def test_text_encoders_are_part_of_a_pipeline(catalog):
    """ri08: FLUX.1-dev in 16 bit is 31 to 34 GB of weights, more than a 24 GB card. Source: flux issue 120."""
    pipeline = catalog.model("flux.1-dev")
    encoders = pipeline.component_params("text_encoder")

    assert encoders > 0.3 * pipeline.component_params("denoiser")
    assert 31 < 2 * pipeline.params / 1e9 < 35
    assert 2 * pipeline.params > 1.2 * catalog.gpu("L4").memory_bytes


def test_activation_peak_is_part_of_the_plan(case):
    """ri09: a 70B in FP8 fails on one H100 and runs on two. Source: llm-d-benchmark issue 621."""
    one = case("ri09", gpu_memory_utilization=0.9)
    two = replace(case("ri09", gpu_memory_utilization=0.9, n_gpus=2), plan=Plan(tensor_parallel=2.0))

    assert _gib(kv_room_bytes(**one.arguments)) == pytest.approx(-1.44, abs=1.0)
    assert _gib(kv_room_bytes(**two.arguments)) == pytest.approx(32.0, abs=1.0)
    assert verdict(one) == "no"
    assert verdict(case("ri09", gpu_memory_utilization=0.95)) != "fits"
    assert verdict(two) == "fits"


def test_engine_version_decides_how_many_tokens_fit(catalog):
    """ri10: the same 50 GB held 55 thousand tokens or 525 thousand. Source: vLLM issue 43308."""
    row = {"model": "Gemma-4-31B AWQ", "engine": "vLLM", "gpu": "A100-80GB-SXM", "n_gpus": 1, "max_model_len": 131_072}
    row |= {
        "weight_format": "AWQ 4-bit",
        "n_layers": "60 (50 SWA window 1024, 10 full)",
        "n_kv_heads": 16,
        "head_dim": 256,
    }
    new = run_of(row | {"engine_version": "0.21.0"}, catalog)
    old = replace(new, job=replace(new.job, engine=replace(new.job.engine, window_policy="full")))
    few, many = (131_072 * kv_room_bytes(**run.arguments) / needed_cache_bytes(**run.arguments) for run in (old, new))

    assert _gib(kv_room_bytes(**new.arguments)) == pytest.approx(50, abs=5)
    assert _gib(few) * GIB == pytest.approx(55_000, rel=0.25)
    assert 4 < _gib(many) / _gib(few) < 12


def test_a_mixture_needs_all_its_experts(catalog):
    """A 122B mixture in 4 bits is about 70 GB, not 33 GB by active parameters. Source: llmfit issue 230."""
    row = {"model": "Qwen3.5-122B-A10B", "engine": "llama.cpp", "weight_format": "gguf Q4_K_M", "gpu": "RTX-A6000"}
    run = run_of(row | {"n_gpus": 1, "max_model_len": 8192}, catalog)
    loaded = weight_bytes_per_gpu(model=run.model, weight_format=run.job.weight_format, plan=run.plan)

    assert 65 < float(loaded) / 1e9 < 80
    assert verdict(run) == "no"


def test_every_case_is_tested():
    """A new row in the table must get its test."""
    assert set(CASES.index) == {f"ri{number:02d}" for number in range(1, 11)}


@pytest.mark.parametrize("case_id", ["ri01", "ri02", "ri03", "ri04", "ri07", "ri09"])
def test_no_refused_run_is_said_to_fit(case, case_id):
    """A false 'fits' costs a renter a machine."""
    assert "not start" in CASES.loc[case_id, "observed_verdict"] or case_id == "ri07"
    assert verdict(case(case_id)) != "fits"
