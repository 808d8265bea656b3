"""Live prices from a catalog server on this computer, with every fault that such servers were seen to have."""

import io
import json
import re
import subprocess
import sys
import threading
import time
import zipfile
from datetime import date
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pandas as pd
import pytest

pytest.importorskip("gpuhunt")

from gpuguide.catalog import live, offers, trend
from gpuguide.catalog.gpus import gpus_from_table
from gpuguide.catalog.live import HISTORY, META, read_live, read_meta
from gpuguide.catalog.package import read_table
from gpuguide.catalog.refresh import refresh
from gpuguide.errors import DataError, GuideError, UnknownName

VERSION, NEWER = "20261120-7", "20261125-1"
HEADER = (
    "instance_name,location,price,cpu,memory,gpu_count,gpu_name,gpu_memory,spot,disk_size,gpu_vendor,flags,cpu_arch,"
    "provider_data"
)
REGIONS = ("us-east-1", "us-west-2", "eu-west-1", *(f"ap-south-{number}" for number in range(1, 15)))
RUNPOD = [  # instance, GPU name there, GPU memory there, list price, spot price
    ("NVIDIA H100 80GB HBM3", "H100", 80, 3.79, 2.1),
    ("NVIDIA A100 80GB PCIe", "A100", 80, 1.69, 0.9),
    ("NVIDIA L4", "L4", 24, 0.47, 0.25),
    ("NVIDIA L40S", "L40S", 48, 1.05, 0.6),
    ("NVIDIA GeForce RTX 4090", "RTX4090", 24, 0.72, 0.4),
    ("NVIDIA H200", "H200", 141, 4.49, 2.4),
    ("NVIDIA B200", "B200", 180, 6.49, 3.6),
    ("NVIDIA A40", "A40", 48, 0.45, 0.3),
]


def runpod_rows(price=lambda usd: usd, counts=(1, 2, 4, 8), machines=RUNPOD):
    lines = []
    for name, gpu, memory, list_price, spot_price in machines:
        for count in counts:
            for usd, spot in ((list_price, "False"), (spot_price, "True")):
                shape = f"{8 * count},{64 * count},{count},{gpu},{memory}"
                lines.append(f"{name},US-1,{price(usd * count)},{shape},{spot},,nvidia,,x86,{{}}")
    return lines


def aws_rows(p5=55.04):
    rows = []
    for region in REGIONS:
        for name, gpu, memory, count, usd, spot in (
            ("p5.48xlarge", "H100", 80, 8, p5, 25.0), ("p4d.24xlarge", "A100", 40, 8, 21.96, 12.0),
            ("g6.xlarge", "L4", 24, 1, 0.805, 0.3), ("g6.12xlarge", "L4", 24, 4, 4.6, 1.9),
            ("g6e.xlarge", "L40S", 48, 1, 1.861, 0.9), ("p5en.48xlarge", "H200", 141, 8, 63.3, 30.0),
        ):  # fmt: skip
            rows.append(f"{name},{region},{usd},96,1024,{count},{gpu},{memory},False,,nvidia,,x86,{{}}")
            rows += [
                f"{name},{region}{zone},{spot * factor},96,1024,{count},{gpu},{memory},True,,nvidia,,x86,{{}}"
                for zone, factor in (("a", 1.0), ("b", 1.1))
            ]
    return rows


def packed(name, lines):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(f"{name}.csv", "\n".join([HEADER, *lines]) + "\n")
    return buffer.getvalue()


class Server:
    """Answers by path: bytes, a status, or a function of the handler."""

    def __init__(self):
        self.answers = {}
        self.asked = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                outer.asked.append(self.path)
                answer = outer.answers.get(self.path, 404)
                if callable(answer):
                    answer(self)
                    return
                body = answer if isinstance(answer, bytes) else b"no"
                self.send_response(200 if isinstance(answer, bytes) else answer)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self.thread.start()
        self.address = f"http://127.0.0.1:{self.server.server_port}"

    def publish(self, name, lines, version=VERSION):
        self.answers[f"/{name}/version"] = version.encode()
        self.answers[f"/{name}/{version}/catalog.zip"] = lines if isinstance(lines, bytes) else packed(name, lines)

    def close(self):
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def server(monkeypatch):
    started = Server()
    monkeypatch.setenv("GPUHUNT_CATALOG_URL", started.address)
    monkeypatch.delenv("GPUHUNT_CATALOG_DIR", raising=False)
    started.publish("runpod", runpod_rows())
    started.publish("aws", aws_rows())
    yield started
    started.close()


