// Draws training curves with uPlot in place of the server's drawing: zoom, scale, models, seeds; by mouse, touch or keys.
"use strict";

(() => {
  const section = document.querySelector("[data-curves]");
  if (!section || !window.uPlot) return;
  const address = section.dataset.curves;
  const form = section.querySelector("form");
  const place = section.querySelector(".plot");
  const table = section.querySelector("#curves-table");
  const range = section.querySelector("[data-range]");
  const fixed = new URLSearchParams([...form.querySelectorAll("input[type=hidden]")].map((one) => [one.name, one.value]));
  let plot = null, shown = null, zoom = null, asked = 0, timer = 0;

  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const dash = (pattern) => [[], [7, 3], [2, 2.5], [8, 3, 2, 3]][pattern];  // as in page.css
  const short = (value) => value == null ? "–" : Math.abs(value) >= 1e4 || (value && Math.abs(value) < 1e-3)
    ? value.toExponential(1) : String(+value.toPrecision(5));

  const query = () => {
    const found = new URLSearchParams(new FormData(form));
    for (const [name, value] of fixed) if (!found.has(name)) found.set(name, value);
    if (zoom) { found.set("first", Math.floor(zoom[0])); found.set("last", Math.ceil(zoom[1])); }
    return found;
  };

  const load = async () => {
    const mine = ++asked;
    const [path, own] = address.split("?");
    const wanted = new URLSearchParams(own || "");
    for (const [name, value] of query()) wanted.append(name, value);
    let found;
    try {
      const answer = await fetch(`${path}?${wanted}`);
      if (!answer.ok) return;
      found = await answer.json();
    } catch { return; }  // the live mark says that the connection is lost; or the page was left while the body was on its way
    if (mine === asked) draw(found);
  };

  const draw = (found) => {
    shown = found;
    const steps = [...new Set(found.series.flatMap((line) => line.steps))].sort((a, b) => a - b);
    const at = new Map(steps.map((step, index) => [step, index]));
    const spread = (line, values) => {
      const column = new Array(steps.length).fill(null);
      line.steps.forEach((step, index) => { column[at.get(step)] = found.log === "log" && values[index] <= 0 ? null : values[index]; });
      return column;
    };
    const data = [steps], series = [{ label: form.dataset.stepWord, value: (_, v) => v == null ? "–" : v }], bands = [];
    for (const line of found.series) {
      const stroke = colour(`--s${line.style % 10}`);
      const style = { label: line.label, stroke, width: 1.6, dash: dash(line.dash), spanGaps: true, points: { show: steps.length < 3 }, value: (_, v) => short(v) };
      if (line.low.length && line.low.some((low, index) => low !== line.high[index])) {
        data.push(spread(line, line.high), spread(line, line.low));
        const quiet = { stroke: "transparent", width: 0, spanGaps: true, points: { show: false }, quiet: true };
        series.push({ ...quiet, label: "" }, { ...quiet, label: "" });
        bands.push({ series: [series.length - 2, series.length - 1], fill: `${stroke}1f` });
      }
      data.push(spread(line, line.values));
      series.push(style);
    }
    const axis = { stroke: colour("--ink-2"), font: "11px system-ui, sans-serif", grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line"), width: 1, size: 4 } };
    const options = {
      width: place.clientWidth, height: 320,
      scales: {
        x: { time: false, range: (_, low, high) => zoom || [0, Math.max(1, found.lastStep)] },
        y: found.log === "log" ? { distr: 3, log: 10 } : {},
      },
      axes: [{ ...axis }, { ...axis, size: 58, values: (_, ticks) => ticks.map((tick) => tick == null ? "" : short(tick)) }],
      series, bands,
      cursor: { drag: { x: true, y: false, setScale: false }, points: { size: 6 } },
      hooks: {
        setSelect: [(self) => {
          if (self.select.width < 4) return;
          zoomTo(self.posToVal(self.select.left, "x"), self.posToVal(self.select.left + self.select.width, "x"));
        }],
      },
    };
    plot?.destroy();
    place.textContent = "";
    plot = new uPlot(options, data, place);
    // Edges of bands are lines to uPlot; a reader is not to see them among the lines.
    place.querySelectorAll(".u-legend .u-series").forEach((row, index) => { row.hidden = !!series[index].quiet; });
    plot.over.addEventListener("dblclick", () => zoomTo(null));
    tabulate(found.table);
    place.dataset.first = zoom ? Math.round(zoom[0]) : 0;
    place.dataset.last = zoom ? Math.round(zoom[1]) : found.lastStep;
    place.dataset.points = steps.length;
    place.dataset.newest = steps.length ? steps[steps.length - 1] : -1;
    range.textContent = `${place.dataset.first} – ${place.dataset.last}`;
  };

  // The table behind the chart shows what the chart shows.
  const tabulate = ({ steps, rows }) => {
    const cell = (kind, text, rest) => Object.assign(document.createElement(kind), { textContent: text, ...rest });
    const [head, body] = [table.querySelector("thead tr"), table.querySelector("tbody")];
    head.replaceChildren(head.firstElementChild, ...steps.map((step) => cell("th", step, { scope: "col", className: "number" })));
    body.replaceChildren(...rows.map(({ label, values }) => {
      const row = document.createElement("tr");
      row.append(cell("th", label, { scope: "row" }), ...values.map((value) => cell("td", value == null ? "–" : String(+value.toPrecision(4)), { className: "number" })));
      return row;
    }));
    table.hidden = !rows.length;
  };

  const zoomTo = (low, high) => {
    const end = Math.max(1, shown?.lastStep ?? 1);
    if (low === null) zoom = null;
    else {
      const width = Math.min(end, Math.max(2, high - low));
      const start = Math.min(Math.max(0, low), end - width);
      zoom = width >= end ? null : [start, start + width];
    }
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
  const move = (name) => by[name](zoom || [0, Math.max(1, shown?.lastStep ?? 1)]);

  section.querySelector(".zoom").hidden = false;
  section.querySelector("[data-needs-script]").hidden = false;
  section.querySelector("[data-static-legend]")?.remove();
  for (const button of section.querySelectorAll("[data-zoom]")) button.addEventListener("click", () => move(button.dataset.zoom));
  place.tabIndex = 0;
  place.setAttribute("role", "group");
  place.setAttribute("aria-label", section.querySelector("figcaption").textContent.trim());
  place.addEventListener("keydown", (event) => {
    const name = keys[event.key];
    if (!name || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    move(name);
  });
  form.addEventListener("submit", (event) => { event.preventDefault(); load(); });
  form.addEventListener("change", () => {
    const shownNow = new URLSearchParams(new FormData(form));
    history.replaceState(null, "", `${location.pathname}?${shownNow}`);
    load();
  });
  // At most two drawings a second, however fast the runs report.
  document.addEventListener("addnorm:change", (event) => {
    if (!event.detail.runs.length || timer) return;
    timer = setTimeout(() => { timer = 0; load(); }, 400);
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => shown && draw(shown));
  new ResizeObserver(() => plot && plot.setSize({ width: place.clientWidth, height: 320 })).observe(place);
  load();
})();
