"""Speech and music: published memory and real-time factors, and laws of scaling."""

from dataclasses import replace

import numpy as np
import pytest

from gpuguide.errors import NotModelled
from gpuguide.estimate.audio import audio_memory, audio_speed, decoder_params
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
