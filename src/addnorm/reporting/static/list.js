// Long lists: what one types hides the rows that do not match, at once; the server does the same for a page without script.
"use strict";

(() => {
  // Laying out hundreds of rows that appear again takes longer than a key stroke: the first ones are shown at once, the
  // others a few at a time.
  const AT_ONCE = 20;
  const pending = new WeakMap();

  const reveal = (form, rows) => {
    for (const row of rows.splice(0, AT_ONCE)) row.hidden = false;
    if (rows.length) pending.set(form, requestAnimationFrame(() => reveal(form, rows)));
  };

  const apply = (form) => {
    cancelAnimationFrame(pending.get(form));
    const words = form.querySelector("[data-search]").value.toLowerCase().split(/\s+/).filter(Boolean);
    const list = form.closest("section, [data-list]");
    const fits = (item) => words.every((word) => item.dataset.text.includes(word));
    const appearing = [];
    let count = 0;
    for (const group of list.querySelectorAll("[data-group]")) {
      let any = false;
      for (const item of group.querySelectorAll("[data-text]")) {
        const shown = fits(item);
        any ||= shown;
        count += shown;
        if (!shown) item.hidden = true;
        else if (item.hidden) appearing.push(item);
      }
      group.hidden = !any;
    }
    reveal(form, appearing);
    const said = form.querySelector("[data-count]");
    if (said) said.textContent = count;
  };

  document.addEventListener("input", (event) => {
    if (event.target.matches("[data-search]")) apply(event.target.closest("[data-list-tools]"));
  });
  document.addEventListener("change", (event) => {
    if (!event.target.matches("form[data-list-tools] select")) return;
    for (const one of document.querySelectorAll("[name=pick]")) one.disabled = true;  // an order picks nothing
    event.target.form.requestSubmit();
  });
  // All and none of the rows that are shown.
  document.addEventListener("click", (event) => {
    const way = event.target.closest?.("[data-pick]")?.dataset.pick;
    if (!way) return;
    for (const one of document.querySelectorAll("[name=pick]")) one.checked = way === "all" && !one.closest("[hidden]");
  });
  const show = () => { for (const one of document.querySelectorAll("[data-list-tools] [data-needs-script]")) one.hidden = false; };
  show();
  addEventListener("pageshow", () => { for (const one of document.querySelectorAll("[name=pick]")) one.disabled = false; });
  document.addEventListener("addnorm:change", () => show() ?? document.querySelectorAll("[data-list-tools]").forEach(apply));
})();
