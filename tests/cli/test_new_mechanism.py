"""`addnorm new --mechanism`: a file for every room, which passes the contract as it is written."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from addnorm.catalogue import MECHANISM_ROOMS, ROOMS, remove_plugin
from addnorm.cli import main
from addnorm.study.mechanism_template import _COMMENTS, EXAMPLES, mechanism_source
from addnorm.study.plugins import load_plugins
from sampled import sampled


@pytest.fixture(autouse=True)
def forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    yield
    remove_plugin("momentum")


def test_every_room_has_an_example() -> None:
    assert tuple(EXAMPLES) == MECHANISM_ROOMS


@pytest.mark.parametrize("room", sampled(4, MECHANISM_ROOMS))
def test_the_file_passes_the_contract(room: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["new", "--mechanism", room, "momentum.py"]) == 0
    assert f"addnorm list {room} --plugin momentum.py" in capsys.readouterr().out
    load_plugins(["momentum.py"], tmp_path)  # with warnings as errors: its style is complete too
    spec = ROOMS[room].make("momentum")
    assert type(spec).__name__ == "Momentum"
    assert ROOMS[room].doc("momentum").formula == ROOMS[room].doc(EXAMPLES[room]).formula
    text = Path("momentum.py").read_text(encoding="utf-8")
    ast.parse(text)
    assert text.count("#") > 8, "it is commented"


def test_every_comment_stands_in_some_file() -> None:
    texts = [mechanism_source(room, Path("momentum.py")) for room in MECHANISM_ROOMS]
    for comment in _COMMENTS.values():
        assert any(comment.split()[0] in text and " ".join(comment.split()[:5]) in text for text in texts), comment


def test_list_shows_its_formula(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["new", "--mechanism", "residual", "momentum"]) == 0, "the ending .py is added"
    capsys.readouterr()
    assert main(["list", "residual", "--plugin", "momentum.py"]) == 0
    shown = capsys.readouterr().out
    assert "momentum\n    Momentum: one sentence" in shown
    assert "x_{l+1} = x_l + alpha_l * f_l(x_l)" in shown.partition("momentum\n")[2]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--mechanism", "residul", "m.py"], "no room of mechanisms 'residul'. Did you mean 'residual'?"),
        (["--mechanism", "residual"], "new: expected one file to write with --mechanism"),
        (["--mechanism", "residual", "m.py", "--to", "n.py"], "new: expected one file to write with --mechanism"),
        (["--mechanism", "residual", "My-Own.py"], "lower-case letters, digits and _, got 'My-Own.py'"),
        (["--mechanism", "residual", "rezero.py"], "new: 'rezero' is already the name of a residual."),
        (["--mechanism", "residual", "there.py"], "--to: expected a new file, got there.py, which exists."),
        (["--mechanism", "residual", "nowhere/m.py"], "--to: cannot write nowhere/m.py (No such file or directory)."),
    ],
)
def test_wrong_requests_are_refused(
    arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "there.py").write_text("", encoding="utf-8")
    assert main(["new", *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert "Traceback" not in error
