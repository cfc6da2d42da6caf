"""A study is decoded, expanded and fitted once on the way from its file to its runs."""

import importlib
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from addnorm.cli import main
from addnorm.study import points as study_points
from addnorm.study.expansion import once_for_equal
from addnorm.study.loading import load_study
from addnorm.study.variants import VariantReader
from addnorm.supervision import prepared, step_cost
from addnorm.supervision import run as run_module
from sampled import sampled

STUDY = """name: tiny
seeds: [0]
corpus: {kind: synthetic, num_documents: 20}
tokenizer: bytes
training: {steps: 2, batch: 2, seq: 16, eval_sequences: 2}
model: {preset: base, width: 16, depth: 1, heads: 2, kv_heads: 1, hidden: 16, max_seq: 16}
variants: {base: {}, scaled: {residual: scale}, zero: {residual: rezero}}
"""
RATES = "{training.optimizer.learning_rate: [1e-3, 3e-3]}"


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Counter[str]:
    """Numbers of calls of what is expensive. Nothing is trained."""
    counted: Counter[str] = Counter()

    def count(owner: object, name: str) -> None:
        inner = getattr(owner, name)

        def counting(*arguments: object, **options: object) -> object:
            counted[name] += 1
            return inner(*arguments, **options)

        monkeypatch.setattr(owner, name, counting)

    count(VariantReader, "read")
    count(prepared, "fit_models")
    count(study_points, "expand_points")
    monkeypatch.setattr(run_module, "supervise", lambda *arguments, **options: None)
    monkeypatch.chdir(tmp_path)
    return counted


@pytest.mark.parametrize(
    ("expanded", "decoded"),
    [
        ("", 3),
        (f"grid: {RATES}\n", 3 + 6),
        (f"tune: {{seeds: [9], over: {RATES}}}\n", 3 + 6),
        ("grid: {depth: [1, 2], width: [16, 32]}\n", 3 + 3 * (2 + 2) + 3 * 4),
    ],
    ids=["plain", "grid", "tune", "grid of two axes"],
)
@pytest.mark.parametrize("command", sampled(2, ["run", "plan"]))
def test_every_variant_and_point_is_decoded_once(
    expanded: str, decoded: int, command: str, calls: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("s.yaml").write_text(STUDY + expanded)
    # Loading binds these names, so they are counted where they are called.
    monkeypatch.setattr("addnorm.study.loading.expand_points", study_points.expand_points)
    assert main([command, "s.yaml", "--json"]) == (1 if command == "run" else 0)
    assert calls["read"] == decoded
    assert calls["fit_models"] == 1
    assert calls["expand_points"] == ("tune" in expanded)


def test_a_changed_study_has_points_of_its_own(tmp_path: Path) -> None:
    file = tmp_path / "s.yaml"
    file.write_text(STUDY + f"tune: {{seeds: [9], over: {RATES}}}\n")
    study = load_study(file)
    assert study_points.points(study) is study_points.points(study)
    fewer = replace(study, variants={"base": study.variants["base"]})
    assert [*study_points.points(fewer).values] == ["base"]


def test_points_that_differ_in_training_alone_are_counted_checked_and_audited_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted: Counter[str] = Counter()

    def count(place: str, name: str) -> None:
        owner = importlib.import_module(place)
        inner = getattr(owner, name)

        def counting(*arguments: object, **options: object) -> object:
            counted[name] += 1
            return inner(*arguments, **options)

        monkeypatch.setattr(owner, name, counting)

    count("addnorm.outside.targets.study", "audit_or_reason")
    count("addnorm.supervision.start_check", "check_start")
    monkeypatch.chdir(tmp_path)
    rates = (
        "training.optimizer.learning_rate: [1e-3, 2e-3], training.schedule.warmup: [0, 1], training.clip: [1.0, 2.0]"
    )
    Path("s.yaml").write_text(STUDY.replace("scaled: {residual: scale}, ", "") + f"grid: {{{rates}}}\n")
    step_cost._cached_step_cost.cache_clear()
    assert main(["plan", "s.yaml", "--json"]) == 0
    assert counted == {"audit_or_reason": 2, "check_start": 2}
    assert step_cost._cached_step_cost.cache_info().misses == 2


def test_equal_keys_are_made_once_and_those_without_a_hash_each() -> None:
    made: list[object] = []

    def make(key: object) -> int:
        made.append(key)
        return len(made)

    assert once_for_equal({"a": 1, "b": 2, "c": 1}, make) == {"a": 1, "b": 2, "c": 1}
    assert once_for_equal({"a": [1], "b": [1]}, make) == {"a": 3, "b": 4}
