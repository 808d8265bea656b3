"""The table of controls against the Scenario, and which values give way to which."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuguide.app.controls import AUTO, CONTROLS, Facts, settle
from gpuguide.app.pages import DECLARATIONS
from gpuguide.spec.scenario import WORKLOADS, Scenario


@pytest.mark.parametrize("key", CONTROLS)
def test_every_value_that_a_control_offers_is_allowed(key):
    """A slider that runs into an error message."""
    control = CONTROLS[key]
    values = [value for value in (*control.options, *control.presets, control.start) if value not in (AUTO, None)]
    values += [control.low, control.high] if control.kind == "log" else []
    for value in values:
        Scenario.from_mapping({key: int(value) if control.integer and not isinstance(value, str) else value})


@pytest.mark.parametrize("name", DECLARATIONS)
def test_pages_declare_what_exists(name):
    """A page that asks for a control or a workload nobody knows would not open."""
    page = DECLARATIONS[name]
    keys = [key for keys in page.groups.values() for key in keys]
    assert set(keys) <= set(CONTROLS)
    assert len(keys) == len(set(keys)), "a control stands twice on the page"
    assert set(page.workloads) <= set(WORKLOADS)
    for values in (page.start, *page.presets.values()):
        assert Scenario.from_mapping(values).workload in page.workloads or len(page.workloads) == 1


LLAMA = Facts(params_b=8.03, max_context=131_072)
SETTLED = [  # what is set, what was moved last, what must come out
    pytest.param({"params_b": 13.0, "model": "m"}, "params_b", {"model": AUTO, "params_b": 13.0}, id="size, not model"),
    pytest.param({"params_b": 13.0, "model": "m"}, "model", {"model": "m", "params_b": 8.03}, id="model brings size"),
    pytest.param({"max_context": 10**6, "model": "m"}, "max_context", {"max_context": 131_072}, id="model reads less"),
    pytest.param(
        {"max_context": 1000, "prompt_tokens": 3000, "output_tokens": 1000, "workload": "serve"},
        "prompt_tokens",
        {"max_context": 4000, "prompt_tokens": 3000},
        id="prompt widens context",
    ),
    pytest.param(
        {"max_context": 1000, "prompt_tokens": 3000, "output_tokens": 1000, "workload": "serve"},
        "max_context",
        {"max_context": 1000, "prompt_tokens": 750, "output_tokens": 250},
        id="context shortens both",
    ),
    pytest.param({"micro_batch": 8, "global_batch": 4}, "micro_batch", {"global_batch": 8}, id="batch of one GPU"),
    pytest.param({"micro_batch": 8, "global_batch": 4}, "global_batch", {"micro_batch": 4}, id="batch of all"),
]


@pytest.mark.parametrize(("values", "changed", "expected"), SETTLED)
def test_what_gives_way(values, changed, expected):
    """What was moved last must stay where the reader put it."""
    settled, _ = settle(values, changed, LLAMA if "model" in values else Facts())
    assert {key: settled[key] for key in expected} == expected


@given(
    st.integers(1, 10**6), st.integers(1, 10**6), st.integers(1, 10**6),
    st.sampled_from(["max_context", "prompt_tokens", "output_tokens", None]), st.none() | st.integers(2, 10**6),
)  # fmt: skip
def test_settled_values_stand_together(context, prompt, output, changed, longest):
    """Whatever is dragged, the next hop gets a question that can be asked."""
    values = {"workload": "serve", "max_context": context, "prompt_tokens": prompt, "output_tokens": output}
    settled, _ = settle(values, changed, Facts(max_context=longest))
    assert settled["prompt_tokens"] + settled["output_tokens"] <= max(settled["max_context"], 2)
    assert settled["max_context"] <= (longest or 10**9)
    assert min(settled["prompt_tokens"], settled["output_tokens"]) >= 1
    again, bounds = settle(settled, changed, Facts(max_context=longest))
    assert again == settled
    assert not bounds
