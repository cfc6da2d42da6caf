// Where the keyboard stands: what it is called, whether that can be seen, and how far down the page it is.
() => {
  const element = document.activeElement;
  if (element === document.body) return null;
  const style = getComputedStyle(element);
  const name = element.textContent || element.value || element.getAttribute("aria-label") || element.tagName;
  return {
    name: name.trim(),
    seen: style.outlineStyle !== "none" && parseFloat(style.outlineWidth) > 0,
    top: element.getBoundingClientRect().top + scrollY,
  };
}
