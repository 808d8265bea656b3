"""The memory page under Solara's server, for `users.py` to measure: `solara run benchmarks/solara_page.py:page`."""

import solara
from IPython.display import display

from gpuguide.app import memory_page, warm_up

GIVEN = {"workload": "serve", "model": "llama-3.1-8b", "max_context": 8192, "concurrency": 8}  # as in the notebook
warm_up()  # as our own server does before anybody comes


@solara.component
def page() -> None:
    """Show each reader a page of its own."""
    display(solara.use_memo(lambda: memory_page(**GIVEN), []))
