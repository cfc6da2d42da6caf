// Least contrast of any text on the page with what lies behind it, and where.
() => {
  const linear = (v) => (v / 255 <= 0.03928 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4);
  const light = ([r, g, b]) => 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
  const parse = (text) => (text.match(/[\d.]+/g) || []).map(Number);
  const behind = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const colour = parse(getComputedStyle(at).backgroundColor);
      if (colour.length === 3 || colour[3] === 1) return colour.slice(0, 3);
    }
    return [255, 255, 255];
  };
  let worst = [99, ""];
  for (const element of document.querySelectorAll("main *, header *, footer *")) {
    const speaks = [...element.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
    if (!speaks || !element.checkVisibility()) continue;
    const style = getComputedStyle(element);
    const own = parse(element instanceof SVGElement ? style.fill : style.color).slice(0, 3);
    const [high, low] = [light(own), light(behind(element))].sort((x, y) => y - x);
    const ratio = (high + 0.05) / (low + 0.05);
    if (ratio < worst[0]) worst = [ratio, element.outerHTML.slice(0, 160)];
  }
  return worst;
}
