"""The card of the architecture: what stands in a config must be found in it, in both languages."""

import json

import pytest

from gpuguide import Scenario, decide, load_catalog
from gpuguide.catalog.carried import carried
from gpuguide.catalog.config import parse_config
from gpuguide.catalog.package import data_folder
from gpuguide.show.architecture import architecture_list, architecture_table, rows_of, source_in_words
from gpuguide.text import Text

CATALOG = load_catalog()
CONFIGS = data_folder() / "hf_configs"

# Figures as the config itself, or the model's card, has them.
SHOWN = [
    pytest.param("llama-3.1-8b", ["8.03B (8,030,261,248)", "32 with full attention", "14,336", "131,072 bytes a token"],
                 id="Llama 3.1 8B, config.json: 2 x 32 layers x 8 KV heads x 128 x 2 bytes"),
    pytest.param("deepseek-v3", ["37.55B", "256, 8 for each token, 1 shared, 2,048 wide, in 58 layers", "Latent (MLA)"],
                 id="DeepSeek V3, model card: 671B, 37B active, first 3 layers dense"),
    pytest.param("gemma-3-27b", ["62: 10 with full attention and 52 with a window of 1,024 tokens"],
                 id="Gemma 3 27B, config.json: sliding_window_pattern 6"),
    pytest.param("gpt-oss-20b", ["32, 4 for each token", "MXFP4"], id="gpt-oss 20B, config.json"),
    pytest.param("flux.1-dev", ["Images", "denoiser: 11.9B", "1,024 × 1,024"], id="FLUX.1 dev, model card: 12B"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "expected"), SHOWN)
def test_what_stands_in_the_config_is_shown(name, expected):
    """A reader could not check what the answer counts with."""
    shown = "\n".join(str(value) for _, value in rows_of(CATALOG.model(name), Text("en")))
    for words in expected:
        assert words in shown


@pytest.mark.parametrize("language", ["en", "tr"])
@pytest.mark.parametrize("name", CATALOG.models.names()[::9])
def test_every_model_has_a_card(name, language):
    """A missing text, or a quantity that is not known, would break the page."""
    rows = rows_of(CATALOG.model(name), Text(language))
    keys = [key for key, _ in rows]
    assert keys[0] == "architecture.name"
    assert len(keys) == len(set(keys)) > 5
    assert {"architecture.params", "architecture.native", "architecture.source", "architecture.as_of"} <= set(keys)
    assert not any("nan" in str(value) or "None" in str(value) for _, value in rows)


def test_a_model_of_one_s_own_is_marked_and_its_name_is_text():
    """A stranger's file would put markup on the page."""
    config = json.loads((CONFIGS / "phi-4.json").read_text())
    code = carried(parse_config(config, name="<b>mine</b>"))
    question = CATALOG.resolve(Scenario(workload="serve", model=code))
    shown = architecture_list(decide(question), Text("en"))
    assert "&lt;b&gt;mine&lt;/b&gt;" in shown
    assert "your own" in shown
    assert "your own" not in architecture_list(decide(CATALOG.resolve(Scenario(model="phi-4"))), Text("en"))


def test_a_model_by_size_says_that_it_is_none():
    """A derived shape would pass for a published one."""
    question = CATALOG.resolve(Scenario(workload="serve", params_b=9))
    assert "a typical shape of this size" in architecture_list(decide(question), Text("en"))


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("*.json")), ids=lambda path: path.stem)
def test_sources_are_said_in_turkish(path):
    """An English sentence on a Turkish page."""
    source = parse_config(json.loads(path.read_text())).source
    assert source_in_words(source, Text("en")) == source
    assert "sınıfının saydığı gibi" in source_in_words(source, Text("tr"))
    assert "class" not in source_in_words(source, Text("tr"))


def test_a_citation_stays_as_it_is():
    """A source must be found again by its own words."""
    cited = CATALOG.model("llama-2-7b").source
    assert source_in_words(cited, Text("tr")) == cited


def test_models_stand_side_by_side_in_one_order():
    """What only one of them has would stand at the end, far from what belongs to it."""
    models = [(CATALOG.model("llama-3.1-8b"), False), (CATALOG.model("gpt-oss-20b"), True)]
    shown = architecture_table(models, Text("en"))
    places = [shown.index(f">{words}<") for words in ("Parameters", "Active for each token", "Experts", "Source")]
    assert places == sorted(places)
    assert shown.count("your own") == 1
    assert "<table" not in architecture_table([], Text("en"))
