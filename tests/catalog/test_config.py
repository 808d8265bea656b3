"""Configs are counted exactly as their model classes would, from the file alone; what cannot be is refused."""

import copy
import csv
import json
import time
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuguide.catalog.config import parse_config, read_config
from gpuguide.catalog.models import Models
from gpuguide.catalog.source import facts
from gpuguide.errors import DataError, GuideError, InvalidScenario, NotModelled
from gpuguide.spec.model import MediaModel

DATA = Path(__file__).parents[2] / "data"
CONFIGS = DATA / "hf_configs"
EXPECTED = list(csv.DictReader((CONFIGS / "expected.csv").read_text().splitlines()))
ORACLE = [json.loads(line) for line in (Path(__file__).parent / "oracle_configs.jsonl").read_text().splitlines()[1:]]


def load(file: str) -> dict:
    return json.loads((CONFIGS / file).read_text())


def plain(value: object) -> str:
    return "" if value is None else str(value)


@pytest.mark.parametrize("row", EXPECTED, ids=[f"{row['file']}, transformers 5.24 on meta device" for row in EXPECTED])
def test_published_configs(row, tmp_path):
    """The count or the cache of a published model would be off by some tensor; no name in or of the file helps."""
    renamed = tmp_path / "x.json"
    renamed.write_text(json.dumps({key: value for key, value in load(row["file"]).items() if key != "_name_or_path"}))

    known = facts(parse_config(read_config(renamed)))

    columns = [name for name in row if name not in ("file", "model_id", "note", "source", "as_of")]
    assert {name: plain(known[name]) for name in columns} == {name: row[name] for name in columns}


def families() -> dict[str, list[dict]]:
    by_family: dict[str, list[dict]] = {}
    for row in ORACLE:
        by_family.setdefault(row["config"]["model_type"], []).append(row)
    return by_family


@pytest.mark.parametrize("family", sorted(families()))
def test_odd_dimensions(family):
    """A formula would hold only for the dimensions of published models: a bias, a norm or a flag is missed."""
    for row in families()[family]:
        model = parse_config(row["config"])
        assert model.params == row["params"], row["config"]
        if isinstance(model, MediaModel):
            continue
        assert (model.params_routed_experts, model.params_vision) == (row["routed"], row["vision"]), row["config"]
        assert model.tied_embeddings == row["tied"], row["config"]
        if "full" in row:
            cache = (model.kv_elements_full, model.kv_elements_windowed, model.recurrent_elements)
            assert cache == (row["full"], row["windowed"], row["state"]), row["config"]


def from_catalog(entry: dict) -> dict | None:
    """A config from the dimensions of a catalog object, where they say everything."""
    attention, experts, kind = entry["attention"], entry.get("moe") or {}, entry["model_type"]
    config = {
        "model_type": kind, "hidden_size": entry["hidden"], "num_hidden_layers": entry["layers"],
        "vocab_size": entry["vocab"], "tie_word_embeddings": entry["tie_embeddings"],
        "num_attention_heads": entry["heads"], "num_key_value_heads": entry["kv_heads"], "head_dim": entry["head_dim"],
        "intermediate_size": entry["ffn"], "sliding_window": attention["sliding_window"],
        "dtype": {"fp16": "float16", "fp32": "float32"}.get(entry["native_dtype"], "bfloat16"),
    }  # fmt: skip
    config = {key: value for key, value in config.items() if value is not None or key == "sliding_window"}
    if entry["max_context"]:
        config["max_position_embeddings"] = entry["max_context"]
    if experts:
        config |= {
            "num_local_experts": experts["experts"], "num_experts_per_tok": experts["top_k"],
            "moe_intermediate_size": experts["moe_ffn"], "n_shared_experts": experts["shared_experts"],
            "first_k_dense_replace": experts["first_dense_layers"], "num_experts": experts["experts"],
            "n_routed_experts": experts["experts"],
        }  # fmt: skip
        config["intermediate_size"] = experts["dense_layer_ffn"] or config["intermediate_size"]
    config |= {key: value for key, value in attention.items() if key.endswith(("_rank", "_head_dim"))}
    if kind == "opt":
        config["ffn_dim"] = entry["ffn"]
    elif kind == "falcon":
        config |= {"new_decoder_architecture": entry["kv_heads"] > 1, "num_kv_heads": entry["kv_heads"]}
    if entry["native_dtype"] == "fp8":
        config["quantization_config"] = {"quant_method": "fp8", "weight_block_size": [128, 128]}
    elif entry["native_dtype"] == "mxfp4":
        config["quantization_config"] = {"quant_method": "mxfp4"}
    return config


