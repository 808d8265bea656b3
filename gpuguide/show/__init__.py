"""How it looks: a decision and a language in, figures, tables and sentences out."""

from gpuguide.show import figures, tables, theme
from gpuguide.show.verdict import verdict

__all__ = ["figures", "tables", "theme", "verdict"]
