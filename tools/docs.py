"""
Write the produced parts of the READMEs and docs: what stands between `<!-- begin NAME -->` and `<!-- end -->`.

usage: python tools/docs.py [--check] [FILE ...]        without files: all; --check writes nothing, fails where it would

A part is produced from the package itself (docstrings, fields and their comments, the scenario's schema), from
`data/datapackage.json`, from installed metadata or from `gpuguide accuracy`, so that a page cannot say something else.
"""

from __future__ import annotations

import ast
import functools
import importlib.metadata
import json
import re
import sys
import textwrap
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
PART = re.compile(r"(<!-- begin (?P<name>[\w-]+)(?::(?P<words>[^>]*?))? -->\n).*?(<!-- end -->)", re.DOTALL)
SLOW = ("accuracy",)
"""Parts that take seconds to produce; the README's table is compared by a test of its own, with a tolerance."""


def pages() -> list[Path]:
    """Every page that may hold produced parts."""
    return [ROOT / "README.md", ROOT / "README.tr.md", *sorted((ROOT / "docs").rglob("*.md"))]


def produced(text: str, *, slow: bool = True) -> str:
    """The page with every part written anew."""

    def written(match: re.Match[str]) -> str:
        name, words = match["name"], (match["words"] or "").split()
        if name in SLOW and not slow:
            return match[0]
        return f"{match[1]}{PARTS[name](words)}\n{match[4]}"

    return PART.sub(written, text)


