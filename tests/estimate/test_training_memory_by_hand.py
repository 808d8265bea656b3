"""Moments of a training step of a small mixture in plain numbers: which is fullest, and its parts."""

from dataclasses import replace

import numpy as np
import pytest

from gpuguide.estimate.activations import layer_bytes, logits_bytes
from gpuguide.estimate.results import PHASES
from gpuguide.estimate.states import split_params, training_states
from gpuguide.estimate.training_memory import process_bytes, training_memory
from gpuguide.spec.plan import Plan
from tests.estimate import training_cases as cases
from tests.estimate.hand_cases import MIX

NODES = cases.machines(("A100-80GB-SXM", 8, 4))
KNOWN = cases.assumptions().typical()
PARTS = ("weights", "gradients", "optimizer", "activations", "logits", "buffers", "reserved")
DENSE_MODEL = replace(
    MIX, kind="hybrid", experts=0.0, experts_per_token=0.0, shared_experts=0.0, moe_ffn=0.0, moe_layers=0.0,
    params_routed_experts=0.0, params_active=2_000_000.0,
)  # fmt: skip
BARE = replace(DENSE_MODEL, params_embedding=10.0, params_lm_head=10.0, params_vision=0.0, vocab=10.0)
FLAT = replace(BARE, layers=3.0, layers_full=3.0, layers_windowed=0.0, layers_recurrent=0.0, heads=4.0)
WORDY = replace(MIX, vocab=400_000.0)
TIED = replace(MIX, tied_embeddings=True, params_embedding=1.2e6, params_lm_head=1.2e6)


def one(value):
    return float(np.ravel(value)[0])


def known(name):
    return one(KNOWN[f"training_memory_{name}"])


