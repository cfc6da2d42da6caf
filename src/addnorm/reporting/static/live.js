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

  // What a reader has opened or is standing on must survive the exchange.
  const replace = (name, html) => {
    const old = document.querySelector(`[data-live="${name}"]`);
    if (!old) return null;
    const typed = old.querySelector("[data-search]")?.value;
    const box = document.createElement("template");
    box.innerHTML = html;
    const fresh = box.content.firstElementChild;
    const opened = [...old.querySelectorAll("details")].map((one) => one.open);
    [...fresh.querySelectorAll("details")].forEach((one, place) => { one.open = opened[place] ?? one.open; });
    const scrolled = [...old.querySelectorAll(".wide")].map((one) => one.scrollLeft);
    const reachable = "a, button, summary, [tabindex]";
    const at = [...old.querySelectorAll(reachable)].indexOf(document.activeElement);
    old.replaceWith(fresh);
    [...fresh.querySelectorAll(".wide")].forEach((one, place) => { one.scrollLeft = scrolled[place] ?? 0; });
    if (at >= 0) fresh.querySelectorAll(reachable)[at]?.focus({ preventScroll: true });
    if (typed) fresh.querySelector("[data-search]").value = typed;
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

  const source = new EventSource(document.body.dataset.events);
  source.addEventListener("open", () => say("live"));
  source.addEventListener("error", () => say("lost"));
  source.addEventListener("change", take);
  addEventListener("pagehide", () => source.close());
})();
