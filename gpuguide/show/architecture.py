"""What is known of the model, so that a reader can check it against its config: counts, layers by kind, cache."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from gpuguide.catalog.carried import is_carried
from gpuguide.show.html import NOTHING, Html, join, tag
from gpuguide.show.tables import empty
from gpuguide.spec.model import MediaModel, Model
from gpuguide.text import Text

if TYPE_CHECKING:
    from gpuguide.decide.decision import Decision

KV_BYTES = 2.0  # of one cached value, BF16 [bytes]
SOURCES = {
    "config": re.compile(r"(?P<file>.+): (?P<kind>\S+), counted as its class does"),
    "llama": re.compile(r"(?P<file>.+): (?P<kind>\S+), an unknown class, read as a Llama-like decoder because .+"),
    "defaults_more": re.compile(r"class defaults for (?P<names>.+) and (?P<count>\d+) more"),
    "defaults": re.compile(r"class defaults for (?P<names>.+)"),
    "index": re.compile(r"bytes from its index"),
    "gguf": re.compile(r"(?P<file>.+): GGUF header, architecture (?P<kind>\S+), (?P<count>[\d,]+) tensors"),
}
"""What the readers of files say of their source, and the text that says the same."""
Rows = list[tuple[str, str | Html]]
"""Text keys and what stands beside them."""


def architecture_list(decision: Decision, text: Text) -> Html:
    """The architecture that the answer is for, one line a quantity."""
    model = decision.question.model
    own = is_carried(decision.scenario.model)
    rows = rows_of(model, text, own=own)
    lines = [[tag("dt", text(key)), tag("dd", value)] for key, value in rows]
    return tag("dl", lines, class_="gg-plan gg-architecture")


def architecture_table(models: Sequence[tuple[Model | MediaModel, bool]], text: Text) -> Html:
    """One column a model, one row a quantity; the second of each pair says whether the reader brought it."""
    if not models:
        return empty(text("compare.empty"))
    lines = [dict(rows_of(model, text, own=own)) for model, own in models]
    names = [line.pop("architecture.name") for line in lines]
    fullest_first = sorted(lines, key=len, reverse=True)  # its order has a place for what others lack
    keys = list(dict.fromkeys(key for line in fullest_first for key in line))
    head = tag("tr", [tag("th", name, scope="col") for name in (text("architecture.name"), *names)])
    body = [
        tag("tr", tag("th", text(key), scope="row"), [tag("td", line.get(key, NOTHING)) for line in lines])
        for key in keys
    ]
    title = text("card.architecture.title")
    whole = tag("table", tag("thead", head), tag("tbody", body), class_="gg-compare")
    return tag("div", whole, class_="gg-scroll gg-whole", tabindex="0", role="region", aria_label=title)


def rows_of(model: Model | MediaModel, text: Text, *, own: bool = False) -> Rows:
    """
    Lines of a model, without those that do not apply to it.

    Parameters
    ----------
    model : Model or MediaModel
    text : Text
    own : bool
        Whether the reader brought it.
    """
    name = join([model.name, " ", tag("span", text("architecture.own"), class_="gg-badge")]) if own else model.name
    rows: Rows = [("architecture.name", name)]
    rows += _media(model, text) if isinstance(model, MediaModel) else _language(model, text)
    derived = isinstance(model, Model) and model.derived and not own
    source = text("architecture.derived") if derived else source_in_words(model.source, text)
    rows.append(("architecture.source", tag("small", source)))
    if model.as_of:
        rows.append(("architecture.as_of", text.date(model.as_of)))
    return rows


def source_in_words(source: str, text: Text) -> str:
    """Where a model comes from: what our readers of files say, in the reader's language; citations as they are."""
    return "; ".join(_said(part, text) for part in source.split("; "))


def _said(part: str, text: Text) -> str:
    for key, pattern in SOURCES.items():
        found = pattern.fullmatch(part)
        if found:
            return text(f"architecture.source_{key}", **found.groupdict())
    return part


