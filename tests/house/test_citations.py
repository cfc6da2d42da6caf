"""Every citation resolves: to an arXiv number, DOI or address beside it, or to an entry of docs/sources.md."""

import ast
import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from addnorm.references import REFERENCES, names_printed_results

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "docs" / "sources.md"
SOURCES_ZH = ROOT / "docs" / "sources.zh-CN.md"

NUMBERED = re.compile(r"(?:sources?|来源|源)[\s_./-]*00[0-4](?!\d)", re.IGNORECASE)
FORMER_NAMES = {"CHANGELOG.md", "src/addnorm/references.py", "docs/sources.md", "docs/sources.zh-CN.md"}
"""Files that may give a document's former number: the former names of commands and functions are kept there."""

PUBLISHED = re.compile(r"arXiv:\d{4}\.\d{5}|doi:10\.|https?://")
CITATION = re.compile(
    r"(?P<names>[A-Z][\w]+(?: (?:et al\.|(?:and|&) [A-Z]\w+))?)(?:'s)? ?\(?(?P<year>(?:18|19|20)\d\d\b|n\.d\.)"
)
BY_KEY = re.compile(r"\b(?P<names>[A-Z]\w+(?: et al\.)?)(?:'s)?,? \((?P<year>(?:19|20)\d\d|n\.d\.)\)")


def tracked_texts() -> Iterator[tuple[str, str]]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for name in filter(None, listed.split("\0")):
        path = ROOT / name
        if path.is_file():
            content = path.read_bytes()
            if b"\0" not in content:
                yield name, content.decode("utf-8")


@cache
def entries() -> set[str]:
    """Keys of docs/sources.md without parentheses: the first cells of its tables' rows."""
    rows = re.findall(r"^\| ([^|]+?) \|", SOURCES.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[()]", "", row) for row in rows}


def unresolved(source: str, known: set[str]) -> list[str]:
    """Citations of a `Source:` paragraph with neither a published number or address beside them nor an entry."""
    missing = []
    for item in re.split(r";\s", source):
        if not PUBLISHED.search(item):
            missing += [
                key for each in CITATION.finditer(item) if (key := f"{each['names']} {each['year']}") not in known
            ]
    return missing


def source_paragraphs() -> list[tuple[str, str]]:
    written = []
    for path in sorted((ROOT / "src").rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        # Parsing every file would take seconds of every collection.
        for node in ast.walk(ast.parse(text)) if "Source:" in text else ():
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                doc = ast.get_docstring(node) or ""
                for each in re.finditer(r"^Source: ?(.*?)(?=^Differs from|\n\s*\n|\Z)", doc, re.DOTALL | re.MULTILINE):
                    written.append((f"{path.relative_to(ROOT)}:{getattr(node, 'name', '')}", " ".join(each[1].split())))
    return written


def test_no_document_is_cited_by_a_number() -> None:
    numbered = {
        f"{name}: {each[0]}"
        for name, text in tracked_texts()
        if name not in FORMER_NAMES
        for each in NUMBERED.finditer(f"{name}\n{text}")
    }
    assert not numbered


@pytest.mark.parametrize(("where", "source"), source_paragraphs(), ids=lambda value: value[:60])
def test_a_source_line_resolves(where: str, source: str) -> None:
    assert unresolved(source, entries()) == [], where


def test_every_key_in_text_has_an_entry() -> None:
    known = entries()
    missing = {
        f"{name}: {each[0]}"
        for name, text in tracked_texts()
        if name.endswith((".py", ".md", ".yaml", ".toml", ".json")) and not name.startswith("tests/house/")
        for each in BY_KEY.finditer(text)
        if f"{each['names']} {each['year']}" not in known
    }
    assert not missing


def test_the_catalogue_and_the_pages_of_the_docs_agree() -> None:
    for path, key in ((SOURCES, "key"), (SOURCES_ZH, "key_zh")):
        rows = [line for line in path.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
        for reference in REFERENCES:
            (row,) = [line for line in rows if getattr(reference, key) in line.split("|")[1]]
            assert reference.title in row
            assert f"<{reference.address}>" in row or not reference.address


def test_both_readmes_and_the_guide_lead_to_the_sources() -> None:
    assert "(docs/sources.md)" in (ROOT / "README.md").read_text(encoding="utf-8")
    assert "(docs/sources.zh-CN.md)" in (ROOT / "README.zh-CN.md").read_text(encoding="utf-8")


def test_the_printed_results_keep_their_former_name() -> None:
    assert names_printed_results("kuang-2025")
    assert names_printed_results(Path(f"source-{3:03}"))
    assert not names_printed_results("runs/first")


def test_these_rules_catch_what_they_are_for() -> None:
    for written in ("source {}", "Sources {}", "source_{}", "SOURCE-{}", "来源 {}", "来源{}"):
        assert NUMBERED.search(written.format("003"))
    assert not NUMBERED.search("source 0031")
    assert unresolved("Nobody (2021), eq. 1.", {"Su 2020"}) == ["Nobody 2021"]
    assert unresolved("Su (2020); Nobody et al. 2021, arXiv:2101.00001.", {"Su 2020"}) == []
    assert unresolved("Nobody et al. 2021; Su (2020), https://kexue.fm.", {"Su 2020"}) == ["Nobody et al. 2021"]
    assert "Su 2023" in entries()
