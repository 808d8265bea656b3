"""
Colours, once for the page and for charts, in a light and a dark form.

Figures name colours by token (``"var(--gg-weights)"``): the page resolves them in the browser, so that one figure
follows the reader's light or dark setting; `resolved` does the same for a report.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

LIGHT_PARTS = ("#3575b6", "#b04c19", "#cd931d", "#642682", "#2d9c77", "#e1c22b", "#48b1e5", "#959ca5")
DARK_PARTS = ("#419bc8", "#cd581d", "#e59a06", "#c3a5fd", "#41c89b", "#fad82e", "#94d1f0", "#8f959f")
"""Eight colours that stay apart (CIE difference of 15) for common sight, protanopia, deuteranopia and tritanopia."""
PARTS = (
    ("weights", "compute", "series"),
    ("kv_cache", "interruptions", "series-2"),
    ("gradients", "rounding"),
    ("optimizer", "checkpoints", "series-4"),
    ("activations", "storage", "series-3"),
    ("logits", "setup"),
    ("buffers", "egress"),
    ("reserved", "idle"),
)
"""Parts of memory, parts of cost and plain series that share a colour; no chart shows two of one row."""


def _named(colours: tuple[str, ...]) -> dict[str, str]:
    return {name: colour for names, colour in zip(PARTS, colours, strict=True) for name in names}


LIGHT: dict[str, str] = {
    "bg": "#f3f5f9", "card": "#ffffff", "raised": "#eef2f8", "ink": "#17202b", "mute": "#556475", "line": "#d7dee8",
    "accent": "#1d4ed8", "on-accent": "#ffffff", "accent-soft": "#e6edfd", "grid": "#dfe5ee", "limit": "#17202b",
    "fits": "#0b6e45", "tight": "#8a5a00", "no": "#b3261e",
    "fits-soft": "#e3f4ec", "tight-soft": "#fdf1d8", "no-soft": "#fdeae8", "faded": "#b9c4d2",
} | _named(LIGHT_PARTS)  # fmt: skip

DARK: dict[str, str] = {
    "bg": "#0e141b", "card": "#17202b", "raised": "#202c3a", "ink": "#e7edf5", "mute": "#a3b2c4", "line": "#2c3948",
    "accent": "#8ab4ff", "on-accent": "#0b1524", "accent-soft": "#1c2e50", "grid": "#2a3644", "limit": "#e7edf5",
    "fits": "#63d6a0", "tight": "#f0bd58", "no": "#ff958c",
    "fits-soft": "#123527", "tight-soft": "#3a2d10", "no-soft": "#43201d", "faded": "#465769",
} | _named(DARK_PARTS)  # fmt: skip

FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Noto Sans', 'DejaVu Sans', sans-serif"


def token(name: str) -> str:
    """How a figure names a colour."""
    if name not in LIGHT:
        raise KeyError(name)
    return f"var(--gg-{name})"


def css_variables() -> str:
    """
    The colours as CSS custom properties: dark where the reader prefers it, or where JupyterLab's theme is.

    Nothing but these properties is set outside of our own elements: a page must not recolour the notebook around it.
    """
    light = "".join(f"--gg-{name}:{value};" for name, value in LIGHT.items())
    dark = "".join(f"--gg-{name}:{value};" for name, value in DARK.items() if value != LIGHT[name])
    lab = "body:not([data-voila])[data-jp-theme-light="
    return (
        f":root{{{light}}}\n@media (prefers-color-scheme:dark){{:root{{{dark}}}}}\n"
        f'{lab}"true"]{{{light}}}\n{lab}"false"]{{{dark}}}\n'
        f".gg,.gg-skeleton,.gg-chart{{color-scheme:light dark}}\n"
        f'{lab}"true"] .gg{{color-scheme:light}}\n{lab}"false"] .gg{{color-scheme:dark}}\n'
    )


def resolved(figure: Any, colours: Mapping[str, str] = LIGHT) -> Any:
    """A figure with its colour tokens replaced, for a picture that cannot follow a setting."""
    if isinstance(figure, dict):
        return {key: resolved(value, colours) for key, value in figure.items()}
    if isinstance(figure, list):
        return [resolved(value, colours) for value in figure]
    if isinstance(figure, str) and figure.startswith("var(--gg-"):
        return colours[figure.removeprefix("var(--gg-").removesuffix(")")]
    return figure
