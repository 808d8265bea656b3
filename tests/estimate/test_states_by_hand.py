"""States of a small mixture under every kind of sharding, to the last byte."""

from dataclasses import replace

import numpy as np
import pytest

from gpuguide.estimate.states import split_params, training_states
from gpuguide.spec.plan import Plan
from tests.estimate import training_cases as cases
from tests.estimate.hand_cases import DENSE, MIX, ROUTED, TABLE, stored

NODES = cases.machines(("H100-SXM", 8, 4))
BUCKET = 1000.0
TIED = replace(MIX, tied_embeddings=True)
TOWER = 70_000.0
LAYER = DENSE / 7 + ROUTED / 5


def states(plan=None, recipe="pure-bf16", model=MIX, paged=1.0, optimizer="adamw", **changes):
    plan = plan or Plan()
    split = split_params(model=model, plan=plan, nodes=NODES)
    own = cases.job(recipe, optimizer=optimizer, **changes)
    return training_states(model=model, job=own, plan=plan, split=split, bucket_bytes=BUCKET, paged_share=paged)


def one(value):
    return float(np.ravel(value)[0])


def test_split_of_every_part():
    """Two of tensor, two stages of four and three layers, five expert ranks: blocks, tower, tables and experts."""
    plan = Plan(tensor_parallel=2.0, pipeline_parallel=2.0, expert_parallel=5.0, data_parallel=4.0)
    split = split_params(model=MIX, plan=plan, nodes=NODES)

    assert one(split.blocks) == pytest.approx((DENSE + TOWER) / 2 * 4 / 7)
    assert one(split.experts) == pytest.approx(ROUTED / 5 * 4 / 7)
    assert one(split.embedding) == TABLE / 2
    assert one(split.head) == 0.0
    assert one(split.layer) == pytest.approx(DENSE / 2 / 7 + ROUTED / 5 / 5)
    assert one(split.shards) == 4
    assert one(split.expert_shards) == pytest.approx(4 * 2 / 5)
    alone = split_params(model=MIX, plan=Plan(tensor_parallel=2.0), nodes=NODES)
    assert one(alone.head) == TABLE / 2
    assert one(alone.outside) == TABLE
    assert one(alone.expert_shards) == 1
    assert one(alone.experts) == ROUTED / 2


def test_flat_copies_at_the_start():
    """ZeRO 1 and 2 set up from one flat copy of what is trained; full sharding from the whole where it is loaded so."""
    params = 2_000_000.0
    for stage, copied in ((0.0, 0.0), (1.0, 2 * params), (2.0, 2 * params), (3.0, 0.0)):
        assert one(states(Plan(data_parallel=8.0, zero_stage=stage)).start) == pytest.approx(copied)
    gathered = 2 * (2 * LAYER + 2 * TABLE + LAYER)
    whole = states(Plan(data_parallel=8.0, zero_stage=3.0), unsharded_start=True)
    assert one(whole.gathered) == pytest.approx(gathered)
    assert one(whole.start) == pytest.approx(2 * params + gathered)
    assert one(states(Plan(zero_stage=3.0), unsharded_start=True).start) == 0.0  # nobody to share with
    few = {"method": "lora", "lora_rank": 4.0, "lora_targets": ("q",), "adapter_bytes": 4.0}
    adapters = 4 * (96 + 192) * 5  # five layers have attention
    assert one(states(Plan(data_parallel=8.0, zero_stage=1.0), **few).start) == pytest.approx(4 * adapters)


@pytest.mark.parametrize(("stage", "ranks"), [(0.0, 1), (0.0, 8), (1.0, 8), (2.0, 8), (3.0, 1), (3.0, 8)])
def test_who_gathers_and_who_copies(stage, ranks):
    """Full sharding over more than one rank gathers; plain replicas copy gradients; shards have buckets."""
    found = states(Plan(data_parallel=float(ranks), zero_stage=stage))

    assert (one(found.gathered) > 0) == (stage == 3 and ranks > 1)
    assert one(found.copies) == (2 * 2_000_000 if stage == 0 and ranks > 1 else 0)
    assert one(found.bucket) == (BUCKET if stage > 0 else 0)
    context = states(Plan(context_parallel=float(ranks), zero_stage=stage))
    assert one(context.copies) == one(found.copies)
    both = states(Plan(data_parallel=2.0, context_parallel=2.0))
    assert one(both.copies) == 2 * 2_000_000


def test_gradients_as_they_come():
    """Head first, the first layer and the embedding last; two parts of a tied table are summed."""
    found = states()
    assert one(found.gradients) == 2 * 2_000_000
    assert one(found.gradients_head) == 2 * TABLE
    assert one(found.gradients_bottom) == pytest.approx(2 * (2_000_000 - LAYER - TABLE))
    assert one(found.gradients_tied) == 0
    wide = replace(MIX, params_embedding=TABLE + 500, params_lm_head=TABLE - 700)
    assert one(states(model=wide).gradients_head) == 2 * (TABLE - 700)
    tied = states(model=TIED)
    layer = (DENSE + TABLE) / 7 + ROUTED / 5
    assert one(tied.gradients_head) == 2 * TABLE
    assert one(tied.gradients_bottom) == pytest.approx(2 * (2_000_000 - layer))
    assert one(tied.gradients_tied) == 2 * 2 * TABLE
    shared = states(Plan(data_parallel=8.0, zero_stage=2.0))
    assert one(shared.gradients_head) == 2 * TABLE / 8
    assert one(shared.gradients_bottom) == pytest.approx(2 * (2_000_000 - LAYER - TABLE) / 8)


