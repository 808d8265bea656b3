"""
The few calibrated constants fitted to measurements, drawn towards the shipped values, with the error before and after.

One step of Bayes with a linear model: each constant starts at its shipped value with its band as doubt, each run has
the doubt of a measurement, and the logarithm of estimate / measured is linear in the constants nearby. A few runs move
a constant a little, many move it far; runs left out one by one say whether the fit would help the next run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from gpuguide.accuracy import serving_speed, training_memory, training_speed
from gpuguide.accuracy.report import score_folder
from gpuguide.accuracy.scorers import all_scorers
from gpuguide.catalog.own import Band, replaced
from gpuguide.errors import DataError

if TYPE_CHECKING:
    from gpuguide.catalog.catalog import Catalog
    from gpuguide.spec.assumptions import Assumption

Floats = NDArray[np.float64]

LEAST_RUNS = 8
"""With fewer usable runs than these nothing is fitted: leaving one out would leave too little to judge by."""
LEAST_PER_CONSTANT = 3
"""A constant is moved only where so many runs feel it."""
FELT = 0.01
"""A run feels a constant when moving it by its doubt moves the estimate by this share. [-]"""
RUN_DOUBT = 0.10
"""Standard deviation of one measured run about a right estimate: setups differ in what no table says. [-]"""
OUTLIER = 2.0
"""Runs farther off than so many standard deviations pull with constant force (Huber)."""
STEPS = 3
MOST_OF_A_SOURCE = 20.0
"""Across sources no single one counts as more than so many runs."""
FAMILIES: Mapping[str, tuple[str, ...]] = {
    "compute_": ("training_throughput", "mlperf_training"),
    "training_speed_": ("training_throughput", "mlperf_training"),
    "training_memory_": ("training_memory",),
    "serving_memory_": ("inference_memory",),
    "serving_speed_": ("decode_throughput",),
    "media_": ("diffusion_inference", "audio_inference", "diffusion_training"),
}
"""Files of measurements that each kind of constant shows in."""
REPEATED = ("_dense", "_moe", "_ttft", ":oom", ":kv_bytes_per_token", "training_memory_components", "torch_memory")
"""Tables that score rows of another one again, or that no calibrated constant moves."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Fitted:
    """One constant before and after."""

    name: str
    shipped: float
    fitted: float
    runs: int  # that feel it
    moved: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Calibration:
    """What a fit found; errors are medians of |estimate / measured - 1|."""

    runs: int
    constants: tuple[Fitted, ...]
    error_before: float
    error_after: float
    error_left_out: float
    helps: bool  # left out of its own fit, the median run is better off than before

    def bands(self, rows: Mapping[str, Assumption]) -> dict[str, Band]:
        """Low, typical, high of every moved constant; the ends keep their ratio to the typical value."""
        found = {}
        for constant in self.constants:
            if constant.moved and self.helps:
                found[constant.name] = _scaled(rows[constant.name], constant.fitted)
        return found

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "runs": self.runs, "median_abs_error_before": self.error_before, "median_abs_error_after": self.error_after,
            "median_abs_error_left_out": self.error_left_out, "helps": self.helps,
            "constants": {
                one.name: {"shipped": one.shipped, "fitted": one.fitted, "runs": one.runs}
                for one in self.constants if one.moved
            },
        }  # fmt: skip