def _language(model: Model, text: Text) -> Rows:
    params, active = float(model.params), float(model.params_active)
    rows: Rows = [
        ("architecture.kind", text.name("architecture.kinds", model.kind)),
        ("architecture.params", _params(params, text)),
    ]
    if active < params:
        rows.append(("architecture.active", _params(active, text)))
    rows.append(("architecture.layers", _layers(model, text)))
    rows += [
        (f"architecture.{key}", text.count(float(value)))
        for key, value in (
            ("hidden", model.hidden),
            ("ffn", model.ffn),
            ("heads", model.heads),
            ("kv_heads", model.kv_heads if model.heads else 0.0),
            ("head_dim", model.head_dim if model.heads else 0.0),
        )
        if value
    ]
    if model.attention != "none":
        rows.append(("architecture.attention", text.name("architecture.attentions", model.attention)))
    if model.is_moe:
        rows.append(("architecture.experts", _experts(model, text)))
    tied = "tied" if model.tied_embeddings else "untied"
    vocabulary = text(f"architecture.{tied}", count=text.count(float(model.vocab)))
    rows.append(("architecture.vocab", vocabulary))
    if model.max_context:
        rows.append(("architecture.context", text.count(model.max_context)))
    rows.append(("architecture.native", _native(model, text)))
    return rows + _cache(model, text)


def _params(count: float, text: Text) -> str:
    return text("architecture.exact", short=text.compact(count), all=text.count(count))


def _layers(model: Model, text: Text) -> str:
    """'48: 8 full attention, 40 within 1,024 tokens'."""
    kinds = [
        text(f"architecture.{key}", count=text.count(float(count)), window=text.count(model.kv_window or 0.0))
        for key, count in (
            ("full", model.layers_full),
            ("windowed", model.layers_windowed),
            ("recurrent", model.layers_recurrent),
        )
        if count
    ]
    all_layers = text.count(float(model.layers))
    if float(model.layers) in (model.layers_full, model.layers_windowed, model.layers_recurrent):
        return ", ".join(kinds)
    return text("architecture.by_kind", count=all_layers, kinds=text.listed(kinds)) if kinds else all_layers


def _experts(model: Model, text: Text) -> str:
    shared = float(model.shared_experts)
    used = text.count(float(model.experts_per_token))
    parts = [text("architecture.routed", count=text.count(float(model.experts)), used=used)]
    if shared:
        parts.append(text("architecture.shared", count=text.count(shared)))
    if model.moe_ffn:
        parts.append(text("architecture.expert_width", count=text.count(float(model.moe_ffn))))
    if model.moe_layers and model.moe_layers != model.layers:
        parts.append(text("architecture.expert_layers", count=text.count(float(model.moe_layers))))
    return ", ".join(parts)


def _native(model: Model, text: Text) -> str:
    size = 2.0 * float(model.params) if model.native_bytes is None else model.native_bytes
    return text("architecture.stored", name=text.name("option.weight_format", model.native_dtype), size=size)


def _cache(model: Model, text: Text) -> Rows:
    """Cache of one token, and state of one sequence, as the memory chart counts them."""
    full, windowed = KV_BYTES * float(model.kv_elements_full), KV_BYTES * float(model.kv_elements_windowed)
    rows: Rows = []
    if full + windowed:
        each = text("architecture.per_token", size=full + windowed)
        if windowed:
            each = text("architecture.per_token_windowed", size=full + windowed, later=full)
        rows.append(("architecture.cache", each))
    if model.recurrent_elements:
        state = text.memory(KV_BYTES * float(model.recurrent_elements))
        rows.append(("architecture.state", state))
    return rows


def _media(model: MediaModel, text: Text) -> Rows:
    rows: Rows = [
        ("architecture.kind", text.name("architecture.tasks", model.task)),
        ("architecture.params", _params(model.params, text)),
    ]
    if len(model.components) > 1:
        parts = [tag("span", f"{part.role}: {text.compact(part.params)}") for part in model.components]
        rows.append(("architecture.components", tag("span", parts, class_="gg-lines")))
    rows += [
        (f"architecture.{key}", text.count(value))
        for key, value in (
            ("layers", model.denoiser_layers),
            ("hidden", model.denoiser_hidden),
            ("latent", model.latent_channels),
            ("steps", model.default_steps),
        )
        if value
    ]
    if model.native_width and model.native_height:
        size = f"{text.count(model.native_width)} × {text.count(model.native_height)}"
        rows.append(("architecture.picture", size))
    rows.append(("architecture.native", text.name("option.weight_format", model.native_dtype)))
    if model.kv_elements:
        rows.append(("architecture.cache", text("architecture.per_token", size=KV_BYTES * model.kv_elements)))
    return rows
