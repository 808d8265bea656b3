"""What the estimate of one measured run was asked, as the page shows it."""

import numpy as np
import pandas as pd
import pytest

from gpuguide.accuracy.inputs import facts_of, inputs_of, note, plain, run_of
from gpuguide.spec.plan import Plan


def test_only_the_listener_hears_what_is_asked():
    """Scores of thousands of rows would gather what nobody reads, or one run would show another's inputs."""
    note(job={"batch": 1})
    heard = inputs_of(lambda rows, catalog: note(job={"batch": 2.0}) or rows, pd.DataFrame(), None)
    assert heard == {"job": {"batch": 2.0}}
    assert inputs_of(lambda rows, catalog: rows, pd.DataFrame(), None) == {}


def test_a_failing_scorer_leaves_nobody_listening():
    """The next run would be shown with the last one's inputs."""
    with pytest.raises(ZeroDivisionError):
        inputs_of(lambda rows, catalog: 1 / 0, pd.DataFrame(), None)
    note(job={"batch": 3.0})
    assert inputs_of(lambda rows, catalog: rows, pd.DataFrame(), None) == {}


def test_a_plan_in_words():
    """Defaults hide what was asked; places in a list of words are no words."""
    assert plain(Plan(tensor_parallel=np.array([[8.0]]), recompute=2.0)) == {
        "tensor_parallel": 8.0, "recompute": "full", "offload": "none",
    }  # fmt: skip


def test_facts_are_found_in_whatever_column_says_them():
    """A filter would miss a table that names its columns otherwise."""
    facts = facts_of(pd.DataFrame({"row_id": ["a", "b"], "model_shape_of": ["m", None], "task": ["lora", "full"]}))
    assert facts.to_dict("index") == {"a": {"model": "m", "method": "lora"}, "b": {"model": "", "method": "full"}}
    assert run_of("a:weights") == "a"