def calibrate(catalog: Catalog, folder: Path) -> Calibration:
    """
    Fit the calibrated constants to a folder of one's own runs.

    Parameters
    ----------
    catalog : Catalog
        With the shipped constants.
    folder : Path
        CSV files with the columns of the shipped measurements; `docs/measurements.md`.

    Raises
    ------
    DataError
        If there are fewer than `LEAST_RUNS` usable runs; says how many more are needed.
    """
    frame = _scored(catalog, folder, _tables(folder, None))
    if len(frame) < LEAST_RUNS:
        raise DataError(
            str(folder), None, None,
            f"has {len(frame)} usable runs and {LEAST_RUNS} are needed to fit anything: {LEAST_RUNS - len(frame)} more",
        )  # fmt: skip
    linear = _Linear.of(catalog, folder, frame)
    linear = linear.refined()
    best, felt = linear.fit(), linear.felt()
    before, after, left_out = linear.start, linear.residual(best), linear.left_out_one_by_one()
    constants = tuple(
        Fitted(
            name=name, shipped=linear.shipped[place], fitted=linear.value(place, best[place]), runs=int(felt[place]),
            moved=bool(felt[place] >= LEAST_PER_CONSTANT),
        )
        for place, name in enumerate(linear.names)
    )  # fmt: skip
    errors = [_median(residual) for residual in (before, after, left_out)]
    return Calibration(
        runs=len(frame), constants=constants, error_before=errors[0], error_after=errors[1], error_left_out=errors[2],
        helps=errors[2] < errors[0],
    )  # fmt: skip


def cross_validate(catalog: Catalog, folder: Path, only: str | None = None) -> dict[str, Any]:
    """
    The calibrated constants fitted again without one source at a time: how they do on sources they have not seen.

    Parameters
    ----------
    catalog : Catalog
    folder : Path
        Measurements of many sources.
    only : str, optional
        One file or one of its quantities.

    Returns
    -------
    dict
        For each table: rows, sources, median error as shipped and with each row's source left out of the fit.
    """
    tables = _tables(folder, only)
    found: dict[str, Any] = {}
    for files in dict.fromkeys(FAMILIES.values()):
        own = [name for name in tables if name.partition(":")[0] in files]
        frame = _scored(catalog, folder, own) if own else pd.DataFrame()
        if frame.empty:
            continue
        linear = _Linear.of(catalog, folder, frame, by_source=True)
        left_out = linear.left_out_by(frame["source_id"].to_numpy())
        for name, places in frame.groupby("table", sort=False).indices.items():
            sources = frame["source_id"].to_numpy()[places]
            found[str(name)] = {
                "rows": len(places), "sources": int(pd.Series(sources).nunique()),
                "median_abs_error": _median(linear.start[places]),
                "median_abs_error_left_out": _median(left_out[places]),
                "worst_source": _worst(sources, left_out[places]),
            }  # fmt: skip
    if not found:
        raise DataError(str(folder), None, None, "has no measurements that a calibrated constant bears on")
    return {"tables": found}


