"""Documentation is wrapped at 100 columns; tables, code and addresses may be wider."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WIDEST = 100
PAGES = sorted(path for path in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")))


def too_wide(text: str) -> Iterator[int]:
    """Line numbers of English prose beyond the limit that has a space to break at."""
    fenced = False
    for number, line in enumerate(text.splitlines(), start=1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif fenced or len(line) <= WIDEST or line.startswith("    ") or line.lstrip().startswith(("|", "![", "<!--")):
            continue
        elif " " in line.strip()[:WIDEST].lstrip("-* ") and not re.search("[\u4e00-\u9fff]", line):
            yield number


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_prose_is_wrapped(path: Path) -> None:
    assert list(too_wide(path.read_text(encoding="utf-8"))) == []


def test_the_rule_catches_what_it_is_for() -> None:
    assert list(too_wide("short\n" + "word " * 30)) == [2]
    assert list(too_wide("```\n" + "word " * 30 + "\n```\n| " + "cell | " * 30)) == []
