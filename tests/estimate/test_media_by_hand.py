"""Media pipelines in wider and narrower precision, over many plans, and cut into frames and sound, in plain numbers."""

from dataclasses import replace

import numpy as np
import pytest

from gpuguide.estimate.audio import audio_memory, audio_speed, decoder_params
from gpuguide.estimate.compute import matmul_flops_per_s, memory_bytes_per_s
from gpuguide.estimate.diffusion import attention_rate, denoiser_pass, diffusion_speed, latent_tokens, matmul_rate
from gpuguide.estimate.diffusion_memory import diffusion_phases, fused_bytes
from gpuguide.spec.plan import Plan
from tests.estimate.hand_cases import stored
from tests.estimate.media_cases import PLAN, TOY, catalog, clip, job, model, nodes, typical

KNOWN = catalog().assumptions
SPEECH = job(task="audio", audio_seconds=95.0, precision="fp16", beams=5.0, runtime="faster-whisper")
MANY = Plan(data_parallel=np.array([[1.0], [2.0], [4.0]]))


def known(name):
    return float(KNOWN.value(name))


def test_tokens_of_clips_and_sound():
    """Frames after the first in groups of four; sides rounded up; sound by the samples of a position."""
    video = replace(TOY, temporal_down=4.0)
    assert latent_tokens(model=video, job=clip(1024, 1024, 9)) == 4096 * 3
    assert latent_tokens(model=video, job=clip(1024, 1024, 8)) == 4096 * 3
    assert latent_tokens(model=video, job=clip(1000, 1024, 1)) == 63 * 64
    assert latent_tokens(model=TOY, job=clip(1024, 1024, 5)) == 4096 * 5
    sound = replace(TOY, audio_down=2048.0)
    assert latent_tokens(model=sound, job=job(audio_seconds=10.0)) == pytest.approx(441_000 / 2048)
    assert latent_tokens(model=sound, job=job(audio_seconds=0.0)) == 1
    whole = denoiser_pass(model=replace(TOY, joint_text_tokens=100.0, flops_fixed=7.0), job=job())
    assert whole.matmul_flops == pytest.approx(2 * 0.86 * 2e9 * 4096 + 7)


def test_memory_in_wide_precision():
    """FP32: weights, activations and latents in four bytes, patches of three by three."""
    own = job(precision="fp32", batch=2.0)
    toy = replace(TOY, patch=3.0)
    found = diffusion_phases(model=toy, job=own, plan=PLAN, assumptions=KNOWN)
    tokens = np.ceil(1024 / 24) ** 2
    latents = 4 * 16 * 9 * tokens * 4
    live = known("media_memory_activations") * 15 * 2 * 2048 * tokens * 2

    assert typical(found["denoise"].activations) == pytest.approx(2 * 2 * live + latents)
    assert typical(found["denoise"].weights) == pytest.approx(known("media_memory_weights") * 3e9 * 4)


def test_fused_copies_while_weights_are_made_smaller():
    """Loading in 16 bit holds the fused copies in 16 bit too."""
    own = job(quantization=stored(4), quantizes_on_gpu=True, fused_qkv=True)
    found = diffusion_phases(model=TOY, job=own, plan=PLAN, assumptions=KNOWN)
    fused = 3 * 20 * 2048**2

    assert fused_bytes(model=TOY, job=own) == fused * 0.5
    assert typical(found["load"].weights) == pytest.approx(known("media_memory_weights") * (3e9 + fused) * 2)
    assert fused_bytes(model=replace(TOY, denoiser_hidden=None), job=own) == 0


@pytest.mark.parametrize("precision", ["bf16", "fp32"])
def test_traffic_of_a_step_by_width(precision):
    """Twice the bytes in FP32, at the rate of plain FP32 products."""
    own = job(precision=precision, steps=1.0)
    shape = nodes()
    work = denoiser_pass(model=TOY, job=own)
    plain = matmul_flops_per_s(nodes=shape, precision=precision)
    found = diffusion_speed(model=TOY, job=own, plan=PLAN, nodes=shape, assumptions=KNOWN)
    moved = (
        work.traffic_bytes
        * (2 if precision == "fp32" else 1)
        / typical(memory_bytes_per_s(shape, 1.0) * KNOWN["compute_memory_share"])
    )
    busy = work.matmul_flops / typical(plain * KNOWN["media_matmul_share"])
    busy += work.attention_flops / typical(attention_rate(plain, TOY, shape, KNOWN))

    assert typical(found.denoise_s) == pytest.approx(2 * (busy + moved))


