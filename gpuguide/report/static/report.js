// Draws every chart of a report once, again when the page gets another width, and for paper when it is printed.
(() => {
  const PAPER = 690; // width between the margins of A4 [px]
  const CONFIG = { displayModeBar: false, responsive: false, scrollZoom: false, doubleClick: "reset" };

  // Bars that lie on a phone stand where there is room for many beside each other.
  function upright(traces, layout, height) {
    for (const trace of traces) {
      [trace.x, trace.y] = [trace.y, trace.x];
      if (trace.orientation) trace.orientation = "v";
      if (trace.hovertemplate) trace.hovertemplate = trace.hovertemplate.replace(/%\{([xy])/g, (_, axis) => `%{${axis === "x" ? "y" : "x"}`);
      if (trace.marker?.symbol === "line-ns") { trace.marker.symbol = "line-ew"; trace.marker.size = 9; }
    }
    [layout.xaxis, layout.yaxis] = [{ ...layout.yaxis, tickangle: -60, tickfont: { size: 10 }, autorange: true }, layout.xaxis];
    layout.height = height;
  }

  function draw(figure, width) {
    const { data, layout, narrow, turn } = JSON.parse(figure.querySelector("script").textContent);
    if (turn && width >= 600) upright(data, layout, turn.height);
    if (width < 480 && narrow) {
      for (const [path, value] of Object.entries(narrow)) {
        const keys = path.split("."), last = keys.pop();
        keys.reduce((part, key) => (part[key] ??= {}), layout)[last] = value;
      }
    }
    layout.width = width;
    layout.showlegend = false; // the legend in words above the chart says it
    const picture = figure.querySelector("[role=img]");
    picture.style.minHeight = `${layout.height}px`;
    Plotly.react(picture, data, layout, CONFIG);
    figure.dataset.drawn = width;
  }

  const figures = [...document.querySelectorAll("figure.gg-chart")];
  const all = (width) => figures.forEach((figure) => draw(figure, width ?? Math.floor(figure.clientWidth)));
  // Printed by a program, without a window to look at, charts are drawn for paper from the start.
  const paper = location.hash === "#paper";
  all(paper ? PAPER : undefined);
  let waiting;
  if (!paper) window.addEventListener("resize", () => { clearTimeout(waiting); waiting = setTimeout(() => all(), 120); });
  window.addEventListener("beforeprint", () => all(PAPER));
  window.addEventListener("afterprint", () => all());
  document.documentElement.dataset.drawn = figures.length;
})();
