"""`tune:` of a study file and of a Study: its points, and how its mistakes are told."""

# ruff: noqa: E501 - tables of whole messages

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from addnorm import preset
from addnorm.errors import InputError
from addnorm.fields import FieldError
from addnorm.residual.scale import Scale
from addnorm.study.definition import Study
from addnorm.study.loading import load_study
from addnorm.study.points import points
from addnorm.study.tuning import Tuning
from addnorm.supervision.cost_estimate import estimate_cost, with_comparison

HEAD = """name: tiny
seeds: [0, 1]
corpus: {kind: synthetic, num_documents: 20}
tokenizer: bytes
training: {steps: 6, batch: 2, seq: 16}
model: {preset: base, width: 16, depth: 1, heads: 2, kv_heads: 1, hidden: 16, max_seq: 16}
"""
TUNED = """variants:
  base: {}
  scaled: {residual: scale, tune: {over: {residual.alpha: [0.5, 1]}}}
tune:
  seeds: [100]
  over: {training.optimizer.learning_rate: [1e-3, 3e-3]}
"""


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Writes a study file in an empty working folder."""
    monkeypatch.chdir(tmp_path)

    def written(text: str) -> Path:
        Path("s.yaml").write_text(HEAD + text, encoding="utf-8")
        return Path("s.yaml")

    return written


def test_every_variant_has_its_own_points(write: Callable[[str], Path]) -> None:
    study = load_study(write(TUNED))
    assert list(study.variants) == ["base", "scaled"]
    found = points(study)
    assert found.study.seeds == (100,)
    assert found.values["base"] == {
        "base, learning_rate 1e-3": {"training.optimizer.learning_rate": 1e-3},
        "base, learning_rate 3e-3": {"training.optimizer.learning_rate": 3e-3},
    }
    assert [*found.values["scaled"].values()] == [
        {"training.optimizer.learning_rate": rate, "residual.alpha": alpha}
        for rate in (1e-3, 3e-3)
        for alpha in (0.5, 1.0)
    ]
    last = "scaled, learning_rate 3e-3, alpha 1"
    assert found.study.variants[last] == replace(study.variants["scaled"], residual=Scale(alpha=1.0))
    assert found.study.training_of(last).optimizer.learning_rate == 3e-3
    assert found.over["base"] == {"training.optimizer.learning_rate": ("1e-3", "3e-3")}


def test_a_study_in_python_is_tuned_alike(write: Callable[[str], Path]) -> None:
    in_file = load_study(write(TUNED))
    tune = Tuning(
        seeds=(100,),
        over={"training.optimizer.learning_rate": ["1e-3", "3e-3"]},
        own={"scaled": {"residual.alpha": [0.5, 1]}},
    )
    in_python = Study(
        name="tiny",
        variants=in_file.variants,
        training=in_file.training,
        corpus=in_file.corpus,
        seeds=(0, 1),
        tune=tune,
    )
    assert points(in_python) == points(in_file)
    Path("s.py").write_text(
        "from addnorm.study.loading import load_study\ndef study():\n    return load_study('s.yaml')\n",
        encoding="utf-8",
    )
    assert points(load_study("s.py", settings=["tune.seeds=[5]"])).study.seeds == (5,)


def test_an_own_axis_replaces_the_same_one_and_a_grid_may_stand_beside(write: Callable[[str], Path]) -> None:
    text = TUNED.replace("{residual.alpha: [0.5, 1]}", "{training: {optimizer: {learning_rate: [1, 2, 3]}}}")
    found = points(load_study(write(text + "grid: {model.depth: [1, 2]}\n")))
    assert [*found.values] == ["base, depth 1", "base, depth 2", "scaled, depth 1", "scaled, depth 2"]
    assert [*map(len, found.values.values())] == [2, 2, 3, 3]
    assert found.study.variants["scaled, depth 2, learning_rate 3"].depth == 2


def test_a_setting_may_change_it(write: Callable[[str], Path]) -> None:
    file = write(TUNED)
    assert load_study(file, settings=["tune=null", "variants.scaled.tune=null"]).tune is None
    found = points(load_study(file, settings=["tune.over={model.depth: [1, 2, 3]}", "tune.seeds=[7, 8]"]))
    assert (found.study.seeds, len(found.values["base"])) == ((7, 8), 6)


def test_a_point_keeps_what_its_variant_sets_back(write: Callable[[str], Path]) -> None:
    text = TUNED.replace("base: {}", "base: {training: {recompute: false}}")
    study = load_study(write(text), settings=["training.recompute=true"])
    first = points(study).study
    assert {first.training_of(name).recompute for name in points(study).values["base"]} == {False}
    assert {first.training_of(name).recompute for name in points(study).values["scaled"]} == {True}


def test_the_cost_is_that_of_tuning_and_comparison(write: Callable[[str], Path]) -> None:
    axes = "tune: {seeds: [100, 101, 102], over: {training.steps: [6, 12]}}"
    study = load_study(write(f"variants: {{base: {{}}, scaled: {{residual: scale}}}}\n{axes}\n"))
    found = points(study)
    tuning = estimate_cost(found.study, workers=1)
    whole = with_comparison(tuning, study, found.values)
    assert whole.tuning is not None
    assert (whole.tuning.runs, whole.runs, whole.seeds) == (4 * 3, 4 * 3 + 2 * 2, 2)
    assert [cost.steps for cost in whole.variants] == [12, 12]
    assert whole.tokens == (6 * 6 + 6 * 12 + 4 * 12) * 2 * 16
    assert [cost.variant for cost in whole.variants] == ["base", "scaled"]


WRONG = {
    "no tuning seeds": (
        "tune:\n  over: {model.depth: [1, 2]}\n",
        "$.tune (line 10): expected the tuning seeds, got none. Add seeds: [100, 101].",
    ),
    "no seed in the list": (
        "tune: {seeds: [], over: {model.depth: [1, 2]}}\n",
        "$.tune.seeds (line 10): expected at least one tuning seed, distinct and in [0, 2**63), got [].",
    ),
    "seeds that are compared too": (
        "tune:\n  seeds: [1, 2]\n  over: {model.depth: [1, 2]}\n",
        "$.tune.seeds (line 11): expected other seeds than those of the comparison, got 1 in both. A value that is chosen and judged on one seed looks better than it is. Name other tuning seeds.",
    ),
    "an unknown field": (
        "tune: {seeds: [5], ovr: {model.depth: [1, 2]}}\n",
        "$.tune.ovr (line 10): Tuning has no field 'ovr', did you mean 'over'? Known: seeds, over.",
    ),
    "an unknown axis": (
        "tune:\n  seeds: [5]\n  over:\n    model.depht: [1, 2]\n",
        "$.tune.over.model.depht (line 13): no field 'depht', did you mean 'depth'?",
    ),
    "one value": (
        "tune:\n  seeds: [5]\n  over:\n    model.depth: [2]\n",
        "$.tune.over.model.depth (line 13): expected at least two values, got 2 alone. Add values, or set the field itself.",
    ),
    "two equal values": (
        "tune:\n  seeds: [5]\n  over: {training.optimizer.learning_rate: [1e-3, 0.001]}\n",
        "$.tune.over.training.optimizer.learning_rate (line 12): expected different points, got 'base, learning_rate 1e-3' and 'base, learning_rate 0.001', which are equal. Remove one of the values.",
    ),
    "a value that is not accepted": (
        "tune: {seeds: [5], over: {training.optimizer.learning_rate: [1e-3, -1]}}\n",
        "$.tune.over.training.optimizer.learning_rate[1] (line 10): expected a",
    ),
    "no axis": (
        "tune: {seeds: [5]}\n",
        "$.tune (line 10): expected at least one axis for every variant, got none for base, scaled.",
    ),
    "a text in place of axes": (
        "tune: {seeds: [5], over: depth}\n",
        "$.tune.over (line 10): expected a mapping from fields to lists of values, got 'depth'.",
    ),
    "an axis of the grid": (
        "tune: {seeds: [5], over: {depth: [1, 2]}}\ngrid: {model.depth: [3, 4]}\n",
        "$.tune.over.depth (line 10): expected a field that is tuned or in the grid, got it in both. Remove it from one.",
    ),
    "no mapping": ("tune: 3\n", "$.tune (line 10): expected a mapping with seeds and over, got 3."),
}


@pytest.mark.parametrize("case", WRONG)
def test_one_message_with_path_and_line(case: str, write: Callable[[str], Path]) -> None:
    text, message = WRONG[case]
    with pytest.raises(InputError) as caught:
        load_study(write("variants:\n  base: {}\n  scaled: {residual: scale}\n" + text))
    assert str(caught.value).startswith(f"s.yaml: {message}")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("own", "rest", "message"),
    [
        ("{over: {depth: [1, 2]}}", "", "$.variants.base.tune (line 8): expected the tuning seeds, got none. Set tune.seeds of the study."),
        ("{seeds: [1]}", "tune: {seeds: [5]}\n", "$.variants.base.tune.seeds (line 8): expected one list of tuning seeds for all variants. Set tune.seeds."),
        ("{over: {depth: [1]}}", "tune: {seeds: [5]}\n", "$.variants.base.tune.over.depth (line 8): expected at least two values, got 1 alone."),
        ("3", "tune: {seeds: [5]}\n", "$.variants.base.tune (line 8): expected a mapping with over, got 3."),
    ],
)  # fmt: skip
def test_one_message_for_a_variant(own: str, rest: str, message: str, write: Callable[[str], Path]) -> None:
    file = write(f"variants:\n  base: {{tune: {own}}}\n{rest}")
    with pytest.raises(InputError) as told:
        load_study(file)
    assert str(told.value).startswith(f"s.yaml: {message}")


def test_mistakes_in_python_name_the_field() -> None:
    model = preset("base", width=16, depth=1, heads=2, kv_heads=1, hidden=16, max_seq=16)
    with pytest.raises(
        FieldError, match=r"study.tune.seeds: expected other seeds than those of the comparison, got 0 in"
    ):
        Study(name="x", variants={"base": model}, tune=Tuning(seeds=(0,), over={"depth": [1, 2]}))
    with pytest.raises(
        FieldError, match=r"study.tune.own: expected variants of the study, got 'bse'. Did you mean 'base'"
    ):
        Study(name="x", variants={"base": model}, tune=Tuning(seeds=(5,), own={"bse": {"depth": [1, 2]}}))
    with pytest.raises(InputError, match=r"study 'x': \$.tune.over.depht: no field 'depht'"):
        points(Study(name="x", variants={"base": model}, tune=Tuning(seeds=(5,), over={"depht": [1, 2]})))
