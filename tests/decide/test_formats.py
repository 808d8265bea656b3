"""One model in every format: sizes as published, offers as the decision of each, and reasons where there is none."""

import numpy as np
import pytest

from gpuguide import Scenario, decide, load_catalog
from gpuguide.decide.formats import formats
from gpuguide.errors import NotModelled
from gpuguide.units import GIB


def asked(**keys):
    """The table of formats, and the decision it belongs to."""
    catalog, scenario = load_catalog(), Scenario(workload="serve", **keys)

    def ask(change):
        return decide(catalog.resolve(scenario.model_copy(update=dict(change))))

    decision = ask({})
    return formats(decision, ask).set_index("weight_format"), decision, ask


@pytest.fixture(scope="module")
def llama():
    return asked(model="llama-3.1-8b", concurrency=16)


PUBLISHED = [  # bytes of the weights
    pytest.param("bf16", 16.06e9, id="Llama 3.1 8B, 8.03e9 parameters, model card"),
    pytest.param("Q4_K_M", 4.92e9, id="llama.cpp tools/quantize/README.md, 4.58 GiB"),
    pytest.param("Q8_0", 8.54e9, id="llama.cpp tools/quantize/README.md, 7.95 GiB"),
]


@pytest.mark.parametrize(("name", "published"), PUBLISHED)
def test_weights_are_as_large_as_published(llama, name, published):
    """A format whose size is wrong would be shown on the wrong GPU."""
    assert llama[0].loc[name, "weights_bytes"] == pytest.approx(published, rel=0.01)


def test_each_row_is_the_decision_of_its_format(llama):
    """The table would promise an offer that the ranking of that format does not have first."""
    table, decision, ask = llama
    assert table.loc["bf16", "asked"]
    assert table["asked"].sum() == 1
    assert table.loc["bf16", "usd_per_million_tokens"] == decision.best["usd_per_million_tokens"]
    best = ask({"weight_format": "awq"}).best
    assert table.loc["awq", "tokens_per_s_typical"] == best["tokens_per_s_typical"]
    assert table.loc["awq", "provider"] == best["provider"]
    assert (table["fit"] != "no").all()
    assert table.loc["Q4_K_M", "engine"] == "llama.cpp"


def test_narrower_formats_come_later_and_need_less(llama):
    """'FP8 and INT8 let larger models run on less memory' (G4)."""
    table = llama[0]
    assert table["bits_per_weight"].is_monotonic_decreasing
    assert table.loc["bf16", "need_bytes"] > table.loc["fp8", "need_bytes"] > table.loc["awq", "need_bytes"]


def test_seventy_billion_on_one_card():
    """G2: 70B in 16 bit does not fit one 80 GB card, in 4 bits it fits one of 48 GB; the best other offer is named."""
    table, _, _ = asked(model="llama-3.1-70b", gpu=["A100-80GB-SXM"], gpus=1, max_context=4096)
    assert table.loc["bf16", "fit"] == "no"
    assert table.loc["bf16", "lacks_bytes"] > 50 * GIB
    assert table.loc["bf16", "gpu"] != "A100-80GB-SXM"
    assert table.loc["awq", "fit"] != "no"
    assert table.loc["awq", "gpu"] == "A100-80GB-SXM"


def test_too_slow_is_no_lack_of_memory():
    """A card that holds the model and misses the limit on latency lacks nothing; the step is named instead."""
    table, _, _ = asked(model="llama-3.1-8b", gpu=["L4"], gpus=1, max_tpot_s=0.02)
    row = table.loc["bf16"]
    assert (row["fit"], row["dropped_by"]) == ("no", "bandwidth")
    assert np.isnan(row["lacks_bytes"])


@pytest.mark.parametrize(
    ("model", "present", "absent"),
    [
        pytest.param("gpt-oss-120b", {"mxfp4", "awq-g64"}, {"awq", "mxfp4-all"}, id="2880 wide: groups of 64"),
        pytest.param("llama-3.1-8b", {"mxfp4-all", "awq"}, {"awq-g64", "mxfp4"}, id="dense, 4096 wide"),
    ],
)
def test_only_forms_that_the_model_can_have(model, present, absent):
    """A row for a checkpoint that cannot exist."""
    names = set(asked(model=model)[0].index)
    assert present <= names
    assert not absent & names


def test_an_engine_that_cannot_load_a_format_says_so():
    table, _, _ = asked(model="llama-3.1-8b", engine="llama.cpp", weight_format="Q4_K_M")
    assert set(table.index[table["reason"] == "engine"]) >= {"fp8", "int8", "awq", "gptq", "nf4", "nvfp4"}
    assert set(table.index[table["reason"] == ""]) == {"bf16", "Q8_0", "Q4_K_M"}


def test_nothing_holds_it_anywhere():
    """Where no offer of the market is left, the row says so instead of naming one that is not there."""
    table, _, _ = asked(model="llama-3.1-405b", gpus=1, max_context=1024, concurrency=1, prompt_tokens=512)
    assert table.loc["bf16", "reason"] == "nothing"
    assert table.loc["bf16", "lacks_bytes"] > 0


def test_training_is_refused():
    catalog = load_catalog()
    with pytest.raises(NotModelled):
        formats(decide(catalog.resolve(Scenario(workload="qlora", model="llama-3.1-8b"))), lambda change: None)
