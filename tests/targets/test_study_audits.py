"""Models of a study that cannot be audited: the reason is kept in English, and as a sentence that pages can translate."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import made_study
from addnorm.errors import InputError
from addnorm.model.spec import ModelSpec
from addnorm.outside.targets import study as audits
from addnorm.redundancy.graph.export import NotExported
from addnorm.store import read_json
from addnorm.words import phrases


@pytest.mark.parametrize(
    ("error", "english", "chinese"),
    [
        (
            NotExported("torch.export cannot follow this model: TypeError: no"),
            "torch.export cannot follow this model: TypeError: no",
            "torch.export 无法导出该模型：TypeError: no",
        ),
        (InputError("it is too odd."), "it cannot be audited: it is too odd.", "无法审计：it is too odd."),
    ],
)
def test_why_a_model_was_not_audited_is_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, english: str, chinese: str
) -> None:
    def refuse(spec: Any) -> Any:
        raise error

    monkeypatch.setattr(audits, "run_spec", lambda run: SimpleNamespace(model=ModelSpec()))
    monkeypatch.setattr(audits, "audit_variant", refuse)
    folder = made_study.make(tmp_path / "study").path
    audits.audit_study(folder)
    kept = read_json(folder / "audit.json")["variants"]["base"]
    assert kept["reason"] == english
    assert phrases("en").note(kept["note"]) == english
    assert phrases("zh").note(kept["note"]) == chinese


def test_a_plugin_that_was_not_given_is_named_in_both_languages(tmp_path: Path) -> None:
    plan = made_study.plan()
    for run in plan["runs"]:
        run["spec"]["plugins"] = ["mine.py"]
    folder = made_study.StudyFolder.create(tmp_path / "study", plan).path
    kept = audits.audit_study(folder)["variants"]["base"]
    assert "names mechanisms from mine.py. They are code, so they are not loaded unasked" in kept["reason"]
    assert "用到了来自 mine.py 的机制" in (phrases("zh").note(kept["note"]) or "")
