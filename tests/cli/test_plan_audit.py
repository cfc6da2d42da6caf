"""`addnorm plan` and `addnorm audit DIR`: which variants of a study carry biases that cannot matter."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from addnorm.cli import main
from addnorm.cli import plan as plan_command
from addnorm.errors import InputError
from addnorm.model.spec import ModelSpec
from addnorm.outside.targets import study as audited
from addnorm.store import StudyFolder
from addnorm.study.loading import load_study
from addnorm.supervision.prepared import prepare_study

pytestmark = pytest.mark.compiled

STUDY = """
name: biases
about: Two models that differ in their biases.
corpus: {kind: synthetic, num_documents: 20}
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
    assert main(["plan", "biases.yaml", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["audit"]
    assert found["all"]["joint_null"] == 2 * (4 * 16 + 2)
    assert found["all"]["size"] == 2 * (7 * 16 + 24) + 16
    assert found["all"]["redundant"] == [f"layers.{layer}.attention.body.qk_bias.k" for layer in range(2)]
    assert found["none"] == {"size": 0, "joint_null": 0, "redundant": []}
    assert main(["plan", "biases.yaml"]) == 0
    out = capsys.readouterr().out
    assert "layers.{0-1}.attention.body.qk_bias.k" in out
    assert main(["plan", "biases.yaml", "--set", "variants=[none]"]) == 0
    assert "No variant has a bias" in capsys.readouterr().out


def test_plan_audits_large_models_when_asked(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(plan_command, "MOST_PARAMETERS", 100)
    Path("biases.yaml").write_text(STUDY, encoding="utf-8")
    assert main(["plan", "biases.yaml"]) == 0
    out = capsys.readouterr().out
    assert "Biases and starts of 2 variant(s) were not looked at: more than 100 parameters: add --audit." in out
    assert "qk_bias" not in out
    assert main(["plan", "biases.yaml", "--audit"]) == 0
    assert "layers.{0-1}.attention.body.qk_bias.k" in capsys.readouterr().out


def test_a_variant_that_cannot_be_audited_does_not_hide_the_plan(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(spec: ModelSpec) -> Any:
        raise InputError("no such thing")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(audited, "audit_variant", refused)
    Path("biases.yaml").write_text(STUDY, encoding="utf-8")
    assert main(["plan", "biases.yaml"]) == 0
    out = capsys.readouterr().out
    assert "Altogether" in out
    assert "it cannot be audited: no such thing" in out


def planned(tmp_path: Path) -> StudyFolder:
    """The study's folder, with no run begun."""
    (tmp_path / "biases.yaml").write_text(STUDY, encoding="utf-8")
    study = load_study(tmp_path / "biases.yaml")
    plan = prepare_study(study, tmp_path / "runs").plan
    return StudyFolder.create(tmp_path / "runs", plan)


def test_a_study_that_is_there_is_audited_once_and_kept(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = planned(tmp_path).path
    before = {path.name: sorted(child.name for child in path.iterdir()) for path in folder.iterdir() if path.is_dir()}
    monkeypatch.setattr(audited, "audit_variant", dying(audited.audit_variant, after=1))
    assert main(["audit", str(folder)]) == 130
    half = json.loads((folder / "audit.json").read_text())["variants"]
    assert len(half) == 1
    capsys.readouterr()
    monkeypatch.undo()
    asked: list[ModelSpec] = []
    real = audited.audit_variant
    monkeypatch.setattr(audited, "audit_variant", lambda spec: asked.append(spec) or real(spec))
    assert main(["audit", str(folder), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found == json.loads((folder / "audit.json").read_text())
    assert found["variants"]["all"]["joint_null"] == 2 * (4 * 16 + 2)
    assert found["variants"]["none"] == {"size": 0, "joint_null": 0, "redundant": []}
    assert len(asked) == len(found["variants"]) - 1
    assert main(["audit", str(folder)]) == 0
    assert len(asked) == len(found["variants"]) - 1
    assert "layers.{0-1}.attention.body.qk_bias.k" in capsys.readouterr().out
    after = {path.name: sorted(child.name for child in path.iterdir()) for path in folder.iterdir() if path.is_dir()}
    assert after == before


def dying(real: Callable[[ModelSpec], Any], *, after: int) -> Callable[[ModelSpec], Any]:
    """The same function, interrupted once it has been called so many times."""
    calls = iter(range(after))

    def called(spec: ModelSpec) -> Any:
        if next(calls, None) is None:
            raise KeyboardInterrupt
        return real(spec)

    return called


def test_a_variant_that_cannot_be_audited_hides_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = planned(tmp_path).path

    def refused(spec: ModelSpec) -> Any:
        raise InputError("no such thing")

    monkeypatch.setattr(audited, "audit_variant", refused)
    found = audited.audit_study(folder)
    assert [of["reason"] for of in found["variants"].values()] == ["it cannot be audited: no such thing"] * len(
        found["variants"]
    )
    monkeypatch.setattr(audited, "audit_variant", lambda spec: {"size": 1, "joint_null": 0, "redundant": []})
    assert all("size" in of for of in audited.audit_study(folder)["variants"].values())


def test_what_is_about_one_model_is_refused_for_a_study(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = planned(tmp_path).path
    assert main(["audit", str(folder), "--training"]) == 2
    assert "give the folder of one run" in capsys.readouterr().err
    assert not (folder / "audit.json").exists()
