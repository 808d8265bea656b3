"""Work and time of diffusion pipelines: tokens and FLOPs as counted elsewhere, published times, and laws of scaling."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuguide.errors import NotModelled
from gpuguide.estimate.diffusion import denoiser_pass, diffusion_speed, latent_tokens
from gpuguide.spec.plan import Plan
from tests.estimate.media_cases import OFFLOADED, PLAN, TOY, catalog, clip, job, model, nodes, typical

TOKENS = [  # expected, model, job
    pytest.param(4096, "flux.1-dev", job(), id="FLUX 1024, models.md"),
    pytest.param(17_550, "cogvideox-5b", clip(720, 480, 49), id="CogVideoX, models.md"),
    pytest.param(32_760, "wan2.1-t2v-14b", clip(832, 480, 81), id="Wan 2.1 480p, models.md"),
    pytest.param(118_800, "hunyuanvideo", clip(1280, 720, 129), id="HunyuanVideo 720p, models.md"),
    pytest.param(44_520, "mochi-1", clip(848, 480, 163), id="Mochi, models.md"),
    pytest.param(7392, "ltx-video", clip(704, 512, 161), id="LTX-Video, models.md"),
    pytest.param(4096, "stable-diffusion-v1-5", job(width=512.0, height=512.0), id="SD 1.5, positions of its U-Net"),
]
FLOPS = [  # TFLOP of multiplications and of attention per pass, model, job
    pytest.param(59.5, 14.9, "flux.1-dev", job(), id="FLUX 1024, traced class"),
    pytest.param(169.1, 163.1, "cogvideox-5b", clip(720, 480, 49), id="CogVideoX-5B, traced class"),
    pytest.param(1618.0, 10450.0, "hunyuanvideo", clip(1280, 720, 129), id="HunyuanVideo, traced class"),
    pytest.param(0.677, 0.126, "stable-diffusion-v1-5", job(width=512.0, height=512.0), id="SD 1.5, traced class"),
    pytest.param(5.98, 0.784, "sdxl", job(), id="SDXL, traced class"),
]
TIMES = [  # seconds, model, job, GPU, tolerance
    pytest.param(6.573, "flux.1-dev", job(), "H100-SXM", 0.3, id="FLUX, diffusers-torchao README"),
    pytest.param(4.209, "flux.1-dev", job(compiled=True), "H100-SXM", 0.3, id="FLUX compiled, the same"),
    pytest.param(243.3, "cogvideox-5b", clip(720, 480, 49), "A100-80GB-SXM", 0.3, id="CogVideoX-5B, the same"),
    pytest.param(3.31, "sdxl", job(steps=30.0), "A100-80GB-SXM", 0.3, id="SDXL, PyTorch blog 'SDXL 3x faster', SDPA"),
    pytest.param(540, "wan2.2-ti2v-5b", clip(1280, 704, 121), "RTX4090", 0.4, id="Wan 2.2 5B, its README: under 9 min"),
]


@pytest.mark.parametrize(("expected", "name", "asked"), TOKENS)
def test_latent_tokens(expected, name, asked):
    """Width for height, a forgotten patch, or frames not joined in groups would show here."""
    assert latent_tokens(model=model(name), job=asked) == expected


@pytest.mark.parametrize(("multiplications", "attention", "name", "asked"), FLOPS)
def test_work_of_a_pass(multiplications, attention, name, asked):
    """Facts of the catalog no longer add up to what the class itself works."""
    work = denoiser_pass(model=model(name), job=asked)

    assert work.matmul_flops / 1e12 == pytest.approx(multiplications, rel=0.01)
    # Attention to the prompt, a few tokens, is left out in U-Nets.
    assert work.attention_flops / 1e12 == pytest.approx(attention, rel=0.05)


@pytest.mark.parametrize(("seconds", "name", "asked", "gpu", "tolerance"), TIMES)
def test_published_times(seconds, name, asked, gpu, tolerance):
    """Estimates left the range of published runs."""
    plan = OFFLOADED if gpu == "RTX4090" else PLAN
    speed = diffusion_speed(
        model=model(name), job=asked, plan=plan, nodes=nodes(gpu), assumptions=catalog().assumptions
    )

    assert typical(speed.batch_s) == pytest.approx(seconds, rel=tolerance)


def seconds(asked, plan=PLAN, of=None, gpu="H100-SXM", count=1):
    speed = diffusion_speed(
        model=of or TOY, job=asked, plan=plan, nodes=nodes(gpu, count), assumptions=catalog().assumptions
    )
    return typical(speed.batch_s)


@given(st.integers(2, 64), st.integers(2, 64), st.integers(1, 100))
def test_larger_pictures_and_more_steps_take_longer(width, height, steps):
    """A size or a step that costs nothing."""
    small = job(width=width * 32.0, height=height * 32.0, steps=float(steps))

    assert seconds(replace(small, width=small.width * 2)) >= seconds(small)
    assert seconds(replace(small, steps=steps + 1.0)) > seconds(small)


def test_guidance_doubles_the_work():
    """Two passes per step counted as one."""
    once = replace(TOY, passes_per_step=1.0)
    large = job(width=2048.0, height=2048.0)

    assert seconds(large) / seconds(large, of=once) == pytest.approx(2.0, abs=0.15)


def test_sequence_parallel_is_faster_but_not_by_more_than_its_ranks():
    """Exchange between GPUs forgotten, or denoising not split."""
    video = clip(1280, 720, 129)
    alone = seconds(video, of=model("hunyuanvideo"), count=8)
    shared = seconds(video, Plan(context_parallel=8.0), of=model("hunyuanvideo"), count=8)

    assert 4.0 < alone / shared < 8.0


def test_sequence_parallel_as_published():
    """Scaling of HunyuanVideo over 2, 4 and 8 GPUs. Source: its README, 1904, 934, 514 and 338 s."""
    video = clip(1280, 720, 129)
    times = [
        seconds(video, Plan(context_parallel=ranks), of=model("hunyuanvideo"), count=8)
        for ranks in (1.0, 2.0, 4.0, 8.0)
    ]

    np.testing.assert_allclose(times[0] / np.array(times), [1.0, 2.04, 3.70, 5.64], rtol=0.25)


def test_offload_costs_time():
    """Components carried over the host link for nothing."""
    assert seconds(job(), OFFLOADED) > seconds(job())
    assert seconds(replace(job(), offload="sequential"), OFFLOADED) > seconds(job(), OFFLOADED)


def test_sequential_offload_streams_the_denoiser_in_every_pass():
    """Time over that of one component at a time is the denoiser's bytes over the host link, less the one copy."""
    asked, shape, known = job(), nodes("RTX4090"), catalog().assumptions
    host = shape.pcie_bytes_per_s[0] * float(known.value("media_host_copy_share"))
    flux = model("flux.1-dev")
    once = flux.component_params("denoiser") * 2 / host

    def batch_s(plan):
        return typical(diffusion_speed(model=flux, job=asked, plan=plan, nodes=shape, assumptions=known).batch_s)

    assert batch_s(Plan(offload=3.0)) - batch_s(OFFLOADED) == pytest.approx((asked.steps - 1) * once, rel=1e-6)


