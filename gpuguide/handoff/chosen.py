"""What a hand-off is made from: the best offer of a decision, its plan, and the scenario that made it."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from typing import TYPE_CHECKING, Any

from gpuguide.catalog.carried import is_carried
from gpuguide.errors import InvalidScenario, NotModelled
from gpuguide.spec.link import link_of
from gpuguide.spec.model import Model
from gpuguide.spec.scenario import Scenario

if TYPE_CHECKING:
    from gpuguide.decide.decision import Decision


@dataclass(frozen=True, kw_only=True, slots=True)
class Chosen:
    """The offer to act on."""

    scenario: Scenario  # defaults filled
    given: Scenario  # as asked
    model: Any
    row: Mapping[str, Any]  # first of the ranking
    plan: Mapping[str, Any]

    @property
    def gpus_per_node(self) -> int:
        """GPUs of one machine. [-]"""
        return int(self.row["gpus"]) // int(self.row["nodes"])

    @property
    def nodes(self) -> int:
        """Machines. [-]"""
        return int(self.row["nodes"])

    @property
    def checkpoint(self) -> str:
        """Where weights come from: the Hub id, the user's own path, or a place to fill in."""
        asked = self.given.model or ""
        if "/" in asked:
            return asked.removesuffix("/config.json")
        named = "MODEL" if not asked or is_carried(asked) else asked
        return getattr(self.model, "hub_id", "") or f"OWNER/{named}"

    @property
    def replicas(self) -> int:
        """Copies of the model that serve side by side. [-]"""
        return max(1, int(self.plan["data_parallel"]))

    @property
    def accumulation(self) -> int:
        """Passes of every GPU in one optimizer step. [-]"""
        held = int(self.plan["micro_batch"]) * int(self.plan["data_parallel"])
        return max(1, -(-int(self.scenario.global_batch or 1) // held))

    def header(self, sign: str = "#") -> str:
        """A comment that says what made the file, so that it can be made again."""
        from gpuguide import __version__

        row = self.row
        machine = f"{self.nodes} x {self.gpus_per_node} x {row['gpu']}"
        where = "any region" if row["region"] in ("*", "") else row["region"]
        total = row["cost_total_typical_usd"]
        per = "a month" if self.scenario.workload == "serve" else "for the run"
        paid = f"{row['pricing'].replace('_', ' ')}, {row['usd_per_hour']:.4g} USD an hour as of {row['as_of']}"
        lines = [
            f"Made by gpuguide {__version__} for {machine} at {row['provider']}, {where}: {row['instance_type']},",
            f"{paid}; about {total:,.{0 if total >= 100 else 2}f} USD {per}.",
            f"Scenario: {link_of(self.given)}",
        ]
        return "".join(f"{sign} {line}\n" for line in lines)


def chosen(decision: Decision, given: Scenario) -> Chosen:
    """
    The best offer of a decision.

    Raises
    ------
    InvalidScenario
        If nothing fits: there is nothing to hand off.
    """
    row = decision.first
    if row is None:
        raise InvalidScenario("scenario", link_of(given)[:60], "no offer fits it, so there is nothing to hand off")
    return Chosen(scenario=decision.scenario, given=given, model=decision.question.model, row=row, plan=row["plan"])


def need_serving(what: Chosen, tool: str) -> None:
    """Refuse what a serving engine cannot do."""
    if what.scenario.workload != "serve":
        raise NotModelled(f"{what.scenario.workload} with {tool}", "give workload=serve, or a training launcher")


def need_training(what: Chosen, tool: str, methods: tuple[str, ...]) -> Model:
    """Refuse what a training launcher cannot do."""
    if what.scenario.workload not in methods or not isinstance(what.model, Model):
        raise NotModelled(f"{what.scenario.workload} with {tool}", f"it is for {', '.join(methods)}")
    return what.model


def need_one_way(what: Chosen, tool: str, *allowed: str) -> None:
    """Refuse plans that a launcher has no setting for, rather than run another plan than the one priced."""
    for degree in ("tensor_parallel", "pipeline_parallel", "context_parallel", "expert_parallel"):
        if int(what.plan[degree]) > 1 and degree not in allowed:
            raise NotModelled(
                f"{degree}={what.plan[degree]} with {tool}", f"set {degree}=1 in the scenario, or hand off to megatron"
            )


def yaml_text(values: Mapping[str, Any]) -> str:
    """YAML in the order given, without what is None."""
    import yaml

    class Readable(yaml.SafeDumper):
        """Several lines stay several lines."""

    def written(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
        return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)

    Readable.add_representer(str, written)
    kept = {key: value for key, value in values.items() if value is not None}
    return str(
        yaml.dump(kept, Dumper=Readable, sort_keys=False, allow_unicode=True, width=1000, default_flow_style=False)
    )


def json_text(values: Mapping[str, Any]) -> str:
    """JSON with the scenario inside it, since it has no comments."""
    return json.dumps(values, indent=2, ensure_ascii=False) + "\n"


@lru_cache
def names(table: str, key: str, value: str) -> Mapping[str, str]:
    """Two columns of a table of names beside this module; empty cells are left out."""
    text = (resources.files("gpuguide.handoff") / f"{table}.csv").read_text("utf-8")
    return {row[key]: row[value] for row in csv.DictReader(text.splitlines()) if row[value]}
