"""Each Chinese guide shows what the English one does: code, commands, headings, tables, numbers and links.

Text changes more often than its translation is looked at. These parts can be compared without knowing either language, so a
page that was changed on one side alone is found.
"""

import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

GUIDE = Path(__file__).parents[2] / "docs" / "guide"
PAGES = sorted(path.name.removesuffix(".zh-CN.md") for path in GUIDE.glob("*.zh-CN.md"))
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)
_INDENTED = re.compile(r"(?:(?<=\n\n)|\A)(?:    .*\n|\n(?=    ))+")
_NUMBER = re.compile(r"(?<![\w.])\d[\d ]*(?:[.,]\d+)*(?![\w])")


def without_comments(text: str) -> str:
    return "\n".join(re.sub(r"\s*# .*", "", line) for line in text.splitlines())


def code(text: str) -> list[tuple[str, str]]:
    """Code blocks with their language, then indented ones; without comments, which are translated."""
    fenced = [(match[1], without_comments(match[2])) for match in _FENCE.finditer(text)]
    return fenced + [("indented", without_comments(match[0]).strip()) for match in _INDENTED.finditer(prose(text))]


def prose(text: str) -> str:
    return _FENCE.sub("", text)


def headings(text: str) -> list[int]:
    return [len(marks) for marks in re.findall(r"^(#+) ", prose(text), re.M)]


def columns(text: str) -> list[int]:
    """Number of cells of every row of every table."""
    return [line.replace(r"\|", "").count("|") for line in prose(text).splitlines() if line.startswith("|")]


def spans(text: str) -> set[str]:
    """Code in running text; a line may end in the middle of it."""
    return set(re.findall(r"`([^`]+)`", re.sub(r"\s+", " ", _INDENTED.sub("", prose(text)))))


def links(text: str) -> Counter[str]:
    """Addresses of links, of either language; not those between the two pages."""
    addresses = re.findall(r"\]\(([^)\s]+)\)", prose(text))
    return Counter(re.sub(r"(\.zh-CN)?\.md\b", ".md", address) for address in addresses)


def numbers(text: str) -> Counter[str]:
    words = re.sub(r"\s", " ", re.sub(r"\[\d+\]\([^)]*\)", "", _INDENTED.sub("", prose(text))))
    return Counter(number.strip().replace(" ", "") for number in _NUMBER.findall(words))


def both(name: str) -> tuple[str, str]:
    english, chinese = (GUIDE / f"{name}{ending}.md" for ending in ("", ".zh-CN"))
    return english.read_text(encoding="utf-8"), chinese.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", PAGES)
def test_pages_link_to_each_other(name: str) -> None:
    english, chinese = (text.splitlines()[2] for text in both(name))
    assert (english, chinese) == (f"[中文]({name}.zh-CN.md)", f"[English]({name}.md)")


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize("part", [code, headings], ids=["code", "headings"])
def test_both_show_the_same_code_and_sections(name: str, part: Callable[[str], object]) -> None:
    english, chinese = map(part, both(name))
    assert english == chinese
    assert english


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize("part", [columns, spans, links], ids=["tables", "spans", "links"])
def test_both_say_the_same(name: str, part: Callable[[str], object]) -> None:
    english, chinese = map(part, both(name))
    assert english == chinese


@pytest.mark.parametrize("name", PAGES)
def test_no_number_is_lost(name: str) -> None:
    """A translation may write a number for a word, so it may have more of them."""
    english, chinese = map(numbers, both(name))
    assert english - chinese == Counter()


@pytest.mark.parametrize("name", PAGES)
def test_a_chinese_page_links_to_chinese_pages_where_there_are_some(name: str) -> None:
    chinese = both(name)[1]
    for address in re.findall(r"\]\(([^)#\s]+\.md)[^)]*\)", "\n".join(chinese.splitlines()[3:])):
        twin = (GUIDE / address).with_name(Path(address).name.replace(".md", ".zh-CN.md"))
        assert address.endswith(".zh-CN.md") or not twin.exists() or "英文" in chinese, address


def test_these_comparisons_see_a_change() -> None:
    page = "# A\n\n    addnorm rank runs  # text\n\nOf 3 or 0.5 %, `one` [link](b.md#c).\n\n"
    page += "```python\nx = 1  # why\n```\n\n| a | b |\n"
    assert code(page) == [("python", "x = 1"), ("indented", "addnorm rank runs")]
    assert (headings(page), columns(page), spans(page), numbers(page)) == ([1], [3], {"one"}, Counter(["3", "0.5"]))
    assert links(page) == links(page.replace("b.md", "b.zh-CN.md")) == Counter(["b.md#c"])
    assert code(page) != code(page.replace("x = 1", "x = 2"))
