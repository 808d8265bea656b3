"""
How long a prompt takes before its first token: arithmetic at what an engine reaches, with a floor for short prompts.

    prefill = launches + (arithmetic beside one reading of the weights per chunk) + attention + links
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gpuguide.estimate import network
from gpuguide.estimate.serving_links import ACTIVATION_BYTES, Reduce, attention_layout, split_work
from gpuguide.estimate.serving_rates import Rates, beside, engine_class
from gpuguide.spec.assumptions import Assumptions
from gpuguide.spec.hardware import Floats, Nodes
from gpuguide.spec.job import ServingJob
from gpuguide.spec.model import Model
from gpuguide.spec.plan import Plan
from gpuguide.units import Number

NATIVE_PASSES = 4.0
"""Passes of llama.cpp that follow each other through a pipeline: a batch of 2048 tokens in passes of 512. [-]"""
MIXING = ("server", "compiled")
"""Classes of engine that take prompts and decode steps in one pass."""
MIXED_TOKENS = 4096.0
"""Tokens of a busy server's pass; links are asked for messages of this size. [tokens]"""
SCORE_BYTES = 4.0
"""Width of an attention score that is written out: engines without fused attention keep them in fp32. [bytes]"""


def attention_flops(*, model: Model, tokens: Number) -> Number:
    """
    Arithmetic of causal attention over a prompt, all layers. [FLOP]

    Notes
    -----
    Scores and their sum, 2 FLOP each for every pair of a token and an earlier one: 2 x tokens^2 x heads x head width.
    A window limits the earlier ones. Source: `docs/formulas.md`, "Prefill".
    """
    width = model.heads * (model.qk_nope_head_dim + model.qk_rope_head_dim + model.v_head_dim) / 2.0
    width = width if model.attention == "mla" else model.heads * model.head_dim
    windowed = tokens * np.minimum(tokens, 2.0 * model.kv_window) if model.kv_window else tokens * tokens
    return 2.0 * width * (model.layers_full * tokens * tokens + model.layers_windowed * windowed)


@dataclass(frozen=True, kw_only=True, slots=True)
class Prompt:
    """Time of taking a prompt, (band, plan, node). [s]"""

    alone_s: Floats  # from its start to its first token where nothing else runs
    shared_s: Floats  # what it adds to passes that it shares with decoding requests and other prompts


def prompt_time(
    *,
    tokens: Number,
    model: Model,
    job: ServingJob,
    plan: Plan,
    nodes: Nodes,
    known: Rates,
    reduce: Reduce | None,
    assumptions: Assumptions,
    prompts: Number = 1.0,
) -> Prompt:
    """
    Time to take a prompt in, alone and beside others.

    Parameters
    ----------
    tokens : number or array
        Length of the prompt. [tokens]
    prompts : number or array
        Prompts taken together. [-]
    known, reduce :
        From `rates` and `reduce_of` for the same model, job, plan and nodes.

    Returns
    -------
    Prompt
        Arrays of shape (band, plan, node). [s]

    Notes
    -----
    Chunks of a prompt fill a pipeline one behind the other; a prompt of one chunk passes its stages in turn. A server
    that mixes prompts into decode steps launches kernels and reads weights for all of them once, so that only
    arithmetic and links are added. Source: `docs/formulas.md`, "Prefill".
    """
    tensor, sharing = attention_layout(job=job, plan=plan)
    stages, ranks = plan.pipeline_parallel, tensor * sharing
    kind = engine_class(job.engine)
    tokens = np.maximum(tokens, 1.0)
    together = tokens * prompts
    whole = pass_tokens(job=job, nodes=nodes)
    chunks = np.maximum(np.ceil(together / whole), 1.0)
    split = split_work(ranks=tensor, nodes=nodes)
    parts = split_work(ranks=ranks, nodes=nodes)
    # The head is asked for one token only.
    block_flops = (known.shared_flops - 2.0 * head_params(model) + known.expert_flops) / split
    linear_s = together * block_flops / known.flops
    read_s = chunks * ((known.shared_bytes / split + known.expert_bytes / parts) / known.bandwidth)
    attention_s = prompts * attention_flops(model=model, tokens=tokens) / split / known.flops
    if kind == "native":
        scores = prompts * model.heads * model.layers * tokens * tokens / 2.0 * SCORE_BYTES / tensor
        attention_s = assumptions["serving_speed_native_score_passes"] * scores / known.bandwidth
        if job.weight_format.bits_per_weight < 12:
            # Packed weights are written out in 16 bit before every pass.
            attention_s = attention_s + chunks * (
                2.0 * (model.params_linear + head_params(model)) / tensor / known.bandwidth
            )
    work_s = beside(linear_s, read_s) + attention_s
    links_s: Number = 0.0
    mixed_links_s: Number = 0.0
    per_chunk = together / chunks
    full = np.maximum(per_chunk, np.minimum(whole, MIXED_TOKENS))
    if reduce is not None:
        each, width = 2.0 * model.layers * chunks, model.hidden * ACTIVATION_BYTES
        links_s = each * reduce.seconds(per_chunk * width)
        mixed_links_s = links_s
        if kind in MIXING and np.any(full > per_chunk):
            mixed_links_s = each * (per_chunk / full) * reduce.seconds(full * width)
    if model.is_moe and np.any(np.asarray(sharing) > 1):
        sent = per_chunk * model.hidden * ACTIVATION_BYTES * np.minimum(model.experts_per_token, ranks)
        swap = network.all_to_all_s(message_bytes=sent, ranks=ranks, nodes=nodes, assumptions=assumptions)
        swaps_s = np.where(np.asarray(sharing) > 1, 2.0 * model.moe_layers * chunks * swap, 0.0)
        links_s, mixed_links_s = links_s + swaps_s, mixed_links_s + swaps_s
    launches = known.host_s * chunks
    if kind == "eager":
        launches = np.maximum(launches - work_s, 0.0)
    alone_s = launches + work_s + links_s
    shared_s = linear_s + attention_s + mixed_links_s if kind in MIXING else alone_s
    if np.any(np.asarray(stages) > 1):
        filled = np.minimum(chunks, NATIVE_PASSES) if kind == "native" else chunks
        alone_s = alone_s * ((filled + stages - 1.0) / (filled * stages))
        shared_s = shared_s / stages
    return Prompt(alone_s=np.asarray(alone_s), shared_s=np.asarray(shared_s))


def pass_tokens(*, job: ServingJob, nodes: Nodes) -> Number:
    """Tokens that one prefill pass takes; without end where the engine does not cut prompts. [tokens]"""
    if job.prefill_chunk_tokens is not None:
        return np.maximum(job.prefill_chunk_tokens, 1.0)
    return np.inf if job.engine.whole_prompt else job.engine.prefill_tokens_on(nodes.memory_bytes, nodes.architecture)


def head_params(model: Model) -> Number:
    """Parameters of the output head. [-]"""
    return model.params_embedding if model.tied_embeddings else model.params_lm_head
