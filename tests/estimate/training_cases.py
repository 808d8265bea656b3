"""Machines, models and jobs that the tests of training time share, from the shipped tables."""

from functools import lru_cache

from gpuguide.catalog.formats import assumptions_from_table, rows_by_name
from gpuguide.catalog.gpus import gpus_from_table
from gpuguide.catalog.models import Models
from gpuguide.catalog.package import data_folder, read_table
from gpuguide.catalog.shapes import Shape, nodes_of
from gpuguide.spec.assumptions import Assumptions
from gpuguide.spec.hardware import Nodes
from gpuguide.spec.job import TrainingJob
from gpuguide.spec.model import Model
from gpuguide.spec.precision import Optimizer, PrecisionRecipe, WeightFormat


@lru_cache(maxsize=1)
def tables() -> dict[str, dict]:
    return {
        "gpus": gpus_from_table(read_table("gpus")),
        "recipes": rows_by_name(read_table("recipes"), PrecisionRecipe),
        "optimizers": rows_by_name(read_table("optimizers"), Optimizer),
        "weight_formats": rows_by_name(read_table("weight_formats"), WeightFormat),
    }


@lru_cache(maxsize=1)
def assumptions() -> Assumptions:
    return assumptions_from_table(read_table("assumptions"))


@lru_cache(maxsize=1)
def models() -> Models:
    return Models(data_folder())


def model(name: str) -> Model:
    return models().get(name)


def machines(*shapes: tuple) -> Nodes:
    """Shapes given as (gpu, GPUs per machine, machines[, fabric, Gbit/s])."""
    return nodes_of([Shape(*shape) for shape in shapes], tables()["gpus"])


def job(recipe: str = "megatron-bf16", **changes) -> TrainingJob:
    values = {
        "method": "full", "train_tokens": 1e9, "sequence_length": 4096.0, "global_batch": 256.0,
        "recipe": tables()["recipes"][recipe], "optimizer": tables()["optimizers"]["adamw"],
    }  # fmt: skip
    quantization = changes.pop("quantization", None)
    if quantization is not None:
        changes["quantization"] = tables()["weight_formats"][quantization]
    if "optimizer" in changes:
        changes["optimizer"] = tables()["optimizers"][changes["optimizer"]]
    return TrainingJob(**(values | changes))
