"""Scenarios that a page offers at one tap: values of its controls by the name under `preset.PAGE.NAME`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

PRESETS: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "index": {
        "chat": {"workload": "serve", "model": "llama-3.1-8b"},
        "qlora": {"workload": "qlora", "model": "llama-3.1-70b", "deadline_hours": 168},
        "full": {"workload": "full", "model": "llama-3.1-8b"},
        "pretrain": {"workload": "pretrain", "params_b": 1},
    },
    "memory": {
        "small": {
            "workload": "serve",
            "model": "llama-3.1-8b",
            "weight_format": "awq",
            "max_context": 8192,
            "concurrency": 1,
        },
        "large": {
            "workload": "serve",
            "model": "llama-3.1-70b",
            "weight_format": "fp8",
            "max_context": 32768,
            "concurrency": 16,
        },
        "qlora": {"workload": "qlora", "model": "llama-3.1-70b", "sequence_length": 1024, "micro_batch": 1},
        "full": {"workload": "full", "model": "llama-3.1-8b", "sequence_length": 4096, "micro_batch": 1},
        "moe": {"workload": "serve", "model": "deepseek-v3", "max_context": 32768, "concurrency": 16},
    },
    "train": {
        "tiny": {"workload": "pretrain", "params_b": 0.125, "train_tokens": 2.5e9},
        "seven": {"workload": "pretrain", "params_b": 7, "train_tokens": 1e12, "gpus": 256},
        "tune": {"workload": "full", "model": "llama-3.1-8b", "train_tokens": 1e8},
        "large": {"workload": "pretrain", "params_b": 70, "train_tokens": 1.4e12, "gpus": 1024},
    },
    "finetune": {
        "eight": {"workload": "qlora", "model": "llama-3.1-8b", "sequence_length": 2048, "train_tokens": 1e7},
        "seventy": {"workload": "qlora", "model": "llama-3.1-70b", "sequence_length": 1024, "train_tokens": 1e7},
        "lora": {"workload": "lora", "model": "qwen2.5-14b", "sequence_length": 4096, "train_tokens": 5e7},
        "full": {"workload": "full", "model": "llama-3.1-8b", "sequence_length": 4096, "train_tokens": 1e8},
    },
    "serve": {
        "chat": {
            "model": "llama-3.1-8b",
            "max_context": 8192,
            "concurrency": 16,
            "prompt_tokens": 1024,
            "output_tokens": 256,
        },
        "documents": {
            "model": "llama-3.1-70b",
            "weight_format": "fp8",
            "max_context": 32768,
            "concurrency": 16,
            "prompt_tokens": 8192,
            "output_tokens": 512,
        },
        "reasoning": {
            "model": "qwen3-32b",
            "max_context": 32768,
            "concurrency": 32,
            "prompt_tokens": 512,
            "output_tokens": 8192,
        },
        "moe": {
            "model": "deepseek-v3",
            "max_context": 32768,
            "concurrency": 64,
            "prompt_tokens": 2048,
            "output_tokens": 512,
        },
    },
    "scale": {
        "seven": {"workload": "pretrain", "params_b": 7, "train_tokens": 1.4e11},
        "seventy": {"workload": "pretrain", "params_b": 70, "train_tokens": 1.4e12},
        "serve": {"workload": "serve", "model": "deepseek-v3", "max_context": 32768, "concurrency": 64},
    },
    "spot": {
        "evening": {"workload": "qlora", "model": "llama-3.1-8b", "train_tokens": 1e7, "sessions": 1},
        "short": {"workload": "lora", "model": "llama-3.1-8b", "train_tokens": 1e7, "sessions": 20},
        "week": {"workload": "full", "model": "llama-3.1-8b", "train_tokens": 2e9, "sessions": 1},
    },
    "media": {
        "flux": {"workload": "image", "model": "flux.1-dev", "items": 1000},
        "sdxl": {
            "workload": "image",
            "model": "stable-diffusion-xl-base-1.0",
            "items": 1000,
            "width": 1024,
            "height": 1024,
        },
        "video": {"workload": "video", "model": "wan2.1-t2v-14b", "items": 100},
        "speech": {"workload": "audio", "model": "whisper-large-v3", "items": 1000, "audio_seconds": 3600},
    },
}
