"""Rows of a sweep: a stretch of a grid in, one row a point out, the same whoever computes it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterator, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gpuguide.decide.search import Pairs
from gpuguide.errors import GuideError
from gpuguide.spec.job import ServingJob, TrainingJob
from gpuguide.spec.model import Model
from gpuguide.spec.plan import OFFLOAD, RECOMPUTE, Plan
from gpuguide.spec.scenario import Question, Scenario
from gpuguide.sweep.grid import TOGETHER, Grid
from gpuguide.sweep.many import ENTRIES, Answers, Pass, numbers_of
from gpuguide.units import BANDS, in_order

if TYPE_CHECKING:
    import pyarrow as pa

    from gpuguide.catalog.catalog import Catalog
    from gpuguide.decide.decision import Decision

Columns = dict[str, Any]

FREE = ("train_tokens", "concurrency")
"""Numbers that neither a default nor a check depends on: they are put into a job without asking the catalog again."""
OUTCOMES = ("fits", "tight", "no", "none", "none")
BANDED = {"memory_bytes": "memory", "tokens_per_s": "tokens_per_s", "hours": "hours", "cost_usd": "cost"}
SINGLE = ("step_s", "mfu", "ttft_s", "tpot_s")
WORDS = (
    "outcome",
    "problem",
    "best_provider",
    "best_instance_type",
    "best_region",
    "best_gpu",
    "best_pricing",
    "best_plan",
)
"""
outcome : fits, tight; no = memory is short; none = another limit leaves nothing; invalid = `problem` says why.
best_... : the first offer, or where memory is short the one nearest to fitting.
"""
COUNTS = ("best_gpus", "best_nodes")
NUMBERS = (
    "best_usd_per_hour", *(f"{name}_{band}" for name in BANDED for band in BANDS), "usable_bytes", *SINGLE,
    "usd_per_million_tokens",
)  # fmt: skip


def rows_of(grid: Grid, catalog: Catalog, first: int, last: int) -> pa.Table:
    """
    Answers of the points first..last (exclusive).

    Parameters
    ----------
    grid : Grid
    catalog : Catalog
        Of the day and the data that the whole sweep uses.
    first, last : int

    Returns
    -------
    pyarrow.Table
        The axes' values, then the columns of `WORDS`, `COUNTS` and `NUMBERS`.
    """
    import pyarrow as pa

    places = grid.places(first, last)
    out = _empty(last - first)
    for rows, fixed in _groups(grid, places, last - first):
        _answer(grid, catalog, fixed, rows, {key: place[rows] for key, place in places.items()}, out)
    columns: dict[str, pa.Array] = {}
    for key, place in places.items():
        columns[key] = _axis(grid.axes[key], place)
    for name in WORDS:
        # Few distinct words in many rows: one dictionary a stretch keeps files small.
        columns[name] = pa.array(out[name], type=pa.string())
    for name in COUNTS:
        columns[name] = pa.array(out[name], type=pa.int32(), mask=out[name] == 0)
    for name in NUMBERS:
        columns[name] = pa.array(out[name], type=pa.float64(), mask=np.isnan(out[name]))
    return pa.table(columns)


def _axis(values: Any, place: NDArray[np.intp]) -> pa.Array:
    import pyarrow as pa

    written = [",".join(map(str, value)) if isinstance(value, tuple | list) else value for value in values]
    return pa.array(written).take(pa.array(place))


def _empty(rows: int) -> Columns:
    out: Columns = {name: np.full(rows, None, dtype=object) for name in WORDS}
    out |= {name: np.zeros(rows, dtype=np.int32) for name in COUNTS}
    return out | {name: np.full(rows, np.nan) for name in NUMBERS}


def _groups(
    grid: Grid, places: Mapping[str, NDArray[np.intp]], rows: int
) -> Iterator[tuple[NDArray[np.intp], dict[str, Any]]]:
    """Rows that differ in numbers and GPUs alone, with the values they share."""
    together = {*TOGETHER, "gpu"}
    if "requests_per_s" in grid.fixed or "requests_per_s" in grid.axes:
        together -= {"output_tokens"}  # what arriving requests ask for is one number of a pass
    keys = [key for key in grid.axes if key not in together]
    if not keys:
        yield np.arange(rows), {}
        return
    number = np.zeros(rows, dtype=np.int64)
    for key in keys:
        number = number * len(grid.axes[key]) + places[key]
    order = np.argsort(number, kind="stable")
    for part in np.split(order, np.flatnonzero(np.diff(number[order])) + 1):
        yield part, {key: grid.axes[key][int(places[key][part[0]])] for key in keys}


def _answer(
    grid: Grid,
    catalog: Catalog,
    fixed: Mapping[str, Any],
    rows: NDArray[np.intp],
    places: Mapping[str, NDArray[np.intp]],
    out: Columns,
) -> None:
    """Answer the points of one group and write them into their rows."""
    inner = [key for key in grid.axes if key not in fixed]
    bound = [key for key in inner if key not in FREE and key != "gpu"]
    base = {**grid.fixed, **fixed}
    starts = {key: grid.axes[key][0] for key in inner if key not in bound}
    combination, combinations = _distinct([places[key] for key in bound], len(rows))
    questions: list[Question | str] = []
    for chosen in combinations:
        values = {key: grid.axes[key][int(place)] for key, place in zip(bound, chosen, strict=True)}
        questions.append(_question(catalog, _frozen({**base, **starts, **values})))
    broken = np.array([isinstance(question, str) for question in questions])
    for row, place in zip(rows[broken[combination]], combination[broken[combination]], strict=True):
        out["outcome"][row], out["problem"][row] = "invalid", questions[place]
    good = np.flatnonzero(~broken[combination])
    if not len(good):
        return
    sample = next(question for question in questions if isinstance(question, Question))
    if not isinstance(sample.model, Model) or not isinstance(sample.job, TrainingJob | ServingJob):
        for row in good:
            _one_by_one(grid, catalog, base, inner, {key: place[row] for key, place in places.items()}, rows[row], out)
        return
    gpus = _gpus(grid, catalog, base, sample)
    numbers = _numbers(grid, questions, combination[good], {key: places[key][good] for key in inner}, sample.job)
    gpu_place = places["gpu"][good] if "gpu" in inner else np.zeros(len(good), dtype=np.intp)
    passing = _pass_of(catalog, _frozen({**base, **starts}), sample)
    kind, kinds = _distinct([combination[good], gpu_place], len(good))
    _in_passes(passing, questions, gpus, kinds, kind, numbers, rows[good], out)


def _in_passes(
    passing: Pass,
    questions: list[Question | str],
    gpus: list[tuple[str, ...]],
    kinds: NDArray[np.intp],
    kind: NDArray[np.intp],
    numbers: Mapping[str, NDArray[np.float64]],
    rows: NDArray[np.intp],
    out: Columns,
) -> None:
    """As many points at once as keep the arrays small."""
    pairs: list[Pairs | None] = []
    sizes: list[int] = []
    failed: dict[int, str] = {}
    for place, (chosen, allowed) in enumerate(kinds):
        question = questions[chosen]
        assert isinstance(question, Question)  # noqa: S101  # broken ones were left out
        try:
            found = passing.pairs(_plan_key(question), question)
            offers = passing.market(gpus[allowed])
        except GuideError as error:
            failed[place] = str(error)
            pairs.append(None)
            sizes.append(0)
            continue
        pairs.append(found)
        on = np.isin(found.shape, np.unique(passing.size_of_shape[offers.shapes]))
        sizes.append(int(on.sum()) + 3 * len(offers.offers))
    for place, sentence in failed.items():
        out["outcome"][rows[kind == place]], out["problem"][rows[kind == place]] = "invalid", sentence
    able = np.flatnonzero(~np.isin(kind, list(failed)))
    entries = np.cumsum(np.asarray(sizes, dtype=np.int64)[kind[able]])
    for part in np.split(able, np.flatnonzero(np.diff(entries // ENTRIES)) + 1) if len(able) else ():
        own, local = np.unique(kind[part], return_inverse=True)
        answers = passing.answer(
            {name: values[part] for name, values in numbers.items()},
            [gpus[kinds[place][1]] for place in own],
            local.ravel(),
            [found for place in own if (found := pairs[place]) is not None],
        )
        _write(passing.question, answers, rows[part], out)


def _write(question: Question, answers: Answers, rows: NDArray[np.intp], out: Columns) -> None:
    """Answers of a pass into their rows."""
    offers, known = question.market, answers.offer >= 0
    place = np.maximum(answers.offer, 0)
    out["outcome"][rows] = np.array(OUTCOMES, dtype=object)[answers.verdict]
    for name in ("provider", "instance_type", "region", "gpu", "pricing"):
        out[f"best_{name}"][rows[known]] = offers.values(name)[place[known]]
    for name in ("gpus", "nodes"):
        out[f"best_{name}"][rows] = np.where(known, offers.values(name)[place], 0)
    out["best_usd_per_hour"][rows] = np.where(known, offers.numbers("usd_per_hour")[place], np.nan)
    out["best_plan"][rows[known]] = plan_words(answers.plan, len(rows))[known]
    banded = {"memory_bytes": answers.memory_bytes, "cost_usd": answers.cost_usd} | dict(answers.quantities)
    for name in BANDED:
        for band, values in zip(BANDS, in_order(banded[name]), strict=True):
            out[f"{name}_{band}"][rows] = values
    for name in SINGLE:
        if name in answers.quantities:
            out[name][rows] = answers.quantities[name][1]
    out["usable_bytes"][rows] = answers.usable_bytes
    out["usd_per_million_tokens"][rows] = answers.usd_per_million_tokens[1]


def plan_words(plan: Plan, count: int) -> NDArray[np.object_]:
    """Plans in few letters: 'dp8 tp2 zero3 micro4 recompute-full', nothing for one plain GPU."""
    columns = np.stack([np.broadcast_to(getattr(plan, name), (count,)) for name in Plan.__slots__])
    distinct, back = np.unique(columns, axis=1, return_inverse=True)
    words = np.array([_plan(dict(zip(Plan.__slots__, column, strict=True))) for column in distinct.T], dtype=object)
    return words[back.ravel()]


def _plan(values: Mapping[str, float]) -> str:
    said = [
        f"{short}{values[name]:.0f}"
        for name, short in (
            ("data_parallel", "dp"), ("tensor_parallel", "tp"), ("pipeline_parallel", "pp"), ("context_parallel", "cp"),
            ("expert_parallel", "ep"),
        )
        if values[name] > 1
    ]  # fmt: skip
    said += [f"zero{values['zero_stage']:.0f}"] if values["zero_stage"] else []
    said += [f"micro{values['micro_batch']:.0f}"] if values["micro_batch"] > 1 else []
    said += [f"recompute-{RECOMPUTE[int(values['recompute'])]}"] if values["recompute"] else []
    said += [f"offload-{OFFLOAD[int(values['offload'])]}"] if values["offload"] else []
    said += ["shard-in-node"] if values["shard_in_node"] else []
    return " ".join(said)


# ---- one by one, where no pass covers the workload -------------------------------------------------------------------


def _one_by_one(
    grid: Grid,
    catalog: Catalog,
    base: Mapping[str, Any],
    inner: list[str],
    place: Mapping[str, Any],
    row: int,
    out: Columns,
) -> None:
    from gpuguide.decide.pipeline import decide

    values = {key: grid.axes[key][int(place[key])] for key in inner}
    try:
        decision = decide(catalog.resolve(Scenario.from_mapping({**base, **values})))
    except GuideError as error:
        out["outcome"][row], out["problem"][row] = "invalid", str(error)
        return
    for name, value in row_of(decision).items():
        out[name][row] = value


def row_of(decision: Decision) -> dict[str, Any]:
    """A decision as one row of a sweep."""
    answered = decision.best is not None
    places = decision.best_first[:1] if answered else _nearest(decision)
    if not len(places):
        return {"outcome": "none"}
    first = decision.rows.table(places).iloc[0].to_dict()
    outcome = first["fit"] if answered else "none" if first["fit"] != "no" else "no"
    found: dict[str, Any] = {"outcome": outcome}
    for name in ("provider", "instance_type", "region", "gpu", "pricing"):
        found[f"best_{name}"] = first[name]
    found |= {"best_gpus": int(first["gpus"]), "best_nodes": int(first["nodes"])}
    found |= {"best_usd_per_hour": first["usd_per_hour"], "usable_bytes": first["usable_bytes"]}
    found["best_plan"] = _plan({
        name: float((RECOMPUTE if name == "recompute" else OFFLOAD).index(value))
        if name in ("recompute", "offload")
        else float(value)
        for name, value in first["plan"].items()
    })  # fmt: skip
    for band in BANDS:
        found[f"memory_bytes_{band}"] = first[f"memory_total_{band}_bytes"]
        if answered:
            found[f"tokens_per_s_{band}"] = first.get(f"tokens_per_s_{band}", np.nan)
            found[f"hours_{band}"] = first[f"hours_{band}"]
            found[f"cost_usd_{band}"] = first[f"cost_total_{band}_usd"]
    if answered:
        found |= {name: first.get(f"{name}_typical", np.nan) for name in SINGLE}
        found["usd_per_million_tokens"] = first.get("usd_per_million_tokens", np.nan)
    return found


def _nearest(decision: Decision) -> NDArray[np.intp]:
    """Of the offers that the renter accepts the one nearest to fitting, or one that fits and another limit dropped."""
    from gpuguide.decide.market import filters

    accepted = np.ones(len(decision.question.market), dtype=np.bool_)
    for mask in filters(decision.question.market, decision.scenario).values():
        accepted &= mask
    return decision.others[accepted[decision.others]][:1]


# ---- what is kept between stretches ----------------------------------------------------------------------------------


def _distinct(keys: list[NDArray[np.intp]], count: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Which distinct combination each row has, and the combinations."""
    if not keys:
        return np.zeros(count, dtype=np.intp), np.zeros((1, 0), dtype=np.intp)
    distinct, back = np.unique(np.stack(keys), axis=1, return_inverse=True)
    return back.ravel(), distinct.T.astype(np.intp)