# ---- the linear model ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class _Linear:
    """
    log(estimate / measured) of every run, and how it moves when a constant moves by its doubt.

    A constant stands as u, its distance from the shipped value in doubts: a ratio where it is above zero, else a
    difference.
    """

    catalog: Catalog
    folder: Path
    frame: pd.DataFrame
    names: tuple[str, ...]
    shipped: Floats  # (constant,)
    doubt: Floats  # (constant,): of the logarithm, or of the value where it may be zero
    as_ratio: NDArray[np.bool_]
    bounds: Floats  # (constant, 2)
    at: Floats  # (constant,): u where the slopes were taken
    start: Floats  # (run,): residual with the shipped constants
    here: Floats  # (run,): residual at `at`
    slope: Floats  # (run, constant)
    weight: Floats  # (run,)

    @classmethod
    def of(cls, catalog: Catalog, folder: Path, frame: pd.DataFrame, *, by_source: bool = False) -> _Linear:
        """With slopes at the shipped values."""
        files = {str(name).partition(":")[0] for name in frame["table"]}
        rows = [
            row for name, row in catalog.assumptions.rows.items() if row.calibrated and set(_files_of(name)) & files
        ]
        shipped = np.array([row.typical for row in rows], dtype=np.float64)
        low, high = (np.array([getattr(row, end) for row in rows], dtype=np.float64) for end in ("low", "high"))
        as_ratio = low > 0
        # The band reaches from the fifth to the ninety-fifth of a hundred: 3.3 standard deviations.
        span = np.where(as_ratio, np.log(np.where(as_ratio, high, 1) / np.where(as_ratio, low, 1)), high - low)
        weight = np.ones(len(frame))
        if by_source:
            each = frame.groupby(["table", "source_id"])["measured"].transform("size").to_numpy(np.float64)
            weight = np.minimum(1.0, MOST_OF_A_SOURCE / each)
        residual = np.log(frame["typical"].to_numpy(np.float64) / frame["measured"].to_numpy(np.float64))
        first = cls(
            catalog=catalog, folder=folder, frame=frame, names=tuple(row.name for row in rows), shipped=shipped,
            doubt=np.maximum(span / 3.3, 1e-9), as_ratio=as_ratio, bounds=np.array([_bounds(row) for row in rows]),
            at=np.zeros(len(rows)), start=residual, here=residual, slope=np.zeros((len(frame), len(rows))),
            weight=weight,
        )  # fmt: skip
        return first._with_slopes(np.zeros(len(rows)))

    def value(self, place: int, u: float) -> float:
        """A constant at a distance of u doubts, within its bounds."""
        moved = (
            self.shipped[place] * np.exp(u * self.doubt[place])
            if self.as_ratio[place]
            else self.shipped[place] + u * self.doubt[place]
        )
        return float(np.clip(moved, *self.bounds[place]))

    def _with_slopes(self, at: Floats) -> _Linear:
        """The model with its slopes taken at other values of the constants."""
        from dataclasses import replace

        here = self.residual(at)
        slope = np.zeros_like(self.slope)
        for place, name in enumerate(self.names):
            step = np.zeros(len(self.names))
            step[place] = 0.5 if self.value(place, at[place] + 0.5) != self.value(place, at[place]) else -0.5
            touched = self.frame["table"].str.partition(":")[0].isin(_files_of(name)).to_numpy()
            moved = self.residual(at + step, only=touched, otherwise=here)
            slope[:, place] = (moved - here) / step[place]
        return replace(self, at=at, here=here, slope=np.nan_to_num(slope))

    def residual(self, at: Floats, only: NDArray[np.bool_] | None = None, otherwise: Floats | None = None) -> Floats:
        """What the estimates themselves say for other constants."""
        bands = {
            name: _scaled(self.catalog.assumptions.rows[name], self.value(place, at[place]))
            for place, name in enumerate(self.names)
            if at[place]
        }
        names = self.frame["table"] if only is None else self.frame["table"][only]
        scored = _scored(replaced(self.catalog, bands), self.folder, list(dict.fromkeys(names)))
        found = self.frame[["table", "place"]].merge(scored, on=["table", "place"], how="left", validate="one_to_one")
        residual = np.log(found["typical"].to_numpy(np.float64) / self.frame["measured"].to_numpy(np.float64))
        return residual if otherwise is None else np.where(np.isnan(residual), otherwise, residual)

    def refined(self) -> _Linear:
        """Slopes taken again where the fit leads, since they change on the way."""
        model = self
        for _ in range(STEPS - 1):
            model = model._with_slopes(model._movable(model.fit()))
        return model

    def _movable(self, u: Floats) -> Floats:
        """Constants that enough runs feel; the others stay at their shipped value."""
        return np.where(self.felt() >= LEAST_PER_CONSTANT, u, 0.0)

    def felt(self) -> NDArray[np.int_]:
        """How many runs feel each constant."""
        return np.asarray((np.abs(self.slope) > FELT).sum(axis=0))

    def residual_at(self, u: Floats) -> Floats:
        """What the linear model says for other constants."""
        return np.asarray(self.here + self.slope @ (u - self.at))

    def fit(self, kept: NDArray[np.bool_] | None = None) -> Floats:
        """The likeliest distances: runs pull, the shipped values hold back."""
        kept = np.ones(len(self.frame), dtype=np.bool_) if kept is None else kept
        open_ = self.felt() >= LEAST_PER_CONSTANT
        slope = self.slope[kept][:, open_]
        offset = (self.here - self.slope @ self.at)[kept]
        u = np.zeros(int(open_.sum()))
        for _ in range(10):  # reweighting: far-off runs lose their pull
            far = np.abs(offset + slope @ u) / RUN_DOUBT
            weight = self.weight[kept] / np.maximum(far / OUTLIER, 1.0) / RUN_DOUBT**2
            pull, hold = -slope.T @ (weight * offset), slope.T @ (weight[:, None] * slope) + np.eye(len(u))
            u = np.asarray(np.linalg.solve(hold, pull), dtype=np.float64)
        found = np.zeros(len(self.names))
        found[open_] = u
        return found

    def left_out_one_by_one(self) -> Floats:
        """Residual of each run with a fit that has not seen it."""
        return self.left_out_by(np.arange(len(self.frame)))

    def left_out_by(self, group: NDArray[Any]) -> Floats:
        """Residual of each run with a fit that has not seen its group."""
        found = np.zeros(len(self.frame))
        for one in pd.unique(pd.Series(group)):
            out = group == one
            found[out] = self.residual_at(self.fit(~out))[out]
        return found


