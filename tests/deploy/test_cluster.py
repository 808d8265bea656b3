"""
`deploy/kubernetes.yaml` as Kubernetes reads it: every field exists, with a value of its type.

`make hub` installs the models of the Kubernetes interface beside its hub and runs it; `make test` leaves it out.
"""

import copy
import importlib.util
from pathlib import Path

import pytest
import yaml

pytestmark = pytest.mark.hub

ROOT = Path(__file__).resolve().parents[2]
OBJECTS = list(yaml.safe_load_all((ROOT / "deploy" / "kubernetes.yaml").read_text("utf-8")))


def read(document):
    """The object as a model that takes no other field and converts no type."""
    assert importlib.util.find_spec("kubernetes"), "make hub installs it"
    from kubernetes import client

    version = document["apiVersion"].rpartition("/")[2].capitalize()
    return getattr(client, f"{version}{document['kind']}").model_validate(document, strict=True)


@pytest.mark.parametrize("document", [pytest.param(one, id=one["kind"]) for one in OBJECTS])
def test_every_field_is_known(document):
    """A misspelt limit or probe is dropped or refused by a cluster, depending on how it is asked."""
    from kubernetes import client

    assert client.ApiClient().sanitize_for_serialization(read(document)) == document


def test_a_misspelt_field_is_seen():
    """The models of older releases let it through."""
    document = copy.deepcopy(OBJECTS[0])
    document["spec"]["template"]["spec"]["containers"][0]["readinessProbe"]["periodSecond"] = 1
    with pytest.raises(ValueError, match="periodSecond"):
        read(document)
