"""
A scenario as the short, readable query string of a link, and back: pages, command line and reports say it alike.

Only what differs from a default is written, so that a link stays short and means the same everywhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from gpuguide.errors import InvalidScenario
from gpuguide.spec.scenario import Scenario

ADDRESS = "http://127.0.0.1:8866"
"""Where `gpuguide app` serves the pages."""
LONGEST_QUERY = 8_000
MOST_KEYS = 100

PAGES = {
    "pretrain": "train", "full": "finetune", "lora": "finetune", "qlora": "finetune", "serve": "serve",
    "image": "media", "video": "media", "audio": "media",
}  # fmt: skip
"""Page that shows a workload."""


def link_of(scenario: Scenario, address: str = "") -> str:
    """
    The link to a scenario.

    Parameters
    ----------
    scenario : Scenario
    address : str
        Where the pages are served, such as ``http://127.0.0.1:8866``; without it the query string alone is given.

    Examples
    --------
    >>> link_of(Scenario(workload="lora", model="llama-3.1-8b", train_tokens=1e8, gpu=("H100-SXM", "L40S")))
    'workload=lora&model=llama-3.1-8b&train_tokens=1e8&gpu=H100-SXM,L40S'
    """
    given = {"workload": scenario.workload} | scenario.model_dump(exclude_defaults=True)
    query = write_query({key: value for key, value in given.items() if value is not None})
    return f"{address.rstrip('/')}/{PAGES[scenario.workload]}?{query}" if address else query


def is_link(text: str) -> bool:
    """
    Whether a text is a link rather than the name of a file.

    Examples
    --------
    >>> is_link("http://127.0.0.1:8866/serve?model=phi-4"), is_link("workload=lora"), is_link("job.toml")
    (True, True, False)
    """
    first = text.partition("?")[2] or text
    key = first.partition("=")[0]
    return "=" in first and key in Scenario.model_fields


def scenario_of(link: str) -> Scenario:
    """
    The scenario of a link, of its query string, or of what follows the question mark.

    Raises
    ------
    UnknownName, InvalidScenario
        If a key or value is not a scenario's; nothing of a link is dropped in silence.

    Examples
    --------
    >>> scenario_of("http://127.0.0.1:8866/serve?model=phi-4&concurrency=8").concurrency
    8
    """
    return Scenario.from_mapping(values_of(link))


def values_of(link: str) -> dict[str, str]:
    """Keys and values of a link, not yet checked."""
    query = urlsplit(link).query if "?" in link else link
    if len(query) > LONGEST_QUERY:
        raise InvalidScenario("link", link, f"a link has at most {LONGEST_QUERY} characters; use a file")
    return read_query(query)


def read_query(search: str | None) -> dict[str, str]:
    """Keys and values of an address; what is too long to be meant is dropped, and a Jupyter server's own key too."""
    query = (search or "").removeprefix("?")
    if len(query) > LONGEST_QUERY:
        query = query[:LONGEST_QUERY].rpartition("&")[0]
    try:
        found = dict(parse_qsl(query, keep_blank_values=False, max_num_fields=MOST_KEYS, errors="replace"))
    except ValueError:
        return {}
    found.pop("token", None)
    return found


def write_query(values: Mapping[str, Any]) -> str:
    """Short and readable: numbers without needless digits, lists joined by commas."""
    return urlencode({key: in_link(value) for key, value in values.items()}, safe=",/:")


def in_link(value: Any) -> str:
    """
    A value as it stands in a link; reads back as exactly the same value.

    Examples
    --------
    >>> in_link(1.5e12), in_link(8192), in_link(0.1 + 0.2), in_link(True), in_link(("a", "b"))
    ('1.5e12', '8192', '0.30000000000000004', 'true', 'a,b')
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    if isinstance(value, float):
        long = str(int(value)) if value.is_integer() and abs(value) < 1e18 else repr(value)
        short = f"{value:g}".replace("e+0", "e").replace("e+", "e")
        return short if float(short) == value and len(short) < len(long) else long
    return str(value)
