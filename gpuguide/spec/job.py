"""What has to be done, apart from where: training, serving and media jobs with every choice made."""

from __future__ import annotations

from dataclasses import dataclass

from gpuguide.spec.engine import Engine
from gpuguide.spec.precision import Optimizer, PrecisionRecipe, WeightFormat
from gpuguide.units import Number


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainingJob:
    """Pre-training or fine-tuning of one model."""

    method: str  # pretrain, full, lora, qlora
    train_tokens: Number  # [tokens]
    sequence_length: Number  # of the longest sequence in a micro-batch [tokens]
    global_batch: Number  # per optimizer step [sequences]
    recipe: PrecisionRecipe
    optimizer: Optimizer
    lora_rank: Number = 0.0
    lora_targets: tuple[str, ...] = ()  # q, k, v, o, gate, up, down, all
    adapter_bytes: float = 4.0  # width of adapter weights: PEFT keeps fp32
    quantization: WeightFormat | None = None  # of the frozen base, QLoRA
    upcast_unquantised: bool = False  # embeddings, head and norms in fp32 (PEFT k-bit preparation)
    attention: str = "fused"  # fused, eager
    skips_masked: bool = True  # the fused kernel leaves the masked half out; early kernels with position bias do not
    fused_loss: bool = False  # chunked or fused cross entropy: full logits never exist
    fused_norms: bool = False  # fused RMSNorm, RoPE and SwiGLU kernels keep fewer tensors
    inplace_loss: bool = False  # full logits exist, but softmax and its gradient share one tensor (Megatron)
    masked_attention: bool = False  # padded batches through fused attention: a mask per layer, keys and values repeated
    sequence_parallel: bool = True  # norms and residuals are split with tensor parallel too
    dropout: bool = False  # dropout masks are kept
    foreach_optimizer: bool = False  # step works on all tensors at once through a temporary copy (PyTorch `foreach`)
    trainable_embeddings: bool = False  # LoRA beside full copies of embedding and head
    offload_activations: bool = False  # checkpointed layer inputs wait in host memory
    fused_adapters: bool = False  # adapted layers run as one kernel that works in place and recomputes (Unsloth)
    keeps_quantised_inputs: bool = False  # 4-bit layers keep their input (bitsandbytes before 0.43.2, July 2024)
    unsharded_start: bool = False  # loaded weights stay whole beside their shards until the first pass (old Lightning)
    step_group_params: float = 1e9  # parameters that sharded training steps at a time (DeepSpeed `sub_group_size`)


@dataclass(frozen=True, kw_only=True, slots=True)
class ServingJob:
    """Serving one language model."""

    weight_format: WeightFormat
    kv_bytes_per_element: float  # width of a cached value: 2 BF16, 1 FP8 [bytes]
    prompt_tokens: Number
    output_tokens: Number
    max_context: Number  # longest sequence the server must hold [tokens]
    concurrency: Number  # requests running at once, over all replicas
    requests_per_s: float | None = None  # given instead of concurrency
    max_ttft_s: float | None = None
    max_tpot_s: float | None = None
    engine: Engine
    memory_utilization: float | None = None  # share of the card the engine may take; None = the engine's default
    hours_per_month: float = 730.0
    load: str = "steady"  # steady, office, bursts
    prefill_chunk_tokens: Number | None = None  # of one prefill pass; None = the engine's on that card [tokens]
    max_sequences: Number | None = None  # most the server prepares for; None = the engine's on that card [-]
    cuda_graphs: bool = True  # False: eager execution, no graph memory
    text_only: bool = False  # the vision tower is not loaded
    attention_data_parallel: bool = False  # attention is replicated over the tensor ranks, each with its own sequences
    speculative_tokens: float = 0.0  # accepted draft tokens per step; 0 = off


@dataclass(frozen=True, kw_only=True, slots=True)
class MediaJob:
    """Generating images, video or audio, or transcribing; or fine-tuning such a model."""

    task: str  # image, video, audio
    width: Number
    height: Number
    frames: Number
    steps: Number
    batch: Number  # items made at once; per optimizer step when training
    items: float  # how many to make, or to train on
    audio_seconds: Number = 0.0
    precision: str = "bf16"
    quantization: WeightFormat | None = None
    quantizes_encoders: bool = True  # text encoders too, not the denoiser alone
    quantizes_on_gpu: bool = False  # 16-bit weights are on the GPU before they are made smaller
    offload: str = "none"  # none, model (one component at a time), sequential (one layer at a time)
    vae_tiling: bool = False  # the picture is decoded in overlapping tiles
    vae_slicing: bool = False  # the batch is decoded one item at a time
    compiled: bool = False  # torch.compile or an engine that fuses small kernels
    fused_qkv: bool = False  # fused projections are kept beside the separate ones (diffusers `fuse_qkv_projections`)
    encoders_resident: bool = True  # False: prompts were encoded before, text encoders are not loaded
    beams: float = 1.0  # hypotheses kept at once when transcribing
    runtime: str = "transformers"  # inference code of autoregressive audio models
    # training
    method: str = "generate"  # generate, lora, full
    recipe: PrecisionRecipe | None = None
    optimizer: Optimizer | None = None
    lora_rank: Number = 0.0
    recompute: bool = False
    adapter_bytes: float = 4.0
    latents_precomputed: bool = False  # VAE and text encoders are not needed while training
    encodes_first: bool = False  # latents are computed in the same process before training, all components loaded
    trains_text_encoder: bool = False
    images_per_example: float = 1.0  # 2 with prior preservation (DreamBooth)
    foreach_optimizer: bool = True  # the step works on all tensors at once through a temporary copy
    eager_attention: bool = False  # scores are written out (PyTorch before 2.0 without xFormers)
    keeps_average: bool = False  # an exponential moving average of the weights, fp32
