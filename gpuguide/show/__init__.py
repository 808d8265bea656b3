"""How it looks: a decision and a language in, figures, tables and sentences out."""

from gpuguide.show import figures, remedies, sweeps, tables, theme, verdict

__all__ = ["figures", "remedies", "sweeps", "tables", "theme", "verdict"]
