"""Studies written in Python: found, called, checked, changed."""

# ruff: noqa: E501 - tables of whole messages

from pathlib import Path

import pytest

from addnorm.errors import InputError
from addnorm.residual.rezero import ReZero
from addnorm.study.loading import load_study

STUDY = """
from addnorm import preset
from addnorm.study.definition import Study, Training

def study():
    return Study(name="mine", variants={"base": preset("base"), "zero": preset("base", residual="rezero")})

def short():
    return Study(name="short", variants={"base": preset("base")}, training=Training(steps=3))

def nothing():
    return 3

def broken():
    return {}["x"]

def wrong():
    return Study(name="mine", variants={"a": preset("base")}, seeds=(1, 1))
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "mine.py"
    path.write_text(STUDY, encoding="utf-8")
    return path


def test_a_file_holds_functions(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert load_study(file).name == "mine"
    assert load_study(f"{file}:short").training.steps == 3
    monkeypatch.syspath_prepend(str(file.parent))
    file.rename(file.parent / "my_studies_module.py")
    assert load_study("my_studies_module:short").name == "short"


def test_settings_change_it(file: Path) -> None:
    study = load_study(file, settings=["training.steps=5", "variants.zero.residual.alpha_init=0.5", "seeds=[1]"])
    assert (study.training.steps, study.seeds) == (5, (1,))
    assert study.variants["zero"].residual == ReZero(alpha_init=0.5)
    assert study.variants["base"] == load_study(file).variants["base"]


WRONG = [
    (":stdy", [], None, "{file}: no function 'stdy'. Did you mean 'study'? Known:"),
    (":nothing", [], None, "{file}:nothing: expected a function that returns a Study, got 3."),
    (":wrong", [], None, "{file}:wrong: study.seeds: expected at least one seed"),
    (":broken", [], None, "{file}:broken, line 15: failed: KeyError: 'x'"),
    ("", [], "quick", "{file}: expected no profile for a study in Python, got 'quick'. Write one function per profile."),
    ("", ["model.width=3"], None, "--set model.width=3: a study in Python has no shared model. Set variants.NAME.… instead."),
    ("", ["training.step=3"], None, "{file}, --set training.step=3: $.training: Training has no field 'step', did you mean 'steps'?"),
]  # fmt: skip


@pytest.mark.parametrize(("function", "settings", "profile", "expected"), WRONG, ids=[row[3][:40] for row in WRONG])
def test_mistakes_are_told(file: Path, function: str, settings: list[str], profile: str | None, expected: str) -> None:
    with pytest.raises(InputError) as caught:
        load_study(f"{file}{function}", settings=settings, profile=profile)
    assert str(caught.value).startswith(expected.format(file=file))


def test_what_fails_to_import_is_told(tmp_path: Path) -> None:
    path = tmp_path / "bad.py"
    with pytest.raises(InputError, match=r"bad\.py: no such file"):
        load_study(path)
    path.write_text("x = 1\ny = x / 0\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"bad\.py, line 2: failed to import: ZeroDivisionError: division by zero"):
        load_study(path)
    with pytest.raises(InputError, match=r"module 'no_such_module' failed to import: ModuleNotFoundError"):
        load_study("no_such_module:study")
