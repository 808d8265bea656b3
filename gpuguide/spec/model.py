"""Architecture of a model: transformer decoders of every common kind, and pipelines of components for media."""

from __future__ import annotations

from dataclasses import dataclass

from gpuguide.units import Number


@dataclass(frozen=True, kw_only=True, slots=True)
class Model:
    """
    A language model (decoder, or encoder-decoder) as numbers.

    Counts are of parameters, tied tensors once. Numeric fields may be arrays where a formula is asked for many models.
    """

    name: str
    kind: str  # dense, moe, hybrid, ssm, vlm, encoder-decoder
    source: str
    derived: bool = False  # architecture was derived from a parameter count, not read
    hub_id: str = ""  # owner/name of the checkpoint, where known
    as_of: str = ""  # day on which the source was read, where known
    # parameters
    params: Number  # all [-]
    params_active: Number  # used per token: routed experts scaled by top_k / experts [-]
    params_embedding: Number  # input embedding [-]
    params_lm_head: Number  # output head; counted in `params` only when not tied [-]
    params_routed_experts: Number = 0.0
    params_vision: Number = 0.0
    params_mtp: Number = 0.0  # multi-token-prediction weights of the checkpoint, not counted in `params`
    # shape
    layers: Number
    hidden: Number
    ffn: Number  # width of the dense MLP (of one expert where every layer is MoE)
    heads: Number
    kv_heads: Number
    head_dim: Number
    vocab: Number
    tied_embeddings: bool
    gated_mlp: bool = True
    max_context: float | None = None  # [tokens]; None = not stated
    # attention
    attention: str = "gqa"  # mha, gqa, mqa, mla, none
    q_lora_rank: Number = 0.0
    kv_lora_rank: Number = 0.0
    qk_nope_head_dim: Number = 0.0
    qk_rope_head_dim: Number = 0.0
    v_head_dim: Number = 0.0
    kv_window: float | None = None  # sliding window or chunk [tokens]
    layers_full: Number = 0.0  # layers whose cache grows without bound
    layers_windowed: Number = 0.0  # layers whose cache stops at kv_window
    layers_recurrent: Number = 0.0  # layers with a state of fixed size
    kv_elements_full: Number = 0.0  # cached values per token, all full layers [elements/token]
    kv_elements_windowed: Number = 0.0  # cached values per token, all windowed layers [elements/token]
    recurrent_elements: Number = 0.0  # state per sequence, all recurrent layers [elements]
    # mixture of experts
    experts: Number = 0.0  # routed experts per MoE layer; 0 = dense
    experts_per_token: Number = 0.0
    shared_experts: Number = 0.0
    moe_ffn: Number = 0.0  # width of one routed expert
    moe_layers: Number = 0.0
    # stored form
    native_dtype: str = "bf16"
    native_bytes: float | None = None  # bytes of the published checkpoint [bytes]; None = 2 bytes a parameter

    @property
    def is_moe(self) -> bool:
        """Whether any layer routes tokens to experts."""
        return bool(self.experts)

    @property
    def params_linear(self) -> Number:
        """Parameters inside blocks (what weight formats quantise): all but embedding, head and vision tower. [-]"""
        head = 0.0 if self.tied_embeddings else self.params_lm_head
        return self.params - self.params_embedding - head - self.params_vision


@dataclass(frozen=True, kw_only=True, slots=True)
class Component:
    """One network of a media pipeline; the decode figures belong to what turns latents into pixels or samples."""

    role: str  # denoiser, text_encoder, text_encoder_2, vae, vocoder, decoder, ...
    params: float
    cls: str = ""
    dtype: str = ""  # precision it runs in whatever the job asks; empty = the job's
    decode_flops_per_pixel: float | None = None  # per output pixel and frame, or per audio sample [FLOP]
    decode_values_per_pixel: float | None = None  # most values alive per output pixel of the frames decoded at once
    decode_frames: float | None = None  # frames decoded at once; None = all
    tiled: bool = False  # the pipeline decodes in tiles unless told otherwise
    tokens_per_s: float | None = None  # steps per second of sound of an autoregressive part [1/s]
    decode_traffic_bytes_per_pixel: float = 0.0  # read and written by kernels that multiply no matrices, 16 bit [bytes]


@dataclass(frozen=True, kw_only=True, slots=True)
class MediaModel:
    """A diffusion or audio pipeline: components and the geometry of its latents."""

    name: str
    kind: str  # diffusion, audio
    task: str  # image, video, audio, asr, tts, music
    source: str
    params: float
    components: tuple[Component, ...]
    denoiser_type: str | None = None  # transformer, unet, autoregressive, None
    denoiser_layers: float | None = None
    denoiser_hidden: float | None = None
    latent_channels: float | None = None
    spatial_down: float | None = None
    temporal_down: float | None = None
    patch: float | None = None
    native_width: float | None = None
    native_height: float | None = None
    native_frames: float | None = None
    fps: float | None = None
    default_steps: float | None = None
    passes_per_step: float = 1.0
    hub_id: str = ""  # owner/name of the checkpoint, where known
    as_of: str = ""  # day on which the source was read, where known
    audio_down: float | None = None  # audio samples per latent position
    kv_elements: float = 0.0  # cached values per token of the autoregressive part [elements/token]
    native_dtype: str = "bf16"
    # one pass of the denoiser, traced; None = not known
    flops_per_token: float | None = None  # matrix multiplications per latent token (position of a U-Net) [FLOP]
    flops_fixed: float = 0.0  # the same for text tokens, whatever the resolution [FLOP]
    attention_flops_per_pair: float | None = None  # scores and values per pair of tokens, all layers [FLOP]
    joint_text_tokens: float = 0.0  # text tokens in one sequence with the latents; 0 under cross-attention
    traffic_bytes_per_token: float | None = None  # moved by kernels that multiply no matrices, 16 bit [bytes]
    live_bytes_per_token: float | None = None  # most activations alive at once, 16 bit [bytes]
    saved_bytes_per_token: float | None = None  # kept for the backward pass, all weights trained, 16 bit [bytes]
    saved_bytes_per_token_frozen: float | None = None  # the same where only inputs need a gradient [bytes]
    head_dim: float | None = None  # of the attention with most tokens
    kernels: float | None = None  # launched per pass without compilation [-]
    attention_within_frame: bool = False  # tokens of one frame see each other, not those of the others
    passes_one_by_one: bool = False  # guidance runs two passes after each other instead of a doubled batch

    def component_params(self, role: str) -> float:
        """Parameters of all components whose role starts with the given word. [-]"""
        return sum(component.params for component in self.components if component.role.startswith(role))
