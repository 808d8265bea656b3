"""
What a row of a media table means: its words as a pipeline, a job and a card.

Rows come from readmes and documentation, so options stand in free text; what is not stated is the pipeline's default.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from gpuguide.errors import UnknownName
from gpuguide.spec.hardware import Nodes
from gpuguide.spec.job import MediaJob
from gpuguide.spec.model import MediaModel
from gpuguide.spec.precision import WeightFormat
from gpuguide.units import in_order

if TYPE_CHECKING:
    from gpuguide.catalog.catalog import Catalog

Row = Mapping[str, Any]

STAND_IN_GPU = "H100-SXM"
"""Beside memory rows without a card; memory estimates use none of its figures."""
REQUIREMENT = re.compile(
    r"stated (?:requirement|as approximately)|should fit|around .* to hold|cards down to|requires <"
)
"""Notes that say a requirement was rounded or is an upper limit, not a peak that was read."""
UNSTATED_GPU = re.compile(r"not named|class|/|^$")
BITS = {
    "int8": 8.0,
    "fp8": 8.0,
    "int4": 4.5,
    "fp6": 6.0,
    "fp5": 5.0,
    "fp4": 4.0,
    "nf4": 4.5,
    "4bit": 4.5,
    "4-bit": 4.5,
    "8bit": 8.0,
    "8-bit": 8.0,
}
"""Bits per weight, block scales included, by words in a row's quantisation. [bit]"""
TINYGEMM = re.compile(r"int4[ -]?wo|int4 weight-only")
"""Weight-only kernels made for one token at a time; on thousands they are far slower than 16 bit."""


class NotScoreable(Exception):
    """A row that cannot be estimated; says why."""


def text(row: Row, name: str) -> str:
    """A cell in lower case; empty where nothing stands."""
    value = row.get(name)
    return "" if value is None or value != value else str(value).strip().casefold()


def number(row: Row, name: str) -> float | None:
    """A cell as a number, or None."""
    value = row.get(name)
    try:
        found = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return None
    return found if found == found else None


def media_model_of(name: str, catalog: Catalog) -> MediaModel:
    """
    The pipeline a row names.

    Raises
    ------
    NotScoreable
        If the catalog has none that can be meant, or a language model of that name.
    """
    for spelling in _spellings(name):
        try:
            found = catalog.model(spelling)
        except UnknownName:
            continue
        if isinstance(found, MediaModel):
            return found
    raise NotScoreable("model not in the catalog")


def _spellings(name: str) -> Iterator[str]:
    """As it stands; without brackets and what is in round ones; families in full, sizes and variants left out."""
    plain = re.sub(r"[\[\]]", " ", re.sub(r"\(.*?\)", "", name))
    plain = re.sub(r"[ _]+", "-", plain.strip())
    full = re.sub(r"^(?:stable-?diffusion|sd)-?(?=v?\d|xl)", "stable-diffusion-", plain, flags=re.IGNORECASE)
    full = re.sub(r"-xl(?:-?base)?(?:-?1[.]0)?$", "-xl-base-1.0", full, flags=re.IGNORECASE)
    full = re.sub(r"^svd(?:-(xt))?.*$", r"stable-video-diffusion-img2vid-xt", full, flags=re.IGNORECASE)
    full = re.sub(r"^distil-whisper-", "distil-", full, flags=re.IGNORECASE)
    yield from (name, plain, full)
    yield re.sub(r"(?<=diffusion-)v?(?=[12][.-])", "v", full)
    for written, meant in VARIANTS.items():
        yield re.sub(written, meant, plain, flags=re.IGNORECASE)


VARIANTS = {
    r"^(hunyuanvideo).*": r"\1",
    r"^(wan-?2[.]1)-?(\d+[.]?\d*b).*": r"\1-t2v-\2",
    r"^(wan-?2[.]1)-(t2v)?-?(\d+[.]?\d*b).*": r"\1-t2v-\3",
    r"^(wan-?2[.]2).*(a14b).*": r"\1-t2v-a14b",
    r"^(wan-?2[.]2).*5b.*": r"\1-ti2v-5b",
    r"^(ltx-video).*": r"\1",
    r"^(mochi).*": r"\1-1-preview",
    r"^(flux[.]1)-?(dev|schnell|kontext).*": r"\1-\2",
}
"""Spellings with a resolution, a task or a revision, and the checkpoint they mean."""


def nodes_of(row: Row, catalog: Catalog, *, needed: bool) -> Nodes:
    """
    The machine of a row.

    Raises
    ------
    NotScoreable
        If a card is needed and the row names none that is known.
    """
    name = str(row.get("gpu") or "").strip()
    count = int(number(row, "n_gpus") or number(row, "gpus") or 1)
    for spelling in (name, re.sub(r"-\d+GB$", "", name)):
        if spelling in catalog.gpus:
            return catalog.nodes(spelling, count)
    if needed:
        stated = "GPU not stated" if UNSTATED_GPU.search(name.casefold()) or name == "nan" else "GPU not in the table"
        raise NotScoreable(stated)
    return catalog.nodes(STAND_IN_GPU, count)


