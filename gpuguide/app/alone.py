"""A table or a sentence of `gpuguide.show` by itself, in any notebook: with its look, without a page around it."""

from __future__ import annotations

from typing import Any

import anywidget
import traitlets

from gpuguide.app.files import style
from gpuguide.show.html import Html


class Alone(anywidget.AnyWidget):
    """HTML of `gpuguide.show`, which escapes all that came from elsewhere; no other HTML is taken."""

    _esm = """
    export default { render({ model, el }) {
      el.classList.add("gg", "gg-alone");
      const draw = () => { el.innerHTML = model.get("html"); };
      model.on("change:html", draw);
      draw();
    } };
    """
    _css = style("page")

    html: Any = traitlets.Unicode("").tag(sync=True)

    @traitlets.validate("html")
    def _ours(self, proposal: Any) -> str:
        if not isinstance(proposal["value"], Html):
            raise traitlets.TraitError("give what a function of gpuguide.show returned, such as ranking_table(...)")
        return str(proposal["value"])
