"""Markdown beside every page of the site, and `llms.txt`, which lists them: for programs that read (https://llmstxt.org)."""

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

SUMMARY = 200
"""Characters of a page's description."""


def write(source: Path, site: Path, navigation: dict[str, object]) -> int:
    """Copy every Markdown page beside its HTML page and write `llms.txt`. Returns the number of pages that it lists.

    Args:
        source: the folder of Markdown files that the site was built from.
        site: the folder of the built site.
        navigation: sections with titles and pages, as the site's own.
    """
    for page in source.rglob("*.md"):
        twin = site / page.relative_to(source)
        twin.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(page, twin)
    lines = ["# addnorm", "", f"> {_description(source / 'index.md')}"]
    count = 0
    for section, entry in navigation.items():
        lines += ["", f"## {section}", ""]
        for title, address in _pages(entry, section):
            lines.append(f"- [{title}]({address}): {_description(source / address)}")
            count += 1
    (site / "llms.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return count


def _pages(entry: object, title: str) -> Iterator[tuple[str, str]]:
    if isinstance(entry, dict):
        for name, inner in entry.items():
            yield from _pages(inner, name)
    else:
        yield title, str(entry)


def _description(page: Path) -> str:
    """The first sentence of prose of a page, without marks."""
    for part in re.split(r"\n\s*\n", page.read_text(encoding="utf-8")):
        text = " ".join(part.split())
        if not part.startswith(("    ", "```")) and re.match(r"[\w*`\"“(]", text):
            plain = re.sub(r"\[([^\]]*)\]\([^)]*\)|[*`]", lambda found: found[1] or "", text)
            first = re.split(r"(?<=[.。])\s*(?=[A-Z一-鿿]|$)", plain, maxsplit=1)[0]
            return first if len(first) <= SUMMARY else first[:SUMMARY].rsplit(" ", 1)[0] + " …"
    return page.stem