def format_of(words: str) -> WeightFormat | None:
    """
    Stored format of a row's weights, or None for 16 bit.

    Notes
    -----
    torchao's int4 dynamic keeps one value per byte. Source: torchao `int8_dynamic_activation_int4_weight`.
    """
    if not words or words in ("none", "bf16", "fp16"):
        return None
    if re.search(r"int4[ -]?dq", words):
        return WeightFormat(name=words, bits_per_weight=9.0, compute_precision="bf16", keeps_embeddings_16bit=True)
    if "autoquant" in words:
        return WeightFormat(name=words, bits_per_weight=8.0, compute_precision="int8", keeps_embeddings_16bit=True)
    if "sparsif" in words:
        return WeightFormat(name=words, bits_per_weight=4.5, compute_precision="bf16", keeps_embeddings_16bit=True)
    for word, bits in BITS.items():
        if word in words:
            dynamic = (
                word in ("int8", "fp8")
                and not re.search(r"wo\b|weight", words)
                and re.search(r"dq|dyn|^fp8$|^int8$", words)
            )
            return WeightFormat(
                name=words,
                bits_per_weight=bits,
                compute_precision=word if dynamic else "bf16",
                keeps_embeddings_16bit=True,
            )
    raise NotScoreable("unknown quantisation")


def diffusion_job(row: Row, model: MediaModel) -> MediaJob:
    """The generating job of a row of `diffusion_inference`."""
    options, words = text(row, "offload_and_opts"), text(row, "quantization")
    if "recipe" in options:
        raise NotScoreable("the recipe is not stated")
    if REQUIREMENT.search(text(row, "notes")):
        raise NotScoreable("a stated requirement, not a measurement")
    if "image edit" in text(row, "task"):
        raise NotScoreable("editing with input images")
    width, height = number(row, "width") or model.native_width, number(row, "height") or model.native_height
    frames = number(row, "frames") or (model.native_frames or 1.0)
    quantization = format_of(words)
    bitsandbytes = bool(re.search(r"bnb|nf4|4-?bit|8-?bit", words))
    everything = "offload" in options and "without the optimisations" in text(row, "notes")
    batch = number(row, "batch") or 1.0
    return MediaJob(
        task=model.task,
        width=float(width or 1024.0),
        height=float(height or 1024.0),
        frames=float(frames),
        steps=float(number(row, "steps") or model.default_steps or 50.0),
        batch=batch,
        items=batch,
        precision=precision_of(text(row, "precision")),
        quantization=quantization,
        quantizes_encoders=bitsandbytes or "text encoder" in options or "offload" in options,
        quantizes_on_gpu=quantization is not None and not bitsandbytes and "offload" not in options,
        # "All optimisations" of diffusers, as the README of CogVideo counts them: sequential offload, slices and tiles.
        offload="sequential" if everything else offload_of(options),
        vae_tiling="tiling" in options or everything,
        vae_slicing=bool(re.search(r"slicing", options)) or everything,
        compiled=bool(
            re.search(
                r"compile(?:d)?(?:=true)?\b(?!=false)",
                options.replace("compile_vae=true", "").replace("compile_vae=false", ""),
            )
        ),
        fused_qkv="fuse_qkv=true" in options,
    )


def offload_of(options: str) -> str:
    """What moves to host memory, from free text."""
    if "sequential" in options or "overlay" in options:  # documentation lists options each on top of the one before
        return "sequential"
    if re.search(r"\b(?:no|without)\b[^,;]*offload", options):
        return "none"
    if "group" in options and "offload" in options:
        return "sequential"
    return "model" if "offload" in options else "none"


def precision_of(words: str) -> str:
    """What a pipeline computes in."""
    for name in ("bf16", "fp16", "fp32"):
        if name in words:
            return name
    return "fp32" if "float32" in words else "bf16"


def context_parallel_of(row: Row) -> float:
    """GPUs that share one item: all of them where the options say so."""
    count = number(row, "n_gpus") or 1.0
    options = text(row, "offload_and_opts")
    if count > 1 and re.search(r"parallel|ulysses|ring|xdit|usp|\bsp\b", options):
        return count
    return 1.0


def band_of(values: Any) -> tuple[float, float, float]:
    """(low, typical, high) of an estimate for one plan and one machine."""
    array = in_order(np.asarray(values, dtype=np.float64).reshape(3, -1)[:, 0])
    return float(array[0]), float(array[1]), float(array[2])
