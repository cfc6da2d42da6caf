"""`addnorm scale-check`: slopes against planted powers, muP against the standard parametrisation, and refusals."""

import json
from pathlib import Path

import numpy as np
import pytest

import addnorm
from addnorm.cli import main
from addnorm.errors import InputError, UnknownName
from addnorm.insight.scale_check import _slope

SIZES = (16, 32, 64, 128)
SMALL = ["model.depth=2", "model.width=32"]


@pytest.mark.parametrize(("power", "growth"), [(0.0, "stays"), (0.1, "stays"), (0.5, "grows"), (-1.0, "shrinks")])
def test_a_planted_power_is_found(power: float, growth: str) -> None:
    rng = np.random.default_rng(1)
    measured = [[3 * seed * size**power * np.exp(0.02 * rng.normal()) for seed in (1, 2, 3)] for size in SIZES]
    found = _slope("stream", "change", SIZES, measured)
    assert found.interval[0] < power < found.interval[1]
    assert found.growth == growth


def test_slope_and_interval_are_those_of_least_squares() -> None:
    rng = np.random.default_rng(2)
    measured = np.exp(rng.normal(size=(4, 2)))
    found = _slope("stream", "change", SIZES, measured.tolist())
    design = np.array([[np.log(size), seed == 0, seed == 1] for size in SIZES for seed in range(2)], float)
    y = np.log(measured).ravel()
    coefficients, residual, *_ = np.linalg.lstsq(design, y, rcond=None)
    covariance = np.linalg.inv(design.T @ design) * residual[0] / (8 - 3)
    assert found.slope == pytest.approx(coefficients[0])
    assert (found.interval[1] - found.slope) / 2.5705818 == pytest.approx(np.sqrt(covariance[0, 0]), rel=1e-6)
    assert found.growth == "open"


def test_the_interval_holds_the_truth_in_95_of_100() -> None:
    rng = np.random.default_rng(3)
    inside = 0
    for _ in range(500):
        logs = 0.3 * np.log(SIZES)[:, None] + rng.normal(size=3) + 0.2 * rng.normal(size=(4, 3))
        low, high = _slope("stream", "start", SIZES, np.exp(logs).tolist()).interval
        inside += low < 0.3 < high
    assert 0.92 <= inside / 500 <= 0.98


def test_the_standard_parametrisation_grows_and_mup_stays() -> None:
    plain = addnorm.scale_check("demo", settings=SMALL, values=SIZES, seeds=2)
    scaled = addnorm.scale_check("demo", settings=[*SMALL, "model.scaling={width: 32}"], values=SIZES, seeds=2)
    assert not plain.steady
    assert not plain.scaled
    assert scaled.steady
    assert scaled.scaled
    stream = {place.what: place for place in plain.places if place.place == "stream"}
    assert stream["change"].growth == "grows"
    for place in scaled.places:
        if place.place != "logits":
            assert place.growth == "stays", place
    # At the base width both are one model.
    base = SIZES.index(32)
    for one, other in zip(plain.places, scaled.places, strict=True):
        assert one.sizes[base] == pytest.approx(other.sizes[base], rel=1e-12)


def test_over_depths_the_stream_of_plain_sums_grows_and_that_of_scaled_branches_stays() -> None:
    depths = [2, 4, 8, 16]
    plain = addnorm.scale_check("demo", settings=SMALL, over="depth", values=depths, seeds=2)
    scaled = addnorm.scale_check(
        "demo", settings=[*SMALL, "model.scaling={width: 32, depth: 4}"], over="depth", values=depths, seeds=2
    )
    found = {(place.place, place.what): place for place in plain.places}
    assert {place for place, _ in found} == {"stream", "logits"}
    assert found["stream", "change"].growth == "grows"
    assert scaled.steady
    assert all(place.growth == "stays" for place in scaled.places)


