"""Stored weights and what a rank loads, counted layer by layer on a model whose parts are all different."""

from dataclasses import replace

import numpy as np
import pytest

from gpuguide.estimate.weights import recurrent_params, replicated_bytes, stored_weights, weight_bytes_per_gpu
from gpuguide.spec.plan import Plan
from tests.estimate.hand_cases import DENSE, LATENT, MIX, ROUTED, TABLE, stored

TIED = replace(MIX, tied_embeddings=True)
RECURRENT = (DENSE - 3 * 96 * (2 * 256 + 5 * 40)) * 2 / 7
PARTS = [  # embedding, head, blocks, experts, vision [bytes], model, format
    pytest.param((TABLE * 2, TABLE * 2, DENSE * 5 / 8, ROUTED * 5 / 8, 140_000), MIX, stored(5), id="tables kept"),
    pytest.param((60_000, 60_000, DENSE * 5 / 8, ROUTED * 5 / 8, 140_000), MIX, stored(5, keeps=False), id="all alike"),
    pytest.param(
        (TABLE * 3 / 8, TABLE * 6 / 8, DENSE * 5 / 8, ROUTED * 5 / 8, 140_000), MIX,
        stored(5, embedding_bits=3, head_bits=6), id="tables of their own",
    ),
    pytest.param(
        (TABLE * 6 / 8, 0, (DENSE + TABLE) * 5 / 8, ROUTED * 5 / 8, 140_000), TIED,
        stored(5, embedding_bits=3, head_bits=6), id="one table, the better of two widths",
    ),
    pytest.param(
        (TABLE * 2, TABLE * 2, DENSE * 2, ROUTED * 5 / 8, 140_000), MIX, stored(5, experts_only=True),
        id="experts alone",
    ),
    pytest.param(
        (TABLE * 2, TABLE * 6 / 8, DENSE * 6 / 8, ROUTED * 5 / 8, 140_000), MIX,
        stored(5, experts_only=True, head_bits=6), id="experts alone, the rest like the head",
    ),
    pytest.param(
        (TABLE * 2, TABLE * 2, DENSE * 5 / 8 + RECURRENT * (2 - 5 / 8), ROUTED * 5 / 8, 140_000), MIX,
        stored(5, recurrent_bits=16), id="recurrent mixers wide",
    ),
    pytest.param(
        (TABLE * 2, TABLE * 2, DENSE * 5 / 8, ROUTED * 5 / 8 * 128 / 96, 140_000), MIX, stored(5, expert_multiple=64),
        id="rows of 96 padded to 128",
    ),
    pytest.param((TABLE * 2, TABLE * 2, DENSE * 4, ROUTED * 4, 280_000), MIX, stored(32), id="FP32: the tower too"),
]  # fmt: skip


@pytest.mark.parametrize(("parts", "model", "form"), PARTS)
def test_parts_of_a_checkpoint(parts, model, form):
    """A table, the tower or the experts in the width of another part."""
    found = stored_weights(model=model, weight_format=form)

    assert (found.embedding, found.head, found.blocks, found.experts, found.vision) == pytest.approx(parts, rel=1e-12)
    assert found.total == pytest.approx(sum(parts), rel=1e-12)
    drafted = stored_weights(model=model, weight_format=form, with_mtp=True)
    shared = form.bits_per_weight if not form.experts_only else form.head_bits or 16
    assert drafted.blocks - found.blocks == pytest.approx(11_000 * shared / 8)


def test_mixers_of_a_plain_mlp():
    """Two matrices instead of three leave more to the mixers, never less than nothing."""
    assert recurrent_params(model=MIX) == pytest.approx(RECURRENT)
    plain = replace(MIX, gated_mlp=False)
    assert recurrent_params(model=plain) == pytest.approx((DENSE - 2 * 96 * (2 * 256 + 5 * 40)) * 2 / 7)
    assert recurrent_params(model=replace(MIX, ffn=1e6)) == 0


