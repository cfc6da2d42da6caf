"""Training of its own for a variant: decoding, identity, refusals, and where it is shown."""

# ruff: noqa: E501 - a table of whole messages

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from addnorm import preset
from addnorm.cli import main
from addnorm.errors import InputError
from addnorm.optimization.optimizers.adamw import AdamW
from addnorm.optimization.optimizers.sgd import Sgd
from addnorm.optimization.schedules.cosine import Cosine
from addnorm.reporting.reader import Reader
from addnorm.reporting.sections.model import model
from addnorm.reporting.sections.plan import plan as plan_section
from addnorm.reporting.sections.report.method import method
from addnorm.reporting.sections.report.reproduce import study_content
from addnorm.reporting.sections.report.setup import own_settings, setup
from addnorm.store import StudyFolder
from addnorm.study.definition import Study, Training
from addnorm.study.loading import load_study
from addnorm.supervision.prepared import prepare_study
from train_here import train_here

FILE = """
name: tiny
seeds: [0]
corpus: {kind: synthetic, task: induction}
tokenizer: bytes
training: {steps: 6, batch: 2, seq: 16}
model: {preset: base, width: 16, depth: 2, heads: 2, kv_heads: 1, hidden: 16, max_seq: 16}
variants:
  base: {}
"""
OWN = """  high: {training: {optimizer: {learning_rate: 3e-3}, steps: 4}}
  small: {training: {batch: 1, schedule: {warmup: 0.2}}}
"""
PLAN_HASH = "1a9313bdd121ca944ace1b3bf9453257eb57f5cb88ffa4509e7500971d09d334"
"""Plan hash of FILE with the variant v4m5, from the version before variants had training of their own."""


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Writes a study file in an empty working folder."""
    monkeypatch.chdir(tmp_path)

    def written(text: str) -> Path:
        Path("s.yaml").write_text(text, encoding="utf-8")
        return Path("s.yaml")

    return written


def test_own_fields_replace_those_of_the_study(write: Callable[[str], Path]) -> None:
    study = load_study(write(FILE + OWN + "  sgd: {training: {optimizer: sgd}}\n"))
    assert study.training == study.training_of("base") == Training(steps=6, batch=2, seq=16)
    assert study.training_of("high") == Training(steps=4, batch=2, seq=16, optimizer=AdamW(learning_rate=3e-3))
    assert study.training_of("small") == Training(steps=6, batch=1, seq=16, schedule=Cosine(warmup=0.2))
    assert study.training_of("sgd").optimizer == Sgd()
    assert (
        load_study(study_of_python(study), settings=["variants.high.training.steps=9"]).training_of("high").steps == 9
    )


def study_of_python(study: Study) -> str:
    """A Python file that returns a study with the same training settings."""
    Path("s.py").write_text(
        "from pathlib import Path\nfrom addnorm.study.loading import load_study\n"
        f"def study():\n    return load_study({str(Path('s.yaml').resolve())!r})\n",
        encoding="utf-8",
    )
    assert load_study("s.py") == study
    return "s.py"


def test_settings_and_profiles_reach_a_variants_training(write: Callable[[str], Path]) -> None:
    file = write(FILE + OWN + "profiles: {long: {variants: {high: {training: {steps: 60}}}}}\n")
    assert load_study(file, profile="long").training_of("high").steps == 60
    rate = load_study(file, settings=["variants.base.training.optimizer.learning_rate=5e-4"]).training_of("base")
    assert rate.optimizer == AdamW(learning_rate=5e-4)


def test_a_study_without_own_training_keeps_its_plan_hash(write: Callable[[str], Path], tmp_path: Path) -> None:
    plan = prepare_study(load_study(write(FILE + "  v4m5: {preset: v4m5}\n")), tmp_path).plan
    assert plan["plan_hash"] == PLAN_HASH


def test_own_training_is_part_of_the_runs_identity(write: Callable[[str], Path], tmp_path: Path) -> None:
    shared = prepare_study(load_study(write(FILE + "  high: {}\n")), tmp_path).plan
    own = prepare_study(load_study(write(FILE + OWN.splitlines()[0] + "\n")), tmp_path).plan
    assert shared["plan_hash"] != own["plan_hash"]
    assert shared["runs"][0] == own["runs"][0]
    high = own["runs"][1]
    assert high["run"] != shared["runs"][1]["run"]
    assert (high["steps"], high["spec"]["training"]["optimizer"]["learning_rate"]) == (4, 3e-3)


REFUSED = [
    ("high: {training: {seq: 8}}", "$.variants.high.training.seq: expected 16 as in the study's training, got 8. All variants are evaluated on held-out sequences of one length"),
    ("high: {training: {eval_sequences: 8}}", "$.variants.high.training.eval_sequences: expected 64 as in the study's training, got 8."),
    ("high: {training: {threads: 2}}", "$.variants.high.training.threads: expected 1 as in the study's training, got 2."),
    ("high: {objective: masked, training: {batch: 4}}", "$.variants.high.training.batch: expected 2 as in the study's training, got 4. The masks"),
    ("high: {corpus: stdlib}", "$.variants.high: expected no 'corpus': variants that are ranked together have it in common. Set $.corpus, or make a second study."),
    ("high: {seeds: [1]}", "$.variants.high: expected no 'seeds':"),
    ("high: {training: {step: 4}}", "$.variants.high.training: Training has no field 'step', did you mean 'steps'?"),
    ("high: {training: 4}", "$.variants.high.training: expected a mapping with the fields of Training, got 4."),
    ("high: {training: {optimizer: {rate: 1}}}", "$.variants.high.training.optimizer: AdamW has no field 'rate'"),
    ("high: {trainin: {}}", "$.variants.high: ModelSpec has no field 'trainin', did you mean 'training'?"),
]  # fmt: skip


@pytest.mark.parametrize(("variant", "expected"), REFUSED, ids=[variant for variant, _ in REFUSED])
def test_what_cannot_differ_is_refused(variant: str, expected: str, write: Callable[[str], Path]) -> None:
    with pytest.raises(InputError) as caught:
        load_study(write(f"{FILE}  {variant}\n"))
    assert str(caught.value).startswith(f"s.yaml: {expected}")


def test_wrong_shared_training_is_told_once(write: Callable[[str], Path]) -> None:
    with pytest.raises(InputError) as caught:
        load_study(write(FILE.replace("steps: 6", "steps: x") + "  high: {training: {batch: 1}}\n"))
    assert str(caught.value) == "s.yaml: $.training.steps: expected a whole number, got 'x'."


def test_training_of_an_unknown_variant_is_refused_in_python() -> None:
    with pytest.raises(InputError, match=r"expected variants of the study, got 'bse'\. Did you mean 'base'"):
        Study(name="s", variants={"base": preset("base")}, variant_training={"bse": Training()})


def test_plan_shows_what_differs(write: Callable[[str], Path], capsys: Any) -> None:
    file = str(write(FILE + OWN))
    assert main(["plan", file]) == 0
    out = capsys.readouterr().out
    assert "tiny: 3 runs (3 variants x 1 seeds), 4 to 6 steps and 96 to 192 tokens each" in out
    rows = {line.split()[0]: line.split()[1:] for line in out.partition("differ between variants")[2].splitlines()[2:6]}
    assert rows == {
        "variant": ["steps", "batch", "optimizer.learning_rate", "schedule.warmup"],
        "base": ["6", "2", "0.0003", "0.015"],
        "high": ["4", "2", "0.003", "0.015"],
        "small": ["6", "1", "0.0003", "0.2"],
    }
    assert main(["plan", file, "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert [(cost["steps"], cost["tokens"]) for cost in plan["variants"]] == [(6, 192), (4, 128), (6, 96)]
    assert plan["tokens"] == 192 + 128 + 96
    assert plan["flops"] == pytest.approx(sum(cost["flops_per_token"] * cost["tokens"] for cost in plan["variants"]))


def test_page_and_report_show_what_differs(write: Callable[[str], Path], tmp_path: Path) -> None:
    """Every run takes its own steps, and the reproduced study file has the same plan."""
    folder = train_here(load_study(write(FILE + OWN + "references: [base]\n")), tmp_path / "out")
    assert [(status.state, status.step) for status in folder.statuses()] == [
        ("finished", 6),
        ("finished", 4),
        ("finished", 6),
    ]
    snapshot = Reader(folder.path).look()
    shown = plan_section(snapshot)
    assert shown.own["training.steps"] == {"base": "6", "high": "4", "small": "6"}
    assert "training.seq" in dict(shown.shared)
    assert "training.steps" not in dict(shown.shared)
    differences = {field.path: (field.value, field.reference) for field in model(snapshot, "high").differences}
    assert differences == {"training.steps": ("4", "6"), "training.optimizer.learning_rate": ("0.003", "0.0003")}
    said = " ".join(
        sentence for _, sentences in [*setup(snapshot, "en"), *method(snapshot, "en")] for sentence in sentences
    )
    assert ("training.steps", "4") in dict(own_settings(snapshot))["high"]
    assert "do not see the same batches" in said
    content = study_content(folder.plan)
    Path("again.yaml").write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")
    again = prepare_study(load_study("again.yaml"), tmp_path / "again").plan
    assert again["plan_hash"] == StudyFolder(folder.path).plan_hash
