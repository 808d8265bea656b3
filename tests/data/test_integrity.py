"""What must hold between and within the tables, beyond what reading them already checks."""

import csv
import json
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pandas as pd
import pytest

from gpuguide.catalog.package import data_folder, describe, read_objects, read_table

CSV_TABLES = sorted(name for name, resource in describe().items() if resource["format"] == "csv")
FIELDS = [(name, field) for name, resource in describe().items() for field in resource["schema"]["fields"]]


@pytest.fixture(scope="module")
def gpus() -> pd.DataFrame:
    return read_table("gpus").set_index("gpu")


@pytest.fixture(scope="module")
def offers() -> pd.DataFrame:
    return read_table("offers")


# ---- the description -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CSV_TABLES)
def test_every_table_reads(name: str) -> None:
    """Keys, foreign keys, types, ranges and dates are checked on reading."""
    assert len(read_table(name)) > 0


def test_every_file_is_described() -> None:
    """A file that the data package does not name has no units and no licence."""
    folder = data_folder()
    described = {resource["path"] for resource in describe().values()}
    files = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.suffix in (".csv", ".json")}
    configs = {path for path in files if path.startswith("hf_configs/") and path.endswith(".json")}

    assert files - configs - {"datapackage.json"} == described
    with (folder / "hf_configs" / "expected.csv").open(encoding="utf-8", newline="") as file:
        expected = {f"hf_configs/{row['file']}" for row in csv.DictReader(file)}
    assert expected <= configs


@pytest.mark.parametrize("name", CSV_TABLES)
def test_columns_stand_in_the_order_described(name: str) -> None:
    resource = describe()[name]
    with (data_folder() / resource["path"]).open(encoding="utf-8", newline="") as file:
        assert next(csv.reader(file)) == [field["name"] for field in resource["schema"]["fields"]]


@pytest.mark.parametrize(
    "field",
    [
        pytest.param(field, id=f"{name}.{field['name']}")
        for name, field in FIELDS
        if field["type"] in ("number", "integer")
    ],
)
def test_every_number_has_a_unit(field: dict[str, Any]) -> None:
    """A number without its unit is read in the wrong one sooner or later."""
    assert field["unit"]


SUFFIXES = {
    "_usd_per_hour": "USD/h",
    "_gib": "GiB",
    "_gb": "GB",
    "_mib": "MiB",
    "_bytes": "bytes",
    "_tflops": "TFLOP/s",
    "_ms": "ms",
    "_us": "us",
}


@pytest.mark.parametrize(
    ("field", "unit"),
    [
        pytest.param(field, unit, id=f"{name}.{field['name']}")
        for name, field in FIELDS
        for suffix, unit in SUFFIXES.items()
        if field["name"].endswith(suffix) and "_per_gb" not in field["name"] and field["type"] == "number"
    ],
)
def test_unit_agrees_with_the_name(field: dict[str, Any], unit: str) -> None:
    """A column called _gib that is described in GB is off by 7 %."""
    assert field["unit"] == unit


def test_every_row_says_where_it_is_from() -> None:
    for name in CSV_TABLES:
        table = read_table(name)
        sources = [
            column for column in table if column in ("source", "source_url", "source_path_or_url", "source_title")
        ]
        assert sources, name
        assert (table[sources] != "").any(axis=1).all(), name


@pytest.mark.parametrize("name", [*CSV_TABLES, "models"])
def test_dates_are_not_in_the_future(name: str) -> None:
    """Tomorrow is allowed: it may have begun elsewhere."""
    dates = read_table(name)["as_of"] if name in CSV_TABLES else pd.Series([m["as_of"] for m in read_objects(name)])

    assert dates.max() <= (datetime.now(UTC) + timedelta(days=1)).date().isoformat()
    assert dates.min() >= "2020-01-01"


def test_attribution_is_kept() -> None:
    """CC BY 4.0 asks for this line; the licence of the table depends on it."""
    line = "GPU rental price data by gpurentalprices.com, CC BY 4.0"
    readme = re.sub(r"\[([^]]+)\]\([^)]+\)", r"\1", (data_folder() / "README.md").read_text(encoding="utf-8"))
    package = json.loads((data_folder() / "datapackage.json").read_text(encoding="utf-8"))

    assert line in readme
    assert line in [source["title"] for source in package["sources"]]


