"""Sweeps: the answer at every point of a grid of scenarios, in one file."""

from gpuguide.sweep.grid import Grid, grid_of, read_grid
from gpuguide.sweep.heat import heat_map, read_rows
from gpuguide.sweep.run import Swept, sweep

__all__ = ["Grid", "Swept", "grid_of", "heat_map", "read_grid", "read_rows", "sweep"]
