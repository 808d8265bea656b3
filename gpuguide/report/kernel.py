"""One warm kernel for many reports: papermill runs the notebook in it again and again, with a clean slate each time."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from gpuguide.errors import GuideError, UnknownName, nearest
from gpuguide.report.document import PARAMETERS

NOTEBOOK = "report.ipynb"
ENGINE = "gpuguide-warm"
QUIET = "--IPKernelApp.log_level=40"
"""A kernel on this machine's own loopback need not warn of others that could listen."""
CLEAN_SLATE = "get_ipython().reset(new_session=False); get_ipython().history_manager.reset()"
READY = """
from gpuguide.report import Report as _Report
from gpuguide.catalog.catalog import load_catalog as _load
_load().market
"""
"""What a kernel does before the first report: the imports and tables that every report needs."""


class NotAnswered(GuideError):
    """A report that stopped with a sentence of its own."""

    key = "error"


@dataclass(frozen=True, slots=True)
class Executed:
    """A notebook that has been run, and how long its cells and the whole took. [s]"""

    notebook: Any
    cells_s: float
    total_s: float


class WarmKernel:
    """A kernel that runs the report notebook for one scenario after the other."""

    def __enter__(self) -> Self:
        from jupyter_client.kernelspec import KernelSpec, KernelSpecManager
        from jupyter_client.manager import KernelManager

        class Here(KernelSpecManager):
            """The kernel of this interpreter, whatever others are installed for the user."""

            def get_kernel_spec(self, kernel_name: str) -> KernelSpec:
                return KernelSpec(
                    argv=[sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}", QUIET],
                    display_name="Python 3",
                    language="python",
                )

        self._manager = KernelManager(kernel_spec_manager=Here())
        self._manager.start_kernel()
        known_parameters()  # imports papermill while the kernel starts
        _register()
        logging.getLogger("papermill").setLevel(logging.ERROR)  # its warnings are our sentences
        self._client = self._manager.blocking_client()
        self._client.start_channels()
        self._client.wait_for_ready(timeout=120)
        self._client.execute_interactive(READY, silent=True, timeout=120, output_hook=lambda _: None)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client.stop_channels()
        self._manager.shutdown_kernel(now=True)

    def run(self, parameters: Mapping[str, Any]) -> Executed:
        """
        The report notebook, executed with these parameters.

        Raises
        ------
        UnknownName
            If the notebook has no such parameter.
        NotAnswered
            If the scenario cannot be answered; the sentence says why.
        """
        import papermill

        check_parameters(parameters)
        started = time.perf_counter()
        # Names of the report before must not reach this one.
        self._client.execute_interactive(CLEAN_SLATE, silent=True, timeout=60, output_hook=lambda _: None)
        try:
            notebook = papermill.execute_notebook(
                notebook_path(), None, parameters=dict(parameters), engine_name=ENGINE, progress_bar=False,
                kernel_manager=self._manager, request_save_on_cell_execute=False, autosave_cell_every=0,
            )  # fmt: skip
        except papermill.PapermillExecutionError as error:
            raise _in_words(error) from None
        return Executed(notebook, _seconds_of_cells(notebook), time.perf_counter() - started)


@lru_cache(maxsize=1)
def _register() -> None:
    """Teach papermill to run a notebook in a kernel that is there already, and to leave it there."""
    from papermill.clientwrap import PapermillNotebookClient
    from papermill.engines import NBClientEngine, papermill_engines

    class Warm(NBClientEngine):  # type: ignore[misc]  # papermill ships no types
        """Papermill's own engine but for who owns the kernel; its sockets are closed after each notebook."""

        @classmethod
        def execute_managed_notebook(cls, nb_man: Any, kernel_name: str, **given: Any) -> None:
            client = PapermillNotebookClient(nb_man, km=given["kernel_manager"], kernel_name=kernel_name, timeout=None)
            try:
                client.execute()
            finally:
                if client.kc is not None:
                    client.kc.stop_channels()

    papermill_engines.register(ENGINE, Warm)


def _in_words(error: Any) -> Exception:
    """The sentence of an error of ours; anything else is our fault and keeps its name."""
    from gpuguide import errors

    ours = {name for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, GuideError)}
    if error.ename in ours:
        return NotAnswered(error.evalue)
    return RuntimeError(f"{error.ename}: {error.evalue}")


def _seconds_of_cells(notebook: Any) -> float:
    durations = (cell.metadata.get("papermill", {}).get("duration") for cell in notebook.cells)
    return float(sum(seconds for seconds in durations if seconds))


def notebook_path() -> Path:
    """The report notebook of the checkout, or the one shipped in the package."""
    here = Path(__file__).resolve().parent.parent
    for folder in (here / "_notebooks", here.parent / "notebooks"):
        if (folder / NOTEBOOK).is_file():
            return folder / NOTEBOOK
    raise FileNotFoundError("the report notebook of gpuguide is not installed beside the package")


@lru_cache(maxsize=1)
def known_parameters() -> frozenset[str]:
    """Names in the parameters cell of the notebook."""
    import papermill

    return frozenset(papermill.inspect_notebook(str(notebook_path())))


def check_parameters(parameters: Mapping[str, Any]) -> None:
    """
    Refuse what the notebook does not know; papermill alone would run with its defaults.

    Raises
    ------
    UnknownName
        Carries the nearest names.
    """
    known = known_parameters() | set(PARAMETERS)
    for name in parameters:
        if name not in known:
            raise UnknownName("report parameter", name, nearest(name, known), len(known))
