// Where the keyboard stands: what it is called, and whether that can be seen; null after the last stop, where a browser without
// a frame begins again. Tops of all stops are read together, later: a page that is still laid out moves what lies below.
() => {
  const element = document.activeElement;
  if (element === document.body || window.stops?.includes(element)) return null;
  window.stops = [...(window.stops ?? []), element];
  const style = getComputedStyle(element);
  const name = element.textContent || element.value || element.getAttribute("aria-label") || element.tagName;
  return {
    name: name.trim(),
    seen: style.outlineStyle !== "none" && parseFloat(style.outlineWidth) > 0,
  };
}
