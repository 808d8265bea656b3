// A chart that redraws in place: one plotly.js for the whole page, colours from the page's own palette.

// plotly.js comes from the server that serves the page; JupyterLab has no such file, there the kernel hands it over once.
function plotly(model) {
  if (window.Plotly?.react) return Promise.resolve(window.Plotly);
  window.gpuguidePlotly ??= new Promise((resolve, reject) => {
    const url = window.gpuguide?.plotly;
    const script = document.createElement("script");
    script.onload = () => resolve(window.Plotly);
    script.onerror = () => { window.gpuguidePlotly = undefined; reject(new Error("plotly.js could not be loaded")); };
    if (url) {
      script.src = url;
      document.head.append(script);
      return;
    }
    const take = (message, buffers) => {
      if (message.kind !== "plotly") return;
      model.off("msg:custom", take);
      script.src = URL.createObjectURL(new Blob([buffers[0]], { type: "text/javascript" }));
      const amd = window.define; // a page with require.js would take the library as an anonymous module
      window.define = undefined;
      script.addEventListener("load", () => { window.define = amd; });
      document.head.append(script);
    };
    model.on("msg:custom", take);
    model.send({ kind: "plotly" });
  });
  return window.gpuguidePlotly;
}

function coloured(value, style) {
  if (typeof value === "string") {
    return value.startsWith("var(--gg-") ? style.getPropertyValue(value.slice(4, -1)).trim() || "#888" : value;
  }
  if (Array.isArray(value)) return value.map((item) => coloured(item, style));
  if (value && typeof value === "object") {
    return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, coloured(item, style)]));
  }
  return value;
}

