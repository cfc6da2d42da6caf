"""A user's own mechanisms: they join, keep the contract, and decide the identity of the runs that use them alone."""

# ruff: noqa: E501 - tables of whole messages

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from addnorm.catalogue import ROOMS, remove_plugin
from addnorm.errors import InputError
from addnorm.store import StudyFolder
from addnorm.study.decoding import decode
from addnorm.study.definition import RunSpec, Study
from addnorm.study.encoding import encode
from addnorm.study.expansion import expand, fit_models, run_identity, validate
from addnorm.study.loading import load_study
from addnorm.study.plugins import load_plugins
from addnorm.supervision.prepared import prepare_study
from addnorm.training.exit_code import ExitCode
from train_here import work_here

EXAMPLES = Path(__file__).parents[2] / "examples"

RESIDUAL = '''
from dataclasses import dataclass
from addnorm.residual import Residual, ResidualSpec

@dataclass(frozen=True, kw_only=True)
class Own(ResidualSpec):
    weight: float = 1.0
    """Of a branch."""

    @classmethod
    def reduces_to(cls):
        return ()

    def build(self, shape, parts):
        return OwnResidual(self.weight)

class OwnResidual(Residual):
    def __init__(self, weight):
        super().__init__()
        self.weight = weight

    def write(self, state, y, site):
        return state + self.weight * y
'''


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    torch.set_num_threads(1)
    yield
    for room in ROOMS.values():
        for kind in list(room.plugins):
            remove_plugin(kind)


@pytest.fixture
def examples(tmp_path: Path) -> Path:
    for file in EXAMPLES.glob("my_*"):
        shutil.copy(file, tmp_path)
    return tmp_path


def plugin(folder: Path, text: str, name: str = "mine.py") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_the_example_study_loads_and_builds(examples: Path) -> None:
    study = load_study(examples / "my_study.yaml")
    assert study.plugins == (str(examples / "my_residual.py"), str(examples / "my_scores.py"))
    assert encode(study.variants["fading-fast"].residual) == {"kind": "my_residual", "gamma_init": 0.9}
    assert encode(study.variants["window-of-3"].scores) == {"kind": "my_scores", "window": 3}
    assert decode(Study, encode(study)) == study
    validate(fit_models(study, 256))


def test_settings_reach_plugins(examples: Path) -> None:
    file = examples / "my_study.yaml"
    study = load_study(file, settings=["variants.fading.residual.gamma_init=0.5"])
    assert encode(study.variants["fading"].residual)["gamma_init"] == 0.5
    with pytest.raises(InputError) as caught:
        load_study(file, settings=["variants.window.scores.windw=3"])
    assert str(caught.value).endswith(
        "$.variants.window.scores: Window has no field 'windw', did you mean 'window'? Known: window."
    )


def test_editing_a_plugin_changes_the_runs_that_use_it_alone(examples: Path) -> None:
    runs = expand(load_study(examples / "my_study.yaml"), "hash")
    before = {run.variant: run_identity(run) for run in runs}
    assert {run.variant: [Path(path).name for path in run.plugins] for run in runs} == {
        "base": [],
        "fading": ["my_residual.py"],
        "fading-fast": ["my_residual.py"],
        "window": ["my_scores.py"],
        "window-of-3": ["my_scores.py"],
    }
    with (examples / "my_scores.py").open("a", encoding="utf-8") as file:
        file.write("# another line\n")
    after = {run.variant: run_identity(run) for run in runs}
    assert {name for name in before if before[name] != after[name]} == {"window", "window-of-3"}


