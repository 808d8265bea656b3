"""Media scenarios as jobs: defaults of the pipeline, formats by any spelling, and what is refused in one sentence."""

import pytest

from gpuguide.catalog.catalog import load_catalog
from gpuguide.catalog.media import media, media_training
from gpuguide.errors import InvalidScenario, NotModelled, UnknownName
from gpuguide.spec.model import MediaModel
from gpuguide.spec.scenario import Scenario


def resolve(**values):
    catalog = load_catalog()
    scenario = Scenario.from_mapping(values)
    model = catalog.model(scenario.model)
    assert isinstance(model, MediaModel)
    return (media if scenario.is_media else media_training)(scenario, model, catalog)


DEFAULTS = [  # model, workload, width, height, frames, steps
    pytest.param("flux.1-dev", "image", 1024, 1024, 1, 28, id="FLUX"),
    pytest.param("stable-diffusion-v1-5", "image", 512, 512, 1, 50, id="SD 1.5"),
    pytest.param("wan2.1-t2v-14b", "video", 832, 480, 81, 50, id="Wan 2.1, wider than high"),
    pytest.param("hunyuanvideo", "video", 1280, 720, 129, 50, id="HunyuanVideo"),
]


@pytest.mark.parametrize(("name", "workload", "width", "height", "frames", "steps"), DEFAULTS)
def test_defaults_of_the_pipeline(name, workload, width, height, frames, steps):
    """Another pipeline's size, or height for width."""
    filled, job = resolve(model=name, workload=workload)

    assert (filled.width, filled.height, filled.frames, filled.steps) == (width, height, frames, steps)
    assert (job.width, job.height, job.frames, job.steps) == (width, height, frames, steps)


def test_what_is_given_stays():
    """A default over a value of the user."""
    filled, job = resolve(
        model="flux.1-dev", workload="image", width=768, height=512, steps=4, batch=2, items=10, quantization="bnb 4bit"
    )

    assert (filled.width, filled.height, filled.steps) == (768, 512, 4)
    assert (job.batch, job.items, job.quantization.name) == (2, 10, "nf4")


def test_offload_and_precision():
    """`all` keeps one component at a time; a recipe says what the pipeline computes in."""
    assert resolve(model="flux.1-dev", workload="image", offload="all")[1].offload == "model"
    assert resolve(model="flux.1-dev", workload="image")[1].precision == "bf16"
    assert resolve(model="flux.1-dev", workload="image", recipe="fp32")[1].precision == "fp32"
    assert resolve(model="flux.1-dev", workload="image", quantization="bf16")[1].quantization is None
    assert resolve(model="flux.1-dev", workload="image", quantization="fp8")[1].compiled


def test_speech_is_of_given_length():
    """A recording without length, or a transcriber without beams."""
    _, job = resolve(model="whisper-large-v3", workload="audio", audio_seconds=600)

    assert (job.task, job.audio_seconds, job.beams) == ("audio", 600.0, 5.0)


def test_fine_tuning():
    """Defaults of fine-tuning: recipe by method, adapters only where asked for."""
    full, job = resolve(model="sdxl", workload="full")
    assert (full.recipe, job.method, job.lora_rank) == ("amp-fp32-master", "full", 0.0)
    lora, job = resolve(model="flux.1-dev", workload="qlora", global_batch=8, items=500)
    assert (lora.quantization, job.method, job.batch, job.items) == ("nf4-dq", "lora", 8.0, 500.0)
    assert resolve(model="cogvideox-5b", workload="lora")[1].latents_precomputed


REFUSED = [
    pytest.param({"model": "flux.1-dev", "workload": "video"}, InvalidScenario, "made for image", id="wrong task"),
    pytest.param({"model": "flux.1-dev", "workload": "image", "frames": 16}, InvalidScenario, "one frame", id="frames"),
    pytest.param(
        {"model": "flux.1-dev", "workload": "image", "width": 32768, "height": 32768}, InvalidScenario, "made for",
        id="size",
    ),
    pytest.param(
        {"model": "flux.1-dev", "workload": "image", "offload": "optimizer"}, InvalidScenario, "no optimizer",
        id="optimizer offload",
    ),
    pytest.param(
        {"model": "flux.1-dev", "workload": "image", "quantization": "fp9"}, UnknownName, "did you mean", id="format"
    ),
    pytest.param({"model": "flux.1-dev", "workload": "pretrain"}, InvalidScenario, "fine-tuned", id="pre-training"),
    pytest.param({"model": "flux.1-dev", "workload": "lora", "lora_rank": 60000}, InvalidScenario, "wide", id="rank"),
    pytest.param({"model": "musicgen-small", "workload": "lora"}, NotModelled, "only diffusion", id="training music"),
    pytest.param({"model": "f5-tts", "workload": "audio"}, NotModelled, "not known are components", id="unknown parts"),
]  # fmt: skip


@pytest.mark.parametrize(("values", "error", "says"), REFUSED)
def test_impossible_scenarios_are_a_sentence(values, error, says):
    """Something else answered instead of a refusal that says what is allowed."""
    with pytest.raises(error, match=says):
        resolve(**values)