def run(folder, **keys):
    return refresh(**({"folder": folder, "providers": ("runpod", "aws"), "deadline_s": 20.0} | keys))


def contents(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def of(report, name):
    return next(provider for provider in report.providers if provider.provider == name)


@pytest.fixture(scope="module")
def gpus():
    return gpus_from_table(read_table("gpus"))


# ---- a good catalog --------------------------------------------------------------------------------------------------


def test_new_prices_overlay_the_shipped_ones(server, tmp_path, gpus):
    """Spot beside on demand, zones merged, GPUs in our spelling, the catalog's date as the price's."""
    steps = []
    report = run(tmp_path, progress=steps.append)
    rows = read_live(tmp_path)

    assert report.changed
    assert [(step.done, step.total, step.status) for step in steps] == [(1, 2, "new"), (2, 2, "new")]
    assert of(report, "aws").as_of == "2026-11-20"
    p5 = rows[(rows["instance_type"] == "p5.48xlarge") & (rows["region"] == "us-east-1")].iloc[0]
    assert (p5["gpu"], p5["price_usd_per_hour"], p5["spot_usd_per_hour"]) == ("H100-SXM", 55.04, 25.0)
    assert set(rows.loc[rows["instance_type"] == "NVIDIA A100 80GB PCIe", "gpu"]) == {"A100-80GB-PCIe"}
    market = offers.market(gpus=gpus, today=date(2026, 11, 30), live=rows).frame("str")
    own = market[(market["provider"] == "runpod") & (market["kind"] == "on_demand")]
    assert set(own["age_days"]) == {10.0}
    assert set(own["pricing"]) == {"on_demand", "spot"}
    assert "coreweave" in set(market["provider"])  # not in the live catalogs: stays as shipped


def test_what_was_fetched_is_described(server, tmp_path):
    run(tmp_path)
    meta = read_meta(tmp_path)

    assert meta["providers"]["aws"]["version"] == VERSION
    assert meta["providers"]["runpod"]["rows"] == 32
    assert meta["fetched_with"].startswith("gpuhunt 0.")
    assert meta["fetched_at"].endswith("+00:00")


def test_same_version_is_not_fetched_again(server, tmp_path):
    run(tmp_path)
    before, asked = contents(tmp_path), len(server.asked)
    report = run(tmp_path)

    assert [provider.status for provider in report.providers] == ["unchanged", "unchanged"]
    assert contents(tmp_path) == before
    assert not any("catalog.zip" in path for path in server.asked[asked:])


def test_one_provider_alone(server, tmp_path):
    run(tmp_path)
    server.publish("aws", aws_rows(p5=60.0), NEWER)
    server.publish("runpod", runpod_rows(lambda usd: usd * 1.1), NEWER)
    run(tmp_path, providers=("aws",))
    rows = read_live(tmp_path)

    assert set(rows.loc[rows["provider"] == "aws", "as_of"]) == {"2026-11-25"}
    assert set(rows.loc[rows["provider"] == "runpod", "as_of"]) == {"2026-11-20"}


def test_history_shows_the_trend(server, tmp_path):
    """+20 % between two snapshots, and the shipped table before both."""
    run(tmp_path)
    server.publish("aws", aws_rows(p5=66.048), NEWER)
    time.sleep(1.05)  # snapshots are named by the second
    run(tmp_path)
    rows = trend.history(tmp_path)
    p5 = trend.price_trend(rows[rows["instance_type"] == "p5.48xlarge"], gpu="H100-SXM", provider="aws")

    assert len(list((tmp_path / HISTORY).glob("*.parquet"))) == 2
    assert p5["as_of"].tolist()[-2:] == ["2026-11-20", "2026-11-25"]
    assert p5["typical"].tolist()[-1] == pytest.approx(1.2 * p5["typical"].tolist()[-2])
    (tmp_path / HISTORY / "offers-broken.parquet").write_bytes(b"no parquet")
    assert len(trend.history(tmp_path)) == len(rows)


# ---- faults: the old prices stay, to the byte ------------------------------------------------------------------------


def dripping(handler):
    handler.send_response(200)
    handler.send_header("Content-Length", "1000000")
    handler.end_headers()
    try:
        for _ in range(100):
            handler.wfile.write(b"x")
            handler.wfile.flush()
            time.sleep(0.05)
    except OSError:
        pass


def silent(_):
    time.sleep(3)


def broken_off(handler):
    handler.send_response(200)
    handler.send_header("Content-Length", "5000")
    handler.end_headers()
    handler.wfile.write(b"PK\x03\x04")


FAULTS = [
    pytest.param(lambda s: s.publish("runpod", runpod_rows(lambda _: "nan"), NEWER), "no row passed", id="NaN"),
    pytest.param(lambda s: s.publish("runpod", runpod_rows(lambda _: 0.0), NEWER), "no row passed", id="zero"),
    pytest.param(lambda s: s.publish("runpod", runpod_rows(lambda usd: -usd), NEWER), "no row passed", id="negative"),
    pytest.param(lambda s: s.publish("runpod", runpod_rows(lambda usd: usd * 100), NEWER), "no row passed", id="x100"),
    pytest.param(lambda s: s.publish("runpod", runpod_rows(lambda usd: usd * 2.6 if usd < 1 else usd * 3.3), NEWER),
                 "factor|no row|only", id="currency"),
    pytest.param(lambda s: s.publish("runpod", runpod_rows(machines=RUNPOD[:3]), NEWER), "only 12 rows", id="half"),
    pytest.param(lambda s: s.publish("runpod", [], NEWER), "empty", id="empty"),
    pytest.param(lambda s: s.publish("runpod", packed("runpod", runpod_rows())[:-200], NEWER), "broken", id="cut off"),
    pytest.param(lambda s: s.publish("runpod", packed("other", runpod_rows()), NEWER), "broken", id="another file"),
    pytest.param(lambda s: s.publish("runpod", b"<html>", NEWER), "broken", id="a web page"),
    pytest.param(lambda s: s.answers.update({"/runpod/version": 429}), "429", id="too many requests"),
    pytest.param(lambda s: s.answers.update({"/runpod/version": 500}), "500", id="server error"),
    pytest.param(lambda s: (s.publish("runpod", [], NEWER), s.answers.update({f"/runpod/{NEWER}/catalog.zip": 503})),
                 "503", id="error at the archive"),
    pytest.param(lambda s: s.answers.pop("/runpod/version"), "404", id="missing provider"),
    pytest.param(lambda s: s.answers.update({"/runpod/version": b"latest"}), "not a date", id="no version"),
    pytest.param(lambda s: s.answers.update({"/runpod/version": b"20261399-1"}), "not a date", id="no such day"),
    pytest.param(lambda s: s.publish("runpod", runpod_rows(), "29991231-1"), "future", id="from the future"),
    pytest.param(lambda s: s.publish("runpod", runpod_rows(), "20250101-1"), "older", id="older than ours"),
    pytest.param(lambda s: (s.publish("runpod", [], NEWER),
                            s.answers.update({f"/runpod/{NEWER}/catalog.zip": dripping})), "in time", id="dripping"),
    pytest.param(lambda s: s.answers.update({"/runpod/version": silent}), "in time", id="silent"),
    pytest.param(lambda s: (s.publish("runpod", [], NEWER),
                            s.answers.update({f"/runpod/{NEWER}/catalog.zip": broken_off})), "broke off|connection",
                 id="broken off"),
]  # fmt: skip


@pytest.mark.parametrize(("fault", "problem"), FAULTS)
def test_failure_leaves_every_file_as_it_was(server, tmp_path, fault, problem):
    """Bytes and times: a failed refresh that touches a file makes old prices look fresh."""
    run(tmp_path)
    before = contents(tmp_path)
    times = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    fault(server)
    started = time.monotonic()

    report = run(tmp_path, providers=("runpod",), deadline_s=1.5)

    assert time.monotonic() - started < 4
    assert of(report, "runpod").status == "kept"
    assert re.search(problem, of(report, "runpod").problem)
    assert of(report, "runpod").as_of == "2026-11-20"
    assert not report.changed
    assert contents(tmp_path) == before
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == times


def test_one_broken_provider_does_not_hold_back_another(server, tmp_path):
    run(tmp_path)
    server.answers["/runpod/version"] = 500
    server.publish("aws", aws_rows(p5=60.0), NEWER)
    old = read_live(tmp_path)
    report = run(tmp_path)
    rows = read_live(tmp_path)

    assert [provider.status for provider in report.providers] == ["kept", "new"]
    pd.testing.assert_frame_equal(
        rows[rows["provider"] == "runpod"].reset_index(drop=True),
        old[old["provider"] == "runpod"].reset_index(drop=True),
    )
    assert rows.loc[rows["instance_type"] == "p5.48xlarge", "price_usd_per_hour"].unique().tolist() == [60.0]


def test_bad_rows_are_set_aside_and_counted(server, tmp_path):
    """NaN passes a maximum, 0 is the cheapest: neither is kept, the good rows are."""
    bad = [
        "NVIDIA B200,US-1,0.01,8,64,1,B200,180,False,,nvidia,,x86,{}",
        "NVIDIA H200 x,US-1,nan,8,64,1,H200,141,False,,nvidia,,x86,{}",
        "NVIDIA L4 x,US-1,0.0,8,64,1,L4,24,False,,nvidia,,x86,{}",
        "Mystery,US-1,1.0,8,64,1,XPU9,24,False,,nvidia,,x86,{}",
    ]
    server.publish("runpod", [*runpod_rows(machines=[row for row in RUNPOD if row[1] != "B200"]), *bad])
    report = of(run(tmp_path), "runpod")

    assert report.status == "new"
    assert report.quarantined == {"no price above zero": 2, "price per GPU out of bounds": 1, "gpu unknown": 1}
    assert "B200" not in set(read_live(tmp_path)["gpu"])


def test_nothing_answers(tmp_path, monkeypatch):
    """Offline: a report, no exception, no files."""
    monkeypatch.setenv("GPUHUNT_CATALOG_URL", "http://127.0.0.1:9")
    report = refresh(folder=tmp_path / "cache", deadline_s=3.0)

    assert {provider.status for provider in report.providers} == {"kept"}
    assert len(report.providers) >= 9
    assert not (tmp_path / "cache").exists()


def test_cancelling_writes_nothing(server, tmp_path):
    """Pressed while the first provider is being checked."""
    stop = threading.Event()
    report = run(tmp_path, cancel=stop, progress=lambda _: stop.set())

    assert report.cancelled
    assert contents(tmp_path) == {}


def test_full_disk_leaves_the_old_files(server, tmp_path, monkeypatch):
    run(tmp_path)
    before = contents(tmp_path)
    server.publish("aws", aws_rows(p5=60.0), NEWER)

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(live.os, "fsync", full)
    with pytest.raises(DataError, match="No space left"):
        run(tmp_path)

    assert contents(tmp_path) == before


def test_unknown_provider_is_refused(server, tmp_path):
    with pytest.raises(UnknownName, match="runpod"):
        run(tmp_path, providers=("runpods",))


def test_address_must_be_one(tmp_path, monkeypatch):
    monkeypatch.setenv("GPUHUNT_CATALOG_URL", "file:///etc")
    with pytest.raises(GuideError, match="http"):
        refresh(folder=tmp_path)


def test_missing_extra_says_which(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "gpuhunt", None)
    with pytest.raises(GuideError, match=r"gpuguide\[refresh\]"):
        refresh(folder=tmp_path)


def test_import_needs_no_extra():
    """Prices are read without gpuhunt; it is imported when asked for."""
    code = "import sys; import gpuguide.catalog.offers, gpuguide.catalog.refresh; print('gpuhunt' in sys.modules)"

    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
        == "False"
    )


# ---- the cache -------------------------------------------------------------------------------------------------------


def test_prices_edited_by_hand_are_checked_again(server, tmp_path, gpus):
    """A cache is a file that anybody can write."""
    run(tmp_path)
    rows = read_live(tmp_path)
    rows.loc[rows["instance_type"] == "p5.48xlarge", "price_usd_per_hour"] = 0.01
    market = offers.market(gpus=gpus, today=date(2026, 11, 30), live=rows).frame("str")
    own = market[(market["provider"] == "aws") & (market["gpu"] == "H100-SXM") & (market["pricing"] == "on_demand")]

    assert own.empty


def test_meta_is_plain_json(server, tmp_path):
    run(tmp_path)

    assert json.loads((tmp_path / META).read_text())["rows"] == len(read_live(tmp_path))
