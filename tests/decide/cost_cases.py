"""Offers and bills that tests of cost share."""

import numpy as np
import pandas as pd

from gpuguide.catalog.formats import assumptions_from_table
from gpuguide.catalog.package import read_table
from gpuguide.decide.cost import run_cost, serving_cost
from gpuguide.spec.scenario import Scenario

HOUR = 3600.0
PLAIN = assumptions_from_table(read_table("assumptions")).replace(
    spot_failures_per_gpu_hour=(0.0, 0.0, 0.0), cost_idle_minutes_per_session=(0.0, 0.0, 0.0),
    cost_hours_between_sessions=(0.0, 0.0, 0.0),
)  # fmt: skip
"""Nothing breaks, nobody forgets to stop: what is left can be worked out by hand."""


def an_offer(usd_per_hour, **facts):
    row = {
        "usd_per_hour": usd_per_hour, "pricing": "on_demand", "kind": "on_demand", "gpus_per_node": 1, "nodes": 1,
        "billing_granularity_s": 1.0, "minimum_charge_s": 0.0, "interruption_notice_s": np.nan,
        "volume_usd_per_gb_month": 0.0, "egress_usd_per_gb": 0.0, "egress_free_gb_month": 0.0,
    }  # fmt: skip
    return pd.DataFrame([row | facts])


def cost_of(offers, assumptions, *, work_h=1.0, checkpoint_bytes=0.0, weight_bytes=0.0, needs_checkpoints=True,
            tokens=None, items=None, **keys):  # fmt: skip
    scenario = Scenario(**({"setup_minutes": 0.0, "storage_gb": 0.0, "egress_gb": 0.0} | keys))
    return run_cost(
        work_s=np.full((3, len(offers)), work_h * HOUR), offers=offers, scenario=scenario, tokens=tokens, items=items,
        checkpoint_bytes=checkpoint_bytes, weight_bytes=weight_bytes, data_bytes=0.0, assumptions=assumptions,
        needs_checkpoints=needs_checkpoints,
    )  # fmt: skip


def serve(offers, assumptions, **keys):
    scenario = Scenario(**({"setup_minutes": 0.0, "storage_gb": 0.0, "egress_gb": 0.0, "load": "office"} | keys))
    return serving_cost(
        tokens_per_s=np.full((3, len(offers)), 1000.0), offers=offers, scenario=scenario, weight_bytes=1.6e10,
        assumptions=assumptions,
    )  # fmt: skip
