"""Where fetched prices are kept on each system, and how a provider's words for a place are read."""

import sys
from pathlib import Path

import pytest

from gpuguide.catalog.hunt import _region
from gpuguide.catalog.live import LIVE, META, cache_folder, read_live, read_meta

PLACES = [
    pytest.param("win32", {"LOCALAPPDATA": "/users/me/local"}, "/users/me/local/gpuguide", id="Windows"),
    pytest.param("darwin", {}, "Library/Caches/gpuguide", id="macOS"),
    pytest.param("linux", {"XDG_CACHE_HOME": "/caches"}, "/caches/gpuguide", id="XDG"),
    pytest.param("linux", {}, ".cache/gpuguide", id="Linux"),
    pytest.param("darwin", {"GPUGUIDE_CACHE": "/mine"}, "/mine", id="one's own"),
]


@pytest.mark.parametrize(("system", "environment", "expected"), PLACES)
def test_cache_of_each_system(system, environment, expected, monkeypatch):
    """A folder in the user's home that no tool of the system cleans."""
    monkeypatch.setattr(sys, "platform", system)

    assert cache_folder(environment).as_posix().endswith(expected)
    assert cache_folder(environment) != Path.home()


REGIONS = [
    pytest.param("us-central1", "gcp", "us-central1-a", id="a zone of Google is in its region"),
    pytest.param("us-east-1", "aws", "us-east-1b", id="a zone of AWS"),
    pytest.param("eu-north-1", "lambda", "eu-north-1", id="as it is"),
    pytest.param("*", "vastai", None, id="not said"),
    pytest.param("*", "vastai", " , ", id="said with nothing in it"),
]


@pytest.mark.parametrize(("expected", "provider", "location"), REGIONS)
def test_region_of_a_place(expected, provider, location):
    """Zones taken for regions would never meet the shipped offers of the same region."""
    assert _region(provider, location) == expected


@pytest.mark.parametrize("content", ["", "a,b\n1,2\n", "\x00\x01", "provider\n"])
def test_broken_cache_is_no_error(tmp_path, content):
    """The shipped prices are there."""
    (tmp_path / LIVE).write_text(content)
    (tmp_path / META).write_text(content)

    assert read_live(tmp_path).empty
    assert read_meta(tmp_path) == {}
