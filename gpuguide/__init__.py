"""gpuguide: decide which cloud GPU to rent for a model, and what it will really cost."""

__version__ = "0.1.0"
