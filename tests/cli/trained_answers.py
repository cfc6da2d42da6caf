"""Answers of the commands that build, train or read models, of a study that is trained here."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from addnorm.cli import main
from addnorm.errors import InputError
from train_here import workers_here

STUDY = """
name: small
references: [base]
seeds: [0, 1, 2]
corpus: {kind: synthetic, task: induction}
tokenizer: bytes
training: {LENGTH, batch: 2, seq: 16, eval_sequences: 2, schedule: {kind: constant}}
model: {preset: base, width: 16, depth: 2, heads: 2, kv_heads: 1, hidden: 16, max_seq: 32}
variants:
  base: {}
  biased: {qk_bias: linear, scores: weighted}
"""
TUNED = (
    STUDY.replace("LENGTH", "steps: 3") + "tune: {seeds: [9], over: {training.optimizer.learning_rate: [1e-3, 1e-2]}}\n"
)
STARTS = """\
  power: {scores: power}
  thin: {residual: attention, init_std: 0.02, depth: 6}
compare: [[power, base]]
"""
CLUSTER = "gpus=2,tflops=1,memory=1,link=1"


def _answer(words: Sequence[str], code: int = 0) -> Any:
    printed: list[str] = []

    def write(*text: str, file: object = None, **_: object) -> None:
        printed.extend(text if file is None else ())  # messages go to standard error

    with pytest.MonkeyPatch.context() as patch, workers_here():
        patch.setattr("builtins.print", write)
        assert main([*words, "--json"]) == code, (words, printed)
    return json.loads("".join(printed))


def _not_exported(*_: object) -> None:
    raise InputError("expected a model that torch.export can follow, got another one.")


def trained_answers(folder: Path) -> dict[str, list[Any]]:
    """Answers by the name of their schema; studies and what commands write lie in the folder."""
    tuned, starts = folder / "tuned.yaml", folder / "starts.yaml"
    tuned.write_text(TUNED, encoding="utf-8")
    starts.write_text(STUDY.replace("LENGTH", "tokens: 64") + STARTS, encoding="utf-8")
    study = folder / "trained"
    found = {
        "run": [_answer(["run", str(tuned), "--out", str(study)])],
        "plan": [_answer(["plan", str(tuned)]), _answer(["plan", str(starts), "--numbers"])],
        "plan_cluster": [
            _answer(["plan", str(starts), "--cluster", each]) for each in (CLUSTER, "gpus=1,tflops=1,memory=3e-4")
        ],
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("addnorm.cli.plan.MOST_PARAMETERS", 1)
        found["plan"].append(_answer(["plan", str(starts)]))
    with pytest.MonkeyPatch.context() as patch:  # as for a model that torch cannot export
        patch.setattr("addnorm.outside.targets.study.audit_variant", _not_exported)
        patch.setattr("addnorm.insight.identifiable.identifiable", _not_exported)
        found["plan"].append(_answer(["plan", str(starts), "--numbers"]))
    return found
