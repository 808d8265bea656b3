"""
Colours, once for the page and for charts, in a light and a dark form.

Figures name colours by token (``"var(--gg-weights)"``): the page resolves them in the browser, so that one figure
follows the reader's light or dark setting; `resolved` does the same for a report.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

LIGHT: dict[str, str] = {
    "bg": "#f3f5f9", "card": "#ffffff", "raised": "#eef2f8", "ink": "#17202b", "mute": "#556475", "line": "#d7dee8",
    "accent": "#1d4ed8", "on-accent": "#ffffff", "fits": "#0b6e45", "tight": "#8a5a00", "no": "#b3261e",
    "grid": "#dfe5ee", "fits-soft": "#e3f4ec",
    "tight-soft": "#fdf1d8", "no-soft": "#fdeae8", "accent-soft": "#e6edfd", "limit": "#17202b",
    # parts of memory
    "weights": "#0072b2", "gradients": "#e69f00", "optimizer": "#7a4fa3", "activations": "#1b9e77", "logits": "#d9c51b",
    "kv_cache": "#d55e00", "buffers": "#56b4e9", "reserved": "#8c96a3",
    # parts of cost
    "compute": "#0072b2", "rounding": "#e69f00", "interruptions": "#d55e00", "checkpoints": "#7a4fa3",
    "storage": "#1b9e77", "egress": "#56b4e9", "setup": "#d9c51b", "idle": "#8c96a3",
    # single series
    "series": "#0072b2", "series-2": "#d55e00", "series-3": "#1b9e77", "series-4": "#7a4fa3", "faded": "#b9c4d2",
}  # fmt: skip

DARK: dict[str, str] = LIGHT | {
    "bg": "#0e141b", "card": "#17202b", "raised": "#202c3a", "ink": "#e7edf5", "mute": "#a3b2c4", "line": "#2c3948",
    "accent": "#8ab4ff", "on-accent": "#0b1524", "fits": "#63d6a0", "tight": "#f0bd58", "no": "#ff958c",
    "grid": "#2a3644", "fits-soft": "#123527",
    "tight-soft": "#3a2d10", "no-soft": "#43201d", "accent-soft": "#1c2e50", "limit": "#e7edf5",
    "weights": "#4aa3df", "optimizer": "#b08ad6", "activations": "#35c39a", "kv_cache": "#ff8a3d", "buffers": "#8fd0f5",
    "compute": "#4aa3df", "checkpoints": "#b08ad6", "storage": "#35c39a", "interruptions": "#ff8a3d",
    "egress": "#8fd0f5",
    "series": "#4aa3df", "series-2": "#ff8a3d", "series-3": "#35c39a", "series-4": "#b08ad6", "faded": "#465769",
}  # fmt: skip

FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Noto Sans', 'DejaVu Sans', sans-serif"


def token(name: str) -> str:
    """How a figure names a colour."""
    if name not in LIGHT:
        raise KeyError(name)
    return f"var(--gg-{name})"


def css_variables() -> str:
    """The colours as CSS custom properties, light first, dark where the reader prefers it."""
    light = "".join(f"--gg-{name}:{value};" for name, value in LIGHT.items())
    dark = "".join(f"--gg-{name}:{value};" for name, value in DARK.items() if value != LIGHT[name])
    return f":root{{{light}color-scheme:light dark}}\n@media (prefers-color-scheme:dark){{:root{{{dark}}}}}\n"


def resolved(figure: Any, colours: Mapping[str, str] = LIGHT) -> Any:
    """A figure with its colour tokens replaced, for a picture that cannot follow a setting."""
    if isinstance(figure, dict):
        return {key: resolved(value, colours) for key, value in figure.items()}
    if isinstance(figure, list):
        return [resolved(value, colours) for value in figure]
    if isinstance(figure, str) and figure.startswith("var(--gg-"):
        return colours[figure.removeprefix("var(--gg-").removesuffix(")")]
    return figure
