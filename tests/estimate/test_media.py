"""What must be known of a media model, told by name when it is not."""

from dataclasses import replace

import pytest

from gpuguide.errors import NotModelled
from gpuguide.estimate.diffusion import denoiser_pass
from gpuguide.estimate.media import check_modelled, is_diffusion
from gpuguide.estimate.media_training import saved_bytes
from tests.estimate.media_cases import TOY, catalog, job, model

VAE = TOY.components[2]
MISSING = [
    pytest.param({"denoiser_type": "unet"}, "channels and attention of its U-Net", id="U-Net that was not traced"),
    pytest.param({"denoiser_layers": None}, "layers and width of its denoiser", id="depth"),
    pytest.param({"denoiser_hidden": None}, "layers and width of its denoiser", id="width"),
    pytest.param({"spatial_down": None}, "the factor by which its VAE shrinks", id="size of a latent"),
    pytest.param(
        {"components": (*TOY.components[:2], replace(VAE, decode_values_per_pixel=None))}, "channels of its VAE",
        id="peak of the decode",
    ),
    pytest.param(
        {"denoiser_hidden": None, "spatial_down": None}, "width of its denoiser and the factor", id="two at once"
    ),
]  # fmt: skip


@pytest.mark.parametrize(("change", "words"), MISSING)
def test_what_is_not_known_is_named(change, words):
    """A typical value in its place would pass for a fact about this model."""
    check_modelled(TOY)
    with pytest.raises(NotModelled, match=words):
        check_modelled(replace(TOY, **change))


def test_a_music_model_needs_its_token_rate():
    """Without it a recording has no number of steps."""
    music = model("musicgen-small")
    check_modelled(music)
    assert not is_diffusion(music)
    with pytest.raises(NotModelled, match="audio tokens per second"):
        check_modelled(replace(music, components=tuple(replace(part, tokens_per_s=0.0) for part in music.components)))


def test_an_untraced_unet_is_not_trained():
    """Its activations are not those of a transformer of some width."""
    unet = replace(TOY, denoiser_type="unet", flops_per_token=1e8, attention_flops_per_pair=1e3, denoiser_layers=None)
    trained = job(
        method="lora", lora_rank=16.0, recipe=catalog().recipes["pure-bf16"], optimizer=catalog().optimizers["adamw"]
    )
    work = denoiser_pass(model=unet, job=trained)
    with pytest.raises(NotModelled, match="were not traced"):
        saved_bytes(model=unet, job=trained, work=work)
