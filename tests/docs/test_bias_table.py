"""docs/bias-table.md has a row for every mechanism, and the cheapest rows are audited anew."""

import importlib.util
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def table() -> ModuleType:
    spec = importlib.util.spec_from_file_location("bias_table", DOCS / "bias_table.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def written(table: ModuleType) -> dict[tuple[str, str], str]:
    """The page's rows by room and name."""
    text = (DOCS / "bias-table.md").read_text(encoding="utf-8")
    assert text.startswith(table.HEAD), "python docs/bias_table.py"
    found = {}
    for section in text[len(table.HEAD) :].split("\n## ")[1:]:
        room = section.partition("\n")[0]
        for line in re.findall(r"^\| `.*$", section, re.MULTILINE):
            found[room, line.split("`")[1]] = line
    return found


def test_every_mechanism_has_a_row(table: ModuleType, written: dict[tuple[str, str], str]) -> None:
    assert list(written) == [(room, name) for room, name, _ in table.rows()]


@pytest.mark.parametrize(("room", "name", "fields"), [("sink", "logit", {"sink": "logit"})])
def test_a_row_is_what_the_audit_says(
    table: ModuleType, written: dict[tuple[str, str], str], room: str, name: str, fields: dict[str, Any]
) -> None:
    assert table.line(name, fields) == written[room, name]


@pytest.mark.soak
def test_the_whole_page_is_up_to_date(table: ModuleType) -> None:
    assert table.page() == (DOCS / "bias-table.md").read_text(encoding="utf-8")


def test_what_is_known_by_hand_stands_there(written: dict[tuple[str, str], str]) -> None:
    """Without rotation a softmax takes the key bias out; sinks and norms of queries and keys end that (decision 0041)."""

    def cell(room: str, name: str, column: int) -> str:
        return written[room, name].split("|")[column + 2].strip()

    q, k, v = 0, 1, 2
    assert [cell("plain", "plain", column) for column in (q, k, v)] == ["stays", "**goes**", "folds"]
    assert cell("sink", "logit", k) == cell("qk_norm", "rms", k) == cell("position", "rope", k) == "stays"
    assert cell("sink", "logit", v) == cell("attended", "gate", v) == "stays"
    assert cell("attended", "gate", k) == "**goes**"
    assert cell("values", "first", v) == "folds"
