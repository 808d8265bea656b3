"""What tests of serving speed share: machines, jobs and plans from the shipped tables."""

import numpy as np

from gpuguide.catalog.formats import assumptions_from_table, rows_by_name
from gpuguide.catalog.gpus import gpus_from_table
from gpuguide.catalog.models import Models
from gpuguide.catalog.package import data_folder, read_table
from gpuguide.catalog.shapes import Shape, nodes_of
from gpuguide.spec.engine import Engine
from gpuguide.spec.job import ServingJob
from gpuguide.spec.plan import Plan
from gpuguide.spec.precision import WeightFormat
from gpuguide.units import GB

MODELS = Models(data_folder())
GPUS = gpus_from_table(read_table("gpus"))
FORMATS = rows_by_name(read_table("weight_formats"), WeightFormat)
ENGINES = rows_by_name(read_table("engines"), Engine)
ASSUMPTIONS = assumptions_from_table(read_table("assumptions"))
ROOM = 40 * GB
"""Cache room on each GPU where a test does not turn on it. [bytes]"""


def machines(*shapes):
    """Machine shapes from (gpu, GPUs) pairs."""
    return nodes_of([Shape(gpu, count) for gpu, count in shapes], GPUS)


def job(engine="vllm", form="bf16", **changes):
    """A serving job: 1024 tokens in, 256 out, one request."""
    values = {
        "weight_format": FORMATS[form], "kv_bytes_per_element": 2.0, "prompt_tokens": 1024.0, "output_tokens": 256.0,
        "max_context": 8192.0, "concurrency": 1.0, "engine": ENGINES[engine],
    }  # fmt: skip
    return ServingJob(**{**values, **changes})


def plans(*degrees):
    """A column of plans from (tensor, pipeline, replicas) triples."""
    tensor, stages, replicas = (np.array(column, dtype=float).reshape(-1, 1) for column in zip(*degrees, strict=True))
    return Plan(tensor_parallel=tensor, pipeline_parallel=stages, data_parallel=replicas)


def question(model, asked, plan=None, nodes=None):
    """Arguments that formulas of serving speed share."""
    return {
        "model": MODELS.get(model), "job": asked, "plan": plan or Plan(), "nodes": nodes or machines(("H100-SXM", 1)),
        "assumptions": ASSUMPTIONS,
    }  # fmt: skip


def typical(value):
    """The typical band of the first plan and shape."""
    return float(np.broadcast_to(value, np.broadcast_shapes(np.shape(value), (3, 1, 1)))[1].ravel()[0])