def test_steps_in_the_backward_pass():
    """No more gradients than the largest part, none late, no step of its own."""
    found = states(optimizer="adamw-fused-backward", foreach_optimizer=True)
    largest = 2 * max(LAYER, TABLE)

    assert one(found.gradients) == pytest.approx(largest)
    assert one(found.gradients_bottom) == pytest.approx(largest)
    assert one(found.gradients_head) == 2 * TABLE
    assert one(found.step) == 0
    wide = replace(MIX, params=MIX.params + 5e6, params_lm_head=TABLE + 5e6)
    assert one(states(model=wide, optimizer="adamw-fused-backward").gradients) == 2 * (TABLE + 5e6)


@pytest.mark.parametrize("place", [1.0, 2.0])
def test_states_on_the_host(place):
    """Gradients leave as they come, a layer at a time; Megatron's stay; weights go with the rest."""
    away = states(Plan(offload=place), recipe="zero-bf16")
    assert one(away.optimizer) == one(away.step) == 0
    assert one(away.gradients) == pytest.approx(2 * LAYER)
    assert one(away.gradients_head) == 2 * TABLE
    assert one(away.weights) == (2 * 2_000_000 if place == 1 else 0)
    assert one(away.gathered) == pytest.approx(0 if place == 1 else 2 * (2 * LAYER + 2 * TABLE + LAYER))
    flat = replace(MIX, layers=70.0, moe_layers=50.0)
    layer = DENSE / 70 + ROUTED / 50
    assert one(states(Plan(offload=place), recipe="zero-bf16", model=flat).gradients_head) == pytest.approx(2 * layer)
    megatron = states(Plan(offload=place), recipe="megatron-bf16")
    assert one(megatron.gradients) == 4 * 2_000_000
    assert one(megatron.gradients_head) == 4 * TABLE
    mixed = states(Plan(offload=np.array([[0.0], [place]])), recipe="zero-bf16")
    np.testing.assert_allclose(np.ravel(mixed.gradients), [2 * 2_000_000, 2 * LAYER])


def test_temporaries_of_the_step():
    """A copy of one state; gradients raised to the master's width, group by group under full sharding."""
    params = 2_000_000.0
    assert one(states().step) == 0
    assert one(states(foreach_optimizer=True).step) == 2 * params
    raised = states(recipe="zero-bf16")
    assert one(raised.step) == (2 + 4) * params
    assert one(states(Plan(data_parallel=8.0, zero_stage=1.0), recipe="zero-bf16").step) == pytest.approx(
        6 * ((params - ROUTED) / 8 + ROUTED / 8)
    )
    full = Plan(data_parallel=8.0, zero_stage=3.0)
    assert one(states(full, recipe="zero-bf16", step_group_params=1000.0).step) == 6000
    assert one(states(full, recipe="zero-bf16").step) == 6 * params / 8
    assert one(states(recipe="megatron-bf16").step) == 0


def test_states_of_each_optimizer():
    """AdamW, 8-bit with scales, factored, projected to 128 ranks of 4,096, other states for tables, paged."""
    params, tables = 2_000_000.0, 2 * TABLE
    assert one(states().optimizer) == 2 * 2 * params
    assert one(states(optimizer="adamw-8bit").optimizer) == pytest.approx(2 * (1 + 4 / 256) * params)
    assert one(states(optimizer="paged-adamw-32bit", paged=0.3).optimizer) == pytest.approx(0.3 * 8 * params)
    assert one(states(optimizer="adafactor").optimizer) == pytest.approx(2 / 96 * 2 * params)
    assert one(states(optimizer="muon").optimizer) == pytest.approx(2 * (params - tables) + 2 * 2 * tables)
    deep = replace(MIX, hidden=512.0, ffn=2048.0)
    projected = 128 / 512 * (2 * 2 + 2 * 512 / 2048)
    assert one(states(model=deep, optimizer="galore").optimizer) == pytest.approx(
        projected * (params - tables) + 2 * 2 * tables
    )
    flat = replace(MIX, hidden=512.0, ffn=64.0)
    assert one(states(model=flat, optimizer="galore").optimizer) == pytest.approx(
        128 / 512 * (2 * 2 + 2) * (params - tables) + 2 * 2 * tables
    )
    assert one(states(optimizer="galore").optimizer) == pytest.approx(
        (2 * 2 + 2 * 96 / 256) * (params - tables) + 2 * 2 * tables
    )  # no more than the whole
    zero = states(recipe="zero-bf16").optimizer
    assert one(zero) == (2 * 4 + 4) * params


