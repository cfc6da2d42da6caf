"""The contract is itself tested: every deliberately wrong sibling is rejected, by the law that it names in `BREAKS`."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from siblings import missing_from
from tracing import compiles, exports

from addnorm.catalogue import ROOMS, Spec, add_plugin, remove_plugin
from addnorm.errors import InputError
from addnorm.testing import BrokenLaw
from addnorm.testing.contract import check_mechanism, tiny
from addnorm.testing.laws import LAWS

FOLDER = Path(__file__).parent / "broken"
BARE = "alpha has no docstring. Write one line under it."
Loaded = tuple[str, Spec, str]


@pytest.fixture(params=sorted(FOLDER.glob("*.py")), ids=lambda path: path.stem)
def broken(request: pytest.FixtureRequest) -> Iterator[Loaded]:
    """(room, spec, name of the law that it breaks) of one wrong sibling, loaded as a user's plugin would be."""
    room, kind = add_plugin(request.param)
    spec = room.make(kind)
    yield room.name, spec, sys.modules[type(spec).__module__].BREAKS
    remove_plugin(kind)


@pytest.mark.plain  # each law runs with and without the shape checker on what keeps it
def test_it_is_rejected_by_the_law_that_it_breaks(broken: Loaded) -> None:
    room, spec, law = broken
    if law == "exports":
        pytest.skip("tracing is tested below")
    if law == "docstring_is_complete":
        assert missing_from(ROOMS[room].doc(spec.kind)) == ["Source:"]
        check_mechanism(room, spec)  # a user's file need not say where it comes from
        return
    if law == "fields_are_documented":
        said: list[str] = []
        check_mechanism(room, spec, said.append)
        assert said == [f"{room} 'bare_field' breaks the law '{law}': {BARE}"], "style is no error in a user's file"
        return
    with pytest.raises(BrokenLaw, match=rf"^{room} '{spec.kind}' breaks the law '{law}': ") as caught:
        check_mechanism(room, spec)
    assert isinstance(caught.value, InputError)
    if law in LAWS and law != "runs":  # a model that does not run raises what the mechanism raises
        with pytest.raises(BrokenLaw, match=law):
            LAWS[law](tiny(room, spec))


@pytest.mark.plain
def test_every_law_has_a_sibling_that_breaks_it() -> None:
    declared = {line.split('"')[1] for path in FOLDER.glob("*.py") for line in path.read_text().splitlines()
                if line.startswith("BREAKS = ")}  # fmt: skip
    laws = {
        *LAWS,
        "fields_are_documented",
        "spec_round_trips",
        "docstring_is_complete",
        "reduces_as_declared",
        "exports",
    }
    assert declared == laws


@pytest.mark.compiled
def test_what_asks_the_data_neither_exports_nor_compiles() -> None:
    room, kind = add_plugin(FOLDER / "asks_the_data.py")
    spec = tiny(room.name, room.make(kind), depth=2)
    try:
        with pytest.raises(Exception, match=r"data-dependent|Could not guard"):
            exports(spec)
        with pytest.raises(Exception, match=r"[Dd]ata-dependent"):
            compiles(spec)
    finally:
        remove_plugin(kind)
