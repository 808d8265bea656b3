"""One field of the panel: label, help and the ipywidgets that set one key; all kinds read and write plain values."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import ipywidgets as widgets

from gpuguide.app.controls import AUTO, Control
from gpuguide.catalog.carried import is_carried, model_of
from gpuguide.show.html import Html, button, join, tag
from gpuguide.text import Text

Moved = Callable[[str, Any], None]


class Field:
    """
    A control on the page.

    Parameters
    ----------
    control : Control
        The row of the table.
    options : sequence of str
        Values to choose from, for kinds that choose.
    moved : callable
        Called with key and value when the reader changed it.
    """

    def __init__(self, control: Control, options: Sequence[str], moved: Moved) -> None:
        self.control = control
        self.options = list(options)
        self.value: Any = None
        self._moved = moved
        self._quiet = False
        self._text = Text("en")
        self._head = widgets.HTML()
        self._foot = widgets.HTML()
        self._foot.add_class("gg-presets")
        self.widget = widgets.VBox([self._head, *self._inputs(), self._foot])
        self.widget.add_class("gg-field")
        self.widget.add_class(self.mark)

    @property
    def mark(self) -> str:
        """CSS class by which the page finds the field."""
        return f"gg-c-{self.control.key}"

    # ---- what a kind of control adds ---------------------------------------------------------------------------------

    def _inputs(self) -> list[widgets.Widget]:
        raise NotImplementedError

    def _show(self) -> None:
        """Put `self.value` into the inputs."""
        raise NotImplementedError

    def _translate(self) -> None:
        """Put words into the inputs, where they hold any."""

    def said(self) -> str:
        """The value in words, for a screen reader."""
        return ""

    # ---- common to all -----------------------------------------------------------------------------------------------

    def show(self, value: Any) -> None:
        """Show a value without reporting it as the reader's."""
        self.value = value
        self._quietly(self._show)

    def relabel(self, text: Text) -> None:
        """Say everything in another language."""
        self._text = text
        key, label = self.control.key, self.label
        unit = text(f"control.{key}.unit") if text.has(f"control.{key}.unit") else None
        about = tag(
            "details",
            tag("summary", "?", aria_label=text("help_about", what=label)),
            tag("p", text(f"control.{key}.help")),
            class_="gg-help",
        )
        named = tag("span", label, [" ", tag("small", unit)] if unit else None)
        self._head.value = tag("div", named, about, class_="gg-label")
        self._foot.value = self._presets()
        self._quietly(self._translate)
        self._quietly(self._show)

    @property
    def label(self) -> str:
        """The visible name."""
        return self._text(f"control.{self.control.key}.label")

    def shown(self, visible: bool) -> None:
        """Show the field or not."""
        self.widget.layout.display = None if visible else "none"

    def _presets(self) -> Html:
        key = self.control.key
        auto = button(self._text("option.auto"), data_set={key: None}) if self.control.auto else None
        return join([auto, [button(self._short(value), data_set={key: value}) for value in self.control.presets]])

    def _short(self, value: float) -> str:
        if self.control.octave == 0.25 and value >= 1024 and value % 1024 == 0:
            return f"{value // 1024:.0f}k"
        return self._text.percent(value) if self.control.share else self._text.compact(value)

    def _quietly(self, change: Callable[[], None]) -> None:
        before, self._quiet = self._quiet, True
        try:
            change()
        finally:
            self._quiet = before

    def _report(self, value: Any) -> None:
        if not self._quiet and value != self.value:
            self.value = value
            self._moved(self.control.key, value)