def test_arrays_answer_as_scalars():
    """A formula that mixes the plan axis with the node axis."""
    plans = Plan(context_parallel=np.array([[1.0], [2.0]]), data_parallel=np.array([[8.0], [4.0]]))
    shapes = nodes("H100-SXM", 8)
    both = diffusion_speed(model=TOY, job=job(), plan=plans, nodes=shapes, assumptions=catalog().assumptions)

    assert np.shape(both.batch_s) == (3, 2, 1)
    for place, (ranks, copies) in enumerate(((1.0, 8.0), (2.0, 4.0))):
        one = diffusion_speed(
            model=TOY, job=job(), plan=Plan(context_parallel=ranks, data_parallel=copies), nodes=shapes,
            assumptions=catalog().assumptions,
        )  # fmt: skip
        np.testing.assert_allclose(both.batch_s[:, place], np.asarray(one.batch_s)[:, 0])
        np.testing.assert_allclose(both.items_per_s[:, place], np.asarray(one.items_per_s)[:, 0])


def test_a_band_is_in_order():
    """The least estimate above the typical one."""
    speed = diffusion_speed(model=TOY, job=job(), plan=PLAN, nodes=nodes(), assumptions=catalog().assumptions)

    assert np.all(np.diff(np.asarray(speed.batch_s), axis=0) >= 0)
    assert np.all(np.diff(np.asarray(speed.items_per_s), axis=0) <= 0)


@pytest.mark.parametrize(
    ("broken", "says"),
    [
        (replace(TOY, spatial_down=None), "spatial factor"),
        (replace(TOY, denoiser_layers=None), "layers and width"),
        (replace(TOY, denoiser_layers=None, denoiser_type="unet"), "channels and attention of its U-Net"),
        (replace(TOY, components=TOY.components[1:]), "denoiser's parameter count"),
    ],
)
def test_unknown_pipelines_are_refused(broken, says):
    """A guess instead of a sentence that says which facts are missing."""
    with pytest.raises(NotModelled, match=says):
        denoiser_pass(model=broken, job=job())
