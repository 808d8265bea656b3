"""Files for other tools: made for the chosen plan, read by the tool's own parser where that installs."""

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from gpuguide import InvalidScenario, NotModelled, Scenario, UnknownName, decide, load_catalog
from gpuguide.handoff import TARGETS, chosen, hand_off
from gpuguide.spec.link import link_of

RECORDED = Path(__file__).parent / "recorded"
SERVE = {"workload": "serve", "model": "llama-3.1-70b", "weight_format": "fp8", "concurrency": 64}
LORA = {"workload": "lora", "model": "llama-3.1-8b", "gpus": 8}
QLORA = {"workload": "qlora", "model": "llama-3.1-70b", "providers": ("aws",), "pricing": "spot"}
FULL = {"workload": "full", "model": "llama-3.1-8b", "gpus": 8, "tensor_parallel": 1, "pipeline_parallel": 1}
PRETRAIN = {"workload": "pretrain", "model": "llama-3.1-70b", "gpus": 256, "sequence_length": 8192}
MOE = {"workload": "pretrain", "model": "mixtral-8x7b", "gpus": 64}
CASES = [
    ("skypilot", SERVE), ("skypilot", QLORA), ("skypilot", PRETRAIN), ("dstack", SERVE), ("dstack", QLORA),
    ("dstack", PRETRAIN), ("vllm", SERVE), ("sglang", SERVE), ("torchtune", LORA), ("torchtune", FULL),
    ("torchtune", {"workload": "qlora", "model": "llama-3.1-8b", "gpus": 1}), ("axolotl", LORA), ("axolotl", QLORA),
    ("axolotl", FULL), ("llama-factory", LORA), ("llama-factory", QLORA), ("llama-factory", FULL), ("deepspeed", FULL),
    ("deepspeed", LORA), ("megatron", PRETRAIN), ("megatron", MOE),
]  # fmt: skip
IDS = [f"{tool}-{given['workload']}-{given['model']}" for tool, given in CASES]


def choose(given):
    scenario = Scenario(**given)
    return chosen(decide(load_catalog().resolve(scenario)), scenario)


def recorded(name):
    return json.loads((RECORDED / f"{name}.json").read_text("utf-8"))


def options(script):
    """Names of the options of a command line over several lines."""
    return [word.partition("=")[0] for word in shlex.split(script, comments=True) if word.startswith("--")]


@pytest.mark.parametrize(("tool", "given"), CASES, ids=IDS)
def test_every_file_names_the_scenario_that_made_it(tool, given):
    """Without it a file on a disk cannot be traced back or made again."""
    text = hand_off(choose(given), tool)

    assert f"Scenario: {link_of(Scenario(**given))}" in text


@pytest.mark.parametrize("tool", ["vllm", "sglang", "megatron"])
def test_options_are_the_tools_own(tool):
    """An option that the tool does not have stops it at the start, on a machine that is paid for."""
    given = PRETRAIN if tool == "megatron" else SERVE
    known = {*recorded(tool)["names"], "--nproc_per_node", "--nnodes", "--node_rank", "--master_addr", "--master_port"}

    assert set(options(hand_off(choose(given), tool))) <= known


@pytest.mark.parametrize(
    ("tool", "given"), [case for case in CASES if case[0] in ("axolotl", "llama-factory")], ids=str
)
def test_settings_are_the_tools_own(tool, given):
    """A misspelt key would be passed over in silence, or refused on a machine that is paid for."""
    found = yaml.safe_load(hand_off(choose(given), tool))
    known = set(recorded(tool.replace("-", "_"))["names"])
    if tool == "llama-factory":  # these are of transformers.TrainingArguments
        known |= {
            "do_train", "per_device_train_batch_size", "gradient_accumulation_steps", "max_steps", "learning_rate",
            "lr_scheduler_type", "optim", "bf16", "fp16", "deepspeed", "output_dir", "save_strategy",
        }  # fmt: skip

    assert set(found) <= known


@pytest.mark.parametrize("given", [LORA, FULL, {"workload": "qlora", "model": "llama-3.1-8b", "gpus": 1}], ids=str)
def test_torchtune_recipes_exist(given):
    """`tune run` knows its recipes by name and no others."""
    words = shlex.split(hand_off(choose(given), "torchtune"), comments=True)

    assert words[words.index("--config") + 1] in recorded("torchtune")["names"]


def test_deepspeed_batches_multiply():
    """DeepSpeed refuses a configuration whose batch is not micro-batch x accumulation x GPUs."""
    what = choose(FULL)
    found = json.loads(hand_off(what, "deepspeed"))
    names = recorded("deepspeed")

    assert found["train_batch_size"] == (
        found["train_micro_batch_size_per_gpu"] * found["gradient_accumulation_steps"] * what.plan["data_parallel"]
    )
    assert {key for key in found if not key.startswith("_")} <= set(names["names"])
    assert set(found["zero_optimization"]) <= set(names["zero_optimization"])


def test_degrees_of_the_plan_fill_the_machine():
    """Tensor x pipeline x replicas short of the GPUs leaves some of them idle; beyond, the server does not start."""
    what = choose(SERVE)
    words = shlex.split(hand_off(what, "vllm"), comments=True)

    def degree(option):
        return int(words[words.index(option) + 1]) if option in words else 1

    used = degree("--tensor-parallel-size") * degree("--pipeline-parallel-size") * degree("--data-parallel-size")
    assert used == what.row["gpus"]
    assert degree("--max-model-len") == what.scenario.max_context