// Bars that lie on a phone stand where there is room for many beside each other.
function upright(traces, layout, height, width) {
  const step = (width - 70) / Math.abs(layout.yaxis.range[1] - layout.yaxis.range[0]); // room of one bar and its label
  for (const trace of traces) {
    [trace.x, trace.y] = [trace.y, trace.x];
    if (trace.orientation) trace.orientation = "v";
    if (trace.hovertemplate) trace.hovertemplate = trace.hovertemplate.replace(/%\{([xy])/g, (_, axis) => `%{${axis === "x" ? "y" : "x"}`);
    if (trace.marker?.symbol === "line-ns") Object.assign(trace.marker, { symbol: "line-ew", size: Math.min(trace.marker.size, Math.max(4, step - 1)) });
  }
  [layout.xaxis, layout.yaxis] = [{ ...layout.yaxis, tickangle: -55, tickfont: { size: 10.5 }, dtick: Math.max(1, Math.ceil(15 / step)), range: [...layout.yaxis.range].reverse() }, layout.xaxis];
  layout.height = height;
}

// Room for the longest name that the axis of a chart has had at its width: margins that follow every name would move
// the picture, and make plotly.js draw it twice.
function spacious(layout, room) {
  if (room.width !== layout.width) Object.assign(room, { width: layout.width, l: 0, b: 0 });
  for (const [name, axis] of Object.entries(layout)) {
    if (!/^[xy]axis/.test(name) || !axis.categoryarray?.length) continue;
    const [side, font] = [name[0] === "x" ? "b" : "l", axis.tickfont?.size ?? layout.font.size];
    pen.font = `${font}px ${layout.font.family}`;
    const lines = axis.categoryarray.flatMap((words) => String(words).split("<br>"));
    const longest = Math.max(...lines.map((line) => pen.measureText(line).width));
    const angle = Math.abs(axis.tickangle ?? 0) * Math.PI / 180;
    const needed = side === "b" ? longest * Math.sin(angle) + font * Math.cos(angle) : longest;
    room[side] = Math.max(room[side], Math.ceil(needed) + 15);
    layout.margin[side] = Math.max(layout.margin[side] ?? 0, room[side]);
  }
}

const pen = document.createElement("canvas").getContext("2d");
const CONFIG = { displayModeBar: false, responsive: false, scrollZoom: false, doubleClick: "reset", showAxisDragHandles: false };

function render({ model, el }) {
  const figure = document.createElement("figure");
  figure.className = "gg-chart";
  const picture = document.createElement("div");
  const tools = document.createElement("div");
  tools.className = "gg-tools";
  const legend = document.createElement("ul");
  legend.className = "gg-legend";
  figure.append(legend, picture, tools);
  el.append(figure);
  const room = {};
  let library, queued = false, resting = false, drawn = 0, gone = false, seen = true;

  function draw() {
    if (!queued) return;
    queued = false;
    if (!library || gone || !picture.isConnected) return;
    const width = Math.floor(figure.clientWidth);
    if (!width) return;
    const style = getComputedStyle(figure);
    const { data, layout: wanted, narrow, turn } = model.get("figure");
    const layout = coloured(wanted, style), traces = coloured(data, style);
    for (const [name, axis] of Object.entries(layout)) if (/^[xy]axis/.test(name) && axis.title) axis.title.font ??= { size: 13 };
    if (turn && width >= turn.from) upright(traces, layout, turn.height, width);
    if (width < 480 && narrow) Object.entries(coloured(narrow, style)).forEach(([path, value]) => {
      const keys = path.split(".");
      const last = keys.pop();
      keys.reduce((part, key) => (part[key] ??= {}), layout)[last] = value;
    });
    layout.width = width;
    spacious(layout, room);
    picture.style.minHeight = `${layout.height}px`;
    explain(traces);
    library.react(picture, traces, layout, CONFIG);
    if (!drawn) picture.on("plotly_click", ({ points }) => {
      if (points[0]?.customdata !== undefined) model.send({ kind: "click", point: points[0].customdata });
    });
    picture.dataset.drawn = ++drawn;
  }
  // A legend of the page's own wraps as words do, and a screen reader can read it.
  function explain(traces) {
    const shown = traces.length > 1 ? traces.filter(({ showlegend }) => showlegend !== false) : [];
    const wanted = shown.map(({ name, type, marker }) => `${name}|${type}|${Array.isArray(marker?.color) ? "" : marker?.color}`).join();
    if (legend.dataset.shown === wanted) return;
    legend.dataset.shown = wanted;
    legend.replaceChildren(...shown.map(({ name, type, marker, line }) => {
      const entry = document.createElement("li"), sign = document.createElement("i");
      sign.className = type === "bar" ? "bar" : marker === undefined ? "line" : marker?.symbol?.startsWith("line") ? "limit" : "dot";
      sign.style.background = line?.color ?? marker?.color;
      if (marker?.line?.width && sign.className === "dot") sign.style.boxShadow = `inset 0 0 0 2px ${marker.line.color}`;
      entry.append(sign, name);
      return entry;
    }));
  }
  // What the reader sees is drawn at once, a second time only in the next frame; the rest when the browser has nothing
  // better to do.
  function later() {
    if (queued && !(seen && queued === "idle")) return;
    queued = seen ? "frame" : "idle";
    if (seen && !resting) {
      resting = true;
      requestAnimationFrame(() => { resting = false; draw(); });
      draw();
    } else if (seen || !window.requestIdleCallback) requestAnimationFrame(draw);
    else requestIdleCallback(draw, { timeout: 500 });
  }
  function say() {
    const words = model.get("figure").label;
    picture.setAttribute("role", words ? "img" : "presentation");
    if (words) picture.setAttribute("aria-label", words);
  }
  function label() {
    say();
    tools.replaceChildren(...Object.entries(model.get("exports")).map(([format, title]) => {
      const button = document.createElement("button");
      button.type = "button";
      button.className = "gg-tool";
      button.textContent = format.toUpperCase();
      button.title = title;
      button.setAttribute("aria-label", `${title} (${format.toUpperCase()})`);
      button.onclick = () => library?.downloadImage({ data: picture.data, layout: { ...picture.layout, showlegend: picture.data.length > 1 } }, {
        format, filename: model.get("filename"), width: picture.clientWidth, height: picture.clientHeight, scale: format === "png" ? 2 : 1,
      });
      return button;
    }));
  }
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const size = new ResizeObserver(() => requestAnimationFrame(later)); // drawing changes the size that is being told
  size.observe(figure);
  const sight = new IntersectionObserver(([{ isIntersecting }]) => {
    seen = isIntersecting;
    if (seen && queued) later();
  }, { rootMargin: "200px" });
  sight.observe(figure);
  dark.addEventListener("change", later);
  const theme = new MutationObserver(later); // of JupyterLab
  theme.observe(document.body, { attributeFilter: ["data-jp-theme-light"] });
  model.on("change:figure", () => { say(); later(); });
  model.on("change:exports", label);
  label();
  picture.style.minHeight = "300px";
  plotly(model).then((loaded) => { library = loaded; later(); }, (error) => { picture.textContent = error.message; });
  return () => {
    gone = true;
    theme.disconnect();
    size.disconnect();
    sight.disconnect();
    dark.removeEventListener("change", later);
    library?.purge(picture);
  };
}

export default { render };
