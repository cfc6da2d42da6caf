"""`addnorm plan --audit`: which variants of a study carry biases that cannot matter."""

import json
from pathlib import Path

import pytest

from addnorm.cli import main

pytestmark = pytest.mark.compiled

STUDY = """
name: biases
about: Two models that differ in their biases.
corpus: {kind: synthetic, task: induction}
tokenizer: bytes
training: {steps: 2, batch: 2, seq: 16}
model: {preset: gpt2, width: 16, depth: 2, heads: 2, hidden: 24, max_seq: 16}
variants:
  all: {}
  none: {bias: false}
"""


def test_plan_counts_what_cannot_matter(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """GPT-2 keeps 4d + 2 per layer (derived in tests/audit/models), of 7d + hidden bias scalars per layer and d at the end."""
    monkeypatch.chdir(tmp_path)
    Path("biases.yaml").write_text(STUDY, encoding="utf-8")
    assert main(["plan", "biases.yaml", "--audit", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["audit"]
    assert found["all"]["joint_null"] == 2 * (4 * 16 + 2)
    assert found["all"]["size"] == 2 * (7 * 16 + 24) + 16
    assert found["all"]["redundant"] == [f"layers.{layer}.attention.body.qk_bias.k" for layer in range(2)]
    assert found["none"] == {"size": 0, "joint_null": 0, "redundant": []}
    assert main(["plan", "biases.yaml", "--audit"]) == 0
    out = capsys.readouterr().out
    assert "layers.{0-1}.attention.body.qk_bias.k" in out


def test_plan_does_not_audit_unasked(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("biases.yaml").write_text(STUDY, encoding="utf-8")
    assert main(["plan", "biases.yaml", "--json"]) == 0
    assert "audit" not in json.loads(capsys.readouterr().out)
