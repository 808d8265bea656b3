"""A small model with a number of its own for every part, so that no part can stand in for another by chance."""

from dataclasses import replace

from gpuguide.spec.model import Model
from gpuguide.spec.precision import WeightFormat

TABLE = 96_000.0
ROUTED = 576_000.0  # 5 layers x 10 experts x 3 x 96 x 40
DENSE = 1_162_000.0  # 2,000,000 less two tables, tower and routed experts
MIX = Model(
    name="mix", kind="moe", source="", params=2_000_000.0, params_active=1_539_200.0, params_embedding=TABLE,
    params_lm_head=TABLE, params_routed_experts=ROUTED, params_vision=70_000.0, params_mtp=11_000.0, layers=7.0,
    hidden=96.0, ffn=256.0, heads=12.0, kv_heads=3.0, head_dim=16.0, vocab=1000.0, tied_embeddings=False,
    layers_full=3.0, layers_windowed=2.0, layers_recurrent=2.0, kv_window=50.0, recurrent_elements=5000.0,
    experts=10.0, experts_per_token=2.0, shared_experts=1.0, moe_ffn=40.0, moe_layers=5.0,
)  # fmt: skip
"""Seven layers: three full, two windowed, two recurrent; the first two with an MLP, five with experts."""
LATENT = replace(
    MIX, attention="mla", q_lora_rank=24.0, kv_lora_rank=20.0, qk_nope_head_dim=14.0, qk_rope_head_dim=6.0,
    v_head_dim=11.0,
)  # fmt: skip


def stored(bits, *, keeps=True, **facts):
    values = {"name": "own", "bits_per_weight": bits, "compute_precision": "bf16", "keeps_embeddings_16bit": keeps}
    return WeightFormat(**(values | facts))
