"""
gpuguide: decide which cloud GPU to rent for a model, and what it will really cost.

>>> from gpuguide import Scenario, decide, load_catalog
>>> catalog = load_catalog()
>>> decision = decide(catalog.resolve(Scenario(workload="lora", model="llama-3.1-8b", sequence_length=4096)))
>>> bool(decision.ranking["cost_total_typical_usd"].iloc[0] > 0)
True
"""

from gpuguide.catalog.catalog import Catalog, load_catalog
from gpuguide.decide.decision import Decision
from gpuguide.decide.pipeline import decide
from gpuguide.errors import DataError, GuideError, InvalidScenario, NotModelled, StaleData, UnknownName
from gpuguide.spec.scenario import Question, Scenario

__version__ = "0.1.0"

__all__ = [
    "Catalog",
    "DataError",
    "Decision",
    "GuideError",
    "InvalidScenario",
    "NotModelled",
    "Question",
    "Scenario",
    "StaleData",
    "UnknownName",
    "decide",
    "load_catalog",
]