def _scored(catalog: Catalog, folder: Path, tables: Iterable[str]) -> pd.DataFrame:
    """Rows of some tables that have both an estimate and a measurement, with their table and place in it."""
    found = []
    for name in tables:
        frame = score_folder(catalog, folder, only=name).scored[name]
        frame = frame.assign(table=name, place=np.arange(len(frame)))
        usable = (frame["skip"].fillna("") == "") & (frame["measured"] > 0) & (frame["typical"] > 0)
        found.append(frame[usable][["table", "place", "source_id", "measured", "typical"]])
    return pd.concat(found, ignore_index=True) if found else pd.DataFrame(columns=["table", "place"])


def _tables(folder: Path, only: str | None) -> list[str]:
    """Tables of a folder that constants are fitted to."""
    if not folder.is_dir():
        raise DataError(str(folder), None, None, "there is no such folder of measurements")
    files = {name for family in FAMILIES.values() for name in family}
    names = []
    for name in all_scorers():
        file = name.partition(":")[0]
        wanted = only is None or only in (name, file)
        repeated = any(name.endswith(end) or name.startswith(end) for end in REPEATED) and name != only
        # The two halves of training throughput are each other's complement, not a repetition.
        fresh = not repeated or name.startswith("training_throughput")
        if wanted and fresh and file in files and (folder / f"{file}.csv").is_file():
            names.append(name)
    return names


def _files_of(name: str) -> Sequence[str]:
    return next((files for prefix, files in FAMILIES.items() if name.startswith(prefix)), ())


def _bounds(row: Assumption) -> tuple[float, float]:
    """What physics allows a constant to be: as its scorer says, else one more band on either side."""
    for module in (training_speed, training_memory, serving_speed):
        if row.name in module.CALIBRATED:
            low, high = module.CALIBRATED[row.name]
            return float(low), float(high)
    span = row.high - row.low
    return max(0.0 if row.low >= 0 else row.low - span, row.low - span), row.high + span


def _scaled(row: Assumption, typical: float) -> Band:
    """The band moved with its typical value; ends keep their ratio to it, or their distance where it may be zero."""
    if row.low > 0 and typical > 0:
        return row.low * typical / row.typical, typical, row.high * typical / row.typical
    return max(min(0.0, row.low), typical - (row.typical - row.low)), typical, typical + row.high - row.typical


def _median(residual: Floats) -> float:
    return float(np.median(np.abs(np.expm1(residual))))


def _worst(sources: NDArray[Any], residual: Floats) -> dict[str, Any]:
    each = pd.Series(np.abs(np.expm1(residual))).groupby(sources).median()
    return {"source_id": str(each.idxmax()), "median_abs_error": float(each.max())}


def toml_of(calibration: Calibration, rows: Mapping[str, Assumption], *, folder: str) -> str:
    """The fitted constants as a file for `--assumptions`."""
    lines = [
        f"# Fitted by gpuguide to {calibration.runs} runs in {folder}, drawn towards the shipped values.",
        f"# Median error before {calibration.error_before:.1%}, after {calibration.error_after:.1%}, "
        f"each run left out of its own fit {calibration.error_left_out:.1%}.",
    ]
    for name, (low, typical, high) in calibration.bands(rows).items():
        lines += ["", f"[{name}]", f"low = {low:.6g}", f"typical = {typical:.6g}", f"high = {high:.6g}"]
    return "\n".join(lines) + "\n"
