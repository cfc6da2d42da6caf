// Draws training curves with uPlot in place of the server's drawing: one zoom for all charts, by mouse, touch or keys, a list of
// values at the cursor, and everything that is chosen in the address. The server computes what is drawn.
"use strict";

(() => {
  const section = document.querySelector("[data-curves]");
  if (!section || !window.uPlot) return;
  const HEIGHT = 300, NEAREST = 12;
  const form = section.querySelector("form");
  const places = [...section.querySelectorAll(".plot")];
  const range = section.querySelector("[data-range]");
  const note = section.querySelector("#curves-note");
  const legend = section.querySelector("[data-legend]");
  const fixed = [...form.querySelectorAll("input[type=hidden]")];
  const files = [...section.querySelectorAll("[data-file]")].map((link) => [link, link.getAttribute("href")]);
  const cursors = uPlot.sync("curves");
  let plots = [], shown = null, zoom = null, asked = 0, timer = 0;

  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const dash = (pattern) => [[], [7, 3], [2, 2.5], [8, 3, 2, 3]][pattern];  // as in page.css
  const short = (value) => value == null ? "–" : Math.abs(value) >= 1e4 || (value && Math.abs(value) < 1e-3)
    ? value.toExponential(1) : String(+value.toPrecision(5));
  const large = (value) => Math.abs(value) < 1e4 ? String(+value.toPrecision(4))
    : new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 }).format(value);
  const end = () => Math.max(1, shown?.[0].lastStep ?? 1);

  // What is shown, as an address; what a visitor has not changed is in it too, so that it stays when the defaults change.
  const query = () => {
    const found = new URLSearchParams(new FormData(form));
    if (zoom) { found.set("first", zoom[0]); found.set("last", zoom[1]); }
    return found;
  };
  const addressed = (address) => {
    const [path, own] = address.split("?");
    const wanted = new URLSearchParams(own || "");
    for (const [name, value] of query()) if (!fixed.some((one) => one.name === name && wanted.has(name))) wanted.append(name, value);
    return `${path}?${wanted}`;
  };

  const load = async () => {
    const mine = ++asked;
    for (const [link, address] of files) link.setAttribute("href", addressed(address));
    let found;
    try {
      const answer = await fetch(addressed(section.dataset.curves));
      if (!answer.ok) return;
      found = await answer.json();
    } catch { return; }  // the live mark says that the connection is lost; or the page was left while the body was on its way
    if (mine === asked) draw([found, ...found.more]);
  };

  const draw = (charts) => {
    shown = charts;
    section.querySelector("[data-zoom-tools]").hidden = false;
    plots.forEach((plot) => plot.destroy());
    plots = charts.map((found, at) => drawOne(found, places[at]));
    charts.forEach((found, at) => tabulate(found, section.querySelector(at ? `#curves-table-${at}` : "#curves-table")));
    name(charts[0].series);
    for (const one of section.querySelectorAll("[data-mode]")) one.hidden = one.dataset.mode !== charts[0].mode;
    const thinned = note.querySelector("[data-thinned]");
    thinned.hidden = charts[0].stepsPerPoint === 1;
    thinned.textContent = ` ${thinned.dataset.thinned.replace("{steps}", charts[0].stepsPerPoint)}`;
    const [first, last] = zoom || [0, end()];
    for (const [at, place] of places.entries()) {
      const xs = charts[at].series.flatMap((line) => line.xs);
      place.dataset.first = Math.round(first);
      place.dataset.last = Math.round(last);
      place.dataset.newest = xs.length ? Math.max(...xs) : -1;
    }
    range.textContent = `${large(first)} – ${large(last)}`;
  };

  const drawOne = (found, place) => {
    const xs = [...new Set(found.series.flatMap((line) => line.xs))].sort((a, b) => a - b);
    const at = new Map(xs.map((x, index) => [x, index]));
    const spread = (line, values) => {
      const column = new Array(xs.length).fill(null);
      line.xs.forEach((x, index) => { column[at.get(x)] = found.log === "log" && values[index] <= 0 ? null : values[index]; });
      return column;
    };
    const data = [xs], series = [{}], bands = [];
    const add = (line, values, look) => {
      data.push(spread(line, values));
      series.push({ spanGaps: true, points: { show: false }, ...look });
      return series.length - 1;
    };
    for (const line of found.series) {
      const stroke = colour(`--s${line.style % 10}`);
      if (line.low.length && line.low.some((low, index) => low !== line.high[index])) {
        const edge = { stroke: "transparent", width: 0 };
        bands.push({ series: [add(line, line.high, edge), add(line, line.low, edge)], fill: `${stroke}1f` });
      }
      if (line.raw.length) add(line, line.raw, { stroke: `${stroke}55`, width: 0.8 });
      add(line, line.values, { stroke, width: 1.6, dash: dash(line.dash), line, points: { show: line.xs.length < 3 } });
    }
    const axis = { stroke: colour("--ink-2"), font: "11px system-ui, sans-serif", grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line"), width: 1, size: 4 } };
    const options = {
      width: place.clientWidth, height: HEIGHT, legend: { show: false },
      scales: {
        x: { time: false, range: () => zoom || [0, end()] },
        y: { range: () => found.limits || [0, 1], ...(found.log === "log" ? { distr: 3, log: 10 } : {}) },
      },
      axes: [{ ...axis, values: (_, ticks) => ticks.map(large) }, { ...axis, size: 58, values: (_, ticks) => ticks.map((tick) => tick == null ? "" : short(tick)) }],
      series, bands,
      cursor: { drag: { x: true, y: false, setScale: false }, points: { show: false }, sync: { key: cursors.key } },
      hooks: {
        setSelect: [(self) => {
          if (self.select.width < 4) return;
          zoomTo(self.posToVal(self.select.left, "x"), self.posToVal(self.select.left + self.select.width, "x"));
        }],
        setCursor: [(self) => tell(self, box)],
      },
    };
    place.textContent = "";
    const plot = new uPlot(options, data, place);
    const box = Object.assign(document.createElement("div"), { className: "tip", hidden: true });
    place.append(box);
    plot.over.addEventListener("dblclick", () => zoomTo(null));
    return plot;
  };

  // The values of the lines nearest to the cursor, each at its own last point before it.
  const tell = (plot, box) => {
    if (!box) return;
    const { left, top } = plot.cursor;
    box.hidden = left == null || left < 0;
    if (box.hidden) return;
    const x = plot.posToVal(left, "x"), y = plot.posToVal(top, "y");
    const found = [];
    for (const { line, stroke } of plot.series) {
      if (!line) continue;
      const after = line.xs.findIndex((each) => each > x);
      const at = (after < 0 ? line.xs.length : after) - 1;
      if (at >= 0) found.push({ line, at, stroke: stroke(), away: Math.abs(line.values[at] - y) });
    }
    const nearest = [...found].sort((a, b) => a.away - b.away).slice(0, NEAREST).sort((a, b) => b.line.values[b.at] - a.line.values[a.at]);
    const rows = nearest.map(({ line, at, stroke }) => {
      const row = document.createElement("div");
      const key = document.createElementNS("http://www.w3.org/2000/svg", "svg");
      key.setAttribute("class", "key"); key.setAttribute("width", 20); key.setAttribute("height", 8);
      const mark = document.createElementNS(key.namespaceURI, "line");
      for (const [attribute, value] of Object.entries({ x1: 0, x2: 20, y1: 4, y2: 4, class: `line s${line.style % 10} d${line.dash}`, stroke })) mark.setAttribute(attribute, value);
      key.append(mark);
      const spread = line.low.length && line.low[at] !== line.high[at] ? ` [${short(line.low[at])}, ${short(line.high[at])}]` : "";
      row.append(key, `${line.label} `, Object.assign(document.createElement("strong"), { textContent: short(line.values[at]) }), spread);
      return row;
    });
    const more = found.length > rows.length ? [Object.assign(document.createElement("div"), { className: "soft", textContent: `+ ${found.length - rows.length}` })] : [];
    box.replaceChildren(Object.assign(document.createElement("div"), { className: "soft", textContent: large(x) }), ...rows, ...more);
    const right = left > plot.over.clientWidth / 2;
    box.classList.toggle("left", right);
  };

  const cell = (kind, text, rest) => Object.assign(document.createElement(kind), { textContent: text, ...rest });

  // The names of the lines, which the server wrote for the first drawing.
  const name = (lines) => {
    const keys = lines.map((line) => {
      const item = document.createElement("li");
      const choice = form.querySelector(`input[name=variant][value="${CSS.escape(line.variant)}"]`)?.closest("label");
      const label = choice?.textContent.trim() ?? line.variant;
      if (line.seed == null) choice?.querySelector("line").setAttribute("class", `line s${line.style % 10} d${line.dash}`);
      item.innerHTML = `<svg class="key" width="30" height="8" aria-hidden="true" focusable="false"><line class="line s${line.style % 10} d${line.dash}" x1="0" x2="30" y1="4" y2="4"/></svg>`;
      item.append(line.seed == null ? label : `${label} · ${line.seed}`);
      item.title = line.label;
      return item;
    });
    legend.replaceChildren(...keys);
  };

  // The table behind a chart shows what the chart shows.
  const tabulate = ({ table: { steps, rows } }, table) => {
    const [head, body] = [table.querySelector("thead tr"), table.querySelector("tbody")];
    head.replaceChildren(head.firstElementChild, ...steps.map((step) => cell("th", large(step), { scope: "col", className: "number" })));
    body.replaceChildren(...rows.map(({ label, values }) => {
      const row = document.createElement("tr");
      row.append(cell("th", label, { scope: "row" }), ...values.map((value) => cell("td", value == null ? "–" : String(+value.toPrecision(4)), { className: "number" })));
      return row;
    }));
    table.hidden = !rows.length;
  };

  // Every choice is a step that Back undoes.
  const remember = () => {
    const now = String(query());
    if (now !== (history.state ?? opened)) history.pushState(now, "", `${location.pathname}?${now}`);
    load();
  };
  const zoomTo = (low, high) => {
    if (low === null) zoom = null;
    else {
      const width = Math.min(end(), Math.max(end() > 1000 ? end() / 1e4 : 2, high - low));
      const start = Math.min(Math.max(0, low), end() - width);
      zoom = width >= end() ? null : [+start.toPrecision(6), +(start + width).toPrecision(6)];
    }
    remember();
  };
  const restore = (state) => {
    const now = new URLSearchParams(state);
    for (const box of form.querySelectorAll("[type=checkbox], [type=radio]")) box.checked = now.getAll(box.name).includes(box.value);
    zoom = now.has("last") ? [+now.get("first"), +now.get("last")] : null;
    load();
  };

  const by = {
    in: ([low, high]) => { const quarter = (high - low) / 4; zoomTo(low + quarter, high - quarter); },
    out: ([low, high]) => { const half = (high - low) / 2; zoomTo(low - half, high + half); },
    left: ([low, high]) => { const part = (high - low) / 4; zoomTo(low - part, high - part); },
    right: ([low, high]) => { const part = (high - low) / 4; zoomTo(low + part, high + part); },
    reset: () => zoomTo(null),
  };
  const keys = { "+": "in", "=": "in", "-": "out", "−": "out", ArrowLeft: "left", ArrowRight: "right", 0: "reset", Escape: "reset" };
  // Nothing can be zoomed before the first answer: where the axis ends is not known yet, so that a zoom would be one of nothing.
  const move = (way) => shown && by[way](zoom || [0, end()]);

  for (const one of section.querySelectorAll("[data-needs-script]")) one.hidden = false;
  for (const button of section.querySelectorAll("[data-zoom]")) button.addEventListener("click", () => move(button.dataset.zoom));
  for (const place of places) {
    place.tabIndex = 0;
    place.setAttribute("role", "group");
    place.setAttribute("aria-label", `${place.previousElementSibling.textContent.trim()}. ${note.innerText.trim()}`);
    place.addEventListener("keydown", (event) => {
      const way = keys[event.key];
      if (!way || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      move(way);
    });
  }
  for (const button of section.querySelectorAll("[data-choose]")) button.addEventListener("click", () => {
    for (const label of form.querySelectorAll("label[data-text]:not([hidden])")) label.querySelector("input").checked = button.dataset.choose === "all";
    remember();
  });
  form.addEventListener("submit", (event) => { event.preventDefault(); remember(); });
  form.addEventListener("change", (event) => {
    if (!event.target.name) return;
    if (event.target.name === "x") zoom = null;
    // All but the models, the scale and the kind of lines changes titles and notes, which the server writes.
    if (["variant", "log", "mode"].includes(event.target.name)) remember();
    else location.assign(`${location.pathname}?${query()}`);
  });
  addEventListener("popstate", (event) => restore(event.state ?? opened));
  // At most two drawings a second, however fast the runs report.
  document.addEventListener("addnorm:change", (event) => {
    if (!event.detail.runs.length || timer) return;
    timer = setTimeout(() => { timer = 0; load(); }, 400);
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => shown && draw(shown));
  new ResizeObserver(() => plots.forEach((plot, at) => plot.setSize({ width: places[at].clientWidth, height: HEIGHT }))).observe(section);
  const address = new URLSearchParams(location.search);
  if (address.has("last")) zoom = [+(address.get("first") || 0), +address.get("last")];
  const opened = String(query());
  load();
})();
