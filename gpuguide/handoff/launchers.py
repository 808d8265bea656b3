"""Settings of training launchers for the chosen plan: torchtune, Axolotl, LLaMA-Factory, DeepSpeed and Megatron."""

from __future__ import annotations

import shlex
from typing import Any

from gpuguide.errors import NotModelled
from gpuguide.handoff.chosen import Chosen, json_text, names, need_one_way, need_training, yaml_text
from gpuguide.spec.link import link_of

FINE_TUNING = ("full", "lora", "qlora")
DATASET = "mhenrichsen/alpaca_2k_test"
"""A small public set, so that a configuration runs as it is; to be replaced."""
LEARNING_RATE = {"pretrain": 3e-4, "full": 2e-5, "lora": 2e-4, "qlora": 2e-4}
"""Common starting points; source: the recipes of torchtune and Axolotl. They change neither memory nor time."""
HF_OPTIMIZERS = {
    "adamw": "adamw_torch_fused", "adamw-8bit": "adamw_bnb_8bit", "adafactor": "adafactor", "lion": "lion_32bit",
    "sgd": "sgd", "sgd-momentum": "sgd", "muon": "muon",
}  # fmt: skip
LORA_MODULES = {
    "q": "q_proj", "k": "k_proj", "v": "v_proj", "o": "o_proj", "gate": "gate_proj", "up": "up_proj",
    "down": "down_proj",
}  # fmt: skip


def axolotl(what: Chosen) -> str:
    """An Axolotl configuration: micro-batch, accumulation, adapters, sharding and recompute of the plan."""
    need_training(what, "Axolotl", FINE_TUNING)
    need_one_way(what, "Axolotl", "context_parallel", "tensor_parallel")
    scenario, plan = what.scenario, what.plan
    settings: dict[str, Any] = {
        "base_model": what.checkpoint,
        "load_in_4bit": True if scenario.workload == "qlora" else None,
        "adapter": scenario.workload if scenario.workload != "full" else None,
        "lora_r": scenario.lora_rank if scenario.workload != "full" else None,
        "lora_alpha": 2 * scenario.lora_rank if scenario.workload != "full" else None,
        "lora_target_linear": True if scenario.workload != "full" and "all" in scenario.lora_targets else None,
        "lora_target_modules": _modules(what)
        if scenario.workload != "full" and "all" not in scenario.lora_targets
        else None,
        "datasets": [{"path": DATASET, "type": "alpaca"}],
        "sequence_len": scenario.sequence_length,
        "sample_packing": True,
        "micro_batch_size": plan["micro_batch"],
        "gradient_accumulation_steps": what.accumulation,
        "max_steps": _steps(what),
        "optimizer": HF_OPTIMIZERS.get(scenario.optimizer, scenario.optimizer),
        "learning_rate": LEARNING_RATE[scenario.workload],
        "lr_scheduler": "cosine",
        "bf16": scenario.recipe not in ("fp16-mixed", "fp32"),
        "fp16": True if scenario.recipe == "fp16-mixed" else None,
        "gradient_checkpointing": plan["recompute"] != "none",
        "attn_implementation": "flash_attention_2" if scenario.attention == "fused" else "eager",
        "tensor_parallel_size": plan["tensor_parallel"] if plan["tensor_parallel"] > 1 else None,
        "context_parallel_size": plan["context_parallel"] if plan["context_parallel"] > 1 else None,
        "output_dir": "./out",
    }
    if int(plan["zero_stage"]) == 3:
        settings["fsdp_version"] = 2
        settings["fsdp_config"] = {
            "auto_wrap_policy": "TRANSFORMER_BASED_WRAP", "state_dict_type": "FULL_STATE_DICT",
            "reshard_after_forward": True, "offload_params": plan["offload"] == "all",
        }  # fmt: skip
    elif int(plan["zero_stage"]) in (1, 2):
        settings["deepspeed"] = f"deepspeed_configs/zero{plan['zero_stage']}.json"
    start = "axolotl train config.yaml" + (f" --launcher torchrun -- {_torchrun(what)}" if what.nodes > 1 else "")
    return what.header() + f"# {start}\n" + yaml_text(settings)


