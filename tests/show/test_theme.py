"""Colours that can be told apart, by readers who see colours differently too, on light and dark."""

import itertools
import re
from pathlib import Path

import numpy as np
import pytest

from gpuguide.show import theme
from gpuguide.show.figures import COST_PARTS, MEMORY_PARTS, SERIES

THEMES = {"light": theme.LIGHT, "dark": theme.DARK}
# Machado, Oliveira and Fernandes 2009, severity 1.0.
SIGHTS = {
    "common": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protanopia": (
        (0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998),
    ),
    "deuteranopia": (
        (0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881),
    ),
    "tritanopia": (
        (1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602), (0.004733, 0.691367, 0.303900),
    ),
}  # fmt: skip
GROUPS = {"memory": MEMORY_PARTS, "cost": COST_PARTS, "series": tuple(colour for colour, _ in SERIES)}


def linear(colour):
    """Linear light of a hexadecimal colour."""
    channels = np.array([int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)])
    return np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)


def contrast(first, second):
    """Contrast ratio of WCAG 2."""
    bright, dark = sorted(
        (float(linear(colour) @ [0.2126, 0.7152, 0.0722]) for colour in (first, second)), reverse=True
    )
    return (bright + 0.05) / (dark + 0.05)


def lab(colour, sight):
    """CIE L*a*b* of a colour as some eye sees it."""
    xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    ratio = xyz @ np.clip(np.array(SIGHTS[sight]) @ linear(colour), 0, 1) / np.array([0.9505, 1.0, 1.089])
    bent = np.where(ratio > 0.008856, np.cbrt(ratio), 7.787 * ratio + 16 / 116)
    return np.array([116 * bent[1] - 16, 500 * (bent[0] - bent[1]), 200 * (bent[1] - bent[2])])


@pytest.mark.parametrize("name", THEMES)
@pytest.mark.parametrize("ground", ["bg", "card", "raised"])
@pytest.mark.parametrize("ink", ["ink", "mute", "accent", "fits", "tight", "no"])
def test_text_can_be_read(name, ground, ink):
    """WCAG AA asks for 4.5 to 1."""
    assert contrast(THEMES[name][ink], THEMES[name][ground]) >= 4.5


@pytest.mark.parametrize("name", THEMES)
@pytest.mark.parametrize("fit", ["fits", "tight", "no"])
def test_badges_can_be_read(name, fit):
    """The word on a badge is the answer."""
    assert contrast(THEMES[name][fit], THEMES[name][f"{fit}-soft"]) >= 4.5


@pytest.mark.parametrize("sight", SIGHTS)
@pytest.mark.parametrize("name", THEMES)
@pytest.mark.parametrize("parts", GROUPS.values(), ids=GROUPS)
def test_parts_can_be_told_apart(parts, name, sight):
    """Two parts of a bar would look like one to some readers; a CIE difference of 2.3 is just noticed."""
    seen = {part: lab(THEMES[name][part], sight) for part in parts}
    for first, second in itertools.combinations(parts, 2):
        assert np.linalg.norm(seen[first] - seen[second]) > 14, (first, second)


def test_styles_use_colours_of_the_theme_only():
    """A misspelt variable would be transparent."""
    static = Path(theme.__file__).parents[1] / "app" / "static"
    css = "".join(path.read_text("utf-8") for path in sorted(static.glob("*.css")))
    assert set(re.findall(r"var\(--gg-([a-z0-9_-]+)\)", css)) <= set(theme.LIGHT)


def test_tokens_resolve_for_a_report():
    """A report cannot ask a browser."""
    figure = {"data": [{"marker": {"color": theme.token("weights")}}], "n": 1}
    assert theme.resolved(figure, theme.DARK) == {"data": [{"marker": {"color": theme.DARK["weights"]}}], "n": 1}
