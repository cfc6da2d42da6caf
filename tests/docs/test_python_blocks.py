"""Every Python block of the readmes and the guides runs as it is printed."""

from pathlib import Path

import pytest
from sybil import Sybil
from sybil.parsers.markdown import PythonCodeBlockParser, SkipParser

ROOT = Path(__file__).parents[2]
GUIDES = sorted((ROOT / "docs" / "guide").glob("*.md"))
PAGES = sorted(ROOT.glob("README*.md")) + [
    pytest.param(page, marks=[pytest.mark.thorough] if page.match("notebooks.md") else [])  # trains and draws
    for page in GUIDES
    if not page.match("*.zh-CN.md")
]
"""A Chinese guide has the code of the English one: test_translations."""
BLOCKS = Sybil(parsers=[PythonCodeBlockParser(), SkipParser()])


# One test per page: its blocks build on each other, so that no two processes may share them.
@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_blocks_run_one_after_the_other(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # a page may write files
    for block in BLOCKS.parse(page).examples():
        block.evaluate()


def test_the_walk_sees_a_block_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "page.md"
    page.write_text("```python\nvalue = 1\n```\n\n```python\nassert value == 2\n```\n", encoding="utf-8")
    with pytest.raises(AssertionError):
        test_the_blocks_run_one_after_the_other(page, tmp_path, monkeypatch)