def llama_factory(what: Chosen) -> str:
    """A LLaMA-Factory configuration."""
    need_training(what, "LLaMA-Factory", ("pretrain", *FINE_TUNING))
    need_one_way(what, "LLaMA-Factory")
    scenario, plan = what.scenario, what.plan
    adapters = scenario.workload in ("lora", "qlora")
    settings: dict[str, Any] = {
        "model_name_or_path": what.checkpoint,
        "stage": "pt" if scenario.workload == "pretrain" else "sft",
        "do_train": True,
        "finetuning_type": "lora" if adapters else "full",
        "train_from_scratch": True if scenario.workload == "pretrain" else None,
        "lora_rank": scenario.lora_rank if adapters else None,
        "lora_target": ("all" if "all" in scenario.lora_targets else ",".join(_modules(what))) if adapters else None,
        "quantization_method": "bnb" if scenario.workload == "qlora" else None,
        "quantization_bit": 4 if scenario.workload == "qlora" else None,
        "double_quantization": str(scenario.quantization).endswith("-dq") if scenario.workload == "qlora" else None,
        "dataset": "alpaca_en_demo",
        "template": None if scenario.workload == "pretrain" else "default",
        "cutoff_len": scenario.sequence_length,
        "packing": True,
        "per_device_train_batch_size": plan["micro_batch"],
        "gradient_accumulation_steps": what.accumulation,
        "max_steps": _steps(what),
        "learning_rate": LEARNING_RATE[scenario.workload],
        "lr_scheduler_type": "cosine",
        "optim": HF_OPTIMIZERS.get(scenario.optimizer, scenario.optimizer),
        "bf16": scenario.recipe not in ("fp16-mixed", "fp32"),
        "pure_bf16": True if scenario.recipe == "pure-bf16" and not adapters else None,
        "fp16": True if scenario.recipe == "fp16-mixed" else None,
        "flash_attn": "fa2" if scenario.attention == "fused" else "disabled",
        "disable_gradient_checkpointing": plan["recompute"] == "none",
        "enable_liger_kernel": True if scenario.fused_loss else None,
        "deepspeed": f"examples/deepspeed/ds_z{plan['zero_stage']}_config.json" if plan["zero_stage"] > 1 else None,
        "output_dir": "saves/run",
        "save_strategy": "steps",
    }  # fmt: skip
    start = "llamafactory-cli train config.yaml"
    if what.nodes > 1:
        start = (
            f"FORCE_TORCHRUN=1 NNODES={what.nodes} NODE_RANK=$RANK MASTER_ADDR=$HEAD_ADDRESS MASTER_PORT=29500 {start}"
        )
    return what.header() + f"# {start}\n" + yaml_text(settings)


