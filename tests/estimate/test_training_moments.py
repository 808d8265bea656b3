"""Activations at the fullest moment of a step by hand: stages in flight, tensor ranks, recompute, masks, processes."""

import numpy as np
import pytest

from gpuguide.estimate.activations import layer_bytes
from gpuguide.estimate.results import PHASES
from gpuguide.estimate.training_memory import process_bytes, training_memory
from gpuguide.spec.plan import RECOMPUTE, Plan
from tests.estimate import training_cases as cases

SELECTIVE, FULL = (float(RECOMPUTE.index(level)) for level in ("selective", "full"))
NODES = cases.machines(("A100-80GB-SXM", 8, 4))
KNOWN = cases.assumptions().typical()
LLAMA = cases.model("llama-2-7b")  # 32 layers
LONG = {"fused_loss": True, "fused_norms": True, "sequence_length": 16_384.0, "global_batch": 32.0}
FACTOR = float(KNOWN["training_memory_activations"].ravel()[0])


def found(plan, **changes):
    return training_memory(model=LLAMA, job=cases.job(**(LONG | changes)), plan=plan, nodes=NODES, assumptions=KNOWN)


def layer(**changes):
    imbalance = KNOWN["training_memory_expert_imbalance"]
    return layer_bytes(model=LLAMA, job=cases.job(**(LONG | changes)), expert_imbalance=imbalance)


def one(value):
    return float(np.asarray(value, dtype=np.float64).ravel()[0])


def backward_of_the_last_layer(kept, *, layers=32.0, in_flight=1.0, tokens=16_384.0):
    """All kept layers, the final norm, and what is live while the last layer is differentiated."""
    turn = max(kept.norm_backward, kept.mlp_backward)
    return FACTOR * tokens * (kept.linear * layers * in_flight + kept.norm_final + turn)


PIPELINES = [  # micro-batches that the first of four stages holds, plan
    pytest.param(4.0, {}, id="one forward, one backward"),
    pytest.param(4.0 * (1 + 3 / 8), {"virtual_pipeline": 2.0}, id="two interleaved parts"),
    pytest.param(2.0, {"data_parallel": 16.0}, id="no more than there are micro-batches"),
    pytest.param(1.0, {"data_parallel": 32.0}, id="one alone"),
]


@pytest.mark.parametrize(("in_flight", "degrees"), PIPELINES)
def test_stages_in_flight(in_flight, degrees):
    """The first stage holds as many micro-batches as there are stages behind it."""
    memory = found(Plan(pipeline_parallel=4.0, **degrees))

    assert one(memory.activations) == pytest.approx(backward_of_the_last_layer(layer(), layers=8, in_flight=in_flight))
    assert PHASES[int(one(memory.phase))] == "backward"


def test_micro_batch_and_context_ranks():
    """Twice the sequences are twice the tokens; a context rank has its share of each."""
    assert one(found(Plan(micro_batch=2.0)).activations) == pytest.approx(
        backward_of_the_last_layer(layer(), tokens=2 * 16_384)
    )
    assert one(found(Plan(context_parallel=4.0)).activations) == pytest.approx(
        backward_of_the_last_layer(layer(), tokens=16_384 / 4)
    )


@pytest.mark.parametrize("sequence_parallel", [True, False])
def test_tensor_ranks(sequence_parallel):
    """Norms and residuals are split only with sequence parallelism, attention and MLP always."""
    kept, outer = layer(), 4 if sequence_parallel else 1
    linear = kept.norms / outer + (kept.attention + kept.mlp) / 4
    # Where the loss holds hidden states whole, its moment is fuller than the last layer's.
    turn = max(kept.norm_backward / 4, kept.mlp_backward / 4) if sequence_parallel else 0.0
    memory = found(Plan(tensor_parallel=4.0), sequence_parallel=sequence_parallel)

    assert one(memory.activations) == pytest.approx(FACTOR * 16_384 * one(linear * 32 + kept.norm_final / outer + turn))
    assert one(memory.logits) == (0.0 if sequence_parallel else 16_384 * (2 + 4 + 2) * 4096)


def test_dropout_masks():
    """One byte a value, twice a layer: 2 x 4,096 bytes a token."""
    more = one(found(Plan(), dropout=True).activations) - one(found(Plan()).activations)

    assert more == pytest.approx(FACTOR * 16_384 * 32 * 2 * 4096)


def test_full_recompute():
    """Layer inputs alone, one layer computed again, and what is live inside it; less where inputs wait on the host."""
    kept = layer()
    inside = kept.mlp_backward
    again = kept.norms + kept.attention + kept.mlp_largest
    expected = FACTOR * 16_384 * (kept.entry * 32 + kept.norm_final + again + inside)

    assert one(found(Plan(recompute=FULL)).activations) == pytest.approx(expected)
    away = one(found(Plan(recompute=FULL), offload_activations=True).activations)
    assert away == pytest.approx(expected - FACTOR * 16_384 * kept.entry * 32)


def test_selective_recompute_of_eager_attention():
    """Scores of one layer instead of all 32."""
    eager = {"attention": "eager", "sequence_length": 4096.0}
    kept = layer(**eager)
    scores = 4096 * kept.scores
    all_of_them, one_layer = (one(found(Plan(recompute=level), **eager).activations) for level in (0.0, SELECTIVE))

    assert all_of_them - one_layer == pytest.approx(FACTOR * 4096 * scores * 31)
    ranks = one(found(Plan(tensor_parallel=4.0), **eager).activations)
    linear = (kept.norms + kept.attention + kept.mlp) / 4
    turn = max(kept.norm_backward / 4, kept.mlp_backward / 4, 4096 * kept.scores_backward / 4)
    assert ranks == pytest.approx(FACTOR * 4096 * ((linear + scores / 4) * 32 + kept.norm_final / 4 + turn))


def test_outside_the_allocator():
    """A context; buffers of the communication library from two GPUs on, more with all-to-all."""
    context, nccl, swap = (one(KNOWN[f"training_memory_{name}_bytes"]) for name in ("context", "nccl", "all_to_all"))

    assert one(process_bytes(plan=Plan(), assumptions=KNOWN)) == context
    for degree in ("data_parallel", "tensor_parallel", "pipeline_parallel", "context_parallel"):
        assert one(process_bytes(plan=Plan(**{degree: 2.0}), assumptions=KNOWN)) == context + nccl
    both = Plan(data_parallel=2.0, expert_parallel=2.0)
    assert one(process_bytes(plan=both, assumptions=KNOWN)) == context + nccl + swap


def test_the_allocator_keeps_a_share():
    """Of what comes and goes and, less, of what stands."""
    memory = found(Plan())
    share = one(KNOWN["training_memory_allocator_fused"])
    standing = one(KNOWN["training_memory_allocator_states"])
    dynamic = one(memory.activations) + one(memory.logits) + one(memory.buffers)
    stands = one(memory.weights) + one(memory.gradients) + one(memory.optimizer)
    context = one(process_bytes(plan=Plan(), assumptions=KNOWN))

    assert one(memory.reserved) == pytest.approx(share * dynamic + standing * stands + context)
