"""A broken row is refused with the file, the row and the column; a good table comes in the types it is described in."""

import json
import math
import shutil
from pathlib import Path

import numpy as np
import pytest

from gpuguide.catalog import package
from gpuguide.catalog.package import data_folder, read_objects, read_table
from gpuguide.errors import DataError, UnknownName

OFFERS_ROW_2 = {
    "provider": "aws",
    "instance_type": "p5.48xlarge",
    "gpu": "H100-SXM",
    "gpu_count": "8",
    "gpu_memory_gb": "80",
    "vcpus": "192",
    "ram_gb": "2048",
    "region": "us-east-1",
    "price_usd_per_hour": "55.04",
    "spot_usd_per_hour": "20.5",
    "kind": "on_demand",
    "price_basis": "instance",
    "source": "list",
    "as_of": "2026-07-20",
    "note": "",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the data folder without measurements, to be broken."""
    copy = tmp_path / "data"
    shutil.copytree(data_folder(), copy, ignore=shutil.ignore_patterns("measurements", "hf_configs"))
    return copy


def write_offers(folder: Path, *rows: dict[str, str]) -> None:
    lines = [",".join(OFFERS_ROW_2), *(",".join(row.values()) for row in rows)]
    (folder / "offers.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")


def test_a_good_row_comes_in_its_types(folder: Path) -> None:
    """Counts that turn into text, or empty cells into words, would show here."""
    write_offers(folder, OFFERS_ROW_2 | {"spot_usd_per_hour": ""})

    row = read_table("offers", folder).iloc[0]

    assert (row["gpu_count"], row["price_usd_per_hour"], row["as_of"], row["note"]) == (8, 55.04, "2026-07-20", "")
    assert math.isnan(row["spot_usd_per_hour"])


@pytest.mark.parametrize(
    ("column", "cell", "says"),
    [
        ("gpu_count", "0", "0 is out of range; it must be at least 1"),
        ("gpu_count", "-8", "it must be at least 1"),
        ("gpu_count", "2.5", "'2.5' is not a whole number"),
        ("gpu_count", "", "is empty and must not be"),
        ("price_usd_per_hour", "0", "0 is out of range; it must be at least 0.001 USD/h"),
        ("price_usd_per_hour", "-1", "it must be at least 0.001 USD/h"),
        ("price_usd_per_hour", "cheap", "'cheap' is not a number"),
        ("price_usd_per_hour", "nan", "'nan' is not a finite number"),
        ("price_usd_per_hour", "inf", "'inf' is not a finite number"),
        ("price_usd_per_hour", "1_000", "'1_000' is not a number"),
        ("spot_usd_per_hour", "55.05", "55.05 is more than price_usd_per_hour, 55.04"),
        ("gpu", "H100-SMX", "'H100-SMX' is not in gpus.csv or unstated_gpus.csv; did you mean H100-SXM"),
        ("provider", "asw", "'asw' is not in providers.csv; did you mean aws"),
        ("kind", "on-demand", "'on-demand' is not one of on_demand, marketplace, serverless, community"),
        ("as_of", "20.07.2026", "'20.07.2026' is not a date; write it as 2026-11-30"),
        ("as_of", "2026-02-30", "'2026-02-30' is not a date"),
        ("source", "", "is empty and must not be"),
    ],
)
def test_a_broken_cell_is_named(folder: Path, column: str, cell: str, says: str) -> None:
    """Without the place a reader would search 1,493 rows by eye."""
    write_offers(folder, OFFERS_ROW_2, OFFERS_ROW_2 | {"region": "us-west-2"} | {column: cell})

    with pytest.raises(DataError) as caught:
        read_table("offers", folder)

    assert (caught.value.file, caught.value.row, caught.value.column) == ("offers.csv", 3, column)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_offer_without_any_price_is_refused(folder: Path) -> None:
    write_offers(folder, OFFERS_ROW_2 | {"price_usd_per_hour": "", "spot_usd_per_hour": ""})

    with pytest.raises(DataError, match=r"offers.csv, row 2, column price_usd_per_hour: one of .* must be given"):
        read_table("offers", folder)


def test_a_row_that_is_there_twice_is_refused(folder: Path) -> None:
    """The same offer at two prices: which one is right cannot be known."""
    write_offers(folder, OFFERS_ROW_2, OFFERS_ROW_2 | {"price_usd_per_hour": "50"})

    with pytest.raises(DataError, match=r"offers.csv, row 3, column provider: aws p5.48xlarge us-east-1 .*twice"):
        read_table("offers", folder)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (b"", "row 1: has no header"),
        (b"name,stand_in\n", "row 1, column reason: is missing from the header"),
        (b"{header},spot\n", "row 1, column spot: is not described in datapackage.json"),
        (b'{header}\n"H100', "row 2: is not CSV"),
        (b"{header}\nH100,no specification,\n", "row 2: has 3 cells where the header has 6"),
        (b"{header}\n\xff\n", "cannot be read"),
    ],
)
def test_a_file_that_is_no_table_is_refused(folder: Path, text: bytes, says: str) -> None:
    """A spreadsheet saved badly gets one sentence, not a traceback of the CSV reader."""
    path = folder / "unstated_gpus.csv"
    path.write_bytes(text.replace(b"{header}", path.read_bytes().splitlines()[0]))

    with pytest.raises(DataError) as caught:
        read_table("unstated_gpus", folder)

    assert caught.value.file == "unstated_gpus.csv"
    assert says in str(caught.value)


def test_a_missing_file_is_named(folder: Path) -> None:
    (folder / "gpus.csv").unlink()

    with pytest.raises(DataError, match=r"gpus.csv: cannot be read"):
        read_table("gpus", folder)


def test_an_unknown_table_gets_the_nearest_name() -> None:
    with pytest.raises(UnknownName, match="did you mean offers"):
        read_table("offer")


@pytest.mark.parametrize(
    ("change", "column", "says"),
    [
        ({"params_total": None}, "params_total", "is empty"),
        ({"params_total": 0}, "params_total", "0 is out of range; it must be at least 1"),
        ({"params_total": "7B"}, "params_total", "'7B' is not of type integer"),
        ({"layers": True}, "layers", "True is not of type integer"),
        ({"kind": "sparse"}, "kind", "'sparse' is not one of dense"),
        ({"as_of": "2026"}, "as_of", "'2026' is not a date"),
        ({"id": "meta-llama/Llama-2-13b-hf"}, "id", "is there twice"),
    ],
)
def test_a_broken_model_is_named(folder: Path, change: dict[str, object], column: str, says: str) -> None:
    models = json.loads((folder / "models.json").read_text(encoding="utf-8"))
    models[2].update(change)
    (folder / "models.json").write_text(json.dumps(models), encoding="utf-8")

    with pytest.raises(DataError) as caught:
        read_objects("models", folder)

    assert (caught.value.file, caught.value.row, caught.value.column) == ("models.json", 3, column)
    assert says in str(caught.value)


def test_broken_json_is_named(folder: Path) -> None:
    (folder / "models.json").write_text('[\n{"id": 1,}]', encoding="utf-8")

    with pytest.raises(DataError, match=r"models.json, row 2: is not JSON"):
        read_objects("models", folder)


def test_a_folder_with_one_table_refers_to_the_shipped_ones(tmp_path: Path) -> None:
    """One's own offers.csv alone is enough; a name that no shipped table has is still refused."""
    write_offers(tmp_path, OFFERS_ROW_2)

    assert len(read_table("offers", tmp_path)) == 1


def test_lenient_reading_keeps_what_it_can(tmp_path: Path) -> None:
    """Measurements from elsewhere: a column less, one more, and words in a column of numbers must not stop the rest."""
    (tmp_path / "audio_inference.csv").write_text(
        "row_id,model,vram_gb,extra\na,Whisper,4.5,x\nb,Bark,about 12,y\n", encoding="utf-8"
    )

    table = read_table("audio_inference", tmp_path, lenient=True)

    np.testing.assert_array_equal(table["vram_gb"], [4.5, np.nan])
    assert list(table["extra"]) == ["x", "y"]
    assert table["audio_seconds"].isna().all()


def test_yes_and_no_are_true_and_false() -> None:
    """'no' taken as text would count as true."""
    optimizers = read_table("optimizers").set_index("name")

    assert optimizers["factored"].dtype == bool
    assert (optimizers.loc["adamw", "factored"], optimizers.loc["adafactor", "factored"]) == (False, True)


OBJECTS = [
    pytest.param({"id": "x"}, None, "must be a list of objects", id="one object"),
    pytest.param([{"id": "x"}, 7], 1, "is empty", id="an object without its facts"),
    pytest.param([7], 1, "must be an object", id="a number"),
]


@pytest.mark.parametrize(("content", "row", "says"), OBJECTS)
def test_a_file_of_another_form_is_refused(folder: Path, content: object, row: int | None, says: str) -> None:
    """A model that is no object would fail deep inside, far from its row."""
    (folder / "models.json").write_text(json.dumps(content), encoding="utf-8")

    with pytest.raises(DataError, match=says) as caught:
        read_objects("models", folder)
    assert caught.value.row == (row or 1)


def test_a_truth_value_is_yes_or_no(folder: Path) -> None:
    """'maybe' taken for no would change every estimate with that optimizer."""
    path = folder / "optimizers.csv"
    lines = path.read_text(encoding="utf-8").splitlines()
    place = lines[0].split(",").index("factored")
    cells = lines[1].split(",")
    cells[place] = "maybe"
    path.write_text("\n".join([lines[0], ",".join(cells), *lines[2:]]) + "\n", encoding="utf-8")

    with pytest.raises(DataError, match="'maybe' is neither") as caught:
        read_table("optimizers", folder)
    assert (caught.value.row, caught.value.column) == (2, "factored")


def test_an_installation_without_tables_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A traceback about a missing file would not say that the installation is at fault."""
    monkeypatch.setattr(package, "__file__", str(tmp_path / "gpuguide" / "catalog" / "package.py"))

    with pytest.raises(DataError, match="install gpuguide again"):
        package.data_folder()