def test_moving_a_plugin_changes_nothing(examples: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    before = [run_identity(run) for run in expand(load_study(examples / "my_study.yaml"), "hash")]
    for kind in ("my_residual", "my_scores"):
        remove_plugin(kind)
    moved = tmp_path_factory.mktemp("elsewhere") / "study"
    shutil.copytree(examples, moved)
    assert [run_identity(run) for run in expand(load_study(moved / "my_study.yaml"), "hash")] == before


def test_a_worker_reads_a_run_with_plugins(examples: Path) -> None:
    run = next(run for run in expand(load_study(examples / "my_study.yaml"), "hash") if run.variant == "window")
    written = encode(run)
    for kind in ("my_residual", "my_scores"):
        remove_plugin(kind)  # as in a new process
    with pytest.raises(InputError, match=r"^\$\.model\.scores: no scores 'my_scores'"):
        decode(RunSpec, written)
    load_plugins(run.plugins, Path())
    assert encode(decode(RunSpec, written)) == written
    assert "my_residual" not in ROOMS["residual"].kinds()


def test_a_worker_leaves_the_laws_to_the_plan_and_refuses_an_edited_plugin(
    tiny_study_text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine, study = plugin(tmp_path, RESIDUAL), tmp_path / "study.yaml"
    study.write_text(
        f"plugins: [mine.py]\n{tiny_study_text.replace('v4m5: {preset: v4m5}', 'own: {residual: mine}')}",
        encoding="utf-8",
    )
    folder = StudyFolder.create(tmp_path / "runs", prepare_study(load_study(study), tmp_path / "runs").plan)
    one, other, _ = (run for run in folder.runs() if run.name.startswith("own"))
    monkeypatch.setattr("addnorm.study.plugins._require_contract", lambda *_: pytest.fail("checked again"))
    remove_plugin("mine")
    assert work_here(one.path, [str(mine)]) == ExitCode.DONE
    remove_plugin("mine")
    mine.write_text(RESIDUAL.replace("+ self.weight", "- self.weight"), encoding="utf-8")
    assert work_here(other.path, [str(mine)]) != ExitCode.DONE
    assert "The file or a plugin has changed." in other.log_path.read_text(encoding="utf-8")


def test_a_plugin_may_load_twice(examples: Path) -> None:
    assert load_plugins(["my_scores.py"], examples) == load_plugins(["my_scores.py", "my_scores.py"], examples)[:1]


WRONG = {
    "x = 1\ny = x / 0\n": r"plugin {path}, line 2: failed to import: ZeroDivisionError: division by zero",
    "x = = 1\n": r"plugin {path}: failed to import: SyntaxError: invalid syntax \(mine\.py, line 1\)",
    "x = 1\n": r"plugin {path}: expected exactly one spec .* got 0\.",
    RESIDUAL.replace("state + self.weight * y", "(state + y)[:, :, :4]"): r"plugin {path}: residual 'mine' breaks the law '\w+': ",
    RESIDUAL.replace("state + self.weight * y", "state + y.flip(1)"): r"plugin {path}: residual 'mine' breaks the law '\w+': ",
    RESIDUAL.replace(": float = 1.0", ": float"): r"plugin {path}: Own: expected a default for every field, .* got none for weight\.",
}  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), WRONG.items(), ids=[text[-50:] for text in WRONG.values()])
def test_wrong_plugins_are_told(tmp_path: Path, text: str, expected: str) -> None:
    path = plugin(tmp_path, text)
    with pytest.raises(InputError, match=f"^{expected.format(path=re.escape(str(path)))}"):
        load_plugins(["mine.py"], tmp_path)
    assert "mine" not in ROOMS["residual"].kinds(), "a wrong plugin takes no part"
    plugin(tmp_path, RESIDUAL)
    load_plugins(["mine.py"], tmp_path)
    assert "mine" in ROOMS["residual"].kinds(), "a corrected one does"


def test_the_study_file_is_named(tmp_path: Path) -> None:
    study = tmp_path / "s.yaml"
    study.write_text("name: s\nplugins: [mine.py]\nvariants: {a: {residual: mine}}\n", encoding="utf-8")
    with pytest.raises(InputError) as caught:
        load_study(study)
    assert str(caught.value) == (
        f"{study}: $.plugins: plugin {tmp_path / 'mine.py'}: no such file (looked in {Path.cwd()}). "
        "Give a path relative to the study, or an absolute one."
    )
    plugin(tmp_path, RESIDUAL)
    assert load_study(study).variants["a"].residual.kind == "mine"


def test_a_built_in_name_is_taken(tmp_path: Path) -> None:
    plugin(tmp_path, RESIDUAL, "rezero.py")
    with pytest.raises(InputError, match=r"'rezero' is already the name of a residual\. Rename the file\."):
        load_plugins(["rezero.py"], tmp_path)


def test_a_plugin_that_cannot_be_built_at_the_studys_size_is_told(tmp_path: Path) -> None:
    plugin(
        tmp_path,
        RESIDUAL.replace("return OwnResidual", "assert shape.depth < 5, 'too deep'\n        return OwnResidual"),
    )
    study = tmp_path / "s.yaml"
    study.write_text("name: s\nplugins: [mine.py]\nvariants: {a: {residual: mine}}\n", encoding="utf-8")
    with pytest.raises(InputError) as caught:
        validate(load_study(study))
    assert str(caught.value) == "study 's': $.variants.a: cannot be built: AssertionError: too deep"
