"""SkyPilot tasks and dstack configurations that rent the chosen machines and start the job on them."""

from __future__ import annotations

from typing import Any

from gpuguide.handoff.chosen import Chosen, names, yaml_text
from gpuguide.handoff.engines import PORT, sglang_command, vllm_command

BASE_IMAGE_GB = 50
"""Root disk beside weights and data: system, container image, packages; a choice of ours. [GB]"""
OWN_SCRIPT = (
    "# train.py stands for your own script; settings: gpuguide export --to axolotl, torchtune, deepspeed, ...\n"
)
IMAGES = {"vllm": "vllm/vllm-openai:latest", "sglang": "lmsysorg/sglang:latest"}


def skypilot(what: Chosen) -> str:
    """A SkyPilot task; spot offers as a managed job that recovers."""
    row = what.row
    cloud = names("clouds", "provider", "skypilot").get(str(row["provider"]))
    region = str(row["region"] or "*")
    infra = f"{cloud}/{region}" if cloud and region not in ("*", "") else cloud
    gpu = names("skypilot_gpus", "gpu", "skypilot").get(str(row["gpu"]), str(row["gpu"]))
    resources: dict[str, Any] = {
        "infra": infra,
        "accelerators": f"{gpu}:{what.gpus_per_node}",
        "use_spot": True if row["pricing"] == "spot" else None,
        "disk_size": _disk_gb(what),
        "ports": PORT if what.scenario.workload == "serve" else None,
        "max_hourly_cost": _ceiling(what),
    }
    task: dict[str, Any] = {
        "name": _name(what),
        "num_nodes": what.nodes if what.nodes > 1 else None,
        "resources": {key: value for key, value in resources.items() if value is not None},
        "setup": _setup(what),
        "run": _run(what, node="$SKYPILOT_NODE_RANK", head='$(echo "$SKYPILOT_NODE_IPS" | head -n1)'),
    }
    notes = "" if what.scenario.workload == "serve" else OWN_SCRIPT
    if cloud is None:
        notes += (
            f"# SkyPilot does not rent at {row['provider']}: this task takes the cheapest cloud that has the GPU.\n"
        )
    start = "sky jobs launch" if row["pricing"] == "spot" else "sky launch"
    return what.header() + notes + f"# {start} task.yaml\n" + yaml_text(task)


def dstack(what: Chosen) -> str:
    """A dstack service for serving, else a task."""
    row, serving = what.row, what.scenario.workload == "serve"
    backend = names("clouds", "provider", "dstack").get(str(row["provider"]))
    region = str(row["region"] or "*")
    engine = _engine(what)
    configuration: dict[str, Any] = {
        "type": "service" if serving else "task",
        "name": _name(what),
        "image": IMAGES[engine] if serving else None,
        "python": None if serving else "3.12",
        "nodes": what.nodes if what.nodes > 1 and not serving else None,
        "env": ["HF_TOKEN"],
        "commands": _run(
            what, node="$DSTACK_NODE_RANK", head="$DSTACK_MASTER_NODE_IP", setup=None if serving else _setup(what)
        ).strip().splitlines(),
        "port": PORT if serving else None,
        "model": what.checkpoint if serving else None,
        "resources": {"gpu": _dstack_gpu(what), "disk": f"{_disk_gb(what)}GB.."},
        "backends": [backend] if backend else None,
        "regions": [region] if backend and region not in ("*", "") else None,
        "spot_policy": "spot" if row["pricing"] == "spot" else "on-demand",
        "max_price": _ceiling(what),
    }  # fmt: skip
    notes = "" if what.scenario.workload == "serve" else OWN_SCRIPT
    if backend is None:
        notes += f"# dstack does not rent at {row['provider']}: any backend that has the GPU is taken.\n"
    if serving and what.nodes > 1:
        notes += "# A dstack service runs on one machine: this one holds the replicas of one of them.\n"
    return what.header() + notes + "# dstack apply -f .dstack.yml\n" + yaml_text(configuration)


def _dstack_gpu(what: Chosen) -> dict[str, Any]:
    """GPU by dstack's name and size where it has one, else by memory alone."""
    from gpuguide.catalog.package import read_columns

    known = next((row for row in read_columns("live_names").records() if row["gpu"] == what.row["gpu"]), None)
    found: dict[str, Any] = {"count": what.gpus_per_node}
    if known is None:
        # A tenth less than a process can allocate: marketed sizes are rounded, some of them down.
        return {"memory": f"{int(0.9 * float(what.row['usable_bytes']) / 1e9)}GB.."} | found
    return {"name": known["gpuhunt_name"], "memory": f"{known['memory_gb']:g}GB"} | found


def _run(what: Chosen, *, node: str, head: str, setup: str | None = None) -> str:
    """What runs on every machine."""
    scenario = what.scenario
    if scenario.workload == "serve":
        words = sglang_command(what) if _engine(what) == "sglang" else vllm_command(what)
        return " ".join(words) + "\n"
    lines = [setup.strip()] if setup else []
    many = (
        f"--nnodes={what.nodes} --node_rank={node} --master_addr={head} --master_port=29500"
        if what.nodes > 1
        else "--standalone"
    )
    plan = ", ".join(f"{key}={value}" for key, value in what.plan.items() if value not in (0, 1, "none", False))
    lines.append(f"echo 'plan: {plan}'")
    lines.append(f"torchrun {many} --nproc_per_node={what.gpus_per_node} train.py")
    return "\n".join(lines) + "\n"


def _setup(what: Chosen) -> str:
    """What is installed first."""
    if what.scenario.workload == "serve":
        return (
            f"uv pip install --system {_engine(what)}\n" if _engine(what) == "vllm" else 'pip install "sglang[all]"\n'
        )
    if what.scenario.is_media:
        return "pip install torch diffusers transformers accelerate\n"
    return "pip install torch transformers datasets peft accelerate\n"


def _engine(what: Chosen) -> str:
    return "sglang" if str(what.scenario.engine).startswith("sglang") else "vllm"


def _disk_gb(what: Chosen) -> int:
    """Weights twice (as downloaded and in the cache), data and results, beside the system. [GB]"""
    held = what.scenario.storage_gb
    if held is None:
        held = 2 * 2.0 * float(what.model.params) / 1e9
    return int(BASE_IMAGE_GB + -(-held // 10) * 10)


def _ceiling(what: Chosen) -> float:
    """A quarter above the price that was compared, of one machine: a dearer one should be decided on anew. [USD/h]"""
    return round(1.25 * float(what.row["usd_per_hour"]) / what.nodes, 2) or 0.01


def _name(what: Chosen) -> str:
    """Lower case, digits and hyphens, as both tools ask."""
    words = f"{what.scenario.workload}-{what.model.name}".casefold()
    plain = "".join(sign if sign.isascii() and sign.isalnum() else "-" for sign in words)
    return "-".join(part for part in plain.split("-") if part)[:40].strip("-")