DIMENSIONS_SUFFICE = (
    "llama", "qwen2", "qwen3", "mistral", "gemma2", "gemma3_text", "phi3", "olmo2", "smollm3", "falcon", "gpt2", "opt",
    "gpt_neox", "bloom", "mixtral", "qwen3_moe", "deepseek_v2", "deepseek_v3", "gpt_oss", "olmoe", "minimax_m2",
    "jamba", "mamba2", "qwen3_next",
)  # fmt: skip
ENTRIES = [
    entry for entry in json.loads((DATA / "models.json").read_text()) if entry.get("model_type") in DIMENSIONS_SUFFICE
]


@pytest.mark.parametrize("entry", ENTRIES, ids=[entry["id"] for entry in ENTRIES])
def test_catalog_agrees(entry):
    """The catalog and a config of the same model would give two answers."""
    found, known = parse_config(from_catalog(entry)), Models(DATA).get(entry["id"])
    counts = ("params", "params_active", "params_embedding", "params_routed_experts", "native_bytes")
    cache = ("kv_elements_full", "kv_elements_windowed", "kv_window", "recurrent_elements", "layers_full")
    for name in (*counts, *cache):
        assert getattr(found, name) == getattr(known, name), name


# -- what a config leaves out ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("file", "key"),
    [
        ("llama-3.1-8b.json", "hidden_size"),
        ("llama-3.1-8b.json", "num_hidden_layers"),
        ("gpt2.json", "n_embd"),
        ("deepseek-v3.json", "hidden_size"),
    ],
)
def test_missing_key_is_named(file, key):
    """A default would pass for an answer about this file."""
    config = load(file)
    del config[key]
    with pytest.raises(InvalidScenario, match=f"lacks {key}|lacks hidden_size"):
        parse_config(config)


def test_missing_model_type():
    """The class would be guessed."""
    config = load("llama-3.1-8b.json")
    del config["model_type"], config["architectures"]
    with pytest.raises(InvalidScenario, match="lacks model_type"):
        parse_config(config)


def test_class_is_read_from_architectures():
    """A config that names only its class would be refused."""
    config = load("qwen3-30b-a3b.json")
    del config["model_type"]
    assert parse_config(config).params == 30_532_122_624


def test_class_default_is_announced():
    """A default would be silent."""
    assert "vocab_size = 262208" in parse_config(load("gemma-3-4b-sparse.json")).source


def test_null_kv_heads_are_all_heads_not_the_class_default():
    """`null` would be taken for 'left out': Mixtral's class then has 8 KV heads, the config means 32."""
    config = load("mixtral-8x7b.json") | {"num_key_value_heads": None}
    assert parse_config(config).kv_heads == 32
    del config["num_key_value_heads"]
    assert parse_config(config).kv_heads == 8


def test_flat_and_nested_text_config_are_one():
    """Older Qwen2.5-VL files hold the decoder's keys at the top."""
    nested = load("qwen2.5-vl-7b.json")
    flat = {key: value for key, value in nested.items() if key != "text_config"}
    flat |= {key: value for key, value in nested["text_config"].items() if key != "model_type"}
    assert parse_config(flat).params == parse_config(nested).params


UNKNOWN = {
    "model_type": "brandnew", "architectures": ["BrandnewForCausalLM"], "hidden_size": 64, "intermediate_size": 128,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 100,
    "tie_word_embeddings": False, "hidden_act": "silu", "rms_norm_eps": 1e-6,
}  # fmt: skip


def test_unknown_class_with_every_key_of_a_llama_is_marked_as_derived():
    """A new name for the common structure would be refused, or pass as known."""
    model = parse_config(UNKNOWN)
    assert model.derived
    assert "unknown class" in model.source
    assert model.params == parse_config(UNKNOWN | {"model_type": "llama"}).params


@pytest.mark.parametrize("change", [{"num_experts": 8}, {"kv_lora_rank": 8}, {"ssm_state": 4}, {"qkv_bias": True}])
def test_unknown_class_with_a_structure_of_its_own_is_refused(change):
    """Experts or compressed attention of an unknown kind would be counted as a plain decoder."""
    with pytest.raises(NotModelled, match=next(iter(change))):
        parse_config(UNKNOWN | change)


@pytest.mark.parametrize("kind", ["bert", "clip", "deepseek_v4", "x" * 10_000])
def test_unknown_class_is_refused(kind):
    """Another kind of model would be answered for as if it were a decoder."""
    with pytest.raises(NotModelled, match="model_type"):
        parse_config({"model_type": kind, "hidden_size": 64})


def test_diffusers_config_is_refused():
    """A denoiser's config would be read as a language model."""
    with pytest.raises(NotModelled, match="diffusers"):
        parse_config({"_class_name": "FluxTransformer2DModel", "num_layers": 19})


# -- hostile input -----------------------------------------------------------------------------------------------------

