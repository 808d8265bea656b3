"""Speech and music: published memory and real-time factors, and laws of scaling."""

from dataclasses import replace

import numpy as np
import pytest

from gpuguide.errors import NotModelled
from gpuguide.estimate.audio import audio_memory, audio_speed, decoder_params
from gpuguide.estimate.compute import matmul_flops_per_s, memory_bytes_per_s
from gpuguide.estimate.media import check_modelled, media_memory
from gpuguide.spec.plan import Plan
from gpuguide.units import GIB
from tests.estimate.media_cases import PLAN, catalog, job, model, nodes, typical

SPEECH = job(task="audio", precision="fp16", audio_seconds=780.0, beams=5.0, runtime="faster-whisper")
MUSIC = job(task="audio", precision="fp32", audio_seconds=30.0)
PUBLISHED = [  # GiB, real-time factor, job. Source: faster-whisper README, 13 minutes on RTX 3070 Ti
    pytest.param(4.42, 12.4, SPEECH, id="faster-whisper"),
    pytest.param(4.03, 12.0, replace(SPEECH, runtime="whisper.cpp"), id="whisper.cpp"),
    pytest.param(4.84, 7.0, replace(SPEECH, runtime="transformers"), id="transformers"),
    pytest.param(5.95, 45.9, replace(SPEECH, batch=8.0), id="faster-whisper, batch 8"),
]


def memory(asked, name="whisper-large-v2", plan=PLAN):
    return audio_memory(model=model(name), job=asked, plan=plan, assumptions=catalog().assumptions)


def speed(asked, name="whisper-large-v2", gpu="RTX3070Ti"):
    return audio_speed(model=model(name), job=asked, plan=PLAN, nodes=nodes(gpu), assumptions=catalog().assumptions)


@pytest.mark.parametrize(("gib", "factor", "asked"), PUBLISHED)
def test_published_speech(gib, factor, asked):
    """Estimates left the range of published runs."""
    assert typical(memory(asked).total) / GIB == pytest.approx(gib, rel=0.2)
    assert asked.audio_seconds / typical(speed(asked).batch_s) == pytest.approx(factor, rel=0.25)


def test_decoder_of_whisper_large():
    """Encoder layers counted as decoder: 906 million of 1,543 million parameters. Source: transformers class."""
    assert decoder_params(model("whisper-large-v2")) == pytest.approx(906e6, rel=0.01)


def test_smaller_models_are_faster_and_smaller():
    """Depth or width that makes no difference."""
    names = ("whisper-large-v3", "whisper-large-v3-turbo")
    large, turbo = (typical(speed(SPEECH, name).batch_s) for name in names)

    assert turbo < large / 4
    assert typical(memory(SPEECH, names[1]).total) < typical(memory(SPEECH, names[0]).total)


def test_longer_and_larger_need_more():
    """Length or batch that costs nothing."""
    assert typical(memory(replace(SPEECH, batch=8.0)).total) > typical(memory(SPEECH).total)
    assert typical(speed(replace(SPEECH, audio_seconds=1560.0)).batch_s) > 1.9 * typical(speed(SPEECH).batch_s)
    long = replace(MUSIC, audio_seconds=60.0)
    assert typical(memory(long, "musicgen-large").kv_cache) == 2 * typical(memory(MUSIC, "musicgen-large").kv_cache)


def test_batches_of_music_are_nearly_free():
    """A step that waits for the host once per item."""
    one, eight = (
        typical(speed(replace(MUSIC, batch=size), "musicgen-small", "A100-80GB-SXM").batch_s) for size in (1.0, 8.0)
    )

    assert eight < 2 * one


def test_offload_keeps_the_largest_part():
    """All of Bark's three networks on the GPU although one works at a time."""
    all_of_it = memory(MUSIC, "bark")
    one = memory(MUSIC, "bark", Plan(offload=2.0))

    assert typical(one.weights) < 0.5 * typical(all_of_it.weights)


def test_a_band_is_in_order():
    """The least estimate above the typical one."""
    assert np.all(np.diff(np.asarray(speed(SPEECH).batch_s), axis=0) >= 0)
    assert np.all(np.diff(np.asarray(memory(SPEECH).total), axis=0) >= 0)


@pytest.mark.parametrize("name", ["f5-tts", "kokoro-82m", "xtts-v2"])
def test_unknown_pipelines_are_refused(name):
    """A guess instead of a sentence that says which facts are missing."""
    with pytest.raises(NotModelled, match="layers and width of its decoder"):
        check_modelled(model(name))
    with pytest.raises(NotModelled):
        media_memory(model=model(name), job=SPEECH, plan=PLAN, nodes=nodes(), assumptions=catalog().assumptions)


