"""Grids: axes over any field, the variants that they expand to, and how their mistakes are told."""

# ruff: noqa: E501 - tables of whole messages

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

import addnorm
from addnorm.cli import main
from addnorm.errors import InputError
from addnorm.optimization.optimizers.adamw import AdamW
from addnorm.optimization.optimizers.sgd import Sgd
from addnorm.residual.scale import Scale
from addnorm.study.encoding import digest
from addnorm.study.expansion import expand, run_name
from addnorm.study.loading import load_study
from addnorm.supervision.prepared import prepare_study
from train_here import train_here

HEAD = """name: tiny
seeds: [0, 1]
corpus: {kind: synthetic, num_documents: 20}
tokenizer: bytes
training: {steps: 6, batch: 2, seq: 16}
model: {preset: base, width: 16, depth: 2, heads: 2, kv_heads: 1, hidden: 16, max_seq: 16}
"""
RATES = """variants:
  base: {}
  scaled: {residual: scale}
grid:
  training.optimizer.learning_rate: [1e-3, 0.003]
  model.depth: [1, 2]
references: [base]
"""


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Writes a study file in an empty working folder."""
    monkeypatch.chdir(tmp_path)

    def written(text: str) -> Path:
        Path("s.yaml").write_text(HEAD + text, encoding="utf-8")
        return Path("s.yaml")

    return written


def test_axes_are_expanded_to_their_product(write: Callable[[str], Path]) -> None:
    study = load_study(write(RATES))
    points = [f"learning_rate {rate}, depth {depth}" for rate in ("1e-3", "0.003") for depth in (1, 2)]
    assert list(study.variants) == [f"{name}, {point}" for name in ("base", "scaled") for point in points]
    assert study.references == tuple(f"base, {point}" for point in points)
    for name, model in study.variants.items():
        assert model.depth == int(name[-1])
        assert model.residual.kind == ("scale" if name.startswith("scaled") else "add")
        assert study.training_of(name).optimizer == AdamW(learning_rate=1e-3 if "1e-3" in name else 3e-3)
        assert study.training_of(name).steps == 6


def test_a_grid_may_be_nested_and_belong_to_one_variant(write: Callable[[str], Path]) -> None:
    study = load_study(
        write("""variants:
  base: {}
  scaled: {residual: scale, grid: {residual.alpha: [1, 2], training: {steps: [3]}}}
