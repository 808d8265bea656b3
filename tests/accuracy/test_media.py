"""Scores of media estimates: the promised accuracy on published runs, and rows that say too little."""

import pandas as pd
import pytest

from gpuguide.accuracy.media import SCORERS
from gpuguide.accuracy.media_rows import NotScoreable, diffusion_job, format_of, media_model_of
from gpuguide.accuracy.table import SCORED, summarise
from gpuguide.catalog.catalog import load_catalog

PROMISED = [  # table, median error, 90th percentile, share within the band, high over low
    pytest.param("diffusion_inference:memory", 0.10, 0.25, 0.80, 1.5, id="diffusion memory"),
    pytest.param("diffusion_inference:speed", 0.20, 0.50, 0.80, 2.5, id="diffusion speed"),
    pytest.param("audio_inference:memory", 0.15, 0.30, 0.80, 2.0, id="audio memory"),
    pytest.param("audio_inference:speed", 0.25, 0.50, 0.80, 3.0, id="audio speed"),
    pytest.param("diffusion_training", 0.15, 0.40, 0.80, 1.8, id="diffusion training"),
]


@pytest.fixture(scope="module")
def catalog():
    return load_catalog()


def scored(table, catalog):
    frame = pd.read_csv(catalog.folder / "measurements" / f"{table.split(':')[0]}.csv")
    return SCORERS[table](frame, catalog)


@pytest.mark.parametrize(("table", "median", "p90", "within", "ratio"), PROMISED)
def test_promised_accuracy(table, median, p90, within, ratio, catalog):
    """A change that worsens the estimates beyond what the accuracy page promises."""
    found = scored(table, catalog)
    score = summarise(found)

    assert tuple(found.columns) == SCORED
    assert score.median_abs_error <= median
    assert score.p90_abs_error <= p90
    assert score.within_band >= within
    assert score.median_band_ratio <= ratio


@pytest.mark.parametrize("table", sorted(SCORERS))
def test_most_rows_with_a_measurement_are_scored(table, catalog):
    """Rows left out because they are inconvenient."""
    found = scored(table, catalog)
    reasons = ("no ", "not a measurement", "a stated requirement", "GPU not stated", "the recipe", "editing")
    could = found[~found["skip"].str.startswith(reasons)]

    assert (could["skip"] == "").mean() >= 0.8


def test_names_in_free_spelling(catalog):
    """Published spellings that find no pipeline."""
    for name, found in {
        "ConsisID (CogVideoX-5B based)": "consisid",
        "distil-whisper-large-v3": "distil-large-v3",
        "SD 1.5": "stable-diffusion-v1-5",
        "FLUX.1 dev": "flux.1-dev",
        "SD3.5-large": "stable-diffusion-3.5-large",
    }.items():
        assert media_model_of(name, catalog).name == found
    with pytest.raises(NotScoreable):
        media_model_of("llama-3.1-8b", catalog)


@pytest.mark.parametrize(
    ("words", "bits"),
    [("int8wo", 8), ("fp8dqrow", 8), ("int4dq", 9), ("bnb-nf4/4bit", 4.5), ("fp6_e3m2", 6), ("", None), ("none", None)],
)
def test_formats_in_free_spelling(words, bits):
    """A quantised row scored as 16 bit, or the other way round."""
    found = format_of(words)

    assert (found and found.bits_per_weight) == bits


def test_options_in_free_text(catalog):
    """Offload, tiling or compilation overlooked."""
    flux = catalog.model("flux.1-dev")
    row = {"model": "FLUX.1-dev", "precision": "bf16", "task": "text2image", "batch": 2, "notes": None}
    job = diffusion_job({**row, "offload_and_opts": "sequential_cpu_offload + vae tiling, torch.compile"}, flux)
    assert (job.offload, job.vae_tiling, job.compiled, job.batch) == ("sequential", True, True, 2)
    job = diffusion_job({**row, "offload_and_opts": "compile=False fuse_qkv=True"}, flux)
    assert (job.offload, job.compiled, job.fused_qkv) == ("none", False, True)
    with pytest.raises(NotScoreable):
        diffusion_job({**row, "offload_and_opts": "documented low-memory recipe"}, flux)