def torchtune(what: Chosen) -> str:
    """A torchtune command on one of its own recipes, with the plan as overrides."""
    model = need_training(what, "torchtune", FINE_TUNING)
    need_one_way(what, "torchtune")
    recipes = names("torchtune_recipes", "model", "recipe")
    if model.name not in recipes:
        raise NotModelled(f"{model.name} with torchtune", f"it has recipes for {', '.join(recipes)}; or use axolotl")
    if what.nodes > 1:
        raise NotModelled("several machines with torchtune", "set nodes=1, or use axolotl")
    scenario, plan = what.scenario, what.plan
    adapters, many = scenario.workload in ("lora", "qlora"), what.gpus_per_node > 1
    recipe = f"{'lora' if adapters else 'full'}_finetune_{'distributed' if many else 'single_device'}"
    methods = names("torchtune_recipes", "model", "methods")[model.name].split("|")
    # Over several GPUs QLoRA is the LoRA recipe with a quantised base.
    method = ("lora" if adapters else "full") if many else f"{scenario.workload}_single_device"
    if method not in methods:
        raise NotModelled(
            f"{scenario.workload} of {model.name} with torchtune", f"it has {', '.join(methods)}; or use axolotl"
        )
    config = f"{recipes[model.name]}_{method}"
    overrides: dict[str, Any] = {
        "batch_size": plan["micro_batch"],
        "gradient_accumulation_steps": what.accumulation,
        "tokenizer.max_seq_len": scenario.sequence_length,
        "dataset.packed": "True",
        "dtype": "fp32" if scenario.recipe in ("fp32", "amp-fp32-master") else "bf16",
        "enable_activation_checkpointing": plan["recompute"] != "none",
        "max_steps_per_epoch": _steps(what),
    }
    if adapters:
        overrides |= {"model.lora_rank": scenario.lora_rank, "model.lora_alpha": 2 * scenario.lora_rank}
    if scenario.workload == "qlora" and many:
        overrides["model.quantize_base"] = True
    if scenario.workload == "full" and many:
        overrides["fsdp_reshard_after_forward"] = int(plan["zero_stage"]) == 3
    launch = ["tune", "run"] + (["--nproc_per_node", str(what.gpus_per_node)] if many else [])
    words = [*launch, recipe, "--config", config, *(f"{key}={value}" for key, value in overrides.items())]
    download = f"tune download {shlex.quote(what.checkpoint)}\n"
    return (
        what.header()
        + download
        + " \\\n  ".join([" ".join(words[: len(launch) + 3]), *words[len(launch) + 3 :]])
        + "\n"
    )


def deepspeed(what: Chosen) -> str:
    """A DeepSpeed configuration, with the command that starts it beside the scenario."""
    need_training(what, "DeepSpeed", ("pretrain", *FINE_TUNING))
    need_one_way(what, "DeepSpeed")
    scenario, plan = what.scenario, what.plan
    micro, world = int(plan["micro_batch"]), int(plan["data_parallel"])
    zero: dict[str, Any] = {"stage": int(plan["zero_stage"]), "overlap_comm": True, "contiguous_gradients": True}
    if plan["offload"] in ("optimizer", "all"):
        zero["offload_optimizer"] = {"device": "cpu", "pin_memory": True}
    if plan["offload"] == "all":
        zero["offload_param"] = {"device": "cpu", "pin_memory": True}
    if zero["stage"] == 3:
        zero["stage3_gather_16bit_weights_on_model_save"] = True
    settings: dict[str, Any] = {
        "train_batch_size": micro * world * what.accumulation,
        "train_micro_batch_size_per_gpu": micro,
        "gradient_accumulation_steps": what.accumulation,
        "gradient_clipping": 1.0,
        "bf16": {"enabled": scenario.recipe not in ("fp16-mixed", "fp32")},
        "fp16": {"enabled": scenario.recipe == "fp16-mixed"},
        "zero_optimization": zero,
    }
    if scenario.optimizer == "adamw":
        settings["optimizer"] = {"type": "AdamW", "params": {"lr": LEARNING_RATE[scenario.workload]}}
    if plan["recompute"] != "none":
        settings["activation_checkpointing"] = {"partition_activations": False, "cpu_checkpointing": False}
    # DeepSpeed passes over keys it does not know; JSON has no comments.
    settings["_made_by"] = " ".join(what.header("").split())
    settings["_start"] = f"deepspeed --num_nodes {what.nodes} --num_gpus {what.gpus_per_node} train.py"
    return json_text(settings)


