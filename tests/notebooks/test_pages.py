"""Notebooks of the pages: their form, and runs with other parameters through papermill."""

import json
from pathlib import Path

import nbformat
import papermill
import pytest

from gpuguide.app.declaration import PAGES

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
CHECK = """
said = [view.value for view in page._views.values() if hasattr(view, "value")]
print(page.browser.language, page, page._error.value, page.browser.query, page.browser.pin, said)
"""

RUNS = {  # other parameters, and words that the verdict must hold
    "index": ({"workload": "qlora", "model": "llama-3.1-70b", "language": "tr"}, "kiralayın"),
    "memory": ({"workload": "full", "model": "qwen2.5-7b"}, "Rent"),
    "train": ({"workload": "pretrain", "params_b": 1.5, "train_tokens": 3e10}, "Rent"),
    "finetune": ({"workload": "lora", "model": "llama-3.1-70b", "sequence_length": 2048}, "Rent"),
    "serve": ({"model": "deepseek-v3", "max_context": 16384, "concurrency": 32, "language": "tr"}, "milyon token"),
    "media": ({"workload": "audio", "model": "whisper-large-v3", "items": 50}, "Rent"),
    "market": ({"gpu": ["H100-SXM"], "pricing": "spot", "language": "tr"}, "H100-SXM"),
    "compare": ({"a": {"workload": "lora", "model": "qwen2.5-7b"}, "c": {"workload": "qlora"}}, "qwen2.5-7b, LoRA"),
    "accuracy": ({"table": "decode_throughput:prefill", "find": "H100"}, "decode_throughput:prefill"),
    "scale": ({"params_b": 70.0, "train_tokens": 1e12}, "Rent"),
    "spot": ({"workload": "qlora", "model": "llama-3.1-8b", "train_tokens": 1e7}, "Rent"),
}


def cells_of(name):
    return json.loads((NOTEBOOKS / f"{name}.ipynb").read_text("utf-8"))["cells"]


@pytest.mark.parametrize("name", ["index", *PAGES])
def test_form_of_a_notebook(name):
    """Outputs in version control, or a notebook that papermill cannot set."""
    cells = cells_of(name)
    assert 3 <= len(cells) <= 6
    assert all(not cell.get("outputs") and cell.get("execution_count") is None for cell in cells)
    assert [cell["id"] for cell in cells if "parameters" in cell["metadata"].get("tags", [])] == ["parameters"]
    title = "".join(cells[0]["source"]).splitlines()
    assert len([line for line in title if line.startswith("# ")]) == 2, "one title in each language"
    nbformat.validate(nbformat.read(NOTEBOOKS / f"{name}.ipynb", as_version=4))


def test_every_notebook_of_a_page_is_run():
    """A page that nobody runs with other parameters."""
    assert set(RUNS) == {"index", *PAGES}


@pytest.mark.notebook
@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_other_parameters(name, tmp_path):
    """A report or a batch run would show the default job."""
    given, words = RUNS[name]
    known = papermill.inspect_notebook(NOTEBOOKS / f"{name}.ipynb")
    assert set(given) <= set(known)
    book = nbformat.read(NOTEBOOKS / f"{name}.ipynb", as_version=4)
    book.cells.append(nbformat.v4.new_code_cell(CHECK))
    nbformat.write(book, tmp_path / "in.ipynb")
    done = papermill.execute_notebook(
        tmp_path / "in.ipynb", tmp_path / "out.ipynb", parameters=given, progress_bar=False, kernel_name="python3"
    )
    said = done.cells[-1].outputs[0].text
    assert words in said
    assert said.startswith(given.get("language") or "en")
    assert given.get("model", "") in said
