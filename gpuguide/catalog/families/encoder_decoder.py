"""Encoder-decoders: T5 and its kin, BART, Whisper; the cache that grows is the decoder's own attention."""

from __future__ import annotations

from collections.abc import Sequence

from gpuguide.catalog.families.blocks import norm
from gpuguide.catalog.families.draft import Draft
from gpuguide.catalog.families.values import MOST_LAYERS, Values

ENCODER = "encoder"


def t5(v: Values, d: Draft) -> None:
    """T5, mT5, UMT5: no biases, relative positions (in every layer of UMT5, else in the first), always tied."""
    hidden, width, heads = v.number("d_model"), v.number("d_kv"), v.number("num_heads")
    encoder = range(v.number("num_layers", most=MOST_LAYERS))
    decoder = range(v.optional("num_decoder_layers", most=MOST_LAYERS) or len(encoder))
    ffn, buckets, inner = v.number("d_ff"), v.number("relative_attention_num_buckets"), heads * width
    gated = (v.text("feed_forward_proj") or "").startswith("gated")
    d.kind, d.layers, d.hidden, d.ffn, d.gated = "encoder-decoder", len(decoder), hidden, ffn, gated
    d.heads = d.kv_heads = heads
    d.head_dim, d.max_context = width, v.optional("n_positions")
    for part, layers, blocks in ((ENCODER, encoder, 1), ("text", decoder, 2)):
        for block in ("SelfAttention", "EncDecAttention")[:blocks]:
            for name in "qkv":
                d.linear(f"{part}.block.{{}}.{block}.{name}", inner, hidden, layers, part=part)
            d.linear(f"{part}.block.{{}}.{block}.o", hidden, inner, layers, part=part)
        positions = layers if v.model_type == "umt5" else [0]
        d.other(f"{part}.block.{{}}.relative_attention_bias", buckets, heads, layers=positions, part=part)
        for name in ("wi_0", "wi_1") if gated else ("wi",):
            d.linear(f"{part}.block.{{}}.DenseReluDense.{name}", ffn, hidden, layers, part=part)
        d.linear(f"{part}.block.{{}}.DenseReluDense.wo", hidden, ffn, layers, part=part)
        for place in range(blocks + 1):
            norm(d, f"{part}.block.{{}}.layer_norm_{place}", hidden, layers, part=part)
        norm(d, f"{part}.final_layer_norm", hidden, part=part)
    d.cached(decoder, 2 * inner)
    d.embedding(v.number("vocab_size"), hidden, tied=True)


def _stack(
    v: Values, d: Draft, side: str, part: str, *, cross: bool, key_bias: bool, final_norm: bool
) -> Sequence[int]:  # fmt: skip
    hidden = v.number("d_model")
    layers, ffn = range(v.number(f"{side}_layers", most=MOST_LAYERS)), v.number(f"{side}_ffn_dim")
    for block in ("self_attn", "encoder_attn")[: 2 if cross else 1]:
        prefix = f"model.{side}.layers.{{}}.{block}"
        d.linear(f"{prefix}.k_proj", hidden, hidden, layers, bias=key_bias, part=part)
        for name in ("q_proj", "v_proj", "out_proj"):
            d.linear(f"{prefix}.{name}", hidden, hidden, layers, bias=True, part=part)
        norm(d, f"{prefix}_layer_norm", hidden, layers, bias=True, part=part)
    d.linear(f"model.{side}.layers.{{}}.fc1", ffn, hidden, layers, bias=True, part=part)
    d.linear(f"model.{side}.layers.{{}}.fc2", hidden, ffn, layers, bias=True, part=part)
    norm(d, f"model.{side}.layers.{{}}.final_layer_norm", hidden, layers, bias=True, part=part)
    if final_norm:
        norm(d, f"model.{side}.layer_norm", hidden, bias=True, part=part)
    return layers


def _common(v: Values, d: Draft, decoder: Sequence[int]) -> None:
    hidden, heads = v.number("d_model"), v.number("decoder_attention_heads")
    if hidden % heads:
        raise v.wrong("d_model", hidden, f"it must be a multiple of the {heads} attention heads")
    d.kind, d.layers, d.hidden, d.ffn, d.gated = (
        "encoder-decoder",
        len(decoder),
        hidden,
        v.number("decoder_ffn_dim"),
        False,
    )
    d.heads = d.kv_heads = heads
    d.head_dim = hidden // heads
    d.cached(decoder, 2 * hidden)


def bart(v: Values, d: Draft) -> None:
    """BART and mBART: learned positions with two extra rows, a norm behind each embedding; mBART adds final norms."""
    hidden, final = v.number("d_model"), v.model_type == "mbart"
    _stack(v, d, "encoder", ENCODER, cross=False, key_bias=True, final_norm=final)
    decoder = _stack(v, d, "decoder", "text", cross=True, key_bias=True, final_norm=final)
    _common(v, d, decoder)
    d.max_context = v.number("max_position_embeddings")
    tied = v.flag("tie_word_embeddings")
    for part in (ENCODER, "text"):
        if not tied:
            d.other(f"{part}.embed_tokens", v.number("vocab_size"), hidden, part="embedding")
        d.other(f"{part}.embed_positions", d.max_context + 2, hidden, part=part)
        norm(d, f"{part}.layernorm_embedding", hidden, bias=True, part=part)
    d.embedding(v.number("vocab_size"), hidden, tied=tied)


def whisper(v: Values, d: Draft) -> None:
    """Whisper: two convolutions over the spectrogram, learned positions on both sides, keys without bias."""
    hidden = v.number("d_model")
    _stack(v, d, "encoder", ENCODER, cross=False, key_bias=False, final_norm=True)
    decoder = _stack(v, d, "decoder", "text", cross=True, key_bias=False, final_norm=True)
    _common(v, d, decoder)
    d.max_context = v.number("max_target_positions")
    for name, channels in (("conv1", v.number("num_mel_bins")), ("conv2", hidden)):
        d.other(f"model.encoder.{name}", hidden, channels, 3, part=ENCODER)
        d.other(f"model.encoder.{name}.bias", hidden, part=ENCODER)
    d.other("model.encoder.embed_positions", v.number("max_source_positions"), hidden, part=ENCODER)
    d.other("model.decoder.embed_positions", d.max_context, hidden)
    d.embedding(v.number("vocab_size"), hidden, tied=v.flag("tie_word_embeddings"))
