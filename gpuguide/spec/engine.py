"""Serving engines: how each divides a card between weights, cache and working memory, as rows of `engines.csv`."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gpuguide.units import GIB, Number

LIMITS = ("utilization", "static", "free", "none")
"""
What the engine's memory setting is a share of.

utilization : the card; everything the engine profiles must stay below it (vLLM).
static : the card after start-up; weights and cache must stay below it, working memory lives in the rest (SGLang).
free : what weights and working memory leave; the cache gets that share (TensorRT-LLM).
none : no setting; memory is taken as it is needed (llama.cpp, transformers).
"""
WINDOW_POLICIES = ("window", "window+chunk", "full")
"""What a windowed layer keeps: the window, the window and one prefill pass, or the whole sequence."""
LARGE_GPU_BYTES = 70 * GIB
"""From here engines start with larger limits. Source: vLLM `get_batch_defaults`, SGLang `server_args.py`. [bytes]"""
SMALL_BATCH_ARCHITECTURE = "Ampere"
"""Large cards of this kind (A100) start with the small limits all the same. Source: vLLM pull request 17885."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Engine:
    """One engine in one range of versions (`data/engines.csv`)."""

    name: str
    family: str  # vllm, sglang, tensorrt-llm, llama.cpp, transformers
    versions: str = ""  # where this row holds, in words: "0.17 to 0.20"
    since: str = ""  # first version; empty = the earliest
    released: str = ""  # day of that version
    limit: str = "utilization"
    utilization: float = 0.9  # the setting's default [-]
    prefill_tokens: float = 2048.0  # tokens of one pass on small cards [tokens]
    prefill_tokens_large: float = 8192.0  # on large cards [tokens]
    whole_prompt: bool = False  # a pass holds the longest sequence: prompts are not cut
    sequences: float = 256.0  # sequences the engine prepares for, small cards [-]
    sequences_large: float = 1024.0  # large cards [-]
    prepares_sequences: bool = True  # working memory is measured at the limit, not at the job's concurrency
    all_logits: bool = False  # logits of the whole prompt exist at once
    score_bytes: float = 0.0  # per attention score of a prompt where kernels are not fused [bytes]
    logit_bytes: float = 15.0  # working memory of the sampler per sequence and vocabulary entry [bytes]
    hidden_copies: float = 4.0  # hidden states alive while the MLP runs [-]
    graphs: bool = True  # decode runs from captured CUDA graphs
    graphs_in_limit: bool = False  # graph memory is counted within the limit
    communication_gib: float = 0.5  # buffers per GPU as soon as ranks talk [GiB]
    page_tokens: float = 16.0  # cache page [tokens]
    window_policy: str = "window+chunk"

    def is_large(self, memory_bytes: Number, architecture: object = "") -> Number:
        """1 where the engine starts with the limits of large cards."""
        small = np.asarray(architecture, dtype=object) == SMALL_BATCH_ARCHITECTURE
        large: Number = np.where((np.asarray(memory_bytes) >= LARGE_GPU_BYTES) & ~small, 1.0, 0.0)
        return large

    def prefill_tokens_on(self, memory_bytes: Number, architecture: object = "") -> Number:
        """Tokens of one prefill pass on cards of that size. [tokens]"""
        more = self.prefill_tokens_large - self.prefill_tokens
        return self.prefill_tokens + self.is_large(memory_bytes, architecture) * more

    def sequences_on(self, memory_bytes: Number, architecture: object = "") -> Number:
        """Most sequences at once on cards of that size. [-]"""
        return self.sequences + self.is_large(memory_bytes, architecture) * (self.sequences_large - self.sequences)