def test_casts_on_ranks():
    """16-bit copies of blocks, of the head apart, and of one layer, as tensor ranks split them."""
    found = states(Plan(tensor_parallel=2.0), recipe="amp-fp32-master")
    assert one(found.casts) == pytest.approx(2 * (DENSE + TOWER + ROUTED) / 2)
    assert one(found.casts_head) == pytest.approx(2 * TABLE / 2)
    assert one(found.casts_layer) == pytest.approx(2 * LAYER / 2)
    away = states(Plan(offload=2.0), recipe="amp-fp32-master")
    assert one(away.casts) == one(away.casts_head) == 0
    assert one(away.gathered) == pytest.approx(2 * 2 * LAYER + 2 * 2 * TABLE + 4 * LAYER)


@pytest.mark.parametrize(("recipe", "batch", "keeps"), [
    ("pure-bf16", 8.0, 0), ("pure-bf16", 9.0, 1), ("megatron-bf16", 8.0, 1), ("zero-bf16", 8.0, 0),
])  # fmt: skip
def test_gradients_that_stand(recipe, batch, keeps):
    """Through the forward pass where they accumulate, or live in one buffer: two sequences on each of four."""
    found = states(Plan(micro_batch=2.0, data_parallel=4.0), recipe=recipe, global_batch=batch)

    assert one(found.keeps_gradients) == keeps


def test_adapters_on_ranks():
    """Attention's on tensor ranks and stages; experts' on expert ranks; a layer's share of both."""
    few = {"method": "lora", "lora_rank": 4.0, "lora_targets": ("q", "down"), "adapter_bytes": 4.0}
    queries, dense = 4 * (96 + 192) * 5, 4 * (96 + 256) * 2
    shared, experts = 4 * (96 + 40) * 5, 4 * (96 + 40) * 10 * 5
    all_of_them = queries + dense + shared + experts
    found = states(**few)
    assert one(found.gradients) == pytest.approx(4 * all_of_them)
    assert one(found.weights) == pytest.approx(2 * 2_000_000 + 4 * all_of_them)
    ranks = Plan(tensor_parallel=2.0, pipeline_parallel=2.0, expert_parallel=5.0, data_parallel=5.0)
    found = states(ranks, **few)
    assert one(found.gradients) == pytest.approx(4 * ((all_of_them - experts) / 2 * 4 / 7 + experts / 5 * 4 / 7))
    gathered = states(Plan(data_parallel=8.0, zero_stage=3.0), **few).gathered
    assert one(gathered) == pytest.approx(2 * (2 * LAYER + 2 * TABLE) + 4 * all_of_them / 7)
    full = states(Plan(data_parallel=8.0, zero_stage=3.0), **few)
    assert one(full.weights) == pytest.approx((2 * 2_000_000 + 4 * all_of_them) / 8)


QUANTISED = [  # bytes of linear weights, experts, tables; format, upcast
    pytest.param((0.5, 0.5, 2.0), stored(4), False, id="4 bit, tables in 16"),
    pytest.param((0.5, 0.5, 4.0), stored(4), True, id="4 bit, tables in FP32"),
    pytest.param((0.5, 0.5, 0.5), stored(4, keeps=False), False, id="all in 4 bit"),
    pytest.param((2.0, 0.5, 2.0), stored(4, experts_only=True, keeps=False), False, id="experts alone"),
    pytest.param((4.0, 0.5, 4.0), stored(4, experts_only=True), True, id="experts alone, the rest in FP32"),
]


@pytest.mark.parametrize(("widths", "form", "upcast"), QUANTISED)
def test_quantised_base(widths, form, upcast):
    """What the format leaves alone is in 16 bit, or in FP32 where the framework raises it."""
    few = {"method": "qlora", "lora_rank": 4.0, "lora_targets": ("q",), "adapter_bytes": 2.0}
    plan = Plan(data_parallel=8.0, zero_stage=3.0)
    own = replace(cases.job("pure-bf16", quantization="nf4", upcast_unquantised=upcast, **few), quantization=form)
    split = split_params(model=MIX, plan=plan, nodes=NODES)
    found = training_states(model=MIX, job=own, plan=plan, split=split, bucket_bytes=BUCKET, paged_share=1.0)
    linear, expert, outside = widths
    adapters = 4 * (96 + 192) * 5

    base = (DENSE + TOWER) * linear + ROUTED * expert + 2 * TABLE * outside
    assert one(found.weights) == pytest.approx((base + 2 * adapters) / 8)
    gathered = 2 * LAYER * 0.5 + 2 * TABLE * outside + 2 * adapters / 7
    assert one(found.gathered) == pytest.approx(gathered)


def test_whole_tables_beside_adapters():
    """Full copies of embedding and head in the base's width, with states of their own."""
    few = {"method": "lora", "lora_rank": 4.0, "lora_targets": ("q",), "adapter_bytes": 4.0}
    more = one(states(trainable_embeddings=True, **few).gradients) - one(states(**few).gradients)

    assert more == pytest.approx(2 * 2 * TABLE)