def table(head: list[str], rows: list[list[str]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(
        "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in line) + " |" for line in lines
    )


# ---- functions and their docstrings ----------------------------------------------------------------------------------


def sections_of(docstring: str) -> dict[str, str]:
    """Parts of a numpydoc docstring by heading; the text before the first is the summary."""
    found: dict[str, list[str]] = {"": []}
    lines, heading = textwrap.dedent(docstring).strip().splitlines(), ""
    for place, line in enumerate(lines):
        following = lines[place + 1] if place + 1 < len(lines) else ""
        if re.fullmatch(r"-{3,}", following) and re.fullmatch(r"[A-Z][a-z ]+", line):
            heading = line
            found[heading] = []
        elif not re.fullmatch(r"-{3,}", line):
            found[heading].append(line)
    return {name: "\n".join(text).strip() for name, text in found.items()}


def unit_of(parts: dict[str, str]) -> str:
    """The unit of the answer: the last bracket of Returns, else of the summary."""
    for text in (parts.get("Returns", ""), parts[""]):
        units = re.findall(r"\[([^\[\]]{1,24})\](?=[.;,\s]|$)", text)
        if units:
            return str(units[-1])
    return ""


def public_functions(module: str) -> Iterator[ast.FunctionDef]:
    """Functions of a module that others may call and that say what they do, in their order."""
    path = ROOT / f"{module.replace('.', '/')}.py"
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_") and ast.get_docstring(node):
            yield node


def tests_of(module: str, name: str) -> str:
    """The test file that names a function: the one that mirrors its module, else the first there is."""
    layer, topic = module.split(".")[1:3]
    mirror = ROOT / "tests" / layer / f"test_{topic}.py"
    others = [path for path in sorted((ROOT / "tests").glob("*/test_*.py")) if path.parent.name in (layer, "accuracy")]
    for path in (mirror, *others):
        if path.is_file() and re.search(rf"\b{name}\b", path.read_text(encoding="utf-8")):
            return f"`{path.relative_to(ROOT).as_posix()}`"
    return ""


def functions(words: list[str]) -> str:
    """One paragraph a function: what it answers, in which unit, what its docstring notes, where it is checked."""
    lines = []
    for word in words:
        module, _, only = word.partition("#")
        found = {node.name: node for node in public_functions(f"gpuguide.{module}")}
        for name in only.split(",") if only else found:
            if name not in found:
                raise SystemExit(f"tools/docs.py: gpuguide.{module} has no public function {name} with a docstring")
            node = found[name]
            parts = sections_of(ast.get_docstring(node) or "")
            notes = parts.get("Notes", "")
            # A citation of this very page leads nowhere from here.
            notes = re.sub(r'(;\s*|Sources?:\s*|\s*)`docs/formulas\.md`,\s+"[^"]+"(; |\.)?', _without_citation, notes)
            said = " ".join(f"{_one_line(parts[''])} {_one_line(notes)}".split())
            unit = unit_of(parts)
            checked = tests_of(f"gpuguide.{module}", node.name)
            line = (
                f"- **`{module}.{node.name}`**"
                + (f" [{unit}]" if unit and f"[{unit}]" not in said else "")
                + f": {said}"
            )
            lines.append(line + (f" Checked in {checked}." if checked else ""))
    return "\n".join(lines)


def listed() -> set[tuple[str, str]]:
    """(module, function) of everything that a section of docs/formulas.md names."""
    found = set()
    for match in PART.finditer((ROOT / "docs" / "formulas.md").read_text(encoding="utf-8")):
        for word in (match["words"] or "").split() if match["name"] == "functions" else ():
            module, _, only = word.partition("#")
            names = only.split(",") if only else [node.name for node in public_functions(f"gpuguide.{module}")]
            found |= {(module, name) for name in names}
    return found


def others(words: list[str]) -> str:
    """Public functions of `estimate` and `decide` that no section names."""
    known, rest = listed(), []
    for layer in ("estimate", "decide"):
        for path in sorted((ROOT / "gpuguide" / layer).glob("*.py")):
            names = [node.name for node in public_functions(f"gpuguide.{layer}.{path.stem}")]
            missing = [name for name in names if (f"{layer}.{path.stem}", name) not in known]
            rest += [f"{layer}.{path.stem}#{','.join(missing)}"] if missing else []
    return functions(rest) or "There are none."


def _without_citation(match: re.Match[str]) -> str:
    before, after = match[1], match[2] or ""
    if before.startswith(";"):
        return "." if not after.startswith(";") else "; "
    if before.startswith("Source"):
        return before if after.startswith(";") else ""
    return " "


def _one_line(text: str) -> str:
    """Paragraphs joined; lines that state a formula keep their own sentence."""
    joined = " ".join(text.split())
    return joined if not joined or joined[-1] in ".]" else joined + "."


# ---- names, units and keys -------------------------------------------------------------------------------------------

GROUPS = {
    "what": ("workload", "max_position_embeddings"),
    "training": ("train_tokens", "offload"),
    "plan": ("tensor_parallel", "zero_stage"),
    "serving": ("weight_format", "load"),
    "media": ("width", "audio_seconds"),
    "where": ("gpu", "max_price_age_days"),
    "run": ("sessions", "currency_per_usd"),
}
"""First and last key of each group, in the order in which `Scenario` declares them."""


def scenario(words: list[str]) -> str:
    """Keys of a scenario in their groups, from its JSON schema."""
    from gpuguide import Scenario

    properties = Scenario.model_json_schema()["properties"]
    keys, texts = list(properties), []
    for group, (first, last) in GROUPS.items():
        inside = keys[keys.index(first) : keys.index(last) + 1]
        rows = [
            [f"`{key}`", _allowed(properties[key]), _default(properties[key]), properties[key]["description"]]
            for key in inside
        ]
        texts.append(f"**{group}**\n\n" + table(["key", "value", "default", "meaning"], rows))
    counted = sum(keys.index(last) + 1 - keys.index(first) for first, last in GROUPS.values())
    if counted != len(keys):
        raise SystemExit(f"tools/docs.py: GROUPS names {counted} of {len(keys)} scenario keys")
    return "\n\n".join(texts)


def _allowed(schema: dict[str, Any]) -> str:
    """Type and range of a key in words."""
    if "anyOf" in schema:
        return " or ".join(_allowed(part) for part in schema["anyOf"] if part.get("type") != "null")
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    words = {
        "integer": "whole number",
        "number": "number",
        "string": "text",
        "boolean": "true or false",
        "array": "list",
    }
    text = words.get(schema.get("type", ""), "text")
    low = schema.get("minimum", schema.get("exclusiveMinimum"))
    high = schema.get("maximum", schema.get("exclusiveMaximum"))
    if low is not None:
        text += f" {'above' if 'exclusiveMinimum' in schema else 'from'} {low:,g}"
    if high is not None:
        text += f"{' to' if low is not None else ' up to'} {high:,.15g}"
    return text


def _default(schema: dict[str, Any]) -> str:
    value = schema.get("default")
    if isinstance(value, list | tuple):
        return ", ".join(f"`{part}`" for part in value)
    return "" if value is None else f"`{str(value).lower() if isinstance(value, bool) else value}`"


def fields(words: list[str]) -> str:
    """Fields of dataclasses with the comment that stands beside each: meaning and unit."""
    texts = []
    for word in words:
        module, _, name = word.rpartition(".")
        path = ROOT / "gpuguide" / f"{module.replace('.', '/')}.py"
        source = path.read_text(encoding="utf-8")
        lines = source.splitlines()
        body = next(node for node in ast.parse(source).body if isinstance(node, ast.ClassDef) and node.name == name)
        rows = []
        for node in body.body:
            if (
                isinstance(node, ast.AnnAssign)
                and isinstance(node.target, ast.Name)
                and not node.target.id.startswith("_")
            ):
                comment = lines[(node.end_lineno or node.lineno) - 1][node.end_col_offset :].partition("#")[2].strip()
                rows.append([f"`{node.target.id}`", comment])
        what = _one_line(sections_of(ast.get_docstring(body) or "")[""].split("\n\n")[0])
        texts.append(
            f"**`{name}`** (`gpuguide/{module.replace('.', '/')}.py`): {what}\n\n"
            + table(["field", "meaning, unit"], rows)
        )
    return "\n\n".join(texts)


def spellings(words: list[str]) -> str:
    """Other names that model classes give to the common keys of a `config.json`."""
    from gpuguide.catalog.families.values import OLD_NAMES, class_facts

    others: dict[str, set[str]] = {key: set() for key in STANDARD}
    pairs = [pair for facts in class_facts().values() for pair in facts.get("aliases", {}).items()]
    pairs += [pair for names in OLD_NAMES.values() for pair in names.items()]
    for pair in pairs:
        own = {name for name in pair if name not in STANDARD}
        standard = {COMMON.get(name, name) for name in pair} & set(STANDARD)
        if len(standard) == 1:
            others[standard.pop()] |= own
    rows = [[f"`{key}`", ", ".join(f"`{other}`" for other in sorted(found))] for key, found in others.items() if found]
    return table(["key", "also read as"], rows)


STANDARD = (
    "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim",
    "vocab_size", "max_position_embeddings", "num_local_experts", "num_experts_per_tok", "moe_intermediate_size",
)  # fmt: skip
"""Keys that most model classes use; the same as those of a scenario."""
COMMON = {
    "n_embd": "hidden_size", "n_layer": "num_hidden_layers", "n_head": "num_attention_heads",
    "d_model": "hidden_size", "n_heads": "num_attention_heads", "n_layers": "num_hidden_layers",
    "n_positions": "max_position_embeddings", "max_seq_len": "max_position_embeddings",
    "n_routed_experts": "num_local_experts", "num_experts": "num_local_experts",
    "moe_num_experts": "num_local_experts", "moe_k": "num_experts_per_tok",
    "encoder_layers": "num_hidden_layers", "encoder_attention_heads": "num_attention_heads",
    "decoder_layers": "num_hidden_layers", "decoder_attention_heads": "num_attention_heads",
    "num_layers": "num_hidden_layers", "num_heads": "num_attention_heads",
}  # fmt: skip
"""Own spellings of single classes under the key that most classes use."""


def units(words: list[str]) -> str:
    """Constants of `gpuguide.units`."""
    import gpuguide.units as module

    rows = []
    for name, value in vars(module).items():
        if name.isupper() and isinstance(value, int | float):
            rows.append([f"`{name}`", f"{value:,.15g}"])
    return table(["name", "value"], rows)


# ---- tables ----------------------------------------------------------------------------------------------------------


def tables(words: list[str]) -> str:
    """Every table of the data package: columns, types, units, constraints."""
    package = json.loads((ROOT / "data" / "datapackage.json").read_text(encoding="utf-8"))
    texts = []
    for resource in package["resources"]:
        schema = resource["schema"]
        licences = resource.get("licenses", package["licenses"][:1])
        keys = _listed(schema.get("primaryKey"))
        about = f"`data/{resource['path']}`, {licences[0]['name']}." + (f" One row a {keys}." if keys else "")
        for key in schema.get("foreignKeys", ()):
            target = key["reference"]
            about += (
                f" {_listed(key['fields'])} refers to {target['resource']}.{_listed(target['fields'], plain=True)}."
            )
        rows = [
            [f"`{field['name']}`", _kind(field), field.get("unit", ""), field.get("description", "")]
            for field in schema["fields"]
        ]
        texts.append(f"### {resource['title']}\n\n{about}\n\n" + table(["column", "type", "unit", "meaning"], rows))
    return "\n\n".join(texts)


def _listed(names: Any, *, plain: bool = False) -> str:
    names = [names] if isinstance(names, str) else names or []
    return ", ".join(name if plain else f"`{name}`" for name in names)


def _kind(field: dict[str, Any]) -> str:
    constraints = field.get("constraints", {})
    text = str(field["type"])
    if "enum" in constraints and len(constraints["enum"]) <= 12:
        text = ", ".join(str(value) for value in constraints["enum"])
    if "minimum" in constraints or "maximum" in constraints:
        text += f" {constraints.get('minimum', '')}..{constraints.get('maximum', '')}"
    return text + (", required" if constraints.get("required") else "")


def attribution(words: list[str]) -> str:
    """The attributions of data/README.md, whole."""
    readme = (ROOT / "data" / "README.md").read_text(encoding="utf-8")
    return readme.partition("## Attribution\n")[2].partition("\n## ")[0].strip()


# ---- licences of what is installed -----------------------------------------------------------------------------------


def needed_packages() -> list[str]:
    """Distributions that gpuguide and its extras install here, dependencies included."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    todo = [Requirement(text) for text in project["dependencies"]]
    todo += [Requirement(text) for group in project["optional-dependencies"].values() for text in group]
    seen: set[tuple[str, str]] = set()
    names = set()
    while todo:
        wanted = todo.pop()
        for extra in ("", *wanted.extras):
            name = canonicalize_name(wanted.name)
            if (name, extra) in seen:
                continue
            seen.add((name, extra))
            try:
                requires = importlib.metadata.requires(name) or []
            except importlib.metadata.PackageNotFoundError:
                continue
            names.add(name)
            for text in requires:
                further = Requirement(text)
                if further.marker is None or further.marker.evaluate({"extra": extra}):
                    todo.append(further)
    return sorted(names)


def licence_of(name: str) -> str:
    """What a distribution says of its licence, in a few words."""
    metadata = importlib.metadata.metadata(name)
    if expression := metadata.get("License-Expression"):
        return str(expression)
    listed = [
        text.rpartition(" :: ")[2] for text in metadata.get_all("Classifier") or () if text.startswith("License ::")
    ]
    listed = [text for text in listed if text != "OSI Approved"]
    if listed:
        return ", ".join(sorted(set(listed)))
    stated = (metadata.get("License") or "").strip().splitlines()
    return stated[0][:60] if stated else "not stated; see its files"


def licences(words: list[str]) -> str:
    """Licence of every package that is installed with all extras; no versions, those are in requirements.lock."""
    rows = [[importlib.metadata.metadata(name)["Name"], licence_of(name)] for name in needed_packages()]
    return table(["package", "licence it states"], rows)


# ---- how true --------------------------------------------------------------------------------------------------------

HEADS = {
    "en": ["published measurements of", "runs scored", "half are within", "nine in ten within", "inside low..high"],
    "tr": [
        "yayımlanmış ölçümler",
        "puanlanan",
        "yarısının hatası en çok",
        "onda dokuzunun en çok",
        "alt-üst aralığında",
    ],
}
WHAT = {
    "training_memory": ("training memory", "eğitim belleği"),
    "torch_memory": ("training memory, counted by PyTorch", "eğitim belleği, PyTorch sayımı"),
    "training_memory_components": ("training memory by parts", "parça parça eğitim belleği"),
    "diffusion_training": ("fine-tuning of diffusion models, memory", "difüzyon modellerinde ince ayar belleği"),
    "training_throughput:dense": ("training speed, dense models", "eğitim hızı, yoğun modeller"),
    "training_throughput:moe": ("training speed, mixtures of experts", "eğitim hızı, uzman karışımları"),
    "mlperf_training": ("MLPerf Training, time to train", "MLPerf Training, eğitim süresi"),
    "inference_memory:weights": ("serving memory, weights", "sunum belleği, ağırlıklar"),
    "inference_memory:kv_bytes_per_token": ("KV cache per token", "token başına KV önbelleği"),
    "inference_memory:kv_room": ("room an engine leaves for the KV cache", "motorun KV önbelleğine bıraktığı yer"),
    "inference_memory:peak": ("serving memory, peak", "sunum belleği, en yüksek"),
    "decode_throughput:decode_batch_static": ("decoding, fixed batch", "üretim hızı, sabit batch"),
    "decode_throughput:e2e_bs1": ("one request from end to end", "baştan sona tek istek"),
    "decode_throughput:serving_online_dense": ("serving under load, dense models", "yük altında sunum, yoğun modeller"),
    "decode_throughput:serving_online_moe": (
        "serving under load, mixtures of experts",
        "yük altında sunum, uzman karışımları",
    ),
    "decode_throughput:serving_online_ttft": ("time to first token under load", "yük altında ilk token süresi"),
    "decode_throughput:serving_online_moe_ttft": (
        "time to first token under load, mixtures of experts",
        "yük altında ilk token süresi, uzman karışımları",
    ),
    "decode_throughput:decode_bs1": ("decoding, one request", "üretim hızı, tek istek"),
    "decode_throughput:prefill": ("prefill", "istem işleme hızı"),
    "decode_throughput:serving_online": ("serving under load", "yük altında sunum"),
    "decode_throughput:serving_offline_max": ("serving, highest throughput", "sunum, en yüksek iş çıkarma"),
    "diffusion_inference:memory": ("image and video, memory", "görüntü ve video, bellek"),
    "diffusion_inference:speed": ("image and video, time", "görüntü ve video, süre"),
    "audio_inference:memory": ("speech and music, memory", "konuşma ve müzik, bellek"),
    "audio_inference:speed": ("speech and music, time", "konuşma ve müzik, süre"),
}
"""Names of tables in words; a table that is not here is shown by its own name."""


@functools.cache
def scores() -> dict[str, dict[str, Any]]:
    """Figures of `gpuguide accuracy --json`, tables with scored rows only."""
    from gpuguide import load_catalog
    from gpuguide.accuracy.report import score_folder

    found: dict[str, dict[str, Any]] = score_folder(load_catalog()).as_json()["tables"]
    return {name: figures for name, figures in found.items() if figures["scored"]}


def accuracy(words: list[str]) -> str:
    """Errors of every table of measurements, whole percent."""
    language = words[0] if words else "en"

    def share(value: float) -> str:
        return f"%{100 * value:.0f}" if language == "tr" else f"{100 * value:.0f} %"

    rows = []
    for name, figures in scores().items():
        what = WHAT[name][language == "tr"] if name in WHAT else name
        errors = [share(figures[key]) for key in ("median_abs_error", "p90_abs_error", "within_band")]
        rows.append([what, f"{figures['scored']}", *errors])
    return table(HEADS[language], rows)


PARTS: dict[str, Callable[[list[str]], str]] = {
    part.__name__: part
    for part in (functions, others, scenario, fields, spellings, units, tables, attribution, licences, accuracy)
}


def main(words: list[str]) -> int:
    check = "--check" in words
    files = [Path(word).resolve() for word in words if not word.startswith("--")] or pages()
    stale = []
    for path in files:
        if not path.is_file():
            continue
        before = path.read_text(encoding="utf-8")
        after = produced(before, slow=not check)
        if before != after:
            stale.append(path.relative_to(ROOT).as_posix())
            if not check:
                path.write_text(after, encoding="utf-8")
    for name in stale:
        print(f"{name} {'differs from what the package says; run: make docs' if check else 'written anew'}")
    return int(check and bool(stale))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
