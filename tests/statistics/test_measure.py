"""Columns that are no loss in nats: their direction, their name and unit, and the margin."""

from pathlib import Path
from typing import Any

import pytest

import addnorm
from addnorm.cli import main
from addnorm.errors import InputError
from addnorm.statistics.measure import NATS, measure_of

SCORES = {
    "base": (71.2, 70.9, 71.3),
    "good": (73.2, 72.7, 73.4),
    "bad": (68.9, 69.0, 69.2),
    "same": (71.25, 70.9, 71.2),
}


def table(tmp_path: Path, column: str, scores: dict[str, tuple[float, ...]] = SCORES, sign: float = 1.0) -> Path:
    path = tmp_path / "runs.csv"
    rows = [f"{v},{s},{sign * x}\n" for v, row in scores.items() for s, x in enumerate(row)]
    path.write_text(f"variant,seed,{column}\n" + "".join(rows), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    "name",
    [
        "accuracy",
        "val_acc",
        "BLEU",
        "rouge-L f1",
        "tokens/s",
        "tok_per_sec",
        "trainThroughput",
        "mfu",
        "CORE",
        "test.auroc",
        "exact_match",
        "win rate score",
        "edit_accuracy",
        "memory_recall_acc",
        "kl reward",
        "images/s",
        "fps",
        "log_likelihood",
        "val_cosine_similarity",
        "neg_mean_squared_error",
        "mean_test_neg_log_loss",
        "negative_loss",
        "loss_reduction_%",
        "Error improvement",
        "-loss",
        "1 - loss",
        "inverse_perplexity",
    ],
)
def test_a_number_of_which_higher_is_better_needs_a_direction(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    path = str(table(tmp_path, name))
    assert main(["rank", path, "--columns", f"loss={name}"]) == 2
    assert "--direction higher" in capsys.readouterr().err
    assert main(["trend", path, path, "--parameters", "1,2", "--columns", f"loss={name}"]) == 2
    assert main(["rank", path, "--columns", f"loss={name}", "--direction", "higher"]) == 0
    assert f"{name}, higher is better" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("name", "unit", "assumed"),
    [
        ("loss", NATS, False),
        ("eval/loss", NATS, False),
        ("valLoss", NATS, False),
        ("test_nll", NATS, False),
        ("val_ce", NATS, False),
        ("perplexity", None, False),
        ("val_bpb", "bits per byte", False),
        ("word error rate", None, False),
        ("accuracy_error", None, False),
        ("final", None, True),
        ("value", None, True),
        ("loss (bits)", None, False),
        ("val_loss_bpb", "bits per byte", False),
        ("mse_loss", None, False),
        ("loss per byte", None, False),
        ("loss [%]", None, False),
        ("relative loss", None, False),
        ("loss_x1000", None, False),
        ("Loss (mnats)", None, False),
        ("policy_loss", None, False),
        ("ctc_loss", None, False),
        ("loss (sum)", None, False),
        ("loss (1e-3)", None, False),
        ("iteration_loss", NATS, False),
        ("evaluation/loss", NATS, False),
    ],
)
def test_the_measure_by_its_name(name: str, unit: str | None, assumed: bool) -> None:
    measure = measure_of(name)
    assert (measure.unit, measure.better, measure.assumed) == (unit, "lower", assumed)
    assert measure_of(name, "lower", "points").unit == "points"
    assert measure_of(name, "higher").better == "higher"
    assert measure_of(name, "higher").unit != NATS, "no loss in nats is better the higher it is"