def _frozen(values: Mapping[str, Any]) -> Hashable:
    return tuple(
        sorted((key, tuple(value) if isinstance(value, list) else value) for key, value in values.items())
    )  # fmt: skip


@lru_cache(maxsize=4096)
def _question(catalog: Catalog, given: Any) -> Question | str:
    """The question of some values, or the sentence that says why there is none."""
    try:
        return catalog.resolve(Scenario.from_mapping(dict(given)))
    except GuideError as error:
        return str(error)


_PASSES: OrderedDict[Hashable, Pass] = OrderedDict()
MOST_PASSES = 8


def _pass_of(catalog: Catalog, group: Hashable, question: Question) -> Pass:
    """The pass of a group, kept while its neighbours are asked."""
    key = (catalog, group)
    if key not in _PASSES:
        _PASSES[key] = Pass(question)
        while len(_PASSES) > MOST_PASSES:
            _PASSES.popitem(last=False)
    return _PASSES[key]


def _plan_key(question: Question) -> Hashable:
    job = question.job
    return tuple(float(np.asarray(getattr(job, name))) for name in numbers_of(job) if name not in FREE)


def _gpus(grid: Grid, catalog: Catalog, base: Mapping[str, Any], sample: Question) -> list[tuple[str, ...]]:
    """GPUs of each value of the axis, in the catalog's spelling."""
    if "gpu" not in grid.axes:
        return [sample.scenario.gpu]
    return [_spelled(catalog, tuple(value)) for value in grid.axes["gpu"]]


@lru_cache(maxsize=4096)
def _spelled(catalog: Catalog, names: tuple[str, ...]) -> tuple[str, ...]:
    return catalog.resolve(Scenario(gpu=names)).scenario.gpu


def _numbers(
    grid: Grid,
    questions: list[Question | str],
    combination: NDArray[np.intp],
    places: Mapping[str, NDArray[np.intp]],
    job: TrainingJob | ServingJob,
) -> dict[str, NDArray[np.float64]]:
    """The job's numbers of every point."""
    found = {}
    for name in numbers_of(job):
        if name in FREE and name in places:
            found[name] = np.asarray([float(value) for value in grid.axes[name]])[places[name]]
        else:
            each = [np.nan if isinstance(question, str) else _number(question.job, name) for question in questions]
            found[name] = np.asarray(each)[combination]
    return found


def _number(job: object, name: str) -> float:
    return float(np.asarray(getattr(job, name)))
