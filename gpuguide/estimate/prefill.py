"""
How long a prompt takes before its first token: arithmetic at what an engine reaches, with a floor for short prompts.

    prefill = launches + (arithmetic beside one reading of the weights per chunk) + attention + links
"""

from __future__ import annotations

import numpy as np

from gpuguide.estimate import network
from gpuguide.estimate.decode import (
    ACTIVATION_BYTES,
    Rates,
    attention_layout,
    beside,
    engine_class,
    reduce_hop_s,
    split_work,
)
from gpuguide.spec.assumptions import Assumptions
from gpuguide.spec.hardware import Floats, Nodes
from gpuguide.spec.job import ServingJob
from gpuguide.spec.model import Model
from gpuguide.spec.plan import Plan
from gpuguide.units import Number

NATIVE_PASSES = 4.0
"""Passes of llama.cpp that follow each other through a pipeline: a batch of 2048 tokens in passes of 512. [-]"""
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


def prefill_s(
    *,
    tokens: Number,
    model: Model,
    job: ServingJob,
    plan: Plan,
    nodes: Nodes,
    known: Rates,
    assumptions: Assumptions,
    prompts: Number = 1.0,
) -> Floats:
    """
    Time from a prompt's start to its first token on an otherwise idle replica.

    Parameters
    ----------
    tokens : number or array
        Length of the prompt. [tokens]
    prompts : number or array
        Prompts taken together. [-]
    known : Rates
        From `decode.rates` for the same model, job and nodes.

    Returns
    -------
    array, shape (band, plan, node)
        [s]

    Notes
    -----
    Chunks of a prompt fill a pipeline one behind the other; a prompt of one chunk passes its stages in turn.
    Source: `docs/formulas.md`, "Prefill".
    """
    tensor, sharing = attention_layout(job=job, plan=plan)
    stages, ranks = plan.pipeline_parallel, tensor * sharing
    tokens = np.maximum(tokens, 1.0)
    together = tokens * prompts
    chunks = np.maximum(np.ceil(together / pass_tokens(job=job, nodes=nodes)), 1.0)
    # The head is asked for one token only.
    split = split_work(ranks=tensor, nodes=nodes)
    block_flops = (known.shared_flops - 2.0 * head_params(model) + known.expert_flops) / split
    linear_s = together * block_flops / known.flops
    read_s = (known.shared_bytes / split + known.expert_bytes / split_work(ranks=ranks, nodes=nodes)) / known.bandwidth
    attention_s = prompts * attention_flops(model=model, tokens=tokens) / split / known.flops
    widen_s: Number = 0.0
    if engine_class(job.engine) == "native":
        scores = prompts * model.heads * model.layers * tokens * tokens / 2.0 * SCORE_BYTES / tensor
        attention_s = assumptions["serving_speed_native_score_passes"] * scores / known.bandwidth
        if job.weight_format.bits_per_weight < 12:
            # Packed weights are written out in 16 bit before every pass.
            widen_s = 2.0 * (model.params_linear + head_params(model)) / tensor / known.bandwidth
    launches = known.host_s * chunks
    work_s = beside(linear_s, read_s * chunks) + widen_s * chunks + attention_s
    links_s: Number = 0.0
    per_chunk = together / chunks
    if np.any(tensor > 1):
        links_s = (
            2.0
            * model.layers
            * chunks
            * reduce_hop_s(
                message_bytes=per_chunk * model.hidden * ACTIVATION_BYTES,
                ranks=tensor,
                nodes=nodes,
                assumptions=assumptions,
            )
        )
    if model.is_moe and np.any(sharing > 1):
        sent = per_chunk * model.hidden * ACTIVATION_BYTES * np.minimum(model.experts_per_token, ranks)
        hop = network.all_to_all_s(message_bytes=sent, ranks=ranks, nodes=nodes, assumptions=assumptions)
        links_s = links_s + np.where(sharing > 1, 2.0 * model.moe_layers * chunks * hop, 0.0)
    if engine_class(job.engine) == "eager":
        launches = np.maximum(launches - work_s, 0.0)
    filled = np.minimum(chunks, NATIVE_PASSES) if engine_class(job.engine) == "native" else chunks
    pipelined = (filled + stages - 1.0) / (filled * stages)
    return np.asarray((launches + work_s + links_s) * pipelined, dtype=np.float64)


def pass_tokens(*, job: ServingJob, nodes: Nodes) -> Number:
    """Tokens that one prefill pass takes; without end where the engine does not cut prompts. [tokens]"""
    if job.prefill_chunk_tokens is not None:
        return np.maximum(job.prefill_chunk_tokens, 1.0)
    return np.inf if job.engine.whole_prompt else job.engine.prefill_tokens_on(nodes.memory_bytes, nodes.gpu)


def head_params(model: Model) -> Number:
    """Parameters of the output head. [-]"""
    return model.params_embedding if model.tied_embeddings else model.params_lm_head
