"""Links of a built site that lead nowhere, and what its pages would load from elsewhere."""

from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

_LOADED = {("script", "src"), ("img", "src"), ("iframe", "src"), ("source", "src"), ("link", "href")}
_NOT_LOADED = ("canonical", "alternate", "next", "prev", "edit")
"""Relations of <link> that a browser does not request."""


class _Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.loads: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.ids |= {value for name in ("id", "name") if (value := values.get(name))}
        for name, value in attrs:
            if value is None:
                continue
            if (tag, name) in _LOADED and values.get("rel") not in _NOT_LOADED:
                self.loads.append(value)
            elif (tag, name) == ("a", "href"):
                self.links.append(value)


def broken(site: Path) -> list[str]:
    """Problems of the pages below a folder: page and address."""
    pages: dict[Path, _Page] = {}
    for path in sorted(site.rglob("*.html")):
        page = pages[path] = _Page()
        page.feed(path.read_text(encoding="utf-8"))
    problems = []
    for path, page in pages.items():
        name = path.relative_to(site)
        if name.name == "404.html":  # its links start at the site's address, wherever that is
            continue
        for address in page.loads:
            if urlsplit(address).scheme in ("http", "https") or address.startswith("//"):
                problems.append(f"{name} loads {address}, which is not on the site")
        for address in {*page.links, *page.loads}:
            problem = _problem(address, path, site, pages)
            if problem:
                problems.append(f"{name}: {address}: {problem}")
    return problems


def _problem(address: str, path: Path, site: Path, pages: dict[Path, _Page]) -> str | None:
    parts = urlsplit(address)
    if parts.scheme or parts.netloc:
        return None
    target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
    if target.is_dir():
        target /= "index.html"
    if not target.is_relative_to(site.resolve()) or not target.is_file():
        return "no such file"
    if parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].ids | {"__top", ""}:
        return "no such heading"
    return None
