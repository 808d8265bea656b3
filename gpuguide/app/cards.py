"""What a card of a page draws, for every card that pages share; `pages` says which page shows which."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gpuguide.app.declaration import Answer, Card
from gpuguide.show import cost, figures, formats, market, media, reach, serving, tables
from gpuguide.show.architecture import architecture_list
from gpuguide.show.html import Html, tag
from gpuguide.show.remedies import remedy_list
from gpuguide.show.sweeps import (
    across_context,
    across_interval,
    across_load,
    across_sessions,
    across_sizes,
    price_forms,
)


def _decided(draw: Any) -> Any:
    """A drawing of the decision and the text alone, as a card wants it."""
    return lambda answer: draw(answer.decision, answer.text)


def _asking(draw: Any) -> Any:
    """A drawing that asks about neighbouring scenarios too."""
    return lambda answer: draw(answer.ask, answer.decision, answer.text)


RANKING = Card(key="ranking", draw=_decided(tables.ranking_table), chart=False, wide=True, download=True)
MEMORY = Card(key="memory", draw=_decided(figures.memory_by_gpu), wide=True)
COST = Card(key="cost", draw=_decided(figures.cost_of_offers))
BILL = Card(key="bill", draw=_decided(cost.waterfall))
BILL_TABLE = Card(key="billtable", draw=_decided(cost.bill_table), chart=False)
PARTS = Card(key="parts", draw=_decided(tables.memory_table), chart=False)
FUNNEL = Card(key="funnel", draw=_decided(tables.funnel), chart=False)
DROPPED = Card(
    key="dropped", draw=_decided(market.dropped), grid=((0, "asc"), (1, "asc")), chart=False, wide=True, slow=True
)
ARCHITECTURE = Card(key="architecture", draw=_decided(architecture_list), chart=False)
PLAN = Card(key="plan", draw=_decided(tables.plan_list), chart=False)
FRONT = Card(key="front", draw=_decided(figures.time_and_cost))
STEP = Card(key="step", draw=_decided(figures.step_time))
HELP = Card(key="remedies", draw=_decided(remedy_list), chart=False, slow=True)

ROOF = Card(key="roof", draw=_decided(reach.roofline))
LIMITS = Card(key="limits", draw=_decided(reach.limits_table), chart=False, slow=True, wide=True)
ENERGY = Card(key="energy", draw=_decided(reach.energy_list), chart=False)
LADDER = Card(key="ladder", draw=_decided(reach.ladder_list), chart=False, slow=True)

METHODS = ("serve", "qlora", "lora", "full", "pretrain")


def _methods(answer: Answer) -> Any:
    """The same model under every job."""
    answers = [
        (
            answer.text(f"option.workload.{method}"),
            answer.ask({"workload": method, "recipe": None, "gpus": None, "gpu": None}),
        )
        for method in METHODS
    ]
    return figures.memory_of_variants(answers, answer.text)


VARIANTS = Card(key="methods", draw=_methods, slow=True)


CONTEXT = Card(key="context", draw=_asking(across_context), slow=True)
CURVE = Card(key="curve", draw=_decided(serving.latency_curve), wide=True, slow=True)
CURVE_TABLE = Card(key="curvetable", draw=_decided(serving.latency_table), chart=False, wide=True, slow=True)
FORMATS = Card(key="formats", draw=_asking(formats.format_bars), wide=True, slow=True)
FORMAT_TABLE = Card(key="formattable", draw=_asking(formats.format_table), chart=False, wide=True, slow=True)
LOAD = Card(key="load", draw=_asking(across_load), slow=True)
SIZES = Card(key="sizes", draw=_asking(across_sizes), wide=True, slow=True)
FORMS = Card(key="forms", draw=_asking(price_forms), wide=True, slow=True)
INTERVAL = Card(key="interval", draw=_asking(across_interval), slow=True)
SESSIONS = Card(key="sessions", draw=_asking(across_sessions), slow=True)
PHASES = Card(key="phases", draw=_decided(media.phase_bars), wide=True)
PHASE_TABLE = Card(key="phasetable", draw=_decided(media.phase_table), chart=False, wide=True)
MEDIASTEP = replace(STEP, key="mediastep")


def _order(answer: Answer) -> Html:
    steps = [tag("li", answer.text(f"index.order_{name}")) for name in ("memory", "bandwidth", "topology", "price")]
    return tag("ol", steps, class_="gg-order")


ORDER = Card(key="order", draw=_order, chart=False)