def moments(model, own, plan):
    """Name, phase and parts of the seven moments; standing buffers apart from passing ones."""
    split = split_params(model=model, plan=plan, nodes=NODES)
    states = training_states(
        model=model, job=own, plan=plan, split=split, bucket_bytes=known("bucket_bytes"),
        paged_share=known("paged_states"),
    )  # fmt: skip
    s = {name: one(getattr(states, name)) for name in states.__slots__}
    kept = layer_bytes(model=model, job=own, expert_imbalance=known("expert_imbalance"))
    k = {name: one(getattr(kept, name)) for name in kept.__slots__}
    tokens, tensor = plan.micro_batch * own.sequence_length / plan.context_parallel, plan.tensor_parallel
    outer = tensor if own.sequence_parallel else 1
    full, selective = plan.recompute == 2, plan.recompute == 1
    rows = own.sequence_length / (tensor if own.attention == "eager" else 1)
    masks = 2 * k["entry"] / own.recipe.activation_bytes if own.dropout else 0

    def layer(mlp):
        return tokens * ((k["norms"] + masks) / outer + (k["attention"] + mlp + k["adapters"]) / tensor)

    scores, entry = tokens * rows * k["scores"], tokens * k["entry"] / outer
    each = layer(k["mlp"]) + (0 if selective else scores)
    if full:
        each = 0 if own.offload_activations else entry
    stage = np.ceil(model.layers / plan.pipeline_parallel) * each
    ends = tokens * (k["norm_final"] - (0 if full else k["norm_frozen"])) / outer
    flying = min(plan.pipeline_parallel, max(1, own.global_batch / (plan.data_parallel * plan.micro_batch)))
    if plan.virtual_pipeline > 1 and plan.pipeline_parallel > 1:
        flying *= 1 + (plan.pipeline_parallel - 1) / (plan.pipeline_parallel * plan.virtual_pipeline)
    again = layer(k["mlp_largest"]) + scores if full else scores if selective else 0
    mlp_backward = tokens * k["mlp_backward"] / tensor
    scores_backward = tokens * rows * k["scores_backward"] - (tokens * k["mlp_largest"] / tensor if full else 0)
    inside = max(mlp_backward, scores_backward)
    turn = inside if full else max(inside, tokens * k["norm_backward"] / outer)
    backward, forward, held = (
        tokens * one(value) / (outer if own.fused_loss else tensor) for value in logits_bytes(model=model, job=own)
    )
    held = held if plan.pipeline_parallel == 1 else 0
    f, loss = known("activations"), known("loss")
    stands = s["gradients"] if s["keeps_gradients"] else 0
    grows = 0 if s["keeps_gradients"] else 1
    shared = s["copies"] + s["gathered"]
    first = known("first_pass") if own.unsharded_start else 0
    casts, recast = (0, s["casts_layer"]) if full else (s["casts"], 0)
    rest = {"gradients": stands, "optimizer": s["optimizer"], "activations": 0, "logits": 0, "copies": shared}
    found = {
        "turn": ("backward", {"activations": f * (stage + ends), "logits": loss * backward,
                              "passing": casts + s["casts_head"]}),
        "forward": ("forward", {"activations": f * (stage + ends), "logits": loss * forward,
                                "passing": s["casts"] + s["casts_head"]}),
        "last layer": ("backward", {"gradients": stands + grows * s["gradients_head"],
                                    "activations": f * (stage * flying + ends + again + turn), "logits": held,
                                    "passing": casts + recast}),
        "first layer": ("backward", {"gradients": stands + grows * s["gradients_bottom"],
                                     "activations": f * ((0 if full else each) + again + inside + entry),
                                     "logits": held, "passing": s["casts_layer"]}),
        "embedding": ("backward", {"gradients": s["gradients"], "activations": f * entry, "logits": held,
                                   "passing": s["gradients_tied"]}),
        "step": ("step", {"gradients": s["gradients"], "copies": s["copies"] + s["step"], "passing": 0}),
        "start": ("forward", {"gradients": 0, "optimizer": 0, "activations": first * (f * (stage + ends) + f * again),
                              "logits": first * forward, "copies": s["start"], "passing": 0}),
    }  # fmt: skip
    return {
        name: (phase, {"weights": s["weights"]} | rest | parts | {"passing": parts["passing"] + s["bucket"]})
        for name, (phase, parts) in found.items()
    }


