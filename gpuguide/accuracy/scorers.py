"""All tables of measurements we can score, by name; one file may hold several quantities."""

from __future__ import annotations

from gpuguide.accuracy import media, serving_memory, serving_speed, training_memory, training_speed
from gpuguide.accuracy.table import Scorer


def all_scorers() -> dict[str, Scorer]:
    """Scorers by table name, in the order they are shown."""
    return {
        **training_memory.SCORERS,
        **training_speed.SCORERS,
        **serving_memory.SCORERS,
        **serving_speed.SCORERS,
        **media.SCORERS,
    }