grid: {training: {steps: [4]}}
references: ["base, steps 4", scaled]
""")
    )
    assert list(study.variants) == ["base, steps 4", "scaled, steps 3, alpha 1", "scaled, steps 3, alpha 2"]
    assert study.references == ("base, steps 4", "scaled, steps 3, alpha 1", "scaled, steps 3, alpha 2")
    assert study.variants["scaled, steps 3, alpha 2"].residual == Scale(alpha=2.0)
    assert [study.training_of(name).steps for name in study.variants] == [4, 3, 3]


def test_a_variant_without_axes_keeps_its_name(write: Callable[[str], Path]) -> None:
    study = load_study(write("variants: {base: {}, deep: {grid: {depth: [3, 4]}}}\n"))
    assert list(study.variants) == ["base", "deep, depth 3", "deep, depth 4"]
    assert study.variant_training == {}


NAMES = [
    ("training.optimizer: [adamw, {kind: sgd, learning_rate: 0.1}]", ["base, optimizer adamw", "base, optimizer sgd learning_rate 0.1"]),
    ("training.optimizer.betas: [[0.9, 0.95]]", ["base, betas 0.9-0.95"]),
    ("{training.clip: [null, 1.0], tied: [true]}", ["base, clip null, tied true", "base, clip 1.0, tied true"]),
    ("{residual: [{kind: rezero, alpha_init: 0.1}], scores: [sum]}", ["base, residual rezero alpha_init 0.1, scores sum"]),
    ("{bias.q: [true], bias.k: [true]}", ["base, q true, k true"]),
    ("{dropout.branch: [0.1], dropout.attention: [0.2]}", ["base, branch 0.1, attention 0.2"]),
    ("{training.optimizer.weight_decay: [0.1], norm.eps: [1e-6]}", ["base, weight_decay 0.1, eps 1e-6"]),
]  # fmt: skip


@pytest.mark.parametrize(("grid", "names"), NAMES, ids=[grid for grid, _ in NAMES])
def test_points_are_named_after_their_values(grid: str, names: list[str], write: Callable[[str], Path]) -> None:
    text = f"grid: {grid}\n" if grid.startswith("{") else f"grid:\n  {grid}\n"
    assert list(load_study(write(f"variants: {{base: {{}}}}\n{text}")).variants) == names


def test_labels_are_as_long_as_needed(write: Callable[[str], Path]) -> None:
    study = load_study(write("variants: {base: {}}\ngrid: {norm.eps: [1e-6], training.optimizer.eps: [1e-8]}\n"))
    assert list(study.variants) == ["base, norm.eps 1e-6, optimizer.eps 1e-8"]


def test_profiles_and_settings_change_a_grid(write: Callable[[str], Path]) -> None:
    file = write(RATES + "profiles: {none: {grid: null}, one: {grid: {model.depth: [2]}}}\n")
    assert list(load_study(file, profile="none").variants) == ["base", "scaled"]
    assert len(load_study(file, profile="one").variants) == 4
    assert len(load_study(file, settings=["grid.model.depth=[1,2,3]", "variants=[base]"]).variants) == 6
    other = load_study(file, profile="none", settings=["grid.training.optimizer=[sgd]"])
    assert [other.training_of(name).optimizer for name in other.variants] == [Sgd(), Sgd()]


def test_names_of_folders_hold_no_spaces(write: Callable[[str], Path], tmp_path: Path) -> None:
    study = load_study(write(RATES))
    names = [run_name(run) for run in expand(study, "0" * 64)]
    assert names[0].rpartition("-")[0] == "base-learning_rate-1e-3-depth-1-s0"
    assert len(set(names)) == 16
    assert all(len(name) < 130 for name in names)


WRONG = [
    ("  model.depht: [1, 2]", "$.grid.model.depht (line 9): no field 'depht', did you mean 'depth'? Known:"),
    ("  training.optimizer.learning_rat: [1]", "$.grid.training.optimizer.learning_rat (line 9): AdamW has no field 'learning_rat', did you mean 'learning_rate'? Known:"),
    ("  trainin.steps: [1]", "$.grid.trainin.steps (line 9): no field 'trainin', did you mean 'training'? Known: model, training,"),
    ("  residual.alpha: [1, 2]", "$.grid.residual.alpha (line 9): Add has no field 'alpha'. Write its kind: initial_state, scale. Known: none."),
    ("  model.depth: []", "$.grid.model.depth (line 9): expected at least one value, got an empty list. Add values, or remove the axis."),
    ("  model.depth: 3", "$.grid.model.depth (line 9): expected a list of values, got 3. Write [3]."),
    ("  model.depth:", "$.grid.model.depth (line 9): expected a list of values, got null."),
    ("  model: [1]", "$.grid.model (line 9): expected the path of a field, such as training.steps or model.depth."),
    ("  model.depth: [1, two]", "$.grid.model.depth[1] (line 9): expected a whole number, got 'two'."),
    ("  model.heads: [1, 3]", "$.grid.model.heads[1] (line 9): heads must divide the width: width 16 / heads 3"),
    ("  training.steps: [-1]", "$.grid.training.steps (line 9): expected a whole number of at least 0, got -1."),
    ("  training.seq: [8, 16]", "$.variants.base, seq 8.training.seq: expected 16 as in the study's training, got 8."),
    ("  training.optimizer.learning_rate: [1e-3, 0.001]", "$.grid.training.optimizer.learning_rate (line 9): expected different variants, got 'base, learning_rate 1e-3' and 'base, learning_rate 0.001', which are equal. Remove one of the values."),
    ("  model.max_seq: [8, 16]", "$.grid.model.max_seq (line 9): expected different variants, got 'base, max_seq 8' and 'base, max_seq 16', which are equal."),
    ("  model.depth: [2, 2]", "$.grid.model.depth (line 9): expected a name for each variant, got 'base, depth 2' twice. Remove one of the values."),
    ("  {depth: [1], model.depth: [2]}", "$.grid.model.depth (line 9): expected one axis for each field, got $.grid.depth too. Keep one."),
    ("  [1]", "$.grid (line 8): expected the path of a field, such as training.steps or model.depth."),
]  # fmt: skip


def refusal(file: Path, **given: Any) -> str:
    with pytest.raises(InputError) as caught:
        load_study(file, **given)
    return str(caught.value)


@pytest.mark.parametrize(("grid", "expected"), WRONG, ids=[grid.strip() for grid, _ in WRONG])
def test_mistakes_are_told_with_path_and_line(grid: str, expected: str, write: Callable[[str], Path]) -> None:
    message = refusal(write(f"variants: {{base: {{}}}}\ngrid:\n{grid}\n"))
    assert message.startswith(f"s.yaml: {expected}")
    assert "\n" not in message


def test_a_field_that_only_some_variants_have_is_told(write: Callable[[str], Path]) -> None:
    message = refusal(write("variants: {base: {}, scaled: {residual: scale}}\ngrid: {residual.alpha: [1, 2]}\n"))
    assert (
        message
        == "s.yaml: $.grid.residual.alpha (line 8): variant base: Add has no field 'alpha'. Write its kind: initial_state, scale. Known: none."
    )


def test_a_grid_of_a_profile_or_a_variant_is_told_by_its_own_line(write: Callable[[str], Path]) -> None:
    file = write("variants: {base: {}}\nprofiles:\n  wide:\n    grid:\n      widht: [8]\n")
    assert "$.grid.widht (line 11): no field 'widht', did you mean 'width'?" in refusal(file, profile="wide")
    assert "$.grid.widht: no field 'widht'" in refusal(file, settings=["grid.widht=[8]"])
    file = write("variants:\n  base:\n    grid: {widht: [8]}\n")
    assert "$.variants.base.grid.widht (line 9): no field 'widht'" in refusal(file)


def test_mistakes_of_variants_are_told_before_those_of_the_grid(write: Callable[[str], Path]) -> None:
    message = refusal(write("variants: {base: {widht: 3}}\ngrid: {depth: [1]}\n"))
    assert message.startswith("s.yaml: $.variants.base: ModelSpec has no field 'widht'")


def test_variants_that_are_equal_at_a_point_are_told(write: Callable[[str], Path]) -> None:
    expected = "$.variants.deep, depth 1: expected different variants, got 'base, depth 1' and 'deep, depth 1', which are equal. Remove one of the variants."
    assert refusal(write("variants:\n  base: {}\n  deep: {depth: 3}\ngrid: {depth: [1]}\n")) == f"s.yaml: {expected}"


def test_equal_variants_without_a_grid_are_allowed(write: Callable[[str], Path]) -> None:
    assert list(load_study(write("variants: {a: {}, b: {}, c: {grid: {depth: [1]}}}\n")).variants) == [
        "a",
        "b",
        "c, depth 1",
    ]


@pytest.mark.usefixtures("blank_pictures")
def test_plan_counts_the_points_and_a_grid_is_trained_and_ranked(write: Any, tmp_path: Path, capsys: Any) -> None:
    file = write("variants: {base: {}}\ngrid: {training.optimizer.learning_rate: [1e-3, 1e-2]}\n")
    assert main(["plan", str(file)]) == 0
    out = capsys.readouterr().out
    assert "tiny: 4 runs (2 variants x 2 seeds), 6 steps of 32 tokens each" in out
    assert "base · learning_rate 1e-2  0.01" in out
    folder = train_here(load_study(file), tmp_path / "out")
    assert {status.state for status in folder.statuses()} == {"finished"}
    assert main(["rank", str(folder.path)]) == 0
    assert "base · learning_rate 1e-2" in capsys.readouterr().out
    assert main(["report", str(folder.path), "--no-inspect"]) == 0
    again = load_study(folder.path / "report" / "study.yaml")
    assert prepare_study(again, tmp_path / "again").plan["plan_hash"] == folder.plan_hash
    assert yaml.safe_load((folder.path / "report" / "study.yaml").read_text(encoding="utf-8"))[
        "variants"
    ].keys() == set(load_study(file).variants)


DEPTHS = """variants:
  base: {}
  scaled: {residual: scale, grid: {residual.alpha: [0.5, 2.0]}}