def test_plans_side_by_side():
    """Every part of every plan, replicas making more items in the same time."""
    for name, own in (("whisper-large-v2", SPEECH), ("musicgen-large", job(task="audio", audio_seconds=10.0))):
        audio = model(name)
        memory = audio_memory(model=audio, job=own, plan=MANY, assumptions=KNOWN)
        alone = audio_memory(model=audio, job=own, plan=PLAN, assumptions=KNOWN)
        for part in ("weights", "kv_cache", "activations"):
            assert np.shape(getattr(memory, part))[-2:] == (3, 1)
            np.testing.assert_allclose(getattr(memory, part) - getattr(alone, part), 0)
        speed = audio_speed(model=audio, job=own, plan=MANY, nodes=nodes(), assumptions=KNOWN)
        items = np.broadcast_to(speed.items_per_s, (3, 3, 1))[1, :, 0]
        np.testing.assert_allclose(items / items[0], [1, 2, 4])
        np.testing.assert_allclose(np.diff(speed.batch_s, axis=-2), 0)
    phases = diffusion_phases(model=TOY, job=job(), plan=MANY, assumptions=KNOWN)
    for phase in phases.values():
        assert np.shape(phase.weights)[-2:] == np.shape(phase.activations)[-2:] == (3, 1)


def test_quantised_speech():
    """Weights by the bits of the format, states in 16 bit; offload holds the largest part."""
    whisper = model("whisper-large-v2")
    own = replace(SPEECH, quantization=stored(5))
    found = audio_memory(model=whisper, job=own, plan=PLAN, assumptions=KNOWN)
    assert typical(found.weights) == pytest.approx(whisper.params * 5 / 8)
    assert typical(found.activations) == 1500 * whisper.denoiser_hidden * 2 * 20
    eight = audio_memory(model=whisper, job=replace(SPEECH, precision="int8"), plan=PLAN, assumptions=KNOWN)
    assert typical(eight.weights) == whisper.params
    assert typical(eight.activations) == typical(found.activations)


@pytest.mark.parametrize(("gpu", "batch", "bits"), [("H100-SXM", 400.0, 16), ("RTX3070Ti", 4.0, 5), ("T4", 2000.0, 4)])
def test_steps_of_speech(gpu, batch, bits):
    """Reading, multiplying or launching, whichever is longest, and half of what is read or launched meanwhile."""
    whisper, shape = model("whisper-large-v2"), nodes(gpu)
    own = replace(SPEECH, audio_seconds=30.0 * batch, batch=batch, quantization=stored(bits))
    found = audio_speed(model=whisper, job=own, plan=PLAN, nodes=shape, assumptions=KNOWN)
    rate = typical(matmul_flops_per_s(nodes=shape, precision="fp16") * KNOWN["media_matmul_share"])
    moved = typical(memory_bytes_per_s(shape, 1.0) * KNOWN["compute_memory_share"])
    decoder = decoder_params(whisper)
    cache = batch * (1500 + 5 * 30 * 2) * whisper.kv_elements * 2
    read, multiply = (decoder * bits / 8 + cache) / moved, batch * 5 * 2 * decoder / rate
    host = whisper.denoiser_layers * known("media_audio_layer_s")
    steps = (1 + 0.5 * (1 - 1 / batch)) * 30 * known("media_asr_tokens_per_s")

    assert typical(found.denoise_s) == pytest.approx(steps * (max(read, multiply, host) + min(read, host) / 2))


def test_narrow_products_of_compiled_pipelines():
    """Half of the step from 16 bit to 8 where kernels are fused; integers gain on cards without FP8 too."""
    shape, half = nodes("A100-80GB-SXM"), 312e12
    reached = matmul_flops_per_s(nodes=shape, precision="bf16")
    share = KNOWN["media_8bit_share"]
    integers = stored(8, compute_precision="int8")
    found = matmul_rate(job(quantization=integers, compiled=True), shape, KNOWN)
    gain = shape.flops["int8"][0] / half
    assert gain > 1.5
    np.testing.assert_allclose(found, reached * (1 + (gain - 1) * share))
    np.testing.assert_allclose(matmul_rate(job(quantization=integers), shape, KNOWN), reached)
    eight = job(quantization=stored(8, compute_precision="fp8"), compiled=True)
    np.testing.assert_allclose(np.ravel(matmul_rate(eight, shape, KNOWN)), np.broadcast_to(reached, 3))
    blackwell = nodes("B200")
    four = job(quantization=stored(4, compute_precision="fp4"), compiled=True)
    gain = blackwell.flops["fp4"] / blackwell.flops["bf16"]
    reached = matmul_flops_per_s(nodes=blackwell, precision="bf16")
    np.testing.assert_allclose(matmul_rate(four, blackwell, KNOWN), reached * (1 + (gain - 1) * share))
    unknown = replace(shape, flops=dict(shape.flops) | {"int8": np.array([np.nan])})
    plain = matmul_rate(job(quantization=integers, compiled=True), unknown, KNOWN)
    np.testing.assert_allclose(np.ravel(plain), matmul_flops_per_s(nodes=shape, precision="bf16")[0])
