"""The shipped catalog, read once."""

import pytest

from gpuguide.catalog.catalog import load_catalog


@pytest.fixture(scope="session")
def catalog():
    return load_catalog()
