"""Memory of diffusion pipelines by phase: published peaks, what offload and quantisation save, and laws of scaling."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuguide.errors import NotModelled
from gpuguide.estimate.diffusion_memory import (
    component_bytes,
    decode_bytes,
    diffusion_memory,
    diffusion_phases,
    fused_bytes,
    largest_module_bytes,
)
from gpuguide.estimate.results import PARTS, PHASES
from gpuguide.spec.plan import Plan
from gpuguide.units import GB, GIB
from tests.estimate.media_cases import OFFLOADED, PLAN, TOY, catalog, clip, job, model, typical

FP8 = "fp8"
PEAKS = [  # GiB, model, job, plan
    pytest.param(33.85, "flux.1-dev", job(), PLAN, id="FLUX, diffusers-torchao README"),
    pytest.param(39.49, "flux.1-dev", job(batch=4.0), PLAN, id="FLUX batch 4, the same"),
    pytest.param(61.55, "flux.1-dev", job(batch=16.0), PLAN, id="FLUX batch 16, the same"),
    pytest.param(31.75, "cogvideox-5b", clip(720, 480, 49), PLAN, id="CogVideoX-5B, the same"),
    pytest.param(24.51, "cogvideox-2b", clip(720, 480, 49, precision="fp16"), PLAN, id="CogVideoX-2B, the same"),
    pytest.param(9.0, "omnigen-v1", job(), PLAN, id="OmniGen, diffusers docs"),
    pytest.param(45.0, "hunyuanvideo", clip(960, 544, 129), PLAN, id="HunyuanVideo, its README"),
]


def memory(asked, plan=PLAN, of=None):
    return diffusion_memory(model=of or TOY, job=asked, plan=plan, assumptions=catalog().assumptions)


def quantised(asked, name):
    return replace(asked, quantization=catalog().weight_formats[name])


@pytest.mark.parametrize(("gib", "name", "asked", "plan"), PEAKS)
def test_published_peaks(gib, name, asked, plan):
    """Estimates left the range of published runs, whose counters do not see the CUDA context."""
    found = memory(asked, plan, model(name))

    assert typical(found.total - found.reserved) / GIB == pytest.approx(gib, rel=0.12)


def test_all_components_count():
    """Text encoder or VAE forgotten: 34 GB for Wan 2.2 TI2V-5B as published, of which its denoiser and VAE are fp32."""
    wan = model("wan2.2-ti2v-5b")
    phases = diffusion_phases(model=wan, job=clip(1280, 704, 121), plan=PLAN, assumptions=catalog().assumptions)
    stored = sum(part.params * (4 if part.role in ("denoiser", "vae") else 2) for part in wan.components)

    assert stored / GB == pytest.approx(34.0, rel=0.02)
    for phase in phases.values():
        assert typical(phase.weights) >= 2 * wan.params


@pytest.mark.parametrize("card", ["RTX4090", "RTX3090"])
def test_flux_on_24_gb(card):
    """FLUX.1-dev in BF16 does not fit 24 GB, and does with quantisation or with offload."""
    usable = catalog().gpus[card].memory_bytes
    flux = model("flux.1-dev")

    assert typical(memory(job(), of=flux).total) > usable
    assert typical(memory(job(), OFFLOADED, flux).total) <= usable
    for name in ("fp8", "nf4", "int8-weight"):
        assert typical(memory(quantised(job(), name), of=flux).total) <= usable


@given(st.integers(1, 8), st.integers(4, 64), st.integers(4, 64))
def test_more_needs_no_less(batch, width, height):
    """A larger picture or batch that needs less memory."""
    small = job(width=32.0 * width, height=32.0 * height, batch=float(batch))

    for larger in (replace(small, width=small.width * 2), replace(small, batch=batch + 1.0)):
        assert typical(memory(larger).total) >= typical(memory(small).total)


def test_parts_sum_to_the_total():
    """A part that is counted in the total alone, or twice."""
    found = memory(job())

    np.testing.assert_allclose(found.total, sum(np.asarray(getattr(found, part)) for part in PARTS))


def test_the_fullest_phase_decides():
    """The peak below one of the phases."""
    phases = diffusion_phases(model=TOY, job=job(), plan=PLAN, assumptions=catalog().assumptions)
    found = memory(job())

    assert typical(found.total) == max(typical(phase.total) for phase in phases.values())
    assert set(phases) == {"encode", "denoise", "decode"}
    assert PHASES[int(typical(found.phase))] == "decode"


def test_each_saving_saves():
    """Offload, tiling, slicing, quantisation or sharing a clip that frees nothing."""
    flux, video = model("flux.1-dev"), model("cogvideox-5b")
    four = job(batch=4.0)
    full = typical(memory(four, of=flux).total)
    for saving in (
        memory(four, OFFLOADED, flux),
        memory(replace(four, vae_tiling=True), of=flux),
        memory(replace(four, vae_slicing=True), of=flux),
        memory(quantised(four, FP8), of=flux),
        memory(replace(four, encoders_resident=False), of=flux),
    ):
        assert typical(saving.total) < full
    sequential = memory(replace(clip(720, 480, 49), offload="sequential"), OFFLOADED, video)
    assert typical(sequential.total) < typical(memory(clip(720, 480, 49), OFFLOADED, video).total)


def test_sharing_a_clip_splits_its_activations():
    """Sequence parallel that every GPU pays for in full."""
    video = model("hunyuanvideo")
    asked = clip(1280, 720, 129)

    assert typical(memory(asked, Plan(context_parallel=8.0), video).total) < typical(memory(asked, of=video).total)


def test_quantising_on_the_gpu_needs_room_for_both():
    """The moment of loading forgotten: FLUX int8 peaks at 31.6 GiB. Source: diffusers-torchao README."""
    asked = replace(quantised(job(), "int8-weight"), quantizes_on_gpu=True, quantizes_encoders=False)
    found = memory(asked, of=model("flux.1-dev"))

    assert typical(found.total - found.reserved) / GIB == pytest.approx(31.6, rel=0.05)
    assert PHASES[int(typical(found.phase))] == "load"


def test_a_vae_of_unknown_channels_is_refused():
    """A decode peak made up."""
    plain = tuple(replace(part, decode_values_per_pixel=None) for part in TOY.components)
    with pytest.raises(NotModelled, match="channels of its VAE"):
        memory(job(), of=replace(TOY, components=plain))


SEQUENTIAL = Plan(offload=3.0)
MODULES = [  # parameters of the denoiser's largest module
    pytest.param("flux.1-dev", 18_432 * 3072, id="FLUX, AdaLayerNormZero linear 3072 to 18432"),
    pytest.param("stable-diffusion-xl-base-1.0", 2560 * 1280 * 9, id="SDXL, 3 x 3 convolution 2560 to 1280"),
]


@pytest.mark.parametrize(("name", "params"), MODULES)
def test_largest_module(name, params):
    """Sequential offload holds one module: the largest of the published class."""
    assert largest_module_bytes(model=model(name), job=job()) == pytest.approx(2 * params, rel=0.01)


def test_each_offload_holds_less():
    """One module is less than one component, which is less than all; activations stay what they are."""
    flux = model("flux.1-dev")
    ways = [
        diffusion_phases(model=flux, job=job(), plan=plan, assumptions=catalog().assumptions)
        for plan in (PLAN, OFFLOADED, SEQUENTIAL)
    ]
    for phase in ("encode", "denoise"):
        weights = [typical(way[phase].weights) for way in ways]
        assert weights == sorted(weights, reverse=True)
        assert weights[2] < 0.03 * weights[0]
        assert typical(ways[2][phase].activations) == typical(ways[0][phase].activations)


def test_plan_and_job_say_the_same():
    """Offload chosen by the search, and offload that a published run states."""
    by_plan = memory(job(), SEQUENTIAL)
    by_job = memory(replace(job(), offload="sequential"), OFFLOADED)
    assert typical(by_plan.total) == typical(by_job.total)


# ---- every part counted by hand --------------------------------------------------------------------------------------

VAE = TOY.components[2]
PIXELS = 1024 * 1024
DECODES = [  # values alive per pixel of the picture, 1,024 of them where all of it is decoded at once
    pytest.param(1024, VAE, job(), id="one picture"),
    pytest.param(3 * 1024, VAE, job(batch=3.0), id="three at once"),
    pytest.param(1024, VAE, job(batch=3.0, vae_slicing=True), id="three in slices"),
    pytest.param(5 * 1024, VAE, clip(1024, 1024, 5), id="five frames"),
    pytest.param(4 * 1024, replace(VAE, decode_frames=4.0), clip(1024, 1024, 5), id="frames in groups of four"),
    pytest.param(2 * 1024, replace(VAE, dtype="fp32"), job(), id="in fp32"),
    pytest.param(1024 / 4 + 3, VAE, job(vae_tiling=True), id="tiles beside the finished picture"),
    pytest.param(1024 / 4 + 3, replace(VAE, tiled=True), job(), id="tiled by itself"),
    pytest.param((1024 / 4 + 3) * 5, VAE, clip(1024, 1024, 5, vae_tiling=True), id="tiles of a clip"),
    pytest.param((1024 / 4 + 3) * 2, VAE, clip(1024, 1024, 2, vae_tiling=True), id="two frames are a clip"),
]


@pytest.mark.parametrize(("values", "part", "asked"), DECODES)
def test_decoding_by_hand(values, part, asked):
    """Pixels, frames, batch or tiles counted otherwise at the moment that is often the fullest."""
    of = replace(TOY, components=(*TOY.components[:2], part))

    assert float(decode_bytes(model=of, job=asked)) == pytest.approx(values * PIXELS * 2)


def test_a_tile_is_no_smaller_than_512_pixels():
    """A quarter of 768 x 768 would be 384 wide; pipelines tile at 512 and up."""
    small = job(width=768.0, height=768.0, vae_tiling=True)
    assert float(decode_bytes(model=TOY, job=small)) == pytest.approx((1024 * 512 * 512 + 3 * 768 * 768) * 2)
    assert float(decode_bytes(model=TOY, job=replace(small, width=512.0, height=512.0))) == 1024 * 512 * 512 * 2


def parts(asked, plan=PLAN, of=TOY):
    phases = diffusion_phases(model=of, job=asked, plan=plan, assumptions=catalog().assumptions)
    return {name: (typical(phase.weights) / 1.01, typical(phase.activations)) for name, phase in phases.items()}


def test_phases_by_hand():
    """Weights in two bytes, 1 % beyond them; prompts of 256 tokens; 15 widths alive a token; four copies of latents."""
    found = parts(job(batch=2.0))
    latents = 4 * 16 * 2**2 * 4096 * 2

    for weights, _ in found.values():
        assert weights == pytest.approx(3e9 * 2)
    assert found["encode"][1] == 2 * 2 * 256 * 12 * 4096 * 2
    assert found["denoise"][1] == pytest.approx(2 * 2 * 15 * 2 * 2048 * 4096 + latents)
    assert found["decode"][1] == pytest.approx(2 * 1024 * PIXELS * 2 + latents)
    one_by_one = parts(job(batch=2.0), of=replace(TOY, passes_one_by_one=True))
    assert one_by_one["denoise"][1] == pytest.approx(2 * 15 * 2 * 2048 * 4096 + latents)
    shared = parts(job(batch=2.0), Plan(context_parallel=4.0))
    assert shared["denoise"][1] == pytest.approx(2 * 2 * 15 * 2 * 2048 * 4096 / 4 + latents)


def test_offload_by_hand():
    """One component at a time, or one module: of the denoiser 6 x width squared, of the encoder a tenth."""
    component, module = parts(job(), OFFLOADED), parts(job(), Plan(offload=3.0))

    assert [component[name][0] for name in ("encode", "denoise", "decode")] == pytest.approx([1.8e9, 4e9, 2e8])
    assert module["denoise"][0] == pytest.approx(6 * 2048**2 * 2)
    assert module["encode"][0] == pytest.approx(0.1 * 0.9e9 * 2)
    assert module["decode"][0] == pytest.approx(2e8)


def test_fused_projections_by_hand():
    """Query, key and value of 20 layers once more, in the width of the weights."""
    fused = job(fused_qkv=True)
    assert fused_bytes(model=TOY, job=fused) == 3 * 20 * 2048**2 * 2
    assert fused_bytes(model=TOY, job=job()) == 0.0
    width = catalog().weight_formats["fp8"].bytes_per_weight
    assert fused_bytes(model=TOY, job=quantised(fused, FP8)) == 3 * 20 * 2048**2 * width
    assert parts(fused)["denoise"][0] == pytest.approx(3e9 * 2 + 3 * 20 * 2048**2 * 2)
    assert parts(fused, OFFLOADED)["denoise"][0] == pytest.approx(2e9 * 2 + 3 * 20 * 2048**2 * 2)


WIDTHS = [  # bytes a weight, part, quantises encoders
    pytest.param("fp8", TOY.components[0], False, id="the denoiser is quantised"),
    pytest.param("fp8", replace(TOY.components[1], params=4.7e9), True, id="a large text encoder too"),
    pytest.param(None, replace(TOY.components[1], params=4.7e9), False, id="unless asked not to"),
    pytest.param(None, replace(TOY.components[1], params=0.12e9), True, id="a small one is not"),
    pytest.param(None, VAE, True, id="a VAE never is"),
]


@pytest.mark.parametrize(("format_name", "part", "encoders"), WIDTHS)
def test_what_is_quantised(format_name, part, encoders):
    """4-bit text encoders that stay in 16 bit, or a VAE that overflows."""
    asked = replace(quantised(job(), FP8), quantizes_encoders=encoders)
    width = 2.0 if format_name is None else catalog().weight_formats[format_name].bytes_per_weight

    assert component_bytes(part=part, job=asked) == part.params * width


def test_loading_in_16_bit_by_hand():
    """Quantised on the GPU: all of it in two bytes at first; one component where they are offloaded."""
    asked = replace(quantised(job(), FP8), quantizes_on_gpu=True)

    assert parts(asked)["load"] == pytest.approx((3e9 * 2, 0.0))
    assert parts(asked, OFFLOADED)["load"] == pytest.approx((2e9 * 2, 0.0))
    least = diffusion_phases(model=TOY, job=asked, plan=PLAN, assumptions=catalog().assumptions)["load"]
    assert typical(least.weights, 0) < typical(least.weights)