class LogField(Field):
    """A slider over orders of magnitude, and a box that takes any exact value."""

    def _inputs(self) -> list[widgets.Widget]:
        low, high = self.control.low, self.control.high
        self._rest = float(self.control.start or low)
        base = 2.0 if self.control.octave else 10.0
        self._slider = widgets.FloatLogSlider(
            value=low,
            base=base,
            min=math.log(low, base),
            max=math.log(high, base),
            step=self.control.octave or 0.02,
            readout=False,
        )
        self._box = widgets.Text(continuous_update=False)
        self._slider.observe(lambda change: self._slid(change["new"]), "value")
        self._box.observe(lambda change: self._typed(change["new"]), "value")
        row = widgets.HBox([self._slider, self._box])
        row.add_class("gg-exact")
        return [row]

    def _slid(self, value: float) -> None:
        # The browser sends a place back that it was just given: only another place is a move.
        if not self._quiet and self._place(value) != self._place(float(self.value or self._rest)):
            self._report(self._snapped(value))
            self._quietly(self._show_box)

    def _typed(self, typed: str) -> None:
        if self._quiet:
            return
        if self.control.auto and not typed.strip():
            self._report(None)
            return
        try:
            number = self._text.parse_number(typed.strip("% "))
        except ValueError:
            number = math.nan
        if self.control.share and number > 1:
            number /= 100
        if self.control.integer and number == number:
            number = float(round(number))
        if number != number or number <= 0:
            self._moved(self.control.key, typed)  # the page words what is wrong; the field keeps the last good value
        else:
            self._report(self._plain(number))
        self._quietly(self._show)

    def _snapped(self, value: float) -> float | int:
        """What a slider's position means: round values, each step another one."""
        octave = self.control.octave
        if octave:
            power = math.floor(math.log2(value) + 1e-6)
            part = min(
                (1.0, 1.25, 1.5, 1.75, 2.0) if octave < 1 else (1.0, 2.0), key=lambda part: abs(part - value / 2**power)
            )
            value = 2.0**power * part
        elif self.control.share:
            value = round(value, 2)
        else:
            value = float(f"{value:.3g}")
        return self._plain(min(max(value, self.control.low), self.control.high))

    def _plain(self, value: float) -> float | int:
        return max(1, round(value)) if self.control.integer and value < 1e9 else value

    def _show(self) -> None:
        slider = self._slider
        slider.value = slider.base ** (slider.min + slider.step * self._place(float(self.value or self._rest)))
        self._show_box()

    def hint(self, value: float | None) -> None:
        """What is taken while the box is empty."""
        if value is not None:
            self._rest = float(value)
            self._box.placeholder = self._text.exact(value)
            self._quietly(self._show)

    def _place(self, value: float) -> int:
        """The nearest step of the slider."""
        slider = self._slider
        inside = min(max(value, self.control.low), self.control.high)
        steps: float = (math.log(inside, slider.base) - slider.min) / slider.step
        return round(steps)

    def beyond(self, before: Any, now: Any) -> list[float | int]:
        """The next step in the direction of the last one, or those to both sides where there was none."""
        place, slider = self._place(float(now or self._rest)), self._slider
        towards = place - self._place(float(before or self._rest))
        following = [slider.min + slider.step * (place + side) for side in (1, -1) if side * towards >= 0]
        return [self._snapped(slider.base**step) for step in following if slider.min <= step <= slider.max + 1e-9]

    def _show_box(self) -> None:
        self._box.value = self.said()

    def said(self) -> str:
        if self.value is None:
            return ""
        return self._text.percent(self.value) if self.control.share else self._text.exact(self.value)


