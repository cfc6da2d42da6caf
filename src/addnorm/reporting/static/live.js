// Keeps a page that the server has rendered up to date: the server says which sections changed and sends them anew.
"use strict";

(() => {
  const root = document.documentElement;
  root.classList.add("has-script");
  const mark = document.querySelector("[data-live-mark]");
  const word = document.querySelector("[data-live-word]");

  const say = (state) => {
    if (mark.dataset.liveMark === state) return;
    mark.dataset.liveMark = state;
    word.textContent = state === "live" ? word.dataset.wordLive : word.dataset.wordLost;
  };

  // Tells one field of a section from its others.
  const key = (one) => `${one.name} ${one.type} ${one.type === "checkbox" ? one.value : ""}`;
  // What a reader has typed or ticked in a form that is still there.
  const keep = (old, fresh) => {
    const fields = "textarea, input:not([type=hidden])";
    const before = new Map([...old.querySelectorAll(fields)].map((one) => [key(one), one]));
    for (const one of fresh.querySelectorAll(fields)) {
      const was = before.get(key(one));
      if (!was) continue;
      if (one.type === "checkbox" || one.type === "radio") one.checked = was.checked;
      else if (was.value !== was.defaultValue) one.value = was.value;
    }
  };

  // What a reader has opened or is standing on must survive the exchange.
  const replace = (name, html) => {
    const old = document.querySelector(`[data-live="${name}"]`);
    if (!old) return null;
    const box = document.createElement("template");
    box.innerHTML = html;
    const fresh = box.content.firstElementChild;
    const opened = [...old.querySelectorAll("details")].map((one) => one.open);
    [...fresh.querySelectorAll("details")].forEach((one, place) => { one.open = opened[place] ?? one.open; });
    const place = document.activeElement?.tagName === "TEXTAREA" ? [document.activeElement.selectionStart, document.activeElement.selectionEnd] : [];
    const scrolled = [...old.querySelectorAll(".wide")].map((one) => one.scrollLeft);
    const reachable = "a, button, summary, input:not([type=hidden]), select, textarea, [tabindex]";
    const at = [...old.querySelectorAll(reachable)].indexOf(document.activeElement);
    keep(old, fresh);
    // A log is read from its end, unless a reader has scrolled up.
    const logs = [...old.querySelectorAll("[data-tail]")].map((one) => one.scrollTop + one.clientHeight >= one.scrollHeight - 4 ? Infinity : one.scrollTop);
    old.replaceWith(fresh);
    [...fresh.querySelectorAll("[data-tail]")].forEach((one, place) => { one.scrollTop = Math.min(logs[place] ?? Infinity, one.scrollHeight); });
    [...fresh.querySelectorAll(".wide")].forEach((one, place) => { one.scrollLeft = scrolled[place] ?? 0; });
    if (at >= 0) {
      const was = [...old.querySelectorAll(reachable)][at];
      const now = was.name ? [...fresh.querySelectorAll(reachable)].find((one) => key(one) === key(was)) : fresh.querySelectorAll(reachable)[at];
      if (now?.tagName === was.tagName) now.focus({ preventScroll: true });
      if (now?.tagName === "TEXTAREA" && place.length) now.setSelectionRange(...place);
    }
    fresh.classList.add("fresh");
    return fresh;
  };

  // Models in order of result change places when the results do, unless a visitor has sorted them otherwise.
  const reorder = (parent) => {
    if (new URLSearchParams(location.search).get("sort")) return;
    const items = [...parent.children].filter((one) => one.dataset.order);
    const sorted = [...items].sort((a, b) => a.dataset.order - b.dataset.order);
    if (sorted.some((one, place) => one !== items[place])) parent.append(...sorted);
  };

  const take = (event) => {
    const change = JSON.parse(event.data);
    if (change.reload) { location.reload(); return; }
    const parents = new Set();
    for (const [name, html] of Object.entries(change.sections)) {
      const fresh = replace(name, html);
      if (fresh?.dataset.order) parents.add(fresh.parentElement);
    }
    parents.forEach(reorder);
    document.dispatchEvent(new CustomEvent("addnorm:change", { detail: change }));
  };

  for (const one of document.querySelectorAll("[data-tail]")) one.scrollTop = one.scrollHeight;
  const source = new EventSource(document.body.dataset.events);
  source.addEventListener("open", () => say("live"));
  source.addEventListener("error", () => say("lost"));
  source.addEventListener("change", take);
  addEventListener("pagehide", () => source.close());
})();
