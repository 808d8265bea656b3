"""Machine shapes for tests, from the real table of GPUs."""

import pytest

from gpuguide.catalog.gpus import gpus_from_table
from gpuguide.catalog.package import read_table
from gpuguide.catalog.shapes import Shape, nodes_of


@pytest.fixture(scope="session")
def gpus():
    return gpus_from_table(read_table("gpus"))


@pytest.fixture(scope="session")
def machines(gpus):
    """Call with names of GPUs, or (name, GPUs per node, nodes)."""

    def build(*asked):
        return nodes_of([Shape(one) if isinstance(one, str) else Shape(*one) for one in asked], gpus)

    return build
