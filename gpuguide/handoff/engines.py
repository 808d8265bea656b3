"""vLLM and SGLang command lines with the plan's degrees, the longest context and the share of memory."""

from __future__ import annotations

import shlex
from typing import Any

from gpuguide.errors import NotModelled
from gpuguide.handoff.chosen import Chosen, need_serving

VLLM_QUANTIZATION = {
    "fp8": "fp8", "awq": "awq_marlin", "gptq": "gptq_marlin", "nf4": "bitsandbytes", "nf4-dq": "bitsandbytes",
    "mxfp4": "mxfp4", "nvfp4": "modelopt_fp4", "int8": "compressed-tensors", "w4a16": "compressed-tensors",
}  # fmt: skip
"""vLLM's names; source: docs.vllm.ai, "Quantization"."""
SGLANG_QUANTIZATION = {
    "fp8": "fp8", "awq": "awq_marlin", "gptq": "gptq_marlin", "nf4": "bitsandbytes", "mxfp4": "mxfp4",
    "nvfp4": "modelopt_fp4", "int8": "w8a8_int8",
}  # fmt: skip
"""SGLang's names; source: docs.sglang.ai, "Quantization"."""
STATIC_SHARE = 0.88
"""SGLang's share for weights and cache where the scenario does not say; the rest is left to activations. [-]"""
PORT = 8000


def vllm(what: Chosen) -> str:
    """`vllm serve` for the chosen machine, as a shell script; several machines get one command each."""
    return what.header() + _script(vllm_command(what), what, head="--master-addr", headless=True)


def vllm_command(what: Chosen) -> list[str]:
    """The arguments of vLLM on one machine."""
    need_serving(what, "vLLM")
    scenario, plan = what.scenario, what.plan
    words: list[Any] = ["vllm", "serve", what.checkpoint, "--tensor-parallel-size", plan["tensor_parallel"]]
    words += ["--pipeline-parallel-size", plan["pipeline_parallel"]] if plan["pipeline_parallel"] > 1 else []
    words += ["--data-parallel-size", what.replicas] if what.replicas > 1 else []
    words += ["--enable-expert-parallel"] if plan["expert_parallel"] > 1 else []
    words += ["--max-model-len", scenario.max_context]
    words += ["--gpu-memory-utilization", f"{scenario.memory_utilization or 0.9:g}"]
    words += ["--kv-cache-dtype", "fp8"] if scenario.kv_format in ("fp8", "int8") else []
    words += _format(what, VLLM_QUANTIZATION, "vLLM")
    if scenario.concurrency:
        words += ["--max-num-seqs", -(-scenario.concurrency // what.replicas)]
    words += ["--port", PORT]
    return [str(word) for word in words]


def sglang(what: Chosen) -> str:
    """`python -m sglang.launch_server` for the chosen machine, as a shell script."""
    return what.header() + _script(sglang_command(what), what, head="--dist-init-addr", headless=False)


def sglang_command(what: Chosen) -> list[str]:
    """The arguments of SGLang on one machine."""
    need_serving(what, "SGLang")
    scenario, plan = what.scenario, what.plan
    words: list[Any] = ["python", "-m", "sglang.launch_server", "--model-path", what.checkpoint]
    words += ["--tp-size", plan["tensor_parallel"]]
    words += ["--pp-size", plan["pipeline_parallel"]] if plan["pipeline_parallel"] > 1 else []
    words += ["--dp-size", what.replicas] if what.replicas > 1 else []
    words += ["--ep-size", plan["expert_parallel"]] if plan["expert_parallel"] > 1 else []
    words += ["--context-length", scenario.max_context]
    words += ["--mem-fraction-static", f"{scenario.memory_utilization or STATIC_SHARE:g}"]
    words += ["--kv-cache-dtype", "fp8_e5m2"] if scenario.kv_format in ("fp8", "int8") else []
    words += _format(what, SGLANG_QUANTIZATION, "SGLang")
    if scenario.concurrency:
        words += ["--max-running-requests", -(-scenario.concurrency // what.replicas)]
    words += ["--host", "0.0.0.0", "--port", PORT]
    return [str(word) for word in words]


def _format(what: Chosen, names: dict[str, str], tool: str) -> list[str]:
    """The weight format, where it is not the checkpoint's own."""
    wanted = str(what.scenario.weight_format)
    if wanted in ("bf16", "fp16"):
        return ["--dtype", "bfloat16" if wanted == "bf16" else "float16"]
    if wanted == getattr(what.model, "native_dtype", None):
        return []  # the checkpoint says it itself
    if wanted not in names:
        raise NotModelled(f"weight_format={wanted} with {tool}", f"choose one of bf16, fp16, {', '.join(names)}")
    return ["--quantization", names[wanted]]


def _script(words: list[str], what: Chosen, *, head: str, headless: bool) -> str:
    """The command over several lines; on several machines once for the first and once for the others."""
    if what.nodes == 1 or int(what.plan["tensor_parallel"]) * int(what.plan["pipeline_parallel"]) <= what.gpus_per_node:
        return _folded(words) + "\n"
    address = '"$HEAD_ADDRESS"' if head == "--master-addr" else '"$HEAD_ADDRESS:5000"'
    rank = ["--nnodes", str(what.nodes), "--node-rank", '"$NODE_RANK"', head, address]
    note = f"# On each of the {what.nodes} machines, NODE_RANK from 0; HEAD_ADDRESS is the address of machine 0.\n"
    script = note + _folded(words) + " \\\n  " + " ".join(rank)
    return script + (' \\\n  $([ "$NODE_RANK" = 0 ] || echo --headless)\n' if headless else "\n")


def _folded(words: list[str]) -> str:
    """One option with its value a line."""
    lines: list[str] = []
    for word in words:
        shown = shlex.quote(word)
        if word.startswith("--") or not lines:
            lines.append(shown)
        else:
            lines[-1] += f" {shown}"
    return " \\\n  ".join(lines)