HOSTILE = {
    "10 MB of junk": b"\x00\xff{[" * 2_500_000,
    "10 MB of spaces": b" " * 10_000_000,
    "deep nesting": b"[" * 900_000,
    "nesting of a few thousand": b"[" * 15_000,
    "deep objects": b'{"a":' * 300_000,
    "many empty lists": b"[" + b"[]," * 600_000 + b"[]]",
    "a number": b"7",
    "null": b"null",
    "long number": b'{"model_type":"llama","hidden_size":' + b"9" * 100_000 + b"}",
    "infinity": b'{"model_type":"llama","num_hidden_layers":1e999,"hidden_size":Infinity}',
    "not text": b"\xff\xfe\x00\x01",
    "empty": b"",
}


@pytest.mark.parametrize("content", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_file_is_a_sentence(content, tmp_path):
    """A broken upload would end in a traceback, take seconds, or fill the memory."""
    path = tmp_path / "config.json"
    path.write_bytes(content)
    began = time.perf_counter()
    with pytest.raises(GuideError):
        parse_config(read_config(path))
    assert time.perf_counter() - began < 2.0  # a tenth of a second alone; the machine may be busy
    tracemalloc.start()
    try:
        with pytest.raises(GuideError):
            parse_config(read_config(path))
        assert tracemalloc.get_traced_memory()[1] < 150e6
    finally:
        tracemalloc.stop()


WRONG = [-1, 0, 10**30, 2**63, "4096", 1.5, True, [], {}, [4096], float("nan"), float("inf"), "x" * 100_000]


@pytest.mark.parametrize("value", WRONG, ids=[repr(value)[:20] for value in WRONG])
@pytest.mark.parametrize("key", ["hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size", "head_dim"])
def test_impossible_dimension_is_a_sentence(key, value):
    """A negative or absurd width would give a negative or absurd count."""
    with pytest.raises(GuideError) as caught:
        parse_config(load("llama-3.1-8b.json") | {key: value})
    assert len(str(caught.value)) < 300


def test_huge_but_possible_dimensions_are_quick():
    """Ten thousand layers with lists by layer would hold up the page."""
    config = load("gpt-oss-20b.json") | {"num_hidden_layers": 10_000, "layer_types": ["sliding_attention"] * 10_000}
    config["quantization_config"]["modules_to_not_convert"] = [f"model.layers.{n}.mlp.{n}" for n in range(20_000)]
    began = time.perf_counter()
    parse_config(config)
    assert time.perf_counter() - began < 3.0


def test_more_parameters_than_any_model_has_is_a_sentence():
    """A count beyond float64's whole numbers would be rounded."""
    wide = {"hidden_size": 10**9, "intermediate_size": 10**9, "num_attention_heads": 1, "num_key_value_heads": 1}
    with pytest.raises(InvalidScenario, match="no model has more"):
        parse_config(load("llama-3.1-8b.json") | wide)


def test_error_of_a_file_says_what_it_is(tmp_path):
    """The reader would not learn what to mend."""
    with pytest.raises(DataError, match="cannot be read"):
        read_config(tmp_path / "absent.json")


VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(-5, 20_000), st.integers(), st.floats(), st.text(max_size=8),
    st.lists(st.integers(-2, 60), max_size=6), st.lists(st.text(max_size=5), max_size=4),
    st.dictionaries(st.text(max_size=5), st.integers(), max_size=3),
)  # fmt: skip


def mutate(config: dict, changes: list[tuple[int, object]], drops: list[int]) -> dict:
    """A config with some of its keys, nested ones too, given other values or taken out."""
    config = copy.deepcopy(config)
    places = [(config, key) for key in list(config)]
    for nested in ("text_config", "vision_config", "quantization_config", "attn_config", "ffn_config"):
        if isinstance(config.get(nested), dict):
            places += [(config[nested], key) for key in list(config[nested])]
    for place, value in changes:
        holder, key = places[place % len(places)]
        holder[key] = value
    for place in drops:
        holder, key = places[place % len(places)]
        holder.pop(key, None)
    return config


def check_mutated(row: dict, changes: list[tuple[int, object]], drops: list[int]) -> None:
    try:
        known = facts(parse_config(mutate(row["config"], changes, drops)))
    except GuideError as error:
        assert 0 < len(str(error)) < 600  # noqa: PT017
        return
    assert known["params_total"] > 0
    json.dumps(known, allow_nan=False)


CHANGES = st.lists(st.tuples(st.integers(0, 60), VALUES), max_size=4)
DROPS = st.lists(st.integers(0, 60), max_size=3)


@given(row=st.sampled_from(ORACLE), changes=CHANGES, drops=DROPS)
@settings(max_examples=300)
def test_any_change_gives_an_answer_or_a_sentence(row, changes, drops):
    """Some value in some key would end in a traceback or a nonsensical count."""
    check_mutated(row, changes, drops)


@pytest.mark.slow
@given(row=st.sampled_from(ORACLE), changes=CHANGES, drops=DROPS)
@settings(max_examples=20_000)
def test_any_change_gives_an_answer_or_a_sentence_at_length(row, changes, drops):
    """As above, for longer."""
    check_mutated(row, changes, drops)
