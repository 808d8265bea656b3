"""The panel of controls: one observer for all of them, and one Scenario out, whose values can stand together."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import ipywidgets as widgets

from gpuguide.app.controls import AUTO, CONTROLS, FIRST_MODEL, Bound, Control, Facts, Values, settle
from gpuguide.app.declaration import Groups
from gpuguide.app.fields import KINDS, Field, LogField, ModelField, NamesField
from gpuguide.catalog.carried import is_carried, model_of
from gpuguide.decide.market import countries
from gpuguide.errors import GuideError, InvalidScenario
from gpuguide.show.html import button, join, tag
from gpuguide.show.remedies import value_in_words
from gpuguide.spec.model import MediaModel, Model
from gpuguide.spec.scenario import Scenario
from gpuguide.text import Text
from gpuguide.units import BILLION

if TYPE_CHECKING:
    from gpuguide.catalog.catalog import Catalog


MOST_OWN = 6
"""Models of the reader's own that stay to choose from."""


class Panel:
    """
    Controls of one page.

    Parameters
    ----------
    groups : mapping
        Keys of controls by group; a group whose name ends in '+' is folded away until asked for.
    workloads : sequence of str
        Workloads the page offers; the toggle shows when there is more than one.
    catalog : Catalog
        Where names to choose from come from.
    emit : callable
        Called with the settled Scenario after a change.
    fail : callable
        Called with a GuideError that a typed or linked value caused.
    """

    def __init__(
        self,
        groups: Groups,
        workloads: Sequence[str],
        catalog: Catalog,
        emit: Callable[[Scenario], None],
        fail: Callable[[GuideError], None],
    ) -> None:
        self._catalog, self._emit, self._fail = catalog, emit, fail
        self._workloads = tuple(workloads)
        self._groups = {name: tuple(keys) for name, keys in groups.items()}
        self._facts: dict[str, Facts] = {}
        self._media: dict[str, str | None] = {}
        self._own: list[str] = []  # models of the reader's own, the last one first
        self.values: Values = {}
        self._last: tuple[str, Any, Any] = "", None, None  # control moved last, its value before and after
        self.carried: Values = {}  # keys of the Scenario that have no control here, from a link or a notebook
        self.bounds: list[Bound] = []
        self.text = Text("en")
        keys = [key for keys in self._groups.values() for key in keys]
        self.fields: dict[str, Field] = {key: self._field(CONTROLS[key]) for key in keys}
        self._titles = {name: widgets.HTML() for name in self._groups}
        self._notes = widgets.HTML()
        self._notes.add_class("gg-notes")
        self._more, self._actions = widgets.HTML(), widgets.HTML()
        self._boxes = {name: self._group(name) for name in self._groups}
        plain = [box for name, box in self._boxes.items() if not name.endswith("+")]
        folded = [box for name, box in self._boxes.items() if name.endswith("+")]
        self.widget = widgets.VBox([*plain, self._notes, *([self._more] if folded else []), *folded, self._actions])
        self.widget.add_class("gg-side")
        self.widget.add_class("gg-card")

    # ---- building ----------------------------------------------------------------------------------------------------

    def _field(self, control: Control) -> Field:
        return KINDS[control.kind](control, self._options(control), self._moved)

    def _options(self, control: Control) -> list[str]:
        if control.key == "workload":
            return list(self._workloads)
        if control.kind == "model":
            return [AUTO, *(name for name in self._catalog.models.names() if self._suits(name, self._workloads[0]))]
        if control.table == "providers":
            return sorted(map(str, self._catalog.market["provider"].unique()))
        if control.table == "countries":
            return ["EU", *countries(self._catalog.market)]
        if control.table == "gpus":
            rented = set(self._catalog.market["gpu"].unique())
            known = sorted(self._catalog.gpus.values(), key=lambda gpu: (-gpu.memory_bytes, gpu.name))
            return [gpu.name for gpu in known if gpu.name in rented]
        if control.table:
            return [*control.options, *getattr(self._catalog, control.table)]
        return list(control.options)

    def _group(self, name: str) -> widgets.VBox:
        box = widgets.VBox([self._titles[name], *(self.fields[key].widget for key in self._groups[name])])
        box.add_class("gg-group")
        if name.endswith("+"):
            box.add_class("gg-folded")
        return box

    def beside(self, key: str, widget: widgets.Widget) -> None:
        """Put something under a field."""
        box = self.fields[key].widget
        box.children = (*box.children, widget)

    def _suits(self, name: str, workload: str) -> bool:
        if name not in self._media:
            self._media[name] = _task(self._model(name))
        return _does(self._media[name], workload)

    def _model(self, name: str) -> Model | MediaModel:
        return model_of(name) if is_carried(name) else self._catalog.model(name)

    def workload_for(self, model: Model | MediaModel) -> str:
        """
        The workload chosen, or the first of the page's that the model can do.

        Raises
        ------
        InvalidScenario
            If there is none.
        """
        for workload in (self.values["workload"], *self._workloads):
            if _does(_task(model), workload):
                return str(workload)
        if isinstance(model, MediaModel):
            elsewhere = "it makes media: give it on the page for images, video and sound"
            raise InvalidScenario("model", model.name, elsewhere)
        raise InvalidScenario("model", model.name, "it is a language model: give it on a page for training or serving")

    # ---- values in ---------------------------------------------------------------------------------------------------

    def start(self, scenario: Scenario) -> None:
        """Show a scenario; nothing is emitted."""
        given = {key: getattr(scenario, key) for key in scenario.model_fields_set}
        self.values = {key: self._start_value(field.control, given) for key, field in self.fields.items()}
        if given.get("params_b") is not None and not given.get("model"):
            self.values["model"] = AUTO
        self.values.setdefault("workload", scenario.workload)
        shown = set(self.fields) | {"workload"}
        self.carried = {key: value for key, value in given.items() if key not in shown and value not in (None, ())}
        self._settle(None)
        self.refresh()

    def _start_value(self, control: Control, given: Mapping[str, Any]) -> Any:
        value = given.get(control.key)
        if value is None and not control.auto:
            value = control.start if control.start is not None else () if control.kind == "names" else None
            if control.kind in ("choice", "toggle") and value is None:
                value = AUTO
            if control.kind == "toggle" and value not in self._workloads:
                value = self._workloads[0]
        return value

    def apply(self, changes: Mapping[str, Any], *, shown: bool = False) -> None:
        """
        Set several keys at once, as a preset, a remedy or a link does.

        Parameters
        ----------
        changes : mapping
            Values by key of the Scenario; None leaves a key out.
        shown : bool
            The browser shows the values already.
        """
        try:
            self.put(changes, shown=shown)
        except GuideError as error:
            self._fail(error)
        else:
            self.emit()

    def put(self, changes: Mapping[str, Any], *, shown: bool = False) -> None:
        """Set several keys at once; nothing is emitted, and what is impossible is raised."""
        unset = [key for key, value in changes.items() if value is None or value == ""]
        given = {key: value for key, value in changes.items() if key not in unset}
        checked = Scenario.from_mapping(given)
        if is_carried(checked.model):
            self._model(str(checked.model))  # damaged ones are refused before anything is set
        for key in unset:
            self.carried.pop(key, None)
            if key in self.fields:
                self.values[key] = self._start_value(self.fields[key].control, {}) if key != "model" else AUTO
        for key in given:
            value = getattr(checked, key)
            if key in self.fields:
                field = self.fields[key]
                if value == () and field.control.start:
                    value = field.control.options  # none ticked means all
                elif shown and isinstance(field, NamesField):
                    field.take(value)
                self.values[key] = value
            elif key not in ("language", "currency", "currency_per_usd"):
                self.carried[key] = value
        if given.get("params_b") is not None and "model" in self.values and not given.get("model"):
            self.values["model"] = AUTO
        self._settle(next(iter(changes), None))

    def held(self) -> tuple[Values, Values]:
        """All that the controls hold, for `hold`."""
        return dict(self.values), dict(self.carried)

    def hold(self, held: tuple[Values, Values]) -> None:
        """Go back to what the controls held; nothing is emitted."""
        self.values, self.carried = dict(held[0]), dict(held[1])
        self._settle(None)

    def _moved(self, key: str, value: Any) -> None:
        if isinstance(value, str) and self.fields[key].control.kind in ("log", "number"):
            self._fail(InvalidScenario(key, value, "write a number, such as 32768, 32k or 1.5B", reason="number"))
            return
        self._last = key, self.values[key], value
        self.values[key] = value
        self._settle(key)
        self.emit()

    def emit(self) -> None:
        """Send the Scenario that the controls say."""
        try:
            scenario = self.scenario()
        except GuideError as error:
            self._fail(error)
            return
        self._emit(scenario)

    # ---- values out --------------------------------------------------------------------------------------------------

    def near(self, mark: object) -> None:
        """A hand is at a field, given by its CSS class."""
        for key, field in self.fields.items():
            if field.mark == mark:
                self._last = key, self.values[key], self.values[key]

    def ahead(self) -> Iterator[Scenario]:
        """Scenarios after one more step of the slider that was moved last, or that a hand has reached since."""
        key, before, now = self._last
        field = self.fields.get(key)
        if isinstance(field, LogField) and self.values[key] == now:
            facts = self._facts_of(self.values.get("model"))
            for value in field.beyond(before, now):
                yield self.scenario(settle(self.values | {key: value}, key, facts)[0])

    def given(self, values: Values | None = None) -> Values:
        """Keys of the Scenario that the controls set, or that other values of theirs would, without defaults."""
        values = self.values if values is None else values
        workload = values["workload"]
        given: Values = {"workload": workload}
        for key, field in self.fields.items():
            value = values[key]
            if workload in field.control.workloads and value not in (None, AUTO, ()):
                given[key] = value
        if given.get("model"):
            given.pop("params_b", None)
        return given | {key: value for key, value in self.carried.items() if key != "workload"}

    def scenario(self, values: Values | None = None) -> Scenario:
        """The Scenario that the controls say, or that other values of theirs would, in the panel's language."""
        text = self.text
        shown: Values = {"language": text.language}
        if text.currency != "USD":
            shown |= {"currency": text.currency, "currency_per_usd": text.currency_per_usd}
        return Scenario.from_mapping(self.given(values) | shown)

    # ---- what depends on what ----------------------------------------------------------------------------------------

    def _settle(self, changed: str | None) -> None:
        workload = self.values["workload"]
        if "model" in self.fields and (changed in ("workload", None) or is_carried(self.values["model"])):
            self._offer_models(workload)
        self.values, self.bounds = settle(self.values, changed, self._facts_of(self.values.get("model")))
        for key, field in self.fields.items():
            if field.value != self.values[key]:
                field.show(self.values[key])
        self._show_for(workload)
        self._note()

    def _offer_models(self, workload: str) -> None:
        field = self.fields["model"]
        first = [] if workload in ("image", "video", "audio") else [AUTO]
        chosen = self.values.get("model")
        if is_carried(chosen) and chosen not in self._own:
            self._own = [str(chosen), *self._own][:MOST_OWN]
        names = (*self._own, *self._catalog.models.names())
        options = [*first, *(name for name in names if self._suits(name, workload))]
        if chosen and chosen not in options:
            known = self._catalog.models.find(chosen)
            if known in options:
                self.values["model"] = known
            elif known is not None or is_carried(chosen) or not options:
                self.values["model"] = FIRST_MODEL.get(workload, options[-1 if not first else 1])
            else:
                options.insert(1 if first else 0, chosen)  # a model by path or Hub id
        if not chosen and not first:
            self.values["model"] = FIRST_MODEL.get(workload, options[0])
        if isinstance(field, ModelField):
            field.offer(options)

    def _facts_of(self, name: str | None) -> Facts:
        if not name:
            return Facts()
        if name not in self._facts:
            try:
                found = self._model(name)
            except GuideError:
                return Facts()  # resolve says what is wrong
            if isinstance(found, MediaModel):
                self._facts[name] = Facts()
            else:
                longest = int(found.max_context) if found.max_context else None
                self._facts[name] = Facts(params_b=float(found.params) / BILLION, max_context=longest)
        return self._facts[name]

    def _show_for(self, workload: str) -> None:
        visible = {key for key, field in self.fields.items() if workload in field.control.workloads}
        if len(self._workloads) == 1:
            visible.discard("workload")
        for key, field in self.fields.items():
            field.shown(key in visible)
        for name, box in self._boxes.items():
            box.layout.display = None if visible & set(self._groups[name]) else "none"

    # ---- words -------------------------------------------------------------------------------------------------------

    def relabel(self, text: Text) -> None:
        """Say everything in another language."""
        self.text = text
        for field in self.fields.values():
            field.relabel(text)
        for name, title in self._titles.items():
            title.value = tag("h2", text(f"group.{name.rstrip('+')}"))
        more, fewer = text("more_settings"), text("fewer_settings")
        self._more.value = button(
            more,
            class_="gg-button gg-wide",
            data_toggle="gg-more",
            aria_expanded="false",
            data_more=more,
            data_less=fewer,
        )
        copy = button(text("copy_link"), class_="gg-button", data_copy=True, data_done=text("copied"))
        reset = button(text("reset"), class_="gg-button", data_download="reset")
        pin = button(text("pin"), class_="gg-button", data_pin=True, data_done=text("pinned"))
        self._actions.value = tag("div", copy, pin, reset, class_="gg-actions")
        self._note()

    def refresh(self) -> None:
        """Show the values that are held."""
        for key, field in self.fields.items():
            field.show(self.values[key])
        self._note()

    def hint(self, scenario: Scenario) -> None:
        """Show what was taken for keys that are left out."""
        for key, field in self.fields.items():
            if isinstance(field, LogField) and field.value is None:
                field.hint(getattr(scenario, key))

    def names(self) -> dict[str, str]:
        """Accessible name of every field, by its CSS class."""
        return {field.mark: field.label for field in self.fields.values()}

    def spoken(self) -> dict[str, str]:
        """Value of every slider in words, by its CSS class."""
        return {field.mark: field.said() for field in self.fields.values() if isinstance(field, LogField)}

    def _note(self) -> None:
        """Say what gave way, and what a link set that has no control here."""
        text, lines = self.text, []
        for bound in self.bounds:
            label = text(f"control.{bound.key}.label")
            lines.append(tag("p", text(f"bound.{bound.reason}", label=label, value=text.exact(bound.value))))
        for key, value in self.carried.items():
            label = text(f"control.{key}.label") if text.has(f"control.{key}.label") else key
            said = text("carried", label=label, value=value_in_words(key, value, text))
            remove = button(text("remove"), class_="gg-link", data_set={key: None})
            lines.append(tag("p", said, " ", remove))
        self._notes.value = join(lines)


def _task(model: Model | MediaModel) -> str | None:
    """What a media model makes; None for language models."""
    return model.task if isinstance(model, MediaModel) else None


def _does(task: str | None, workload: str) -> bool:
    if workload == "audio":
        return task in ("audio", "asr", "tts", "music")
    return task == (workload if workload in ("image", "video") else None)