# ---- every part counted by hand --------------------------------------------------------------------------------------


def rates(gpu, precision="fp16"):
    """Multiplications and bytes per second that the speed is built from."""
    known, shape = catalog().assumptions, nodes(gpu)
    multiply = matmul_flops_per_s(nodes=shape, precision=precision) * known["media_matmul_share"]
    return typical(multiply), typical(memory_bytes_per_s(shape, 1.0) * known["compute_memory_share"])


def test_memory_of_speech_by_hand():
    """Two recordings, five beams: 1,500 positions each and half of 30 s x 3.5 tokens per beam; 20 hidden states."""
    whisper, found = model("whisper-large-v2"), memory(replace(SPEECH, batch=2.0))

    assert typical(found.kv_cache) == 2 * (1500 + 5 * 30 * 3.5 / 2) * whisper.kv_elements * 2
    assert typical(found.activations) == 1500 * whisper.denoiser_hidden * 2 * 20
    assert typical(found.weights) == whisper.params * 2
    assert typical(found.buffers) == 8e8


def test_memory_of_music_by_hand():
    """Three pieces of 30 s with guidance: two caches of 50 tokens a second each, in 4 bytes."""
    music, found = model("musicgen-large"), memory(replace(MUSIC, batch=3.0), "musicgen-large")
    rate = max(part.tokens_per_s or 0.0 for part in music.components)

    assert rate == 50.0
    assert typical(found.kv_cache) == 3 * music.passes_per_step * 50 * 30 * music.kv_elements * 4
    assert typical(found.activations) == 3 * music.passes_per_step * music.denoiser_hidden * 4 * 20
    assert typical(found.buffers) == 4e8


@pytest.mark.parametrize("runtime", ["faster-whisper", "transformers"])
def test_transcribing_by_hand(runtime):
    """95 s are 4 windows, in batches of 3 two rounds of which the longest text sets the steps."""
    asked = replace(SPEECH, audio_seconds=95.0, batch=3.0, runtime=runtime)
    whisper, found = model("whisper-large-v2"), speed(asked)
    rate, bandwidth = rates("RTX3070Ti")
    decoder = decoder_params(whisper)
    steps = 2 * (1 + 0.5 * (1 - 1 / 3)) * 30 * 3.5
    cache = 3 * (1500 + 5 * 30 * 2) * whisper.kv_elements * 2
    read, multiply = (decoder * 2 + cache) / bandwidth, 3 * 5 * 2 * decoder / rate
    host = whisper.denoiser_layers * 6.5e-4 * (1 if runtime == "faster-whisper" else 2)
    encode = 4 * 2 * (whisper.params - decoder) * 1500 / rate
    write = steps * (max(read, multiply, host) + min(read, host) / 2)

    assert typical(found.encode_s) == pytest.approx(encode)
    assert typical(found.denoise_s) == pytest.approx(write)
    assert typical(found.batch_s) == pytest.approx(encode + write)
    assert typical(found.items_per_s) == pytest.approx(1 / (encode + write))
    assert found.bound[1, 0, 0] == ("overhead" if host > decoder * 2 / bandwidth else "memory")


def test_music_by_hand():
    """Two pieces of 10 s: a step per token for both and their guidance, then the codec."""
    asked = replace(MUSIC, audio_seconds=10.0, batch=2.0, precision="fp16")
    music, found = model("musicgen-large"), speed(asked, "musicgen-large", "A100-80GB-SXM")
    rate, bandwidth = rates("A100-80GB-SXM")
    params = next(part.params for part in music.components if part.tokens_per_s)
    rows = 2 * music.passes_per_step
    cache = rows * music.kv_elements * 2 * 10 / 2 * 50
    read, multiply = (params * 2 + cache) / bandwidth, rows * 2 * params / rate
    host = music.denoiser_layers * 6.5e-4 * 2 * 0.3
    write = 10 * 50 * (max(read, multiply, host) + min(read, host) / 2)
    decode = 2 * 2 * music.component_params("audio_codec") * 10 * 75 / rate

    assert typical(found.denoise_s) == pytest.approx(write)
    assert typical(found.decode_s) == pytest.approx(decode)
    assert typical(found.items_per_s) == pytest.approx(2 / (write + decode))
