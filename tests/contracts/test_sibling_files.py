"""A sibling's file: its size, its name, its docstring."""

from pathlib import Path

import pytest
from siblings import missing_from, siblings

from addnorm.catalogue import ROOMS

pytestmark = pytest.mark.plain  # texts, not shapes

LONGEST = 120
SIBLINGS = siblings()
every_sibling = pytest.mark.parametrize(("room", "kind"), SIBLINGS, ids=["-".join(s) for s in SIBLINGS])


@every_sibling
def test_docstring_is_complete(room: str, kind: str) -> None:
    assert missing_from(ROOMS[room].doc(kind)) == []


@every_sibling
def test_file_is_short_and_its_name_is_the_kind(room: str, kind: str) -> None:
    cls = ROOMS[room].spec_class(kind)
    path = Path(__import__(cls.__module__, fromlist=["_"]).__file__ or "")
    assert path.stem == kind == ROOMS[room].make(kind).kind
    assert path.parent.name == room
    assert len(path.read_text(encoding="utf-8").splitlines()) <= LONGEST


@every_sibling
def test_siblings_do_not_import_each_other(room: str, kind: str) -> None:
    cls = ROOMS[room].spec_class(kind)
    source = Path(__import__(cls.__module__, fromlist=["_"]).__file__ or "").read_text(encoding="utf-8")
    for other in ROOMS[room].kinds():
        assert f"addnorm.{room}.{other}" not in source
