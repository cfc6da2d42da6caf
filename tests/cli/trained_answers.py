"""Answers of the commands that build, train or read models, of a study that is trained here."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from addnorm.cli import main
from addnorm.errors import InputError
from addnorm.store import StudyFolder
from train_here import workers_here

STUDY = """
name: small
references: [base]
seeds: [0, 1, 2]
corpus: {kind: synthetic, num_documents: 20}
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
TINY = """
import torch
from torch import nn


def tiny():
    return nn.Sequential(nn.Linear(4, 6), nn.LayerNorm(6), nn.Linear(6, 3)), torch.randn(3, 5, 4)
"""
BERT = [
    "transformers:BertModel",
    "--config",
    '{"num_hidden_layers": 1, "hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 12, "vocab_size": 30, '
    '"max_position_embeddings": 16}',
]
CLUSTERS = ("gpus=2,tflops=1,memory=1,link=1", "gpus=1,tflops=1,memory=3e-4")


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
        "plan": [_answer(["plan", str(tuned), "--numbers"])],
        "plan_cluster": [_answer(["plan", str(tuned), "--cluster", each]) for each in CLUSTERS],
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("addnorm.cli.plan.MOST_PARAMETERS", 1)
        found["plan"].append(_answer(["plan", str(starts)]))
    with pytest.MonkeyPatch.context() as patch:  # as for a model that torch cannot export
        patch.setattr("addnorm.outside.targets.study.audit_variant", _not_exported)
        patch.setattr("addnorm.insight.identifiable.identifiable", _not_exported)
        found["plan"].append(_answer(["plan", str(starts), "--numbers"]))
    return found | _of_models(folder, study)


def _of_models(folder: Path, study: Path) -> dict[str, list[Any]]:
    """Answers about the trained models."""
    runs = {run.spec["variant"]: str(run.path) for run in reversed(StudyFolder(study).runs())}
    base, biased = (
        next(each for name, each in runs.items() if "base" in name),
        next(each for name, each in runs.items() if "biased" in name),
    )
    here, checkpoint, text = str(study), str(folder / "checkpoint"), folder / "text.txt"
    text.write_text("abcdefgh" * 80, encoding="utf-8")
    few = ["--sequences", "2"]
    exported = [["--to", str(folder / "exported")], ["--to", checkpoint, "--format", "hf"]]
    windows = ["--lengths", "1x,2x", "--windows", "2", "--workers", "1"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("addnorm.outside.targets.study.audit_variant", _not_exported)
        unaudited = _answer(["audit", here])
    found = {
        "export": [_answer(["export", base, *words]) for words in exported],
        "inspect": [
            _answer(["inspect", here, *few]),
            _answer(["inspect", checkpoint, "--text", str(text), "--length", "16"]),
        ],
        "inspect_terms": [_answer(["inspect", biased, "--terms", "--length", "1x", "--samples", "2"])],
        "inspect_ablate": [_answer(["inspect", here, "--ablate", *few])],
        "audit": [_answer(["audit", *BERT, "--kv-cache", "--strip", str(folder / "stripped.safetensors")])],
        "audit_study": [unaudited, _answer(["audit", here])],
        "audit_diff": [_answer(["audit", "--diff", base, base])],
        "audit_all": [_answer(["audit", base, "--all"])],
        "audit_canonical": [
            _answer(["audit", base, "--canonical", str(folder / "canonical.safetensors")]),
            _answer(["audit", base, "--quantise-ready", str(folder / "quantised.safetensors")]),
        ],
        "explain": [_answer(["explain", "kuang-2025"]), _answer(["explain", here, "--numbers"])],
        "generate": [_answer(["generate", base, "--prompt", "ab", "--tokens", "2", "--top-k", "3"])],
        "extrapolate": [
            _answer(["extrapolate", here, "--with", "log_n", *windows]),
            _answer(["extrapolate", checkpoint, "--text", str(text), "--trained", "16", *windows[:4]]),
        ],
    }
    (folder / "tiny.py").write_text(TINY, encoding="utf-8")
    found["audit_all"].append(_answer(["audit", f"{folder / 'tiny.py'}:tiny", "--all"]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("addnorm.symmetry.counting.LARGEST", 1)
        found["audit_all"].append(_answer(["audit", base, "--all"]))
    return found
