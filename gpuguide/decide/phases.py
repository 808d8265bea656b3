"""Memory and time of each phase of a media pipeline, on the best offer: which moment decides what must be rented."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gpuguide.decide.decision import Decision
from gpuguide.errors import NotModelled
from gpuguide.estimate.diffusion_memory import diffusion_phases
from gpuguide.estimate.media import is_diffusion
from gpuguide.spec.job import MediaJob
from gpuguide.spec.model import MediaModel
from gpuguide.units import BANDS, TYPICAL

if TYPE_CHECKING:
    import pandas as pd

PARTS = ("weights", "activations", "reserved")
"""What a phase of a diffusion pipeline holds; it has no other part."""


def phases(decision: Decision) -> pd.DataFrame:
    """
    Phases of the best plan, or of the one nearest to fitting, in the order in which they happen.

    Parameters
    ----------
    decision : Decision
        Of generating with a diffusion pipeline.

    Returns
    -------
    DataFrame
        One row a phase: `phase` (load, encode, denoise, decode), `weights_bytes`, `activations_bytes`, `reserved_bytes`
        (typical, of one GPU), `total_<band>_bytes`, `peak` (the fullest), `seconds` (typical, of one batch; nan while
        loading). No row where no plan is legal.

    Raises
    ------
    NotModelled
        For jobs without such phases.
    """
    import pandas as pd

    rows = phase_rows(decision)
    return pd.DataFrame(rows) if rows else pd.DataFrame(columns=["phase", "peak"])


def phase_rows(decision: Decision) -> list[dict[str, Any]]:
    """`phases` as plain rows, which need no pandas."""
    model, job = decision.question.model, decision.question.job
    generates = isinstance(job, MediaJob) and job.method == "generate"
    if not isinstance(model, MediaModel) or not isinstance(job, MediaJob) or not (generates and is_diffusion(model)):
        raise NotModelled(f"memory by phase of {model.name}", "ask for images or video of a diffusion pipeline")
    offers = decision.best_first if len(decision.best_first) else decision.others
    row = decision.nearest
    if row is None:
        return []
    plan = decision.rows.found.fit.plan.take(int(decision.rows.place[offers[0]]))
    found = diffusion_phases(model=model, job=job, plan=plan, assumptions=decision.question.assumptions)
    made = []
    for name in sorted(found, key=ORDER.index):
        total = np.broadcast_to(found[name].total, (len(BANDS), 1, 1))[:, 0, 0]
        parts = {part: np.broadcast_to(getattr(found[name], part), (len(BANDS), 1, 1))[TYPICAL, 0, 0] for part in PARTS}
        made.append(
            {"phase": name}
            | {f"{part}_bytes": float(value) for part, value in parts.items()}
            | {f"total_{band}_bytes": float(value) for band, value in zip(BANDS, total, strict=True)}
            | {"seconds": float(row.get(f"{name}_s", np.nan))}
        )
    most = max(row["total_typical_bytes"] for row in made)
    return [row | {"peak": row["total_typical_bytes"] == most} for row in made]


ORDER = ("load", "encode", "denoise", "decode")
