"""The page of a table in a real browser, while other code writes the file."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

HEADER = "variant,seed,step,loss"
LEVELS = {"base": 2.5, "deep": 2.4}


def rows(seeds: int, steps: int) -> list[str]:
    return [
        f"{name},{seed},{step},{level + 0.01 * seed + 0.003 * (seed * place % 3) + 1 / (1 + step):.4f}"
        for place, (name, level) in enumerate(LEVELS.items(), start=1)
        for seed in range(seeds)
        for step in range(steps)
    ]


def write(path: Path, lines: list[str]) -> None:
    path.write_text("\n".join((HEADER, *lines)) + "\n", encoding="utf-8")


def test_the_page_follows_the_file(tmp_path: Path, window: Callable[..., Any]) -> None:
    path = tmp_path / "results.csv"
    write(path, rows(3, 4))
    seen = window(path).go("/")
    seen.wait("document.querySelector('.found').textContent.includes('deep is better than base')")
    write(path, [*rows(3, 4), "deep,3,0,soon"])
    seen.wait("document.querySelector('.fault').textContent.includes(\"column 'loss', got 'soon'\")")
    assert "deep is better than base" in seen.tab.inner_text("main"), "the last good state stays"
    assert seen.loads == 1
    write(path, rows(4, 4))  # more runs: the page is loaded again
    seen.wait("document.querySelector('.facts').textContent.split(/\\s+/).join(' ').includes('8 finished')")
    seen.wait("document.querySelector('.fault').textContent.trim() === ''")


def test_curves_grow_with_the_steps_of_the_file(tmp_path: Path, window: Callable[..., Any]) -> None:
    path = tmp_path / "results.csv"
    write(path, rows(3, 4))
    seen = window(path).go("/curves")
    seen.wait("document.querySelector('[data-newest=\"3\"]')")
    write(path, rows(3, 9))
    seen.wait("document.querySelector('[data-newest=\"8\"]')")


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("width", [360, 1440])
def test_no_page_of_a_table_scrolls_sideways(
    tmp_path: Path, window: Callable[..., Any], width: int, language: str
) -> None:
    path = tmp_path / "results.csv"
    write(path, rows(5, 3))
    seen = window(path, viewport={"width": width, "height": 800})
    for address in ("/", "/ranking", "/curves", "/model?variant=deep"):
        seen.go(f"{address}{'&' if '?' in address else '?'}lang={language}")
        wide = seen.tab.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert wide <= 0, address
