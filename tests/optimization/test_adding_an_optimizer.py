"""An optimizer and a schedule of a user's own are one file each: a study names them, trains with them and ranks the runs."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from addnorm.catalogue import ROOMS, remove_plugin
from addnorm.cli import main
from addnorm.store import StudyFolder
from train_here import workers_here

OPTIMIZER = '''
"""Sign descent: every entry moves by the learning rate against the sign of its gradient.

    theta = theta - lr sign(g) - lr wd theta

Why: a test of one file.
Source: none.
Differs from the source: nothing.
"""

from dataclasses import dataclass

import torch

from addnorm.optimization.optimizers import OptimizerSpec


@dataclass(frozen=True, kw_only=True)
class SignDescent(OptimizerSpec):
    """Spec of sign descent."""

    learning_rate: float = 0.01
    weight_decay: float = 0.0

    def build(self, groups):
        return Signs(groups, {"lr": self.learning_rate, "weight_decay": 0.0})


class Signs(torch.optim.Optimizer):
    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    parameter.mul_(1 - group["lr"] * group["weight_decay"]).sub_(group["lr"] * parameter.grad.sign())
'''
SCHEDULE = '''
"""Halving: the learning rate is halved in the second half of the training.

Why: a test of one file.
Source: none.
Differs from the source: nothing.
"""

from dataclasses import dataclass

from addnorm.optimization.schedules import ScheduleSpec


@dataclass(frozen=True, kw_only=True)
class Halving(ScheduleSpec):
    """Spec of the halving schedule."""

    def after_warmup(self, progress):
        return 1.0 if progress < 0.5 else 0.5
'''
STUDY = """
name: signs
plugins: [sign_descent.py, halving.py]
model: {preset: base, width: 16, depth: 1, heads: 2, kv_heads: 2, hidden: 16, max_seq: 16}
corpus: {kind: synthetic}
tokenizer: bytes
training:
  steps: 8
  batch: 2
  seq: 16
  log_every: 1
  eval_sequences: 4
  optimizer: {kind: sign_descent, learning_rate: 0.01}
  schedule: {kind: halving, warmup: 0.0}
seeds: [0]
variants: {base: {}}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder with the study and its two files."""
    (tmp_path / "sign_descent.py").write_text(OPTIMIZER, encoding="utf-8")
    (tmp_path / "halving.py").write_text(SCHEDULE, encoding="utf-8")
    (tmp_path / "signs.yaml").write_text(STUDY, encoding="utf-8")
    yield tmp_path
    remove_plugin("sign_descent")
    remove_plugin("halving")


def test_an_optimizer_and_a_schedule_are_one_file_each(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = folder / "runs"
    with workers_here():
        assert main(["run", str(folder / "signs.yaml"), "--out", str(out), "--workers", "1", "--json"]) == 0
    (run,) = StudyFolder(out).runs()
    assert run.status().state == "finished"
    rates = [json.loads(line) for line in run.events_path.read_text(encoding="utf-8").splitlines()]
    assert [event["learning_rate"] for event in rates if event["type"] == "train"] == [0.01] * 4 + [0.005] * 4
    assert "sign_descent" in ROOMS["optimizer"].kinds()
    assert "halving" in ROOMS["schedule"].kinds()
    capsys.readouterr()
    assert main(["list", "optimizer"]) == 0
    assert "Sign descent: every entry moves" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("file", "old", "new", "expected"),
    [
        ("sign_descent.py", "parameter.grad.sign()", "parameter.grad.sgn_of()", "line LINE: failed: AttributeError: "),
        ("sign_descent.py", 'group["weight_decay"]', 'group["decay"]', "line LINE: failed: KeyError: 'decay'"),
        ("sign_descent.py", "return Signs(", "return (", "expected build() to return a torch.optim.Optimizer, got ("),
        ("halving.py", "return 1.0 if", "return None if", "expected a finite factor of the learning rate"),
        ("halving.py", "progress < 0.5", "progress.half", "line LINE: failed: AttributeError: "),
    ],
)
@pytest.mark.parametrize("command", ["plan", "run"])
def test_a_mistake_in_a_file_is_one_message_and_leaves_no_study(
    folder: Path, command: str, file: str, old: str, new: str, expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path, out = folder / file, folder / "runs"
    source = path.read_text(encoding="utf-8")
    assert old in source
    path.write_text(source.replace(old, new), encoding="utf-8")
    options = ["--out", str(out)] if command == "run" else []
    assert main([command, str(folder / "signs.yaml"), *options]) == 2
    err = capsys.readouterr().err
    assert expected.replace("LINE", str(source[: source.index(old)].count("\n") + 1)) in err
    assert str(path) in err
    assert "Traceback" not in err
    assert not out.exists()


def test_an_optimizer_that_cannot_count_its_state_still_trains(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, out = folder / "sign_descent.py", folder / "runs"
    source = path.read_text(encoding="utf-8").replace(
        "if parameter.grad is not None:", "if parameter.grad.abs().sum() >= 0:"
    )
    path.write_text(source, encoding="utf-8")
    with workers_here():
        assert main(["run", str(folder / "signs.yaml"), "--out", str(out), "--json"]) == 0
    reason = json.loads((out / "costs.json").read_text(encoding="utf-8"))["variants"]["base"]["reason"]
    assert "sign_descent.py" in reason
