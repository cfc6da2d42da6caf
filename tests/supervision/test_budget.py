"""Budgets: tokens, FLOPs and tokens per parameter as steps, in files, plans and resumed studies."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from addnorm import preset
from addnorm.cli import main
from addnorm.errors import InputError
from addnorm.reporting.reader import Reader
from addnorm.reporting.sections.plan import plan as plan_section
from addnorm.reporting.sections.report.reproduce import study_content
from addnorm.store import StudyFolder
from addnorm.study.definition import Study, Training
from addnorm.study.encoding import encode
from addnorm.study.expansion import fit_models
from addnorm.study.loading import load_study
from addnorm.supervision import prepared as preparation
from addnorm.supervision.prepared import prepare_study, resolve_budgets
from addnorm.supervision.step_cost import step_cost

FILE = """name: tiny
seeds: [0]
references: [base]
corpus: {kind: synthetic, num_documents: 20}
tokenizer: bytes
training: {LENGTH, batch: 2, seq: 16, eval_sequences: 4}
model: {preset: base, width: 16, depth: 2, heads: 2, kv_heads: 1, hidden: 16, max_seq: 16}
variants:
  base: {}
  deep: {depth: 4}
"""


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Writes a study file of a length in an empty working folder."""
    monkeypatch.chdir(tmp_path)

    def written(length: str, more: str = "") -> Path:
        Path("s.yaml").write_text(FILE.replace("LENGTH", length) + more, encoding="utf-8")
        return Path("s.yaml")

    return written


def steps_of(file: Path, **given: Any) -> dict[str, int]:
    study = load_study(file, **given)
    study = resolve_budgets(fit_models(study, study.tokenizer.size))
    assert not any(study.training_of(name).budget for name in study.variants)
    return {name: study.training_of(name).steps for name in study.variants}


def costs_of(file: Path) -> dict[str, Any]:
    study = fit_models(load_study(file), load_study(file).tokenizer.size)
    return {name: step_cost(model, study.training_of(name)) for name, model in study.variants.items()}


def test_tokens_are_divided_by_the_tokens_of_a_step(write: Callable[..., Path]) -> None:
    assert steps_of(write("tokens: 320")) == {"base": 10, "deep": 10}
    assert steps_of(write("tokens: 351", "  small: {training: {batch: 1}}\n")) == {"base": 10, "deep": 10, "small": 21}


def test_flops_are_equal_compute_by_plans_own_count(write: Callable[..., Path]) -> None:
    file = write("flops: 1e8")
    costs, steps = costs_of(file), steps_of(file)
    assert steps["deep"] < steps["base"]
    for name, cost in costs.items():
        assert 1e8 - cost.flops < steps[name] * cost.flops <= 1e8


