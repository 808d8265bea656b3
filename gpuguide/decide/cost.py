"""
What a run or a month of serving costs in all: every part that ends up on the bill, and the parts sum to the total.

Work is priced by the second; to it come starting, rounding up, interruptions, checkpoints, storage, transfer and the
time in which a rented machine does nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from gpuguide.columns import Columns
from gpuguide.decide import billing
from gpuguide.decide.finish import probability_by
from gpuguide.decide.spot import expected_run
from gpuguide.decide.storage import checkpoint_write_s
from gpuguide.decide.terms import Terms, egress_of, flat, interruptions, start_s, stored_gb_of, terms_of
from gpuguide.spec.assumptions import Assumptions
from gpuguide.spec.scenario import Scenario
from gpuguide.units import GB, HOUR, HOURS_PER_MONTH, MILLION, MINUTE, Number

if TYPE_CHECKING:
    import pandas as pd

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

PARTS = ("compute", "rounding", "interruptions", "checkpoints", "storage", "egress", "setup", "idle")
TEXT_BYTES_PER_TOKEN = 5.0
"""Of an answer on the wire: about four characters a token, and framing. [bytes]"""


@dataclass(frozen=True, kw_only=True, slots=True)
class CostBreakdown:
    """
    Cost of a run, or of a month of serving, in USD; every array has axes (band, offer), band = least, typical, most.

    `total` is the sum of the eight parts.
    """

    compute: Floats  # useful work
    rounding: Floats  # started billing steps and minimum charges
    interruptions: Floats  # lost work, restarts
    checkpoints: Floats  # time in which checkpoints stop the run
    storage: Floats  # the persistent volume, while running and stopped
    egress: Floats  # data taken out
    setup: Floats  # from starting a machine to the first useful second
    idle: Floats  # rented without work
    total: Floats
    wall_hours: Floats  # from the first start to the end, waits for machines included [h]
    billed_hours: Floats  # on the bill, one machine or cluster [h]
    expected_interruptions: Floats
    checkpoint_interval_s: Floats  # nan where nothing is checkpointed
    usd_per_useful_gpu_hour: Floats
    minimum_charge_usd: Floats | None = None  # of `rounding`, what least charges add
    probability_in_time: Floats | None = None  # of the deadline, where one is set
    usd_per_million_tokens: Floats | None = None
    usd_per_1000_items: Floats | None = None
    # serving
    busy_share: Floats | None = None  # of the rented hours
    availability: Floats | None = None  # share of the rented hours in which the server answers
    risky: Bools | None = None  # (offer,): requests die when the machine is taken away
    total_if_stopped: Floats | None = None  # USD per month when the machine is stopped between uses


def run_cost(
    *,
    work_s: Floats,
    offers: pd.DataFrame | Columns,
    scenario: Scenario,
    checkpoint_bytes: Number,
    weight_bytes: float,
    data_bytes: Number,
    needs_checkpoints: bool,
    assumptions: Assumptions,
    copied_bytes: Number = 0.0,
    tokens: Number | None = None,
    items: float | None = None,
    result_bytes: float | None = None,
) -> CostBreakdown:
    """
    Cost and duration of one run on every offer.

    Parameters
    ----------
    work_s : array, shape (band, offer)
        Useful work, slowed by storage where it is. [s]
    offers : DataFrame or Columns
        Columns of `catalog.offers.market`; `usd_per_hour` is the price of all `nodes` together.
    scenario : Scenario
        Sessions, interval, interruptions, storage, transfer, set-up, deadline where the user gave them.
    checkpoint_bytes : number or array, shape (offer,)
        One checkpoint. [bytes]
    weight_bytes : float
        Weights that are downloaded before work. [bytes]
    data_bytes : number or array, shape (offer,)
        Data that is kept on the volume. [bytes]
    copied_bytes : number or array, shape (offer,)
        Data that is copied to the machines' own drives at each start, a share to each. [bytes]
    needs_checkpoints : bool
        False where finished items are kept one by one, as when generating images.
    assumptions : Assumptions
        `cost_*`, `spot_*`.
    tokens, items : number, optional
        What the run makes or trains on, for the price per million tokens or per 1,000 items.
    result_bytes : float, optional
        What is taken out at the end; the weights when left out. [bytes]

    Returns
    -------
    CostBreakdown

    Notes
    -----
    A commitment (reserved price) is charged by its hourly rate: the rest of its term is assumed to be used otherwise.
    Source: `docs/formulas.md`, "Cost of a run".
    """
    market = terms_of(offers, assumptions)
    sessions = float(scenario.sessions)
    work = np.asarray(work_s, dtype=np.float64)
    zero = np.zeros_like(work)  # brings every part to the shape of the answer
    rate, noticed = interruptions(market, scenario, assumptions)
    start, restart = start_s(
        market, scenario, weight_bytes, checkpoint_bytes, needs_checkpoints, assumptions, copied_bytes=copied_bytes
    )
    write = (
        checkpoint_write_s(checkpoint_bytes=checkpoint_bytes, nodes=market.nodes, assumptions=assumptions)
        if needs_checkpoints
        else np.zeros((1, 1))
    )
    run = expected_run(
        work_s=work, checkpoint_s=write, start_s=start, restart_s=restart, wait_s=flat(assumptions, "spot_wait_s"),
        rate_per_s=rate, notice_s=market.notice_s, noticed_share=noticed, interval_s=scenario.checkpoint_interval_s,
        sessions=sessions, keeps_everything=not needs_checkpoints,
    )  # fmt: skip
    idle_s = sessions * MINUTE * flat(assumptions, "cost_idle_minutes_per_session") + zero
    one_session = (run.billed_s + idle_s) / sessions
    on_bill, least_s = _on_bill(one_session, sessions, market)
    rounding_s = (
        on_bill
        - sessions * one_session
        + run.interruptions * billing.rounding_after_interruption(rate_per_s=rate, granularity_s=market.step_s)
    )
    checkpoints_s = run.checkpoints * write if needs_checkpoints else zero
    setup_s = sessions * start + zero
    interruptions_s = np.maximum(run.billed_s - work - checkpoints_s - setup_s, 0.0)
    wall_hours = run.wall_s / HOUR
    stopped_hours = (sessions - 1.0) * flat(assumptions, "cost_hours_between_sessions")
    stored_gb = stored_gb_of(scenario, checkpoint_bytes, weight_bytes, data_bytes, needs_checkpoints, assumptions)
    out_gb = scenario.egress_gb
    if out_gb is None:
        out_gb = (weight_bytes if result_bytes is None else result_bytes) / GB
    parts = {
        "compute": work * market.usd_per_s,
        "rounding": rounding_s * market.usd_per_s,
        "interruptions": interruptions_s * market.usd_per_s,
        "checkpoints": checkpoints_s * market.usd_per_s,
        "storage": np.asarray(
            billing.stored_usd(
                stored_gb=stored_gb, hours=wall_hours + stopped_hours, usd_per_gb_month=market.volume_usd
            )
        ),
        "egress": egress_of(market, out_gb) + zero,
        "setup": setup_s * market.usd_per_s,
        "idle": idle_s * market.usd_per_s,
    }
    total = _sum(parts)
    in_time = None
    if scenario.deadline_hours is not None:
        in_time = probability_by(run, scenario.deadline_hours * HOUR)
    return CostBreakdown(
        **parts,
        total=total,
        wall_hours=wall_hours,
        billed_hours=(run.billed_s + idle_s + rounding_s) / HOUR,
        expected_interruptions=run.interruptions,
        checkpoint_interval_s=run.checkpoint_interval_s if needs_checkpoints else np.full_like(work, np.nan),
        usd_per_useful_gpu_hour=total / (work / HOUR * market.gpus),
        minimum_charge_usd=least_s * market.usd_per_s,
        probability_in_time=in_time,
        usd_per_million_tokens=None if tokens is None else total / tokens * MILLION,
        usd_per_1000_items=None if items is None else total / items * 1000.0,
    )


def serving_cost(
    *,
    offers: pd.DataFrame | Columns,
    scenario: Scenario,
    weight_bytes: float,
    assumptions: Assumptions,
    tokens_per_s: Floats | None = None,
    items_per_s: Floats | None = None,
    stop_when_idle: bool = False,
) -> CostBreakdown:
    """
    Cost of a month of serving at the scenario's load pattern.

    Parameters
    ----------
    offers : DataFrame or Columns
        Columns of `catalog.offers.market`; `usd_per_hour` is the price of all `nodes` together.
    scenario : Scenario
        Rented hours a month, load pattern, storage, transfer, set-up.
    weight_bytes : float
        Weights on the volume, loaded at each start. [bytes]
    assumptions : Assumptions
        `cost_*`, `spot_*`.
    tokens_per_s, items_per_s : array, shape (band, offer), optional
        What all GPUs make at full rate; exactly one of the two. [tokens/s], [items/s]
    stop_when_idle : bool
        The machine is stopped between uses instead of waiting for the next; serverless offers always are.

    Returns
    -------
    CostBreakdown
        Per month; `wall_hours` are the rented hours, `total_if_stopped` is the total with `stop_when_idle`.

    Notes
    -----
    At full rate for the busy share of the rented hours. A spot machine that is taken away is paid again while it
    restarts and answers nothing until then. Source: `docs/formulas.md`, "Cost of serving".
    """
    market = terms_of(offers, assumptions)
    made = np.asarray(tokens_per_s if tokens_per_s is not None else items_per_s, dtype=np.float64)
    zero = np.zeros_like(made)
    hours = scenario.hours_per_month
    busy = flat(assumptions, f"cost_busy_share_{scenario.load}") + zero
    busy_s = busy * hours * HOUR
    rate, _ = interruptions(market, scenario, assumptions)
    start, restart = start_s(market, scenario, weight_bytes, 0.0, False, assumptions)
    wait = flat(assumptions, "spot_wait_s")
    availability = 1.0 / (1.0 + rate * (wait + restart)) + zero
    stored_gb = scenario.storage_gb if scenario.storage_gb is not None else weight_bytes / GB
    amount = made * busy_s
    if scenario.egress_gb is not None:
        out_gb: Number = scenario.egress_gb
    else:
        out_gb = amount * TEXT_BYTES_PER_TOKEN / GB if tokens_per_s is not None else 0.0
    standing = {
        "storage": np.asarray(
            billing.stored_usd(stored_gb=stored_gb, hours=HOURS_PER_MONTH, usd_per_gb_month=market.volume_usd)
        )
        + zero,
        "egress": egress_of(market, out_gb) + zero,
        "checkpoints": zero,
    }

    def month(stops: Bools) -> tuple[dict[str, Floats], Floats, Floats, Floats]:
        starts = np.where(stops, flat(assumptions, f"cost_starts_per_month_{scenario.load}"), 1.0)
        used_s = np.where(stops, busy_s, hours * HOUR)
        happen = rate * used_s
        each_s = (used_s + happen * restart) / starts + start
        on_bill, least_s = _on_bill(each_s, starts, market)
        rounding_s = (
            on_bill
            - starts * each_s
            + happen * billing.rounding_after_interruption(rate_per_s=rate, granularity_s=market.step_s)
        )
        seconds = {
            "compute": busy_s,
            "rounding": rounding_s,
            "interruptions": happen * restart,
            "setup": starts * start,
            "idle": used_s - busy_s,
        }
        parts = standing | {name: value * market.usd_per_s + zero for name, value in seconds.items()}
        billed_hours = sum(seconds.values(), start=zero) / HOUR
        return parts, happen + zero, billed_hours, least_s * market.usd_per_s + zero

    serverless = market.serverless
    everything = np.ones_like(serverless)
    stopped, happen, billed, least = month(everything)
    parts = stopped
    if not (stop_when_idle or bool(serverless.all())):
        parts, happen, billed, least = month(serverless)
    total = _sum(parts)
    return CostBreakdown(
        **parts,
        total=total,
        wall_hours=np.full_like(made, hours),
        billed_hours=billed,
        expected_interruptions=happen,
        checkpoint_interval_s=np.full_like(made, np.nan),
        usd_per_useful_gpu_hour=total / (busy_s / HOUR * market.gpus),
        usd_per_million_tokens=total / amount * MILLION if tokens_per_s is not None else None,
        usd_per_1000_items=total / amount * 1000.0 if tokens_per_s is None else None,
        minimum_charge_usd=least,
        busy_share=busy,
        availability=availability,
        risky=market.spot | market.community,
        total_if_stopped=_sum(stopped),
    )


def break_even_tokens(*, usd_per_month: Number, api_usd_per_million: Number) -> Number:
    """
    Tokens a month from which renting is cheaper than paying for each token.

    Parameters
    ----------
    usd_per_month : number or array
        Cost of the rented machine. [USD]
    api_usd_per_million : number
        Price of the service one would use instead, of the same mix of input and output. [USD / 1e6 tokens]

    Returns
    -------
    number or array
        [tokens]; above what the machine can make in a month, renting is never cheaper.
    """
    return usd_per_month / api_usd_per_million * MILLION


def _on_bill(used_s: Floats, starts: Number, market: Terms) -> tuple[Floats, Floats]:
    """Time on the bill of all starts, and what of it is charged only because there is a least charge. [s]"""
    whole = billing.billed_seconds(used_s=used_s, granularity_s=market.step_s, minimum_s=market.minimum_s)
    steps = billing.billed_seconds(used_s=used_s, granularity_s=market.step_s, minimum_s=0.0)
    return starts * whole, starts * (whole - steps)


def _sum(parts: dict[str, Floats]) -> Floats:
    total = parts[PARTS[0]]
    for name in PARTS[1:]:
        total = total + parts[name]
    return total