def test_what_ranks_repeat():
    """Routers, a KV head that cannot be split, down-projections; absorbed up-projections are split."""
    router, form = 96 * 10 * 5 * 2, stored(5)

    def found(model, tensor, form=form):
        return float(replicated_bytes(model=model, weight_format=form, tensor_parallel=np.asarray(tensor)))

    assert found(MIX, 1.0) == 0
    assert found(MIX, 2.0) == pytest.approx(router / 2)
    assert found(MIX, 4.0) == pytest.approx(router * 3 / 4 + 2 * 96 * 16 * (1 - 3 / 4) * 5 * 5 / 8)
    assert found(MIX, 4.0, stored(5, experts_only=True)) == pytest.approx(router * 3 / 4 + 2 * 96 * 16 / 4 * 5 * 2)
    assert found(replace(MIX, kv_heads=0.0, attention="none"), 4.0) == pytest.approx(router * 3 / 4)
    down, up = 96 * (24 + 20 + 6) * 5 * 5 / 8, 20 * 12 * (14 + 11) * 5
    assert found(LATENT, 4.0) == pytest.approx((router + down) * 3 / 4 + up * 2 / 4)
    assert found(LATENT, 4.0, stored(5, family="gguf")) == pytest.approx((router + down) * 3 / 4)


def counted(model, stages, *, tensor=1.0, experts_share=1.0, text_only=False, which=max):
    """Each stage's layers one after the other: odd ones go to the stages before the last, from the back."""
    whole = stored_weights(model=model, weight_format=stored(5))
    extra = float(replicated_bytes(model=model, weight_format=stored(5), tensor_parallel=np.asarray(tensor)))
    layer = (whole.blocks / tensor + extra) / model.layers
    expert_layer = whole.experts * experts_share / model.moe_layers
    dense = model.layers - model.moe_layers
    leading = dense <= 4
    experts_of = [float(i >= dense) if leading else model.moe_layers / model.layers for i in range(int(model.layers))]
    sizes = [int(model.layers // stages)] * stages
    for place in range(2, int(model.layers % stages) + 2):
        sizes[-place] += 1
    vision = 0.0 if text_only else whole.vision
    held, start = [], 0
    for place, size in enumerate(sizes):
        here = size * layer + expert_layer * sum(experts_of[start : start + size])
        here += (whole.embedding + vision) / tensor if place == 0 else 0.0
        if place == stages - 1:
            here += (whole.head if stages == 1 or not model.tied_embeddings else whole.embedding) / tensor
        held.append(here)
        start += size
    return which(held)


EVEN = replace(MIX, layers=12.0, moe_layers=6.0)  # too many dense layers to lead: every other one
WIDE = replace(MIX, params_embedding=10.0, params_lm_head=300_000.0, params_vision=0.0)
BARE = replace(MIX, params_embedding=10.0, params_lm_head=20.0, params_vision=30.0)


@pytest.mark.parametrize("stages", [1, 2, 3, 4, 5, 6, 7])
@pytest.mark.parametrize("model", [MIX, TIED, EVEN, WIDE, BARE], ids=["leading", "tied", "mixed", "wide head", "bare"])
def test_stages_layer_by_layer(model, stages):
    """An odd layer on the wrong stage, a table left out, dense layers counted as experts."""
    asked = {"model": model, "weight_format": stored(5)}
    plan = Plan(pipeline_parallel=float(stages))

    assert float(weight_bytes_per_gpu(plan=plan, **asked)) == pytest.approx(counted(model, stages))
    assert float(weight_bytes_per_gpu(plan=plan, text_only=True, **asked)) == pytest.approx(
        counted(model, stages, text_only=True)
    )
    first = counted(model, stages, which=lambda held: held[0])
    assert float(weight_bytes_per_gpu(plan=plan, stage="first", **asked)) == pytest.approx(first)


RANKS = [  # share of the experts on one rank, tensor, expert
    pytest.param(1 / 4, 4.0, 1.0, id="every expert in four"),
    pytest.param(3 / 10, 4.0, 2.0, id="whole experts on four"),
    pytest.param(2 / 10, 4.0, 8.0, id="whole experts on eight"),
    pytest.param(5 / 10, 1.0, 2.0, id="whole experts on two"),
]


@pytest.mark.parametrize(("share", "tensor", "experts"), RANKS)
@pytest.mark.parametrize("stages", [1, 3])
def test_ranks_layer_by_layer(share, tensor, experts, stages):
    """Experts split where they are dealt out whole, or the rest not split at all."""
    plan = Plan(tensor_parallel=tensor, expert_parallel=experts, pipeline_parallel=float(stages))
    asked = {"model": MIX, "weight_format": stored(5), "plan": plan}

    assert float(weight_bytes_per_gpu(**asked)) == pytest.approx(
        counted(MIX, stages, tensor=tensor, experts_share=share)
    )
    replicated = weight_bytes_per_gpu(**asked, attention_data_parallel=True)
    assert float(replicated) == pytest.approx(counted(MIX, stages, experts_share=share))