CASES = [  # the fullest moment, model, job, plan
    pytest.param("turn", WORDY, {}, {}, id="a wide vocabulary"),
    pytest.param("turn", WORDY, {"recipe": "amp-fp32-master"}, {"tensor_parallel": 2.0}, id="and casts"),
    pytest.param("turn", WORDY, {"recipe": "amp-fp32-master"}, {"recompute": 2.0}, id="and casts of a layer"),
    pytest.param("turn", WORDY, {"inplace_loss": True}, {"pipeline_parallel": 2.0}, id="softmax in place"),
    pytest.param("turn", WORDY, {"sequence_parallel": False}, {"tensor_parallel": 4.0}, id="ranks with whole norms"),
    pytest.param("last layer", MIX, {"fused_loss": True}, {}, id="a fused loss"),
    pytest.param(
        "last layer", MIX, {"fused_loss": True, "dropout": True}, {"tensor_parallel": 2.0, "pipeline_parallel": 4.0},
        id="stages and ranks",
    ),
    pytest.param(
        "last layer", DENSE_MODEL, {"fused_loss": True},
        {"pipeline_parallel": 4.0, "virtual_pipeline": 2.0, "context_parallel": 2.0, "micro_batch": 2.0},
        id="interleaved stages",
    ),
    pytest.param(
        "last layer", DENSE_MODEL, {"fused_loss": True, "global_batch": 16.0},
        {"pipeline_parallel": 4.0, "data_parallel": 4.0, "micro_batch": 2.0}, id="few micro-batches",
    ),
    pytest.param("last layer", DENSE_MODEL, {"attention": "eager"}, {"tensor_parallel": 2.0}, id="scores"),
    pytest.param("last layer", DENSE_MODEL, {"attention": "eager"}, {"recompute": 1.0}, id="scores again"),
    pytest.param("last layer", DENSE_MODEL, {"attention": "eager"}, {"recompute": 2.0}, id="scores and all again"),
    pytest.param("last layer", MIX, {"fused_loss": True}, {"recompute": 2.0}, id="layer inputs"),
    pytest.param(
        "last layer", MIX, {"fused_loss": True, "method": "lora", "lora_rank": 8.0, "lora_targets": ("q",)},
        {"recompute": 2.0}, id="layer inputs of frozen layers",
    ),
    pytest.param(
        "last layer", MIX, {"fused_loss": True, "method": "lora", "lora_rank": 8.0, "lora_targets": ("q",)}, {},
        id="frozen layers",
    ),
    pytest.param(
        "last layer", MIX, {"fused_loss": True, "offload_activations": True}, {"recompute": 2.0},
        id="inputs on the host",
    ),
    pytest.param(
        "first layer", BARE, {"global_batch": 1.0, "sequence_length": 256.0, "fused_loss": True}, {"recompute": 2.0},
        id="gradients of all layers but one",
    ),
    pytest.param(
        "first layer", FLAT, {"global_batch": 1.0, "sequence_length": 260.0, "fused_loss": True}, {},
        id="and a kept layer",
    ),
    pytest.param(
        "first layer", FLAT, {"global_batch": 1.0, "sequence_length": 260.0}, {}, id="and logits that are held"
    ),
    pytest.param(
        "embedding", TIED, {"global_batch": 1.0, "sequence_length": 8.0}, {}, id="two parts of a tied gradient"
    ),
    pytest.param(
        "step", MIX, {"recipe": "zero-bf16", "sequence_length": 8.0}, {"data_parallel": 8.0, "zero_stage": 1.0},
        id="gradients raised to the master's width",
    ),
    pytest.param("step", MIX, {"foreach_optimizer": True, "sequence_length": 8.0}, {"data_parallel": 8.0}, id="copies"),
    pytest.param(
        "start", MIX, {"unsharded_start": True, "sequence_length": 8.0}, {"data_parallel": 32.0, "zero_stage": 3.0},
        id="whole weights beside their shards",
    ),
    pytest.param(
        "start", WORDY, {"unsharded_start": True, "sequence_length": 64.0, "fused_loss": True},
        {"data_parallel": 32.0, "zero_stage": 3.0}, id="whole weights through the first pass",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("name", "model", "changes", "degrees"), CASES)
def test_the_fullest_moment(name, model, changes, degrees):
    """A part that is alive at another moment, or a moment that is passed over."""
    small = {"recipe": "pure-bf16", "sequence_length": 2048.0, "global_batch": 256.0}
    plan, own = Plan(**degrees), cases.job(**(small | changes))
    found = training_memory(model=model, job=own, plan=plan, nodes=NODES, assumptions=KNOWN)
    every = moments(model, own, plan)
    totals = {moment: sum(parts.values()) for moment, (_, parts) in every.items()}
    fullest = max(totals, key=totals.get)
    phase, parts = every[fullest]
    stands = ("weights", "gradients", "optimizer")
    largest = max(sum(parts.values()) - sum(parts[part] for part in stands) for _, parts in every.values())
    kernel = "eager" if own.attention == "eager" or model.experts else "fused"
    reserve = known(f"allocator_{kernel}") * largest + known("allocator_states") * sum(parts[part] for part in stands)
    reserve += one(process_bytes(plan=plan, assumptions=KNOWN))
    buffers = parts["copies"] + parts["passing"]
    expected = [parts[part] for part in PARTS[:5]] + [buffers, reserve]

    assert [one(getattr(found, part)) for part in PARTS] == pytest.approx(expected, rel=1e-9)
    assert PHASES[int(one(found.phase))] == phase
    assert fullest == name