# ---- offers ----------------------------------------------------------------------------------------------------------


def test_prices_are_positive_and_spot_is_not_above_on_demand(offers: pd.DataFrame) -> None:
    both = offers.dropna(subset=["price_usd_per_hour", "spot_usd_per_hour"])

    assert not (offers[["price_usd_per_hour", "spot_usd_per_hour"]] <= 0).to_numpy().any()
    assert (both["spot_usd_per_hour"] <= both["price_usd_per_hour"]).all()
    assert offers[["price_usd_per_hour", "spot_usd_per_hour"]].notna().any(axis=1).all()


def test_price_of_one_gpu_is_plausible(offers: pd.DataFrame) -> None:
    """A bid floor (0.01 or 1.00 USD for an H200) or the price of eight cards taken for one would show here."""
    each = offers["price_usd_per_hour"] / offers["gpu_count"]
    data_centre = offers["gpu"].str.match(r"^(H100|H200|B200|B300|GB200|GB300|MI300X|MI325X)")

    assert each.max() < 60
    assert each[data_centre].min() > 0.8
    assert (offers["spot_usd_per_hour"] / offers["gpu_count"])[data_centre].min() > 0.3


def test_every_gpu_is_known_or_named_as_not_stated(offers: pd.DataFrame, gpus: pd.DataFrame) -> None:
    unstated = read_table("unstated_gpus").set_index("name")

    assert set(offers["gpu"]) <= set(gpus.index) | set(unstated.index)
    assert not set(unstated.index) & set(gpus.index)
    assert set(unstated.index) <= set(offers["gpu"]), "a name that no offer has"
    assert (unstated.loc[unstated["reason"] == "form factor not stated", "stand_in"] != "").all()


@pytest.mark.parametrize("name", read_table("unstated_gpus").query("stand_in != ''")["name"])
def test_a_stand_in_is_never_the_faster_card(name: str, gpus: pd.DataFrame) -> None:
    """An H100 of unknown make must not be ranked with the rates of the SXM module."""
    stand_in = gpus.loc[read_table("unstated_gpus").set_index("name").loc[name, "stand_in"]]
    same_chip = gpus[gpus.index.str.startswith(name + "-") & (gpus["memory_gb"] == stand_in["memory_gb"])]

    rates = ["bandwidth_gb_s", "fp16_tflops_dense", "memory_gib_usable"]
    assert (same_chip[rates].fillna(np.inf) >= stand_in[rates].fillna(0)).all(axis=None)


def test_memory_of_an_offer_is_that_of_its_gpu(offers: pd.DataFrame, gpus: pd.DataFrame) -> None:
    """40 and 80 GB cards under one name, or the memory of the machine for that of one card, would show here."""
    joined = offers.join(gpus["memory_gb"], on="gpu", how="inner")
    # Marketed with 288 GB, of which 270 and 279 are usable; gpus.csv wins.
    joined = joined[~joined["gpu"].isin(["B300", "GB300"])]

    assert (np.abs(joined["gpu_memory_gb"] / joined["memory_gb"] - 1) <= 0.02).all()


def test_more_gpus_of_one_list_cost_more(offers: pd.DataFrame) -> None:
    """Eight cards cheaper than four of the same list are a slip of a column."""
    lists = offers[(offers["kind"] == "on_demand") & (offers["price_basis"] == "instance")].dropna(
        subset=["price_usd_per_hour"]
    )
    least = lists.groupby(["provider", "region", "gpu", "gpu_count"])["price_usd_per_hour"].min().reset_index()
    for key, rows in least.groupby(["provider", "region", "gpu"]):
        assert rows["price_usd_per_hour"].is_monotonic_increasing, key


# ---- GPUs ------------------------------------------------------------------------------------------------------------


def test_fp8_is_twice_bf16(gpus: pd.DataFrame) -> None:
    """A sparse figure in one column and a dense one in the other would show here."""
    both = gpus[gpus["vendor"].isin(["NVIDIA", "AMD"])].dropna(subset=["fp8_tflops_dense", "bf16_tflops_dense"])

    assert len(both) > 30
    assert (np.abs(both["fp8_tflops_dense"] / both["bf16_tflops_dense"] / 2 - 1) < 0.03).all()


