// The browser's side of a page: address, clicks, names for screen readers, downloads, heartbeat.

const BEAT_S = 20, PATIENCE_S = 12;

function kernelUrl() {
  try {
    const config = JSON.parse(document.getElementById("jupyter-config-data").textContent);
    return `${config.baseUrl}api/kernels/${config.kernelId}`;
  } catch { return null; }
}

// The address is ours only where the page is; JupyterLab keeps its own.
const ownPage = () => document.body?.dataset.voila === "voila";

function render({ model, el }) {
  el.classList.add("gg-agent");
  const stop = new AbortController(), { signal } = stop;
  const root = () => el.closest(".gg") ?? document;
  const send = (content) => { try { model.send(content); } catch { lost(); } };

  // Under a plain Jupyter server (Binder) and in JupyterLab pages go by the names of their notebooks.
  if (location.pathname.endsWith(".ipynb")) document.addEventListener("click", (event) => {
    const link = event.target.closest?.("a[href]"), href = link?.getAttribute("href") ?? "";
    if (!root().contains(link) || !/^[a-z]+(\?|$)/.test(href)) return;
    link.setAttribute("href", href.replace(/^[a-z]+/, "$&.ipynb"));
    if (!ownPage()) link.target = "_blank"; // the notebook with its cells stays
  }, { signal, capture: true });

  // ---- scenarios kept for comparison, in this browser only -------------------------------------------------------
  function pinned() {
    try { return JSON.parse(localStorage.getItem("gg-pins")) ?? []; } catch { return []; }
  }
  function done(target) {
    const before = target.textContent;
    target.textContent = target.dataset.done;
    setTimeout(() => { target.textContent = before; }, 2000);
  }

  // ---- what is said above the charts takes more lines for some answers: charts must not jump while a hand moves ----
  const taken = new WeakMap(); // element to the most room that it took, and at which width
  const steady = new ResizeObserver((changes) => changes.forEach(({ target }) => {
    if (taken.get(target)?.width !== target.clientWidth) settle(target);
    const height = Math.ceil(target.getBoundingClientRect().height);
    if (height <= taken.get(target).height) return;
    taken.get(target).height = height;
    target.style.minHeight = `${height}px`;
  }));
  function settle(target) {
    target.style.minHeight = "";
    target.style.boxSizing = "border-box";
    taken.set(target, { width: target.clientWidth, height: 0 });
  }
  const aboveCharts = () => root().querySelectorAll(".gg-steady");

  // ---- clicks on marked elements ---------------------------------------------------------------------------------
  document.addEventListener("click", (event) => {
    const target = event.target.closest?.("[data-set],[data-download],[data-copy],[data-toggle],[data-pin]");
    if (!target || !root().contains(target)) return;
    const { set, download, copy, toggle, pin } = target.dataset;
    if (set) {
      aboveCharts().forEach(settle); // another question may take less room
      send({ kind: "set", values: JSON.parse(set) });
    }
    if (download) send({ kind: "download", what: download });
    if (copy !== undefined) navigator.clipboard?.writeText(location.href).then(() => done(target));
    if (pin !== undefined) {
      const others = pinned().filter((query) => query !== model.get("pin"));
      localStorage.setItem("gg-pins", JSON.stringify([...others, model.get("pin")].slice(-4)));
      done(target);
    }
    if (toggle) {
      const open = root().classList.toggle(toggle);
      target.setAttribute("aria-expanded", String(open));
      target.textContent = open ? target.dataset.less : target.dataset.more;
    }
  }, { signal });
  // Links to other pages take along what those understand too.
  document.addEventListener("click", (event) => {
    const link = event.target.closest?.("[data-carry] a");
    if (!link || !root().contains(link) || !ownPage()) return;
    const carry = link.closest("[data-carry]").dataset.carry.split(","), here = new URLSearchParams(location.search);
    const kept = new URLSearchParams([...here].filter(([key]) => carry.includes(key)));
    if (/compare$/.test(link.pathname)) pinned().forEach((query, place) => kept.set("abcd"[place], query));
    if (!kept.has("language")) kept.set("language", model.get("language"));
    link.search = kept;
  }, { signal, capture: true });
  document.addEventListener("change", (event) => {
    const group = event.target.closest?.("[data-names]");
    if (!group || !root().contains(group)) return;
    const chosen = [...group.querySelectorAll("input:checked")].map((box) => box.value);
    send({ kind: "set", values: { [group.dataset.names]: chosen }, shown: true });
  }, { signal });
  // ---- a slider under the mouse, or reached with the keyboard, will be moved: its next steps can be prepared ---------
  function near(event) {
    const slider = event.target.closest?.(".noUi-target"), field = slider?.closest(".gg-field");
    if (!field || slider.contains(event.relatedTarget) || !root().contains(field)) return;
    send({ kind: "near", mark: [...field.classList].find((name) => name.startsWith("gg-c-")) });
  }
  // A finger is there only when it moves already, and a mouse that drags may cross other sliders.
  document.addEventListener("pointerover", (event) => { if (event.pointerType === "mouse" && !event.buttons) near(event); }, { signal });
  document.addEventListener("focusin", (event) => { if (event.target.matches(":focus-visible")) near(event); }, { signal });
  // ---- the reader's own model: never more is sent than the kernel takes at once ------------------------------------
  let files = []; // of the last choice
  document.addEventListener("click", (event) => {
    const what = event.target.closest?.("[data-own]")?.dataset.own, form = event.target.closest?.(".gg-own");
    if (!what || !root().contains(form)) return;
    const paste = form.querySelector("textarea"), text = paste.value, most = Number(paste.dataset.most) + 1;
    if (what === "paste") send({ kind: "own", what, text: text.slice(0, most), letters: text.length });
    if (what === "hub") send({ kind: "own", what, id: form.querySelector("input[type=text]").value.slice(0, 300) });
    if (what === "cancel") send({ kind: "own", what });
  }, { signal });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && event.target.matches?.(".gg-own input[type=text]")) {
      event.target.closest(".gg-own").querySelector("[data-own=hub]").click();
    }
  }, { signal });
  document.addEventListener("change", (event) => {
    const input = event.target.closest?.("[data-own-files]");
    if (!input || !root().contains(input)) return;
    files = [...input.files];
    if (files.length) send({ kind: "own", what: "files", files: files.slice(0, 100).map(({ name, size }) => ({ name, size })) });
    input.value = ""; // so that the same file can be chosen again
  }, { signal });
  async function more({ ticket, file, start, stop }) {
    const content = { kind: "own", what: "bytes", ticket, file };
    const bytes = await files[file]?.slice(start, stop).arrayBuffer().catch(() => null);
    try { model.send(content, undefined, bytes ? [bytes] : []); } catch { lost(); }
  }

  // One help text at a time, and Escape closes it.
  document.addEventListener("toggle", (event) => {
    if (event.target.open && event.target.matches?.(".gg-help")) {
      document.querySelectorAll(".gg-help[open]").forEach((help) => { if (help !== event.target) help.open = false; });
    }
  }, { signal, capture: true });
  document.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    const help = event.target.closest?.(".gg-help[open]");
    if (help) { help.open = false; help.querySelector("summary").focus(); }
  }, { signal });

  // ---- names: ipywidgets leaves slider handles and toggle groups without any --------------------------------------
  function name() {
    const spoken = model.get("spoken");
    for (const [mark, label] of Object.entries(model.get("names"))) {
      const value = spoken[mark];
      for (const field of root().getElementsByClassName(mark)) {
        const handle = field.querySelector(".noUi-handle");
        if (handle) {
          handle.setAttribute("aria-label", label);
          if (value) handle.setAttribute("aria-valuetext", value);
        }
        const group = field.querySelector(".widget-toggle-buttons");
        if (group) {
          group.setAttribute("role", "group");
          group.setAttribute("aria-label", label);
          group.querySelectorAll("button").forEach((button) => button.setAttribute("aria-pressed", String(button.classList.contains("mod-active"))));
        }
        field.querySelectorAll("input, select").forEach((input) => {
          if (!input.labels?.length || !input.labels[0].textContent.trim()) input.setAttribute("aria-label", label);
        });
      }
    }
    root().querySelectorAll(".gg-live").forEach((live) => { live.setAttribute("role", "status"); live.setAttribute("aria-live", "polite"); });
    root().querySelectorAll(".gg-error").forEach((live) => { live.setAttribute("role", "alert"); });
    root().querySelectorAll(".gg-own [role]:not([data-seen])").forEach((line) => {
      line.dataset.seen = "";
      line.scrollIntoView({ block: "nearest" });
    });
  }
  let waiting = false;
  const nameSoon = () => {
    if (!waiting) { waiting = true; setTimeout(() => { waiting = false; name(); }, 60); }
  };
  // What plotly.js draws has no controls to name.
  const watch = new MutationObserver((seen) => { if (seen.some(({ target }) => !target.closest(".gg-chart"))) nameSoon(); });

  // ---- language, title, address -----------------------------------------------------------------------------------
  function show() {
    const language = model.get("language");
    root().setAttribute?.("lang", language);
    if (!ownPage()) return;
    document.documentElement.lang = language;
    document.title = model.get("title");
    document.querySelectorAll(".gg-skip [lang]").forEach((text) => { text.hidden = text.lang !== language; });
  }
  function address() {
    if (!ownPage() || !model.get("tick")) return;
    const query = model.get("query");
    const wanted = location.pathname + (query ? `?${query}` : "") + location.hash;
    if (/compare$/.test(location.pathname)) {
      const here = new URLSearchParams(query);
      localStorage.setItem("gg-pins", JSON.stringify([..."abcd"].filter((place) => here.get(place)).map((place) => here.get(place))));
    }
    if (wanted !== location.pathname + location.search + location.hash) history.replaceState(null, "", wanted);
  }
  function drawn() {
    document.documentElement.dataset.ggTick = model.get("tick");
    if (!model.get("tick")) return;
    address();
    const look = document.getElementById("gg-skeleton");
    look?.over?.();
    look?.remove();
    aboveCharts().forEach((element) => steady.observe(element));
    document.documentElement.classList.add("gg-ready");
    nameSoon();
  }

  // ---- heartbeat: a kernel that is gone says nothing, so the page has to ------------------------------------------
  let asked = 0, answered = Date.now(), over = false;
  function pong(message, buffers) {
    if (message.kind === "pong") answered = Date.now();
    if (message.kind === "own-more") more(message);
    if (message.kind === "file") {
      const link = document.createElement("a");
      link.href = URL.createObjectURL(new Blob([buffers[0]], { type: message.type }));
      link.download = message.filename;
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
    }
  }
  async function check() {
    if (over || document.hidden || !ownPage()) return;
    asked = Date.now();
    send({ kind: "ping" });
    const url = kernelUrl();
    const alive = await fetch(url, { cache: "no-store", signal }).then((reply) => reply.status !== 404, () => null);
    if (over || signal.aborted) return;
    if (alive === false) return lost();
    setTimeout(() => { if (!over && !document.hidden && !signal.aborted && answered < asked) lost(); }, PATIENCE_S * 1000);
  }
  function lost() {
    if (over || !ownPage()) return;
    over = true;
    const words = model.get("words");
    const box = document.createElement("div");
    box.className = "gg-lost";
    box.setAttribute("role", "alert");
    const said = document.createElement("p");
    said.textContent = words.lost;
    const again = document.createElement("button");
    again.type = "button";
    again.className = "gg-button";
    again.textContent = words.restart;
    again.onclick = () => location.reload();
    box.append(said, again);
    document.body.append(box);
    // Start again by itself, once: all settings stand in the address.
    const last = Number(sessionStorage.getItem("gg-restarted") ?? 0);
    if (Date.now() - last > 60_000) {
      const wait = setInterval(async () => {
        const up = await fetch(location.pathname, { method: "HEAD", cache: "no-store" }).then((reply) => reply.status < 500, () => false);
        if (!up) return;
        clearInterval(wait);
        sessionStorage.setItem("gg-restarted", String(Date.now()));
        location.reload();
      }, 3000);
    }
  }
  const beat = setInterval(check, BEAT_S * 1000);
  document.addEventListener("visibilitychange", () => { if (!document.hidden) check(); }, { signal });
  window.addEventListener("online", check, { signal });
  window.addEventListener("pageshow", (event) => { if (event.persisted) location.reload(); }, { signal });
  window.addEventListener("gg-check", check, { signal }); // for tests

  model.on("msg:custom", pong);
  model.on("change:names", nameSoon);
  model.on("change:spoken", nameSoon);
  model.on("change:language", show);
  model.on("change:title", show);
  model.on("change:query", address);
  model.on("change:tick", drawn);
  // The view may be built before it stands in the page.
  const start = () => {
    if (!el.isConnected) return requestAnimationFrame(start);
    watch.observe(root(), { childList: true, subtree: true, attributes: true, attributeFilter: ["class"] });
    show();
    drawn();
    nameSoon();
    if (model.get("search") === null) {
      model.set("tongue", navigator.language ?? "");
      model.set("search", ownPage() ? location.search : "");
      model.save_changes();
    }
  };
  start();
  return () => {
    stop.abort();
    clearInterval(beat);
    watch.disconnect();
    steady.disconnect();
    model.off("msg:custom", pong);
  };
}

export default { render };
