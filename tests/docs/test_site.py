"""The parts of the site's builder that would let a mistake pass: links, copied files, the gallery's entries."""

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def site_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "docs" / "site"))
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    yield
    for name in ("links", "llms", "pages", "gallery", "reference_pages", "reference"):
        sys.modules.pop(name, None)


def test_broken_links_are_found(tmp_path: Path) -> None:
    from links import broken

    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "one.html").write_text('<h1 id="top">1</h1><a href="../two.html#end">2</a><a href="#top">t</a>')
    (tmp_path / "two.html").write_text('<p id="end"><a href="https://example.org">elsewhere</a></p>')
    assert broken(tmp_path) == []
    (tmp_path / "two.html").write_text(
        '<a href="a/none.html">x</a><a href="a/one.html#none">y</a><script src="https://cdn.example.org/z.js"></script>'
        '<a href="../outside.html">o</a>'
    )
    found = "\n".join(broken(tmp_path))
    absent, heading = "a/none.html: no such file", "a/one.html#none: no such heading"
    for problem in (absent, heading, "loads https://cdn", "outside.html: no such"):
        assert problem in found, problem
    assert "../two.html#end: no such heading" in found


def test_pages_keep_their_places_and_their_links_hold(tmp_path: Path) -> None:
    from pages import copy

    navigation = copy(ROOT, tmp_path)
    assert navigation["Start"] == {"English": "index.md", "中文": "README.zh-CN.md"}
    assert (tmp_path / "docs" / "images" / "page-overview.png").is_file(), "what a page links to is copied"
    assert "(index.md)" in (tmp_path / "README.zh-CN.md").read_text(encoding="utf-8")
    guides = {path.relative_to(tmp_path).as_posix() for path in (tmp_path / "docs" / "guide").glob("*.md")}
    assert set(navigation["Guides"].values()) == guides  # type: ignore[attr-defined]


def test_guides_have_the_order_of_the_list_and_none_is_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import pages

    guides = list(pages.copy(ROOT, tmp_path)["Guides"].values())  # type: ignore[attr-defined]
    assert [Path(page).stem for page in guides] == list(pages.GUIDES)
    monkeypatch.setattr(pages, "GUIDES", pages.GUIDES[1:])
    with pytest.raises(SystemExit, match=r"got these in one of both: \['tutorial'\]"):
        pages.copy(ROOT, tmp_path)


def test_every_page_has_a_markdown_twin_and_a_line_in_llms_txt(tmp_path: Path) -> None:
    import llms

    source, site = tmp_path / "source", tmp_path / "site"
    (source / "guide").mkdir(parents=True)
    (source / "index.md").write_text(
        "# addnorm\n\n**A library** for [joints](guide/joints.md). More.\n", encoding="utf-8"
    )
    (source / "guide" / "joints.md").write_text("# Joints\n\n    code\n\nJoin layers. And so on.\n", encoding="utf-8")
    assert llms.write(source, site, {"Start": {"English": "index.md"}, "Guides": {"Joints": "guide/joints.md"}}) == 2
    assert (site / "guide" / "joints.md").read_bytes() == (source / "guide" / "joints.md").read_bytes()
    assert (site / "llms.txt").read_text(encoding="utf-8").splitlines() == [
        "# addnorm", "", "> A library for joints.", "", "## Start", "", "- [English](index.md): A library for joints.",
        "", "## Guides", "", "- [Joints](guide/joints.md): Join layers.",
    ]  # fmt: skip


def test_an_executed_notebook_joins_if_it_is_there(tmp_path: Path) -> None:
    from pages import copy_notebooks

    assert copy_notebooks(tmp_path / "none", tmp_path / "out") == {}
    (tmp_path / "made").mkdir()
    (tmp_path / "made" / "first.html").write_text("<p>1</p>")
    assert copy_notebooks(tmp_path / "made", tmp_path / "out") == {"first": "notebooks/first-page.md"}
    assert (tmp_path / "out" / "first.html").is_file()


def test_an_entry_of_the_gallery_has_formula_code_and_matrix() -> None:
    from gallery import _mechanism

    entry = _mechanism(ROOT, "residual", "cumulative", {"made": ["one", "two"]}, {"made"})
    formula, matrix = '<div class="formula"><div><div class="statement"><math', '<figure class="depth"><svg'
    for part in (formula, matrix, "```python title=", "**Why.**"):
        assert part in entry, part
    assert "[made](../docs/studies/made.md) (`one`, `two`)" in entry
    assert '"""Cumulative' not in entry, "the docstring is said once"


def test_the_gallery_has_every_mechanism_with_its_parts_and_the_studies_that_use_it(tmp_path: Path) -> None:
    from gallery import users, write

    from addnorm.catalogue import MECHANISM_ROOMS, ROOMS
    from addnorm.study.loading import study_names

    write(ROOT, tmp_path / "gallery")
    used = users(study_names())
    assert used["scores", "weighted"]["residual-scores"], "also those that a preset sets"
    for room in MECHANISM_ROOMS:
        page = (tmp_path / "gallery" / f"{room}.md").read_text(encoding="utf-8")
        entries = dict(zip(ROOMS[room].kinds(), page.split("\n## ")[1:], strict=True))
        for kind, entry in entries.items():
            assert entry.startswith(f"`{kind}`")
            assert bool(ROOMS[room].doc(kind).formula) == ('<div class="formula">' in entry), (room, kind)
            assert "```python title=" in entry
            assert ("No built-in study" in entry) == ((room, kind) not in used)
            for study in used.get((room, kind), ()):
                assert study in entry
            if room in ("residual", "scores", "values"):
                shown = ('<figure class="depth">', "Every read has the weight 1", "No depth matrix at plain sizes")
                assert any(words in entry for words in shown), (room, kind)


def test_every_public_name_has_its_place() -> None:
    from reference_pages import _entry

    import addnorm.errors

    text = _entry("addnorm", "rank", addnorm.rank)
    assert "## `rank` { #rank }" in text
    assert "::: addnorm.store.rank.rank" in text
    assert "{ #version }" in _entry("addnorm", "__version__", addnorm.__version__)