def test_steps_that_diverge_are_no_verdict(capsys: pytest.CaptureFixture[str]) -> None:
    rate = "training.optimizer.learning_rate=1e25"
    with pytest.raises(
        InputError, match=r"expected finite values at every size, got others at '0 attention' of size 16"
    ):
        addnorm.scale_check("demo", settings=[*SMALL, rate], values=SIZES[:3], seeds=1)
    words = ["scale-check", "demo", "--widths", "16,32,64", "--seeds", "1", "--set", rate, "--lang", "zh"]
    assert main(words) == 2
    assert "训练步发散" in capsys.readouterr().err


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("where", [(0, 0), (2, 1)])
def test_a_value_that_is_not_finite_is_refused_with_its_place_and_size(value: float, where: tuple[int, int]) -> None:
    measured = np.ones((4, 2))
    measured[where] = value
    with pytest.raises(InputError, match=f"at 'logits' of size {SIZES[where[0]]}: the steps diverge"):
        _slope("logits", "change", SIZES, measured.tolist())


def test_a_place_stays_only_where_it_is_zero_at_every_size() -> None:
    measured = np.zeros((4, 2))
    assert _slope("0 attention", "start", SIZES, measured.tolist()).growth == "stays"
    for where in ((0, 0), (3, slice(None)), (slice(1, 4), 1)):
        partly = measured.copy()
        partly[where] = 2.0
        assert _slope("0 attention", "start", SIZES, partly.tolist()).growth == "open"


def test_a_branch_that_starts_at_zero_is_no_error() -> None:
    check = addnorm.scale_check(
        "demo", settings=[*SMALL, "variants.pre.residual=rezero"], values=SIZES[:3], seeds=1, steps=1
    )
    assert all(np.isfinite(place.slope) for place in check.places)


def test_what_cannot_be_checked_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = tmp_path / "sequential.py"
    model.write_text(
        "import torch\n\n\ndef build(vocab, max_seq):\n"
        "    return torch.nn.Sequential(torch.nn.Embedding(vocab, 8), torch.nn.Linear(8, vocab))\n",
        encoding="utf-8",
    )
    study = tmp_path / "mine.yaml"
    study.write_text("name: mine\nvariants: {mine: {python: sequential.py:build}}\n", encoding="utf-8")
    assert main(["scale-check", str(study)]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "variant 'mine': expected a model of addnorm, whose width and depth can be set" in said
    for words, message in [
        (["demo", "--widths", "32,64"], "--widths: expected at least three different sizes, got 32, 64."),
        (["demo", "--widths", "30,60,90"], "--widths: expected multiples of 16, as the head dimension"),
        (["demo", "--widths", "a"], "--widths: expected whole numbers such as 32,64,128, got 'a'."),
        (["demo", "--widths", "16,32,64", "--depths", "1,2,4"], "expected one of them, got both"),
        (["demo", "--depths", "0,2,4"], "--depths: expected sizes of at least 1, got 0."),
        (["demo", "--steps", "0"], "expected at least one step and one seed, got 0 steps and 3 seeds."),
    ]:
        assert main(["scale-check", *words]) == 2, words
        assert message in capsys.readouterr().err
    with pytest.raises(UnknownName, match="no variant 'bas'"):
        addnorm.scale_check("demo", variant="bas")
    with pytest.raises(InputError):
        addnorm.scale_check("demo", values=[-16, 16, 32])


def test_the_command_prints_both_languages_and_json(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["scale-check", "demo", "--widths", "16,32,64", "--seeds", "1", "--set", "model.depth=1", "--steps", "2"]
    assert main(words) == 0
    english = capsys.readouterr().out
    assert "0 attention" in english
    assert "A model's `scaling` sets" in english
    assert main([*words, "--lang", "zh"]) == 0
    chinese = capsys.readouterr().out
    assert "0 注意力" in chinese
    assert "{" not in chinese.replace("{width: W}", "")
    assert main([*words, "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert content["steady"] is False
    assert content["values"] == [16, 32, 64]