def megatron(what: Chosen) -> str:
    """Megatron-LM arguments: the plan's degrees, the model's shape, the batch and the recipe."""
    model = need_training(what, "Megatron", ("pretrain", "full"))
    scenario, plan = what.scenario, what.plan
    words: list[Any] = ["--use-mcore-models", "--tensor-model-parallel-size", plan["tensor_parallel"]]
    words += ["--pipeline-model-parallel-size", plan["pipeline_parallel"]]
    words += ["--sequence-parallel"] if plan["tensor_parallel"] > 1 else []
    words += ["--context-parallel-size", plan["context_parallel"]] if plan["context_parallel"] > 1 else []
    words += ["--micro-batch-size", plan["micro_batch"], "--global-batch-size", _whole_batch(what)]
    words += ["--seq-length", scenario.sequence_length, "--max-position-embeddings", scenario.sequence_length]
    words += ["--num-layers", _whole(model.layers), "--hidden-size", _whole(model.hidden)]
    words += ["--ffn-hidden-size", _whole(model.ffn), "--num-attention-heads", _whole(model.heads)]
    if _whole(model.kv_heads) != _whole(model.heads):
        words += ["--group-query-attention", "--num-query-groups", _whole(model.kv_heads)]
    words += ["--kv-channels", _whole(model.head_dim)]
    words += ["--swiglu"] if model.gated_mlp else []
    words += ["--normalization", "RMSNorm", "--position-embedding-type", "rope", "--disable-bias-linear"]
    words += [] if model.tied_embeddings else ["--untie-embeddings-and-output-weights"]
    if model.is_moe:
        words += ["--num-experts", _whole(model.experts), "--moe-router-topk", _whole(model.experts_per_token)]
        words += ["--moe-ffn-hidden-size", _whole(model.moe_ffn)]
        words += ["--expert-model-parallel-size", plan["expert_parallel"], "--moe-grouped-gemm"]
    words += ["--use-distributed-optimizer"] if int(plan["zero_stage"]) else []
    words += ["--use-megatron-fsdp"] if int(plan["zero_stage"]) == 3 else []
    words += ["--fp16"] if scenario.recipe == "fp16-mixed" else [] if scenario.recipe == "fp32" else ["--bf16"]
    words += ["--fp8-format", "hybrid"] if scenario.recipe == "fp8" else []
    if plan["recompute"] == "full":
        words += ["--recompute-granularity", "full", "--recompute-method", "uniform", "--recompute-num-layers", 1]
    elif plan["recompute"] == "selective":
        words += ["--recompute-granularity", "selective"]
    words += ["--overlap-grad-reduce"] if int(plan["zero_stage"]) else []
    words += ["--attention-backend", "flash" if scenario.attention == "fused" else "unfused"]
    words += ["--train-iters", _steps(what), "--lr", LEARNING_RATE[scenario.workload]]
    launch = f"torchrun {_torchrun(what)} pretrain_gpt.py"
    lines = [launch]
    for word in map(str, words):
        if word.startswith("--"):
            lines.append(word)
        else:
            lines[-1] += f" {shlex.quote(word)}"
    return what.header() + " \\\n  ".join(lines) + "\n"


def _torchrun(what: Chosen) -> str:
    words = [f"--nproc_per_node={what.gpus_per_node}"]
    if what.nodes > 1:
        words += [
            f"--nnodes={what.nodes}",
            '--node_rank="$RANK"',
            '--master_addr="$HEAD_ADDRESS"',
            "--master_port=29500",
        ]
    return " ".join(words)


def _steps(what: Chosen) -> int:
    """Optimizer steps until all tokens are seen. [-]"""
    scenario = what.scenario
    tokens = float(scenario.global_batch or 1) * float(scenario.sequence_length or 1)
    return max(1, -(-int(scenario.train_tokens or 0) // int(tokens)))


def _whole_batch(what: Chosen) -> int:
    """The global batch as a multiple of what one pass of all GPUs holds."""
    return int(what.plan["micro_batch"]) * int(what.plan["data_parallel"]) * what.accumulation


def _modules(what: Chosen) -> list[str]:
    return [LORA_MODULES[target] for target in what.scenario.lora_targets if target in LORA_MODULES]


def _whole(value: Any) -> int:
    return int(float(value))


__all__ = ["axolotl", "deepspeed", "link_of", "llama_factory", "megatron", "torchtune"]
