"""Jobs, constants and machines that tests of media estimates share."""

from functools import cache

import numpy as np

from gpuguide.catalog.catalog import Catalog
from gpuguide.catalog.catalog import load_catalog as _load
from gpuguide.spec.job import MediaJob
from gpuguide.spec.model import Component, MediaModel
from gpuguide.spec.plan import Plan


@cache
def catalog() -> Catalog:
    return _load()


def model(name: str) -> MediaModel:
    found = catalog().model(name)
    assert isinstance(found, MediaModel)
    return found


def job(**changes) -> MediaJob:
    base = {
        "task": "image", "width": 1024.0, "height": 1024.0, "frames": 1.0, "steps": 28.0, "batch": 1.0, "items": 100.0,
    }  # fmt: skip
    return MediaJob(**{**base, **changes})


def clip(width: float, height: float, frames: float, **changes) -> MediaJob:
    return job(task="video", width=width, height=height, frames=frames, **{"steps": 50.0, **changes})


def nodes(gpu: str = "H100-SXM", count: int = 1):
    return catalog().nodes(gpu, count)


def typical(value, band: int = 1) -> float:
    array = np.asarray(value, dtype=np.float64)
    return float(np.broadcast_to(array, (3, 1, 1))[band, 0, 0])


PLAN = Plan()
OFFLOADED = Plan(offload=2.0)

TOY = MediaModel(
    name="toy",
    kind="diffusion",
    task="image",
    source="made for tests",
    params=3e9,
    components=(
        Component(role="denoiser", params=2e9),
        Component(role="text_encoder", params=0.9e9),
        Component(role="vae", params=0.1e9, decode_flops_per_pixel=1e7, decode_values_per_pixel=1024.0),
    ),
    denoiser_type="transformer",
    denoiser_layers=20.0,
    denoiser_hidden=2048.0,
    latent_channels=16.0,
    spatial_down=8.0,
    temporal_down=1.0,
    patch=2.0,
    native_width=1024.0,
    native_height=1024.0,
    default_steps=20.0,
    passes_per_step=2.0,
)
"""A transformer of which only components, layers and width are known."""