class ChoiceField(Field):
    """One of several values, from a list that opens."""

    def _inputs(self) -> list[widgets.Widget]:
        self._list = widgets.Dropdown(options=[(value, value) for value in self.options])
        self._list.observe(lambda change: self._chosen(change["new"]), "value")
        return [self._list]

    def _chosen(self, value: str | None) -> None:
        if value is not None:
            self._report(self._typed(value))

    def _typed(self, value: str) -> Any:
        if value == AUTO or not (self.control.integer or self.control.share):
            return value
        return int(value) if self.control.integer else float(value)

    def _listed(self) -> str:
        value = AUTO if self.value is None else str(self.value)
        if value not in self.options:
            self.options.append(value)  # set by a link or a notebook, beyond what the list offers
            self._translate()
        return value

    def _show(self) -> None:
        if self.value is not None or AUTO in self.options:
            self._list.value = self._listed()

    def _translate(self) -> None:
        self._list.options = [(self._named(value), value) for value in self.options]

    def _named(self, value: str) -> str:
        if value == AUTO:
            empty = f"control.{self.control.key}.empty"
            return self._text(empty if self._text.has(empty) else "option.auto")
        if self.control.share:
            return self._text.percent(float(value))
        return self._text.name(f"option.{self.control.key}", value)


class ToggleField(ChoiceField):
    """One of a few values, all seen at once."""

    def _inputs(self) -> list[widgets.Widget]:
        self._list = widgets.ToggleButtons(options=[(value, value) for value in self.options])
        self._list.observe(lambda change: self._chosen(change["new"]), "value")
        return [self._list]


class ModelField(ChoiceField):
    """A model of the catalog, or none: then its size is taken from the slider."""

    def offer(self, options: Sequence[str]) -> None:
        """Let the reader choose among other models."""
        if self.options != list(options):
            self.options = list(options)
            self._quietly(self._translate)
            self.value = None

    def _named(self, value: str) -> str:
        if is_carried(value):
            return self._text("option.own_model", name=model_of(value).name)
        return self._text("option.model_by_size") if value == AUTO else value


class CheckField(Field):
    """Yes or no."""

    def _inputs(self) -> list[widgets.Widget]:
        self._box = widgets.Checkbox(indent=False)
        self._box.observe(lambda change: self._report(change["new"]), "value")
        return [self._box]

    def _show(self) -> None:
        self._box.value = bool(self.value)

    def _translate(self) -> None:
        self._box.description = self._text("option.yes")


class NumberField(Field):
    """A number that may be left out."""

    def _inputs(self) -> list[widgets.Widget]:
        self._box = widgets.Text(continuous_update=False)
        self._box.observe(lambda change: self._typed(change["new"]), "value")
        return [self._box]

    def _typed(self, typed: str) -> None:
        if self._quiet:
            return
        if not typed.strip():
            self._report(None)
            return
        try:
            self._report(self._text.parse_number(typed))
        except ValueError:
            self._moved(self.control.key, typed)
        self._quietly(self._show)

    def _show(self) -> None:
        self._box.value = self.said()

    def _translate(self) -> None:
        empty = f"control.{self.control.key}.empty"
        self._box.placeholder = self._text(empty if self._text.has(empty) else "option.auto")

    def said(self) -> str:
        return "" if self.value is None else self._text.exact(self.value)


class NamesField(Field):
    """Any number of names; none means all."""

    def _inputs(self) -> list[widgets.Widget]:
        self._boxes = widgets.HTML()
        return [self._boxes]

    def take(self, value: Sequence[str]) -> None:
        """A choice made in the browser, which shows it already."""
        self.value = tuple(value)

    def _show(self) -> None:
        key, chosen = self.control.key, set(self.value or ())
        names = [*(name for name in sorted(chosen) if name not in self.options), *self.options]
        named = [(self._text.name(f"option.{key}", name), name) for name in names]
        if self.control.table in ("providers", "countries"):
            named.sort(key=lambda pair: pair[0].casefold())
        boxes = [
            tag("label", tag("input", type="checkbox", value=name, checked=name in chosen), tag("span", label))
            for label, name in named
        ]
        self._boxes.value = tag("div", boxes, class_="gg-names", role="group", aria_label=self.label, data_names=key)

    def _translate(self) -> None:
        pass


KINDS: dict[str, type[Field]] = {
    "log": LogField,
    "choice": ChoiceField,
    "toggle": ToggleField,
    "model": ModelField,
    "check": CheckField,
    "number": NumberField,
    "names": NamesField,
}
