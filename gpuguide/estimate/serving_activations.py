"""
Working memory of an engine's largest pass: a prefill pass or the sampler, whichever is at its peak.

It grows with what the engine prepares for (tokens of a pass, sequences), not with the length of a sequence.
"""

from __future__ import annotations

import numpy as np

from gpuguide.spec.assumptions import Assumptions
from gpuguide.spec.hardware import Nodes
from gpuguide.spec.job import ServingJob
from gpuguide.spec.model import Model
from gpuguide.spec.plan import Plan
from gpuguide.units import GIB, Number

ACTIVATION_BYTES = 2.0
"""Hidden states are 16-bit. [bytes]"""
UNCUT_PROMPT_TOKENS = 32_768.0
"""Longer prompts were cut by engines that otherwise did not. Source: vLLM 0.6 EngineArgs. [tokens]"""
CUT_PROMPT_TOKENS = 2048.0
"""Into passes of this length. Source: vLLM 0.6 SchedulerConfig. [tokens]"""


def activation_peak_bytes(
    *, model: Model, job: ServingJob, plan: Plan, nodes: Nodes, assumptions: Assumptions
) -> Number:
    """
    Working memory of the largest pass on a GPU.

    Returns
    -------
    array, shape (band, plan, node)
        [bytes]

    Notes
    -----
    Either the MLP of a layer or the sampler is at its peak: a prefill pass holds a few hidden states and the widest
    projection; the sampler a few copies of the logits of every sequence it prepares for, whole on every tensor rank.
    Expert kernels keep their workspace throughout. 0.8 to 0.16 of vLLM took 38.4 bytes per logit (8 models, 4.7 to
    7.4 GiB), 0.17 to 0.20 take 15 (16 models). Source: `docs/formulas.md`, "Activation peak".
    """
    engine = job.engine
    tensor = tensor_ranks(job, plan)
    tokens = pass_tokens(job=job, nodes=nodes)
    sequences = np.minimum(prepared_sequences(job=job, plan=plan, nodes=nodes), np.maximum(tokens, 1.0))
    state = tokens * model.hidden * ACTIVATION_BYTES
    matrices = 3.0 if model.gated_mlp else 2.0
    attention = (2.0 * model.heads + 2.0 * np.maximum(model.kv_heads, 1.0)) * model.head_dim
    widest = np.maximum(attention, matrices * model.ffn * (model.layers > model.moe_layers)) / tensor
    forward = engine.hidden_copies * state + tokens * widest * ACTIVATION_BYTES
    if engine.score_bytes:
        prompts = np.asarray(job.prompt_tokens, dtype=np.float64)
        forward = (
            forward + sequences_per_rank(job=job, plan=plan) * model.heads * prompts**2 / tensor * engine.score_bytes
        )
    logits = tokens if engine.all_logits else sequences
    sampler = state + logits * model.vocab * engine.logit_bytes
    peak = np.maximum(forward, sampler) + expert_workspace_bytes(model=model, job=job, plan=plan, tokens=tokens)
    vision: Number = 0.0
    if np.any(np.asarray(model.params_vision) > 0) and not job.text_only and engine.prepares_sequences:
        vision = assumptions["serving_memory_vision_gib"] * GIB
    return peak * assumptions["serving_memory_activation_share"] + vision


def expert_workspace_bytes(*, model: Model, job: ServingJob, plan: Plan, tokens: Number) -> Number:
    """
    Two buffers of fused expert kernels: one row for each token and expert it is sent to. [bytes]

    Notes
    -----
    vLLM 0.19 on Qwen3-30B-A3B, DeepSeek-V2-Lite, Qwen1.5-MoE: 0.47, 0.48, 0.28 GiB over the sampler; here 0.50, 0.45,
    0.30. Kernels for packed experts (MXFP4) show none. Source: vLLM fused_moe `workspace_shapes`.
    """
    if not model.is_moe or job.weight_format.experts_only:
        return 0.0
    width = model.moe_ffn / np.where(np.asarray(plan.expert_parallel) > 1, 1.0, plan.tensor_parallel)
    rows = tokens * model.experts_per_token
    wide = np.maximum(2.0 * width, model.hidden) + np.maximum(width, model.hidden)
    return rows * wide * ACTIVATION_BYTES


def sequences_per_rank(*, job: ServingJob, plan: Plan) -> Number:
    """Sequences whose cache one GPU's tensor group holds. [-]"""
    groups = plan.data_parallel * (plan.tensor_parallel if job.attention_data_parallel else 1.0)
    return np.maximum(np.ceil(np.asarray(job.concurrency) / groups), 1.0)


def prepared_sequences(*, job: ServingJob, plan: Plan, nodes: Nodes) -> Number:
    """Sequences whose logits the sampler must hold. [-]"""
    most = (
        job.engine.sequences_on(nodes.memory_bytes, nodes.architecture)
        if job.max_sequences is None
        else job.max_sequences
    )
    if job.engine.prepares_sequences:
        return most
    return np.minimum(most, sequences_per_rank(job=job, plan=plan))


def pass_tokens(*, job: ServingJob, nodes: Nodes) -> Number:
    """Tokens of the largest pass. [tokens]"""
    engine = job.engine
    if job.prefill_chunk_tokens is not None:
        return job.prefill_chunk_tokens
    usual = engine.prefill_tokens_on(nodes.memory_bytes, nodes.architecture)
    if not engine.whole_prompt:
        return usual
    if engine.prepares_sequences:
        cut = np.asarray(job.max_context) > UNCUT_PROMPT_TOKENS
        return np.where(cut, CUT_PROMPT_TOKENS, np.maximum(job.max_context, usual))
    return np.asarray(job.prompt_tokens) * job.concurrency


def tensor_ranks(job: ServingJob, plan: Plan) -> Number:
    """Ranks that split attention and dense layers. [-]"""
    return 1.0 if job.attention_data_parallel else plan.tensor_parallel
