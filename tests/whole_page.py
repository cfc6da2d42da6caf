"""Checks that a page is whole HTML."""

import re
from html.parser import HTMLParser

VOID = {"meta", "link", "wbr", "input", "br", "circle", "rect", "line", "path", "polyline", "polygon"}


class Whole(HTMLParser):
    """Checks that every element is closed where it must be, that ids are unique, and what stands in attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.troubles: list[str] = []
        self.named: set[str] = set()

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        self.ids += [values["id"]] if "id" in values else []
        self.named |= set((values.get("aria-labelledby") or "").split())
        self.troubles += [f"{tag} {name}" for name in values if name == "style" or name.startswith("on")]
        if tag == "script" and "src" not in values:
            self.troubles.append("a script in the page")
        for name in ("src", "href"):
            # A link to a cited document is followed only by a visitor's click, and does not say where it comes from.
            is_citation = tag == "a" and values.get("rel") == "noreferrer"
            if re.match(r"[a-z]+:|//", values.get(name) or "") and not is_citation:
                self.troubles.append(f"{name}={values[name]}")
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        if tag not in VOID and (not self.open or self.open.pop() != tag):
            self.troubles.append(f"</{tag}> at {self.getpos()}")


def assert_whole(html: str) -> None:
    checked = Whole()
    checked.feed(html)
    assert checked.troubles == []
    assert checked.open == []
    assert len(set(checked.ids)) == len(checked.ids)
    assert checked.named <= set(checked.ids)