def test_megatron_trains_on_all_tokens():
    """Fewer steps than the tokens need would cost less than was said."""
    what = choose(PRETRAIN)
    words = shlex.split(hand_off(what, "megatron"), comments=True)
    value = {words[place]: words[place + 1] for place in range(len(words) - 1)}

    tokens = int(value["--train-iters"]) * int(value["--global-batch-size"]) * int(value["--seq-length"])
    assert tokens >= what.scenario.train_tokens


@pytest.mark.parametrize(
    ("tool", "given", "error"),
    [
        pytest.param("vllm", LORA, NotModelled, id="an engine does not train"),
        pytest.param("axolotl", SERVE, NotModelled, id="a launcher does not serve"),
        pytest.param("megatron", LORA, NotModelled, id="no adapters in Megatron here"),
        pytest.param("torchtune", {"workload": "lora", "model": "qwen3-8b"}, NotModelled, id="no recipe"),
        pytest.param("vlm", SERVE, UnknownName, id="no such tool"),
    ],
)
def test_what_a_tool_cannot_do_is_refused(tool, given, error):
    """A file that runs another plan than the one priced is worse than none."""
    with pytest.raises(error):
        hand_off(choose(given), tool)


def test_nothing_to_hand_off_when_nothing_fits():
    """There is no offer to act on."""
    with pytest.raises(InvalidScenario):
        choose({"workload": "full", "model": "llama-3.1-70b", "gpu": ("L4",), "gpus": 1})


# ---- the tools themselves, each in an environment of its own ---------------------------------------------------------


def tool_python(name, requirement):
    """The interpreter of a kept environment with one tool in it; skips where it cannot be installed."""
    root = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "gpuguide-test-tools" / name
    python = root / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    done = root / "installed"
    if not done.is_file():
        subprocess.run([sys.executable, "-m", "venv", str(root)], check=True, capture_output=True)
        uv = Path(sys.executable).with_name("uv")
        install = [str(uv), "pip", "install", "--python", str(python)] if uv.is_file() else [
            str(python), "-m", "pip", "install"
        ]  # fmt: skip
        try:
            result = subprocess.run(
                [*install, "-q", requirement], capture_output=True, text=True, timeout=900, check=False
            )
        except subprocess.TimeoutExpired:
            pytest.skip(f"{requirement} did not install within 15 minutes")
        if result.returncode:
            pytest.skip(f"{requirement} cannot be installed here: {result.stderr.strip()[-200:]}")
        done.touch()
    return python


def read_by(python, code, text, tmp_path, suffix):
    """What a tool's own parser makes of a file, as JSON."""
    file = tmp_path / f"file{suffix}"
    file.write_text(text, "utf-8")
    environment = os.environ | {"HOME": str(tmp_path), "SKYPILOT_DISABLE_USAGE_COLLECTION": "1"}
    result = subprocess.run(
        [str(python), "-c", code, str(file)], capture_output=True, text=True, timeout=300, check=False, env=environment
    )
    if "download" in result.stderr.lower() and "catalog" in result.stderr.lower():
        pytest.skip("the tool wants to download its catalog, and there is no network")
    assert result.returncode == 0, result.stderr[-3000:]
    return json.loads(result.stdout.strip().splitlines()[-1])


SKYPILOT = """
import json, sys, sky
task = sky.Task.from_yaml(sys.argv[1])
resources = list(task.resources)[0]
print(json.dumps([task.num_nodes, resources.accelerators, resources.use_spot, str(resources.cloud), task.run]))
"""
DSTACK = """
import json, sys, yaml
from dstack._internal.core.models.configurations import parse_apply_configuration
read = parse_apply_configuration(yaml.safe_load(open(sys.argv[1])))
gpu = read.resources.gpu
print(json.dumps([read.type, gpu.count.min, read.spot_policy.value, list(map(str, read.commands))]))
"""


@pytest.mark.slow
@pytest.mark.parametrize("given", [SERVE, QLORA, PRETRAIN], ids=lambda given: given["workload"])
def test_skypilot_reads_its_task(given, tmp_path):
    """`sky.Task.from_yaml` is what `sky launch` calls first."""
    what = choose(given)
    found = read_by(tool_python("skypilot", "skypilot"), SKYPILOT, hand_off(what, "skypilot"), tmp_path, ".yaml")

    nodes, accelerators, spot, _, run = found
    assert (nodes, list(accelerators.values()), spot) == (
        what.nodes,
        [what.gpus_per_node],
        given.get("pricing") == "spot",
    )
    assert run


@pytest.mark.slow
@pytest.mark.parametrize("given", [SERVE, QLORA, PRETRAIN], ids=lambda given: given["workload"])
def test_dstack_reads_its_configuration(given, tmp_path):
    """The models that `dstack apply` parses a file with."""
    what = choose(given)
    found = read_by(tool_python("dstack", "dstack"), DSTACK, hand_off(what, "dstack"), tmp_path, ".yml")

    kind, count, spot, commands = found
    assert kind == ("service" if given["workload"] == "serve" else "task")
    assert (count, spot) == (what.gpus_per_node, "spot" if given.get("pricing") == "spot" else "on-demand")
    assert commands


def test_all_tools_are_tried():
    """A tool without a case here is a tool nobody has looked at."""
    assert {tool for tool, _ in CASES} == set(TARGETS)
