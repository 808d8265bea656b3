"""Reports: an answer that can be kept, printed and repeated; run by papermill from `notebooks/report.ipynb`."""

from gpuguide.report.document import Report, Section

__all__ = ["Report", "Section"]