def test_flop_per_byte_is_that_of_a_gpu(gpus: pd.DataFrame) -> None:
    """H20 37, A100 153, B200 281, H100 295, RTX 5000 Ada 453; a sparse figure would lift Hopper to about 590."""
    ours = gpus[gpus["vendor"].isin(["NVIDIA", "AMD", "Intel"])].dropna(subset=["bf16_tflops_dense", "bandwidth_gb_s"])
    flop_per_byte = ours["bf16_tflops_dense"] * 1e3 / ours["bandwidth_gb_s"]

    assert flop_per_byte.between(30, 460).all(), flop_per_byte[~flop_per_byte.between(30, 460)]


def test_usable_memory_is_below_what_is_sold(gpus: pd.DataFrame) -> None:
    """Sold GB are nearly GiB on most cards, so usable GiB lie between 92 % and 100 % of the sold figure."""
    share = (gpus["memory_gib_usable"] / gpus["memory_gb"]).dropna()
    assert share.between(0.92, 1.0).all()
    assert not (gpus["torch_total_gib"] > gpus["memory_gib_usable"]).any()


def test_what_was_measured_is_below_what_is_specified(gpus: pd.DataFrame) -> None:
    """Boost clocks above the specified one allow a tenth more on GeForce cards, not double."""
    assert ((gpus["measured_bf16_tflops"] / gpus["bf16_tflops_dense"]).dropna() < 1.12).all()
    assert ((gpus["measured_bandwidth_gb_s"] / gpus["bandwidth_gb_s"]).dropna() <= 1.0).all()


# ---- models ----------------------------------------------------------------------------------------------------------

MODELS = read_objects("models")


def test_active_weights_are_no_more_than_all() -> None:
    for model in MODELS:
        assert (model.get("params_active") or 0) <= model["params_total"], model["id"]


def test_only_sparse_models_have_experts() -> None:
    for model in MODELS:
        routed = model.get("params_routed_experts") or 0
        assert (routed > 0) == bool(model.get("moe")), model["id"]


def test_cache_of_one_token_follows_from_the_heads() -> None:
    """Attention heads for KV heads, or one tensor for two, would show here; MLA and hybrids have their own shapes."""
    plain = [m for m in MODELS if m["kind"] in ("dense", "moe") and m["attention"]["type"] in ("mha", "gqa", "mqa")]

    assert len(plain) > 70
    for model in plain:
        if model["model_type"] in ("gemma4", "deepseek_v4"):  # layers differ in heads, or keep summaries of tokens
            continue
        assert model["kv_bytes_per_token_bf16"] == 2 * 2 * model["layers"] * model["kv_heads"] * model["head_dim"], (
            model["id"]
        )


def test_weights_in_bf16_are_two_bytes_each() -> None:
    for model in MODELS:
        assert model["weight_bytes_bf16"] == 2 * model["params_total"], model["id"]


# ---- measured links --------------------------------------------------------------------------------------------------


def test_measured_collectives_stay_below_the_specified_rate() -> None:
    """NVLS sums in the switch and may pass the link's own rate; another algorithm may not. Unnamed it can be either."""
    links = read_table("interconnects")
    inside = links[links["measured"] & (links["scope"] == "intra_node") & ~links["algo"].str.match("NVLS|$")]
    ratio = (inside["busbw_gb_s"] / inside["theory_gb_s_per_dir_per_gpu"]).dropna()

    assert len(ratio) > 50
    assert (ratio <= 1.05).all(), inside.loc[ratio[ratio > 1.05].index, ["name", "gpu", "algo", "busbw_gb_s"]]


@pytest.mark.slow
def test_frictionless_agrees() -> None:
    """The description is a valid Data Package for other tools too."""
    frictionless = pytest.importorskip("frictionless")
    package = json.loads((data_folder() / "datapackage.json").read_text(encoding="utf-8"))
    package["resources"] = [resource for resource in package["resources"] if resource["format"] == "csv"]

    report = frictionless.Package.from_descriptor(package, basepath=str(data_folder())).validate()

    assert report.valid, report.flatten(["title", "rowNumber", "fieldName", "message"])[:5]
