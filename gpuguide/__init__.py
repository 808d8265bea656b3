"""
gpuguide: decide which cloud GPU to rent for a model, and what it will really cost.

>>> from gpuguide import Scenario, decide, load_catalog
>>> catalog = load_catalog()
>>> decision = decide(catalog.resolve(Scenario(workload="lora", model="llama-3.1-8b", sequence_length=4096)))
>>> bool(decision.ranking["cost_total_typical_usd"].iloc[0] > 0)
True
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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

_HOMES = {
    "catalog.catalog": ("Catalog", "load_catalog"),
    "decide.decision": ("Decision",),
    "decide.pipeline": ("decide",),
    "errors": ("DataError", "GuideError", "InvalidScenario", "NotModelled", "StaleData", "UnknownName"),
    "spec.scenario": ("Question", "Scenario"),
}
"""Modules of the public names; each is imported when one of its names is asked for, so that `--help` is quick."""


class _Facade(ModuleType):
    """This module, in which `decide` is always the function and never the subpackage of that name."""

    def __getattr__(self, name: str) -> Any:
        for home, names in _HOMES.items():
            if name in names:
                value = getattr(import_module(f"{__name__}.{home}"), name)
                if name != "decide":
                    vars(self)[name] = value
                return value
        raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")

    def __dir__(self) -> list[str]:
        return sorted({*vars(self), *__all__})

    @property
    def decide(self) -> Any:
        return self.__getattr__("decide")

    @decide.setter
    def decide(self, subpackage: ModuleType) -> None:
        """Importing a module of the subpackage would put it here."""


sys.modules[__name__].__class__ = _Facade