grid:
  model.depth: [1, 2]
references: [base]
"""
AT_EQUAL_DEPTH = tuple(
    (f"scaled, depth {depth}, alpha {alpha}", f"base, depth {depth}") for depth in (1, 2) for alpha in (0.5, 2.0)
)


class TestCompare:
    """`compare`: points at equal values of the axes that both have, unless the file asks otherwise."""

    def test_points_are_compared_at_equal_shared_axes(self, write: Callable[[str], Path]) -> None:
        study = load_study(write(DEPTHS))
        assert study.references == ("base, depth 1", "base, depth 2")
        assert study.pairs == AT_EQUAL_DEPTH
        assert load_study(write(DEPTHS.replace("references: [base]\n", ""))).pairs == AT_EQUAL_DEPTH, (
            "the first variant"
        )

    def test_an_axis_is_the_field_and_a_value_is_the_number(self, write: Callable[[str], Path]) -> None:
        study = load_study(
            write("""variants:
  base: {grid: {training: {optimizer: {learning_rate: [1e-3, 0.003]}}}}
  scaled: {residual: scale, grid: {training.optimizer.learning_rate: [0.001, 3.0e-3]}}
references: [base]
""")
        )
        assert [tuple(name.partition(" ")[2] for name in pair) for pair in study.pairs] == [
            ("learning_rate 0.001", "learning_rate 1e-3"),
            ("learning_rate 0.003", "learning_rate 0.003"),
        ]

    @pytest.mark.parametrize(
        "file",
        [
            DEPTHS + "compare: all\n",
            DEPTHS.replace("[base]", "['base, depth 1']"),  # a point named alone is compared with all
            "variants: {base: {}, deep: {grid: {depth: [3, 4]}}}\n",  # no axis is shared
            "variants: {base: {grid: {depth: [3, 4]}}}\n",  # points of one variant alone
            "variants: {base: {}, scaled: {residual: scale}}\n",
        ],
    )
    def test_otherwise_every_variant_is_compared_with_every_reference(
        self, file: str, write: Callable[[str], Path]
    ) -> None:
        assert load_study(write(file)).pairs == ()

    def test_pairs_may_be_listed_by_variant_or_by_point(self, write: Callable[[str], Path]) -> None:
        file = DEPTHS.replace("references: [base]\n", "")
        by_variant = load_study(write(file + "compare: [[scaled, base]]\n"))
        assert by_variant.pairs == AT_EQUAL_DEPTH
        assert by_variant.references == ("base, depth 1", "base, depth 2")
        point, reference = "scaled, depth 1, alpha 2.0", "scaled, depth 1, alpha 0.5"
        by_point = load_study(write(file + f"compare: [['{point}', '{reference}']]\n"))
        assert (by_point.pairs, by_point.references) == (((point, reference),), (reference,))

    @pytest.mark.parametrize(
        ("compare", "expected"),
        [
            ("some", "$.compare: expected one of 'equal_axes', 'all' or a list"),
            ("[[scald, base]]", "$.compare[0]: no variant 'scald', did you mean 'scaled'?"),
            (
                "[[scaled, base], [base, scaled]]",
                "$.compare[1]: expected a reference as the second of the pair, got 'scaled'.",
            ),
            ("[[base, base]]", "$.compare[0]: expected two variants, got 'base' twice."),
        ],
    )
    def test_mistakes_are_told(self, compare: str, expected: str, write: Callable[[str], Path]) -> None:
        assert expected in refusal(write(DEPTHS + f"compare: {compare}\n"))

    @pytest.mark.usefixtures("blank_pictures")
    def test_pairs_are_frozen_ranked_shown_and_written_again(
        self, write: Callable[[str], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        file = write(DEPTHS.replace("variants:", "seeds: [0, 1, 2]\nvariants:").replace("seeds: [0, 1]\n", ""))
        file.write_text(file.read_text().replace("seeds: [0, 1]\n", ""))
        assert main(["plan", str(file)]) == 0
        assert "Compared: 4 pairs of a variant with a reference (compare: equal_axes)" in capsys.readouterr().out
        folder = train_here(load_study(file), tmp_path / "out")
        assert folder.plan["pairs"] == [list(pair) for pair in AT_EQUAL_DEPTH]
        ranking = addnorm.rank(folder.path)
        assert ranking.family == 4
        assert {(row.variant, other) for row in ranking.variants for other in row.versus} == set(AT_EQUAL_DEPTH)
        assert addnorm.rank(folder.path, references=["base, depth 2"]).family == 2
        assert addnorm.rank(folder.path, references=["scaled, depth 1, alpha 0.5"]).family == 5
        assert main(["rank", str(folder.path)]) == 0
        out = capsys.readouterr().out
        assert "scaled · depth 1 · alpha 0.5  base · depth 1" in out
        assert "4 of 9 comparisons with a reference are made" in out
        assert main(["report", str(folder.path), "--no-inspect"]) == 0
        report = folder.path / "report"
        assert "against its reference" in (report / "report.html").read_text(encoding="utf-8")
        again = load_study(report / "study.yaml")
        assert (again.pairs, again.references) == (AT_EQUAL_DEPTH, study_references(folder.plan))
        assert prepare_study(again, tmp_path / "again").plan["plan_hash"] == folder.plan_hash

    def test_a_study_of_an_earlier_version_goes_on_with_its_family(
        self, write: Callable[[str], Path], tmp_path: Path
    ) -> None:
        study = load_study(write(DEPTHS))
        folder = train_here(study, tmp_path / "out")
        left = ("pairs", "plan_hash", "addnorm_version", "format")
        earlier = {name: value for name, value in folder.plan.items() if name not in left}
        written = {**folder.plan, "plan_hash": digest(earlier)}
        del written["pairs"]
        (folder.path / "study.json").write_text(json.dumps(written), encoding="utf-8")
        assert prepare_study(study, folder.path).plan["plan_hash"] == digest(earlier)
        assert addnorm.rank(folder.path).family == 9
        other = load_study(write(DEPTHS + "compare: all\n"))
        assert prepare_study(other, folder.path).plan["plan_hash"] != digest(earlier), (
            "what the file asks for is not ignored"
        )


def study_references(plan: Any) -> tuple[str, ...]:
    return tuple(plan["references"])
