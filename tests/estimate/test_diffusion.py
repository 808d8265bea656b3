"""Work and time of diffusion pipelines: tokens and FLOPs as counted elsewhere, published times, and laws of scaling."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuguide.errors import NotModelled
from gpuguide.estimate.compute import matmul_flops_per_s, memory_bytes_per_s
from gpuguide.estimate.diffusion import decode_s, denoiser_pass, diffusion_speed, latent_tokens
from gpuguide.estimate.network import all_to_all_s
from gpuguide.spec.model import Component
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


# ---- every part counted by hand --------------------------------------------------------------------------------------

KNOWN = catalog().assumptions
VAE = TOY.components[2]
UNET = replace(
    TOY, denoiser_type="unet", denoiser_layers=None, denoiser_hidden=None, head_dim=64.0, patch=1.0,
    flops_per_token=1e8, attention_flops_per_pair=16_000.0, traffic_bytes_per_token=4e5, live_bytes_per_token=2e4,
    kernels=700.0,
)  # fmt: skip


def test_work_of_an_untraced_pass_by_hand():
    """1024 x 1024: 64 x 64 tokens; 2 FLOP for 86 % of 2e9 parameters, 4 x 20 x 2048 a pair, 110 and 15 widths moved."""
    work = denoiser_pass(model=TOY, job=job())

    assert work.tokens == 64 * 64
    assert work.matmul_flops == pytest.approx(2 * 0.86 * 2e9 * 4096)
    assert work.attention_flops == 4 * 20 * 2048 * 4096**2
    assert work.traffic_bytes == 110 * 2 * 20 * 2048 * 4096
    assert work.live_bytes == 15 * 2 * 2048 * 4096
    assert work.kernels == 60 * 20


def test_text_and_frames_by_hand():
    """Joint text tokens are in the sequence; two experts take turns; attention may stay within a frame."""
    joint = denoiser_pass(model=replace(TOY, joint_text_tokens=512.0), job=job())
    assert joint.matmul_flops == pytest.approx(2 * 0.86 * 2e9 * (4096 + 512))
    assert joint.attention_flops == 4 * 20 * 2048 * (4096 + 512) ** 2
    assert joint.traffic_bytes == 110 * 2 * 20 * 2048 * (4096 + 512)
    turns = replace(TOY, components=(*TOY.components, Component(role="denoiser_2", params=2e9)))
    assert denoiser_pass(model=turns, job=job()) == denoiser_pass(model=TOY, job=job())
    within = denoiser_pass(model=replace(TOY, attention_within_frame=True), job=clip(1024, 1024, 5))
    assert within.attention_flops == pytest.approx(4 * 20 * 2048 * (5 * 4096) ** 2 / 5)


def rates(gpu, precision="bf16"):
    """Multiplications, attention and bytes per second that the speed is built from."""
    shape = nodes(gpu)
    plain = matmul_flops_per_s(nodes=shape, precision=precision)
    moved = memory_bytes_per_s(shape, 1.0) * KNOWN["compute_memory_share"]
    return typical(plain * KNOWN["media_matmul_share"]), typical(plain), typical(moved)


STEPS = [  # model, GPU, share of the multiplications' rate that attention reaches
    pytest.param(TOY, "H100-SXM", 0.45 * 1.1, id="transformer on Hopper"),
    pytest.param(TOY, "RTX4090", 0.8 * 1.1, id="transformer on Ada"),
    pytest.param(replace(TOY, head_dim=64.0), "A100-80GB-SXM", 0.65 * 0.65 * 1.1, id="narrow heads on Ampere"),
    pytest.param(UNET, "H100-SXM", 0.45 * 0.65 * 1.1, id="U-Net, a quarter slower"),
]


@pytest.mark.parametrize(("of", "gpu", "attention"), STEPS)
def test_a_step_by_hand(of, gpu, attention):
    """Two passes for guidance, of multiplications, attention and small kernels one after the other."""
    asked = job(batch=2.0, steps=7.0)
    work, (multiply, plain, moved) = denoiser_pass(model=of, job=asked), rates(gpu)
    slow = 1.25 if of.denoiser_type == "unet" else 1.0
    one = slow * work.matmul_flops / multiply + work.attention_flops / (plain * attention) + work.traffic_bytes / moved
    speed = diffusion_speed(model=of, job=asked, plan=PLAN, nodes=nodes(gpu), assumptions=KNOWN)

    assert typical(speed.denoise_s) == pytest.approx(7 * 2 * 2 * one)
    assert typical(speed.batch_s) == pytest.approx(
        typical(speed.encode_s) + typical(speed.denoise_s) + typical(speed.decode_s)
    )
    assert typical(speed.items_per_s) == pytest.approx(2 / typical(speed.batch_s))


def test_a_compiled_step_by_hand():
    """Fused kernels move 42 % of the bytes; a tiny picture waits for 35 % of the launches."""
    asked = job(compiled=True, steps=1.0)
    work, (multiply, plain, moved) = denoiser_pass(model=TOY, job=asked), rates("H100-SXM")
    one = work.matmul_flops / multiply + work.attention_flops / (plain * 0.45 * 1.1) + 0.42 * work.traffic_bytes / moved

    def denoise_s(of):
        return typical(diffusion_speed(model=TOY, job=of, plan=PLAN, nodes=nodes(), assumptions=KNOWN).denoise_s)

    assert denoise_s(asked) == pytest.approx(2 * one)
    assert denoise_s(replace(asked, width=64.0, height=64.0)) == pytest.approx(1200 * 0.35 * 2.5e-5)
    assert denoise_s(job(width=64.0, height=64.0, steps=1.0)) == pytest.approx(1200 * 2.5e-5)


def test_unfused_quantisation_by_hand():
    """Outputs are rescaled, 80 % more bytes; every weight is widened, 12 bytes of traffic each."""
    asked = job(steps=1.0, quantization=catalog().weight_formats["int8-weight"])
    work, (multiply, plain, moved) = denoiser_pass(model=TOY, job=asked), rates("H100-SXM")
    one = work.matmul_flops / multiply + work.attention_flops / (plain * 0.45 * 1.1) + 1.8 * work.traffic_bytes / moved
    speed = diffusion_speed(model=TOY, job=asked, plan=PLAN, nodes=nodes(), assumptions=KNOWN)

    assert typical(speed.denoise_s) == pytest.approx(2 * one + 12 * 2e9 / moved)


def test_encoding_by_hand():
    """256 tokens through text and image encoders for both passes, no faster than their weights are read."""
    with_image = replace(TOY, components=(*TOY.components, Component(role="image_encoder", params=0.6e9)))
    multiply, _, moved = rates("H100-SXM")

    def encode_s(batch):
        speed = diffusion_speed(model=with_image, job=job(batch=batch), plan=PLAN, nodes=nodes(), assumptions=KNOWN)
        return typical(speed.encode_s)

    assert encode_s(64.0) == pytest.approx(64 * 2 * 2 * 1.5e9 * 256 / multiply)
    assert encode_s(0.01) == pytest.approx(1.5e9 * 2 / moved)


def test_offload_by_hand():
    """All components cross the host link once for every batch, at half of its rate."""
    host = nodes().pcie_bytes_per_s[0] * 0.5

    def encode_s(plan, **change):
        speed = diffusion_speed(model=TOY, job=job(**change), plan=plan, nodes=nodes(), assumptions=KNOWN)
        return typical(speed.encode_s)

    assert encode_s(OFFLOADED) - encode_s(PLAN) == pytest.approx(3e9 * 2 / host)
    small = {"quantization": catalog().weight_formats["fp8"], "quantizes_encoders": False}
    width = catalog().weight_formats["fp8"].bytes_per_weight
    assert encode_s(OFFLOADED, **small) - encode_s(PLAN, **small) == pytest.approx((2e9 * width + 1e9 * 2) / host)
    modules = encode_s(Plan(offload=3.0)) - encode_s(PLAN)
    assert modules == pytest.approx(1e9 * 2 / host)  # the denoiser is streamed instead


DECODES = [  # seconds of multiplications over those of 1024 x 1024 pixels, decoder, job
    pytest.param(1.0, VAE, job(), id="one picture"),
    pytest.param(1.5, VAE, job(vae_tiling=True), id="overlapping tiles"),
    pytest.param(1.5, replace(VAE, tiled=True), job(), id="tiled by itself"),
    pytest.param(2.0, replace(VAE, decode_frames=4.0), job(), id="convolutions over frames too"),
    pytest.param(5.0, VAE, clip(1024, 1024, 5), id="five frames"),
]


@pytest.mark.parametrize(("times", "part", "asked"), DECODES)
def test_decoding_by_hand(times, part, asked):
    """1e7 FLOP a pixel at 40 % of the rate; a decoder that must run in fp32 multiplies at the TF32 rate."""
    of = replace(TOY, components=(*TOY.components[:2], part))
    _, plain, _ = rates("H100-SXM")
    _, tf32, _ = rates("H100-SXM", "tf32")
    wide = replace(TOY, components=(*TOY.components[:2], replace(part, dtype="fp32")))
    decode = [decode_s(model=each, job=asked, nodes=nodes(), assumptions=KNOWN) for each in (of, wide)]

    assert typical(decode[0]) == pytest.approx(times * 1e7 * 1024**2 / (plain * 0.4))
    assert typical(decode[1]) == pytest.approx(times * 1e7 * 1024**2 / (tf32 * 0.4))
    moving = replace(TOY, components=(replace(part, decode_traffic_bytes_per_pixel=2e4),))
    _, _, moved = rates("H100-SXM")
    overlap = 1.5 if asked.vae_tiling or part.tiled else 1.0
    more = typical(decode_s(model=moving, job=asked, nodes=nodes(), assumptions=KNOWN)) - typical(decode[0])
    assert more == pytest.approx(2e4 * 1024**2 * asked.frames * overlap / moved)


def test_exchange_of_a_shared_clip_by_hand():
    """Three exchanges before and one after the attention of each of 20 layers, for both passes."""
    shape, asked = nodes("H100-SXM", 8), job(steps=1.0, width=2048.0, height=2048.0)
    once = all_to_all_s(message_bytes=2 * 16_384 / 4 * 2048 * 2, ranks=np.float64(4.0), nodes=shape)

    def denoise_s(ranks):
        plan = Plan(context_parallel=ranks)
        return typical(diffusion_speed(model=TOY, job=asked, plan=plan, nodes=shape, assumptions=KNOWN).denoise_s)

    assert denoise_s(np.float64(4.0)) == pytest.approx(denoise_s(1.0) / 4 + 4 * 20 * typical(once))


BOUNDS = [
    pytest.param("compute", job(width=2048.0, height=2048.0), PLAN, id="a large picture"),
    pytest.param("overhead", job(width=64.0, height=64.0), PLAN, id="a tiny one"),
    pytest.param("host link", job(width=64.0, height=64.0), Plan(offload=3.0), id="weights anew in every pass"),
]


@pytest.mark.parametrize(("bound", "asked", "plan"), BOUNDS)
def test_what_a_step_waits_for(bound, asked, plan):
    """A label that names another cause sends the reader to buy the wrong thing."""
    speed = diffusion_speed(model=TOY, job=asked, plan=plan, nodes=nodes(), assumptions=KNOWN)

    assert set(np.unique(speed.bound.astype(str))) == {bound}