@pytest.mark.parametrize("ratio", [1, 3, 20])
def test_tokens_per_parameter_follow_the_models_size(ratio: int, write: Callable[..., Path]) -> None:
    file = write(f"tokens_per_parameter: {ratio}")
    costs, steps = costs_of(file), steps_of(file)
    assert steps == {name: ratio * cost.parameters // 32 for name, cost in costs.items()}
    assert steps["deep"] > steps["base"]


def test_a_learned_weight_that_all_layers_share_is_counted() -> None:
    """v4m4 has one, which has no value on the meta device; its sum costs what that of a fixed weight does."""
    sizes = {"vocab": 32, "width": 16, "depth": 3, "heads": 2, "kv_heads": 1, "hidden": 16, "max_seq": 16}
    training = Training(steps=1, batch=2, seq=16)
    learned, fixed = (step_cost(preset(name, **sizes), training) for name in ("v4m4", "v4m2"))
    assert learned.flops == fixed.flops > 0


def test_a_length_replaces_another_one(write: Callable[..., Path]) -> None:
    file = write(
        "tokens: 320",
        "  short: {training: {steps: 3}}\n  long: {training: {tokens: 640}}\nprofiles: {p: {training: {steps: 5}}}\n",
    )
    assert steps_of(file) == {"base": 10, "deep": 10, "short": 3, "long": 20}
    assert steps_of(file, profile="p") == {"base": 5, "deep": 5, "short": 3, "long": 20}
    assert steps_of(file, settings=["training.steps=7"])["base"] == 7
    assert steps_of(write("steps: 7"), settings=["training.tokens=64"]) == {"base": 2, "deep": 2}


def test_a_budget_is_an_axis(write: Callable[..., Path]) -> None:
    steps = steps_of(write("steps: 7", "grid: {training.tokens: [64, 128]}\n"), settings=["variants=[base]"])
    assert steps == {"base, tokens 64": 2, "base, tokens 128": 4}


WRONG = [
    ("steps: 5, tokens: 320", "s.yaml: $.training: expected one of steps, tokens, flops and tokens_per_parameter, got"),
    ("flops: 1e9, tokens: 320", "s.yaml: $.training: expected one of steps, tokens, flops and tokens_per_parameter, "),
    ("tokens: 0", "s.yaml: $.training.tokens: expected a positive number or null, got 0."),
    ("flops: -1.0", "s.yaml: $.training.flops: expected a positive number or null, got -1.0."),
    ("tokens: many", "s.yaml: $.training.tokens: expected a whole number or null, got 'many'."),
    ("tokens: 31", "study 'tiny': $.training.tokens: expected a budget of at least one step of variant 'base' (32 tok"),
    ("flops: 10", "study 'tiny': $.training.flops: expected a budget of at least one step of variant 'base' ("),
]


@pytest.mark.parametrize(("length", "expected"), WRONG, ids=[length for length, _ in WRONG])
def test_wrong_budgets_are_refused(length: str, expected: str, write: Any, capsys: Any) -> None:
    assert main(["plan", str(write(length))]) == 2
    assert capsys.readouterr().err.startswith(f"addnorm: {expected}")


def test_a_variant_has_one_length_too(write: Callable[..., Path], capsys: Any) -> None:
    assert main(["plan", str(write("steps: 5", "  x: {training: {steps: 1, flops: 1e9}}\n"))]) == 2
    assert "$.variants.x.training: expected one of steps, tokens" in capsys.readouterr().err
    assert main(["plan", str(write("steps: 5", "  x: {training: {tokens: 3}}\n"))]) == 2
    assert "$.variants.x.training.tokens: expected a budget of at least one step" in capsys.readouterr().err


def test_python_has_one_length_too() -> None:
    with pytest.raises(InputError, match=r"training\.tokens: expected one of steps, .* got steps and tokens"):
        Training(steps=5, tokens=320)
    with pytest.raises(InputError, match="got tokens and flops"):
        Training(tokens=320, flops=1e9)
    study = Study(name="s", variants={"base": preset("base")}, training=Training(tokens=1_000_000))
    assert encode(study.training)["tokens"] == 1_000_000
    assert "flops" not in encode(study.training)


def test_plan_shows_budgets(write: Callable[..., Path], capsys: Any) -> None:
    file = write("flops: 1e8")
    assert main(["plan", str(file)]) == 0
    table = capsys.readouterr().out.partition("within its budget")[2].splitlines()
    steps = steps_of(file)
    assert table[2].split() == ["variant", "budget", "steps", "tokens", "FLOPs"]
    assert [line.split()[:4] for line in table[3:5]] == [
        [name, "flops", "1e+08", str(steps[name])] for name in ("base", "deep")
    ]
    assert main(["plan", str(file), "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert plan["budgets"] == {"base": {"flops": 1e8}, "deep": {"flops": 1e8}}
    assert [cost["steps"] for cost in plan["variants"]] == list(steps.values())
    assert all(cost["flops"] <= 1e8 for cost in plan["variants"])


def test_the_plan_records_budgets_and_resolved_steps(write: Callable[..., Path], tmp_path: Path) -> None:
    file = write("flops: 1e8", "  short: {training: {steps: 3}}\n")
    plan = prepare_study(load_study(file), tmp_path / "out").plan
    assert plan["budgets"] == {"base": {"flops": 1e8}, "deep": {"flops": 1e8}}
    steps = steps_of(file)
    for run in plan["runs"]:
        assert run["steps"] == run["spec"]["training"]["steps"] == steps[run["variant"]]
        assert "flops" not in run["spec"]["training"]
    folder = StudyFolder.create(tmp_path / "out", plan)
    assert plan_section(Reader(folder.path).look()).budgets == (("flops", 1e8),)
    Path("again.yaml").write_text(yaml.safe_dump(study_content(plan), sort_keys=False), encoding="utf-8")
    assert prepare_study(load_study("again.yaml"), tmp_path / "again").plan["plan_hash"] == plan["plan_hash"]


def test_frozen_steps_are_kept_when_flops_are_counted_otherwise(
    write: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write("flops: 1e8")
    plan = prepare_study(load_study(file), tmp_path / "out").plan
    StudyFolder.create(tmp_path / "out", plan)
    monkeypatch.setattr(preparation, "step_cost", lambda model, training: pytest.fail("counted again"))
    assert prepare_study(load_study(file), tmp_path / "out").plan["plan_hash"] == plan["plan_hash"]
    with pytest.raises(pytest.fail.Exception):
        prepare_study(load_study(write("flops: 2e8")), tmp_path / "out")


@pytest.mark.thorough
def test_the_baseline_at_equal_compute_is_the_one_at_equal_tokens() -> None:
    tokens, compute = (
        resolve_budgets(fit_models(load_study("residual-scores", profile=profile), 256))
        for profile in ("long", "long_compute")
    )
    assert compute.training_of("base") == tokens.training_of("base")
    assert compute.variants["base"] == tokens.variants["base"]
    cost = {
        name: step_cost(tokens.variants[name], tokens.training_of(name)).flops * tokens.training_of(name).steps
        for name in tokens.variants
    }
    costly = {name for name in tokens.variants if cost[name] > 1.02 * cost["base"]}
    assert set(compute.variants) == {"base", *costly}
