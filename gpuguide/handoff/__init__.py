"""From decision to action: files and command lines that rent the chosen machine and run the chosen plan on it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from gpuguide.errors import UnknownName, nearest
from gpuguide.handoff.chosen import Chosen, chosen
from gpuguide.handoff.clouds import dstack, skypilot
from gpuguide.handoff.engines import sglang, vllm
from gpuguide.handoff.launchers import axolotl, deepspeed, llama_factory, megatron, torchtune

TARGETS: Mapping[str, tuple[str, Callable[[Chosen], str]]] = {
    "skypilot": ("task.yaml", skypilot),
    "dstack": (".dstack.yml", dstack),
    "vllm": ("serve.sh", vllm),
    "sglang": ("serve.sh", sglang),
    "torchtune": ("train.sh", torchtune),
    "axolotl": ("config.yaml", axolotl),
    "llama-factory": ("config.yaml", llama_factory),
    "deepspeed": ("ds_config.json", deepspeed),
    "megatron": ("train.sh", megatron),
}
"""For each tool the usual name of its file, and what writes it."""


def hand_off(what: Chosen, tool: str) -> str:
    """
    The file of one tool for the chosen offer.

    Raises
    ------
    UnknownName
        If there is no such tool; carries the nearest.
    NotModelled
        If the tool has no setting for the workload or the plan.
    """
    if tool not in TARGETS:
        raise UnknownName("tool to hand off to", tool, nearest(tool, TARGETS) or list(TARGETS), len(TARGETS))
    return TARGETS[tool][1](what)


__all__ = ["TARGETS", "Chosen", "chosen", "hand_off"]
