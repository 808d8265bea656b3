// A long table, by DataTables; it arrives compressed, cells as codes into a list of words: 2,000 rows are 50 kB.

const unpacked = (bytes) =>
  new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"))).json();

function library(model) {
  const url = window.gpuguide?.tables;
  window.gpuguideTables ??= url ? import(new URL(url, location.href)) : new Promise((resolve, reject) => {
    const take = (message, buffers) => {
      if (message.kind !== "tables") return;
      model.off("msg:custom", take);
      import(URL.createObjectURL(new Blob([buffers[0]], { type: "text/javascript" }))).then(resolve, reject);
    };
    model.on("msg:custom", take);
    model.send({ kind: "tables" });
  });
  return window.gpuguideTables;
}

function render({ model, el }) {
  const box = document.createElement("div");
  box.className = "gg-grid";
  el.append(box);
  let shown, said, DataTable, gone = false, near = false;

  async function draw() {
    const packed = model.get("packed");
    if (!near || !packed.byteLength) return;
    ({ default: DataTable } = await library(model));
    const { columns, label, order, rows, words } = said = await unpacked(packed);
    if (gone || packed !== model.get("packed")) return; // a newer one is on its way
    // What the reader has sorted and searched stays when the rows change.
    const kept = shown && { order: shown.order(), search: { search: shown.search() }, pageLength: shown.page.len() };
    shown?.destroy();
    const table = document.createElement("table");
    table.className = "gg-long";
    table.createCaption().textContent = label;
    table.createTHead().insertRow().append(...columns.map(({ title }) => {
      const head = document.createElement("th");
      head.scope = "col";
      head.textContent = title;
      return head;
    }));
    box.replaceChildren(table);
    shown = new DataTable(table, {
      data: columns[0].codes.map((_, row) => columns.map(({ codes }) => codes[row])),
      columns: columns.map(({ words: said, order: ranks, number }, place) => ({
        data: place, type: number ? "num" : "string", className: number ? "n" : "",
        render: (code, kind) => {
          if (kind === "display") return said[code];
          if (kind === "filter" && !number) return said[code].replace(/<[^>]*>/g, " ");
          return ranks?.[code] ?? (number ? -1 : said[code]);
        },
        columnControl: [{ extend: "dropdown", icon: "search", content: [number ? "searchNumber" : "searchList"] }],
      })),
      order, pageLength: rows, lengthMenu: [10, 25, 100, 500], language: words, deferRender: true, autoWidth: false,
      ordering: { handler: true, indicators: true },
      layout: { topStart: "search", topEnd: "pageLength", bottomStart: "info", bottomEnd: { paging: { firstLast: false } } },
      ...kept,
    });
    const scroll = table.parentElement;
    scroll.classList.add("gg-scroll");
    Object.assign(scroll, { tabIndex: 0, role: "region", ariaLabel: label });
    table.querySelectorAll("thead th").forEach((head, place) => {
      const { title, help } = columns[place];
      if (help) head.querySelector(".dt-column-title").title = help;
      head.querySelector(".dtcc-button")?.setAttribute("aria-label", `${words.columnControl.dropdown}: ${title}`);
    });
    shown.on("draw", name);
    name();
    box.dataset.drawn = 1;
  }
  // What DataTables leaves without a name, or names in English.
  function name() {
    box.querySelectorAll(".dt-paging nav").forEach((nav) => { nav.ariaLabel = `${said.pages}: ${said.label}`; });
    box.querySelectorAll(".dtcc-dropdown :is(input, select):not([aria-label])").forEach((input) => {
      input.ariaLabel = input.closest("[role=dialog]").ariaLabel;
    });
  }
  box.addEventListener("click", () => setTimeout(name), true);
  const drawn = () => draw().catch((error) => { box.textContent = error.message; });
  model.on("change:packed", drawn);
  // Library and table wait until the reader comes near.
  const watch = new IntersectionObserver((entries) => {
    if (near || !entries.some(({ isIntersecting }) => isIntersecting)) return;
    near = true;
    watch.disconnect();
    drawn();
  }, { rootMargin: "600px" });
  watch.observe(box);
  return () => { gone = true; watch.disconnect(); shown?.destroy(); };
}

export default { render };