def test_higher_is_better_mirrors_every_number(tmp_path: Path) -> None:
    columns = {"loss": "accuracy"}
    above = addnorm.rank(table(tmp_path, "accuracy"), columns=columns, direction="higher", unit="%", margin=1)
    below = addnorm.rank(table(tmp_path, "accuracy", sign=-1), columns=columns, direction="lower", unit="%", margin=1)
    assert (
        [row.variant for row in above.variants]
        == [row.variant for row in below.variants]
        == ["good", "base", "same", "bad"]
    )
    assert {row.variant: row.versus["base"].verdict for row in above.variants if row.versus} == {
        "good": "better",
        "same": "equivalent",
        "bad": "worse",
    }
    for row, other in zip(above.variants, below.variants, strict=True):
        assert row.mean == pytest.approx(-(other.mean or 0))
        assert row.interval == pytest.approx(tuple(-end for end in reversed(other.interval or ())))
        assert (row.sd, row.rank_interval, row.tier) == (other.sd, other.rank_interval, other.tier)
        for name, comparison in row.versus.items():
            opposite = other.versus[name]
            assert comparison.difference == pytest.approx(-(opposite.difference or 0))
            assert comparison.interval == pytest.approx(tuple(-end for end in reversed(opposite.interval or ())))
            assert (comparison.p, comparison.seeds_needed) == (opposite.p, opposite.seeds_needed)
    assert [value.loss for value in above["good"].values] == list(SCORES["good"])
    content = above.to_json()
    assert (content["metric"], content["unit"], content["better"], content["variants"][0]["perplexity"]) == (
        "accuracy",
        "%",
        "higher",
        None,
    )


def test_what_is_certain_within_the_margin_keeps_its_direction(tmp_path: Path) -> None:
    scores = {"base": (70.0, 70.1, 70.2), "good": (70.5, 70.61, 70.7)}
    ranking = addnorm.rank(table(tmp_path, "acc", scores), columns={"loss": "acc"}, direction="higher", margin=2)
    comparison = ranking["good"].versus["base"]
    assert (comparison.verdict, comparison.reason_code) == ("equivalent", "certainly_higher")


def test_the_text_shows_name_unit_and_better_seeds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["rank", str(table(tmp_path, "accuracy")), "--columns", "loss=accuracy", "--direction", "higher"]
    assert main([*command, "--unit", "%", "--margin", "1"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "accuracy in %, higher is better" in out
    assert "better 3/3 +1.967 [" in out
    assert "Differences in %" in out
    assert "higher on 4 of 5 seeds" in out
    assert "nat" not in out
    assert main([*command, "--latex"]) == 0
    latex = capsys.readouterr().out
    assert "$+1.967$" in latex
    assert "accuracy minus that of base" in latex


@pytest.mark.parametrize(
    ("column", "options", "warned"),
    [
        ("loss", {}, []),
        ("val_bpb", {}, ["margin_of_nats"]),
        ("val_bpb", {"margin": 0.01}, []),
        ("final", {}, ["direction_assumed", "margin_of_nats"]),
        ("final", {"direction": "lower", "margin": 0.1}, []),
        ("val_loss", {}, []),
    ],
)
def test_what_is_assumed_is_said(tmp_path: Path, column: str, options: dict[str, Any], warned: list[str]) -> None:
    ranking = addnorm.rank(table(tmp_path, column), columns={"loss": column}, **options)
    assert [w.note["code"] for w in ranking.warnings] == warned


def test_sentences_about_noise_are_without_nats(tmp_path: Path) -> None:
    scores = {**{f"v{i}": (70.1 + i, 70.2 + i, 70.3 + i + 0.01 * i) for i in range(5)}, "wild": (60.0, 75.0, 68.0)}
    ranking = addnorm.rank(table(tmp_path, "bleu", scores), columns={"loss": "bleu"}, direction="higher", margin=1)
    assert any(w.note["code"].startswith(("set_apart", "uneven")) for w in ranking.warnings)
    assert "nat" not in " ".join(ranking.warnings).replace("nature", "")


def test_large_numbers_have_no_perplexity(tmp_path: Path) -> None:
    scores = {"a": (12345.5, 12346.5, 12345.0), "b": (14345.5, 14346.5, 14344.0)}
    ranking = addnorm.rank(table(tmp_path, "tokens/s", scores), columns={"loss": "tokens/s"}, direction="higher")
    assert ranking["b"].versus["a"].verdict == "better"
    assert addnorm.rank(table(tmp_path, "loss", scores))["b"].perplexity is None


def test_a_direction_is_for_tables_alone() -> None:
    with pytest.raises(InputError, match="expected a table of runs where a direction or unit is given"):
        addnorm.rank("kuang-2025", direction="higher")
