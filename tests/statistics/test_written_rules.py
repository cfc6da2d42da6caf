"""Written rules: the printed claims of contests from their own numbers, and rates of passing by chance."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import nct, t, ttest_1samp, ttest_ind

import addnorm
from addnorm.cli import main
from addnorm.errors import InputError, UnknownName
from addnorm.statistics.rules import SizeLosses, WrittenRule, check_rule, read_rule, shipped_rules
from sampled import sampled

# Each number below is printed in the repository of modded-nanogpt (records and pull requests), see the file.
PUBLISHED = json.loads((Path(__file__).parents[1] / "fixtures" / "modded_nanogpt.json").read_text())


def one(losses: Any, rule: str, tables: int = 2000) -> Any:
    return check_rule(read_rule(rule), [SizeLosses(size="", variant=np.asarray(losses))], tables=tables)


def sample(runs: int, mean: float, sd: float) -> np.ndarray:
    """Numbers with exactly that mean and standard deviation."""
    spread = np.random.default_rng(0).normal(size=runs)
    return np.asarray(mean + sd * (spread - spread.mean()) / spread.std(ddof=1))


def test_pull_request_137_prints_what_its_runs_say() -> None:
    losses = np.array(PUBLISHED["137"])
    checked = one(losses, "modded-nanogpt-medium")
    assert (round(losses.mean(), 6), round(losses.std(ddof=1), 6)) == (2.919547, 0.000798)
    assert checked.verdict == "passes"
    assert checked.conditions[0].statistic < 5e-7
    half = t.ppf(0.995, 159) * losses.std(ddof=1) / math.sqrt(160)
    assert [round(losses.mean() + sign * half, 6) for sign in (-1, 1)] == [2.919383, 2.919712]


@pytest.mark.parametrize(
    ("mean", "sd", "printed", "verdict"),
    [
        (2.919815, 0.000751, 0.015461, "fails"),
        (2.919738, 0.000884, 0.004818, "passes"),
        (2.920357, 0.000802, 0.999924, "fails"),
    ],
)
def test_the_80_runs_of_its_baselines_have_the_printed_p(mean: float, sd: float, printed: float, verdict: str) -> None:
    checked = one(sample(80, mean, sd), "modded-nanogpt-medium")
    assert checked.verdict == verdict
    # Mean and sd are printed with six decimals, so the p value is known up to what half of the last digit changes.
    ends = [
        float(t.cdf((mean + a - 2.92) * math.sqrt(80) / (sd + b), 79)) for a in (-5e-7, 5e-7) for b in (-5e-7, 5e-7)
    ]
    assert min(ends) - 5e-7 <= printed <= max(ends) + 5e-7
    assert min(ends) <= checked.conditions[0].statistic <= max(ends)


@pytest.mark.parametrize(
    ("mean", "sd", "passed"),
    sampled(3, [(2.919738, 0.000884, 0.321), (2.919815, 0.000751, 0.21), (2.919547, 0.000798, 0.854)]),
)
def test_the_rate_with_40_runs_is_that_of_its_bootstrap(mean: float, sd: float, passed: float) -> None:
    """Of 1000 bootstrap samples of 40 runs it prints the share with p < 0.01."""
    checked = one(sample(40, mean, sd), "modded-nanogpt-medium", tables=20_000)
    rate = next(each.rate for each in checked.rates if each.about == "as observed")
    exact = nct.sf(t.ppf(0.99, 39), 39, (2.92 - mean) * math.sqrt(40) / sd)
    assert rate == pytest.approx(exact, abs=4 * math.sqrt(0.25 / 20_000))
    # The bootstrap draws from 80 or 160 runs, whose tails are not those of the normal distribution.
    assert rate == pytest.approx(passed, abs=4 * math.sqrt(passed * (1 - passed) / 1000))


def test_pull_request_321_passes_first_at_step_2750() -> None:
    by_step = {int(step): one(losses, "modded-nanogpt-optimization") for step, losses in PUBLISHED["321"].items()}
    assert {step: each.verdict for step, each in by_step.items()} == {
        2745: "fails", 2750: "passes", 2755: "passes", 2775: "passes",
    }  # fmt: skip
    printed = {2745: 0.00333, 2750: 0.00511, 2755: 0.00694, 2775: 0.01373}
    # The table prints the means with six digits; from the losses, the last digit of one of them differs.
    assert {s: each.conditions[0].statistic for s, each in by_step.items()} == pytest.approx(printed, abs=1.1e-5)
    assert by_step[2750].noise_sd == pytest.approx(0.00088, abs=5e-6)


def test_pull_requests_362_and_317() -> None:
    checked = one(PUBLISHED["362"], "modded-nanogpt-optimization")
    assert checked.conditions[0].statistic == pytest.approx(0.005731100, abs=5e-10)
    assert checked.noise_sd == pytest.approx(0.00063, abs=5e-6)
    # 317 prints n = 24, mean 3.2793, sd 0.00124 and p = 0.00735; a mean of four decimals leaves p this range.
    ends = [one(sample(24, 3.2793 + end, 0.00124), "modded-nanogpt").conditions[0].statistic for end in (-5e-5, 5e-5)]
    assert ends[0] < 0.00735 < ends[1] < 0.01
    assert one(sample(24, 3.2793, 0.00124), "modded-nanogpt").verdict == "passes"


def test_the_record_that_the_rule_points_to() -> None:
    checked = one(PUBLISHED["soft_cap"], "modded-nanogpt")
    assert round(checked.conditions[0].statistic, 4) == 0.0001
    assert checked.conditions[0].statistic == pytest.approx(
        ttest_1samp(PUBLISHED["soft_cap"], 3.28, alternative="less").pvalue
    )


def test_a_rule_with_p_below_one_percent_passes_by_chance_in_one_percent_and_more_often_if_runs_are_added() -> None:
    rate = one(sample(20, 3.28, 0.0013), "modded-nanogpt", tables=20_000).rates[0]
    assert rate.about == "just not enough"
    assert rate.rate == pytest.approx(0.01, abs=4 * math.sqrt(0.01 * 0.99 / 20_000))
    assert rate.rate_when_added is not None
    assert 0.05 < rate.rate_when_added < 0.12


def test_a_record_taken_for_a_known_number_doubles_the_rate() -> None:
    sizes = [SizeLosses(size="", variant=sample(3, 1.055, 7e-4), reference=sample(3, 1.0614, 7e-4))]
    at = {each.about: each for each in check_rule(read_rule("parameter-golf"), sizes).rates}
    assert at["just not enough"].effect == 0.005
    assert 0.015 < at["just not enough"].rate < 0.025  # printed level: 0.01
    welch = {"name": "w", "conditions": [{"kind": "improvement", "by": 0.005, "test": "welch", "p": 0.01, "runs": 3}]}
    honest = check_rule(WrittenRule.of(welch, "w"), sizes, tables=20_000)
    assert honest.rates[1].rate < 0.0125
    expected = ttest_ind(sizes[0].variant, np.asarray(sizes[0].reference) - 0.005, equal_var=False, alternative="less")
    assert honest.conditions[0].statistic == pytest.approx(expected.pvalue)
    average = check_rule(read_rule("parameter-golf-average"), sizes, tables=20_000)
    assert average.rates[1].rate == pytest.approx(0.5, abs=4 * 0.5 / math.sqrt(20_000))


def gate(*rows: tuple[str, float, float], lead: float = 0.0) -> list[SizeLosses]:
    """One run of variant and baseline at each scale: name, compute, baseline's loss."""
    return [
        SizeLosses(
            size=name,
            variant=np.array([loss - lead]),
            reference=np.array([loss]),
            variant_compute=compute,
            reference_compute=compute,
        )
        for name, compute, loss in rows
    ]


def test_the_gates_of_marin() -> None:
    """The example of the source: d512 at 3.82e17 FLOPs, losses 3.5422 and 3.52, tokens per second 433,986 and 410,000."""
    (example,) = gate(("d512", 3.82e17, 3.5422), lead=0.0222)
    example = SizeLosses(**{**vars(example), "relative_throughput": 410_000 / 433_986})
    rule = read_rule("marin-gate-1")
    coefficient = (3.5422 - 1.6) * 3.82e17**0.0941
    needed = (coefficient / (3.52 - 1.6)) ** (1 / 0.0941)
    expected = (needed / 433_986) / (3.82e17 / 410_000)
    assert rule.conditions[0].of(example) == pytest.approx(expected)  # type: ignore[attr-defined]
    two = gate(("d512", 3.82e17, 3.5422), ("d768", 2.81e18, 3.2142))
    four = [*two, *gate(("d1024", 1.16e19, 3.0194), ("d1280", 3.46e19, 2.8807))]
    first, second = (check_rule(read_rule(f"marin-gate-{n}"), sizes) for n, sizes in ((1, two), (2, four)))
    # A change without effect shows a lower loss at each scale with probability 1/2, whatever the noise is.
    assert first.noise_sd is None
    assert [first.rates[0].about, len(first.rates)] == ["no improvement", 1]
    assert first.rates[0].rate == pytest.approx(1 / 4, abs=4 * math.sqrt(0.1875 / 20_000))
    assert 0.03 < second.rates[0].rate <= 1 / 16 + 4 * math.sqrt(0.06 / 20_000)
    assert check_rule(read_rule("marin-gate-2"), gate(*[("a", 1e18, 3.4)])).verdict == "too few sizes"
    assert check_rule(read_rule("marin-gate-2"), [*gate(("a", 1e18, 3.4), ("b", 1e19, 3.1)), *two]).verdict == "fails"


def test_a_projection_is_the_fitted_law() -> None:
    compute = [3.82e17, 2.81e18, 1.16e19, 3.46e19]
    own, other = ([1.6 + a * c**-e for c in compute] for a, e in ((88.0, 0.0945), (88.32, 0.0941)))
    sizes = [
        SizeLosses(
            size=f"{c:g}", variant=np.array([x]), reference=np.array([y]), variant_compute=c, reference_compute=c
        )
        for c, x, y in zip(compute, own, other, strict=True)
    ]
    (condition,) = (c for c in read_rule("marin-gate-2").conditions if type(c).__name__ == "Projection")
    expected = min(88.32 * c**-0.0941 - 88.0 * c**-0.0945 for c in (1e21, 1e23))
    assert float(condition.evaluate(sizes).statistic) == pytest.approx(expected)
    assert condition.evaluate(sizes).passed


def test_too_few_runs_and_diverged_runs_do_not_pass() -> None:
    assert one([3.27], "modded-nanogpt").verdict == "too few runs"
    assert one([3.27, 3.271, math.inf], "modded-nanogpt").verdict == "fails"
    assert one([3.27, 3.27, 3.27], "modded-nanogpt").verdict == "fails"  # without a spread there is no p value


@pytest.mark.parametrize("name", shipped_rules())
def test_every_shipped_rule_is_read_and_names_its_source(name: str) -> None:
    rule = read_rule(name)
    assert rule.name == name
    assert rule.source.startswith("https://github.com/")


BAD = [
    ({}, "$.name: expected this field"),
    ([], "expected a rule with name"),
    ({"name": "x", "conditions": []}, "$.conditions: expected a list"),
    ({"name": "x", "condition": []}, "Did you mean 'conditions'?"),
    ({"name": "x", "conditions": [{"kind": "treshold"}]}, "$.conditions[0].kind: expected one of threshold"),
    ({"name": "x", "conditions": [{"kind": "threshold"}]}, "expected a field 'target'"),
    (
        {"name": "x", "conditions": [{"kind": "threshold", "target": "low", "runs": 2}]},
        "$.conditions[0].target: expected",
    ),
    (
        {"name": "x", "conditions": [{"kind": "threshold", "target": 3, "runs": 1}]},
        "$.conditions[0].runs: expected at least 2",
    ),
    (
        {"name": "x", "conditions": [{"kind": "threshold", "target": 3, "p": 2.0, "runs": 2}]},
        ".p: expected a probability",
    ),
    ({"name": "x", "conditions": [{"kind": "threshold", "target": 3, "test": "z"}]}, ".one_run: expected a positive"),
    ({"name": "x", "conditions": [{"kind": "improvement", "sizes": 2, "runs": 2}]}, ".sizes: expected 1"),
    ({"name": "x", "better": "low", "conditions": [{"kind": "improvement", "runs": 2}]}, "$.better: expected"),
    (
        {"name": "x", "better": "higher", "conditions": [{"kind": "speedup", "limit": 1.6, "exponent": 0.1}]},
        "$.better: expected lower",
    ),
    (
        {
            "name": "x",
            "conditions": [{"kind": "speedup", "limit": 1.6, "exponent": 0.1}, {"kind": "improvement", "runs": 2}],
        },
        "Write two rules",
    ),
]


@pytest.mark.parametrize(("content", "message"), BAD)
def test_a_wrong_rule_is_refused_with_its_field(content: Any, message: str) -> None:
    with pytest.raises(InputError) as refused:
        WrittenRule.of(content, "mine.yaml")
    assert message in str(refused.value)
    assert str(refused.value).startswith("mine.yaml")


def rows(levels: dict[str, float], seeds: int = 4) -> list[dict[str, Any]]:
    rng = np.random.default_rng(1)
    return [
        {"variant": name, "seed": seed, "loss": level + 0.001 * rng.normal()}
        for name, level in levels.items()
        for seed in range(seeds)
    ]


def test_a_rule_of_which_higher_is_better() -> None:
    rule = {
        "name": "accuracy",
        "better": "higher",
        "conditions": [{"kind": "threshold", "target": 0.5, "test": "t", "p": 0.01, "runs": 3}],
    }
    table = rows({"good": 0.51, "bad": 0.49})
    checked = addnorm.rule(table, rule, direction="higher", columns={"loss": "loss"}, unit="share")
    assert [checked[name].verdict for name in ("good", "bad")] == ["passes", "fails"]
    assert checked["good"].mean[0] == pytest.approx(0.51, abs=0.003)
    (observed,) = (each for each in checked["good"].rates if each.about == "as observed")
    assert observed.effect == pytest.approx(0.01, abs=0.003)


def test_what_a_table_lacks_is_said() -> None:
    table = rows({"base": 3.30, "idea": 3.27})
    for wrong, arguments, message in (
        (UnknownName, {"written": "modded"}, "Did you mean 'modded-nanogpt'?"),
        (UnknownName, {"written": "modded-nanogpt", "variants": ["ides"]}, "Did you mean 'idea'?"),
        (
            InputError,
            {"written": "modded-nanogpt", "direction": "higher"},
            "expected a metric of which lower is better",
        ),
        (InputError, {"written": "modded-nanogpt", "noise": 0.0}, "noise: expected a positive"),
    ):
        with pytest.raises(wrong) as refused:
            addnorm.rule(table, **arguments)  # type: ignore[arg-type]
        assert message in str(refused.value)
    with pytest.raises(InputError, match="beside the reference 'base'"):
        addnorm.rule(rows({"base": 3.3}), "parameter-golf")
    sized = [{**row, "compute": c} for c in (1e18, 1e19) for row in table]
    with pytest.raises(InputError, match="expected runs of one size"):
        addnorm.rule(sized, "parameter-golf")
    with pytest.raises(InputError, match="another step and another compute"):
        addnorm.rule([{**row, "step": row["compute"] / 1e16} for row in sized], "marin-gate-1")
    with pytest.raises(InputError, match="row 3: expected the size or the compute"):
        addnorm.rule(
            [{**row, "compute": None} if place == 3 else row for place, row in enumerate(sized)], "marin-gate-1"
        )


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "runs.csv"
    losses = "\n".join(f"idea,{seed},{loss}" for seed, loss in enumerate(PUBLISHED["362"]))
    path.write_text(f"variant,seed,loss\n{losses}\nidea,9,\n".replace("idea,9,\n", ""))
    assert main(["rank", str(path), "--rule", "modded-nanogpt-optimization"]) == 0
    shown = capsys.readouterr().out
    assert "0.005731" in shown
    assert "passes" in shown
    assert "just not enough" in shown
    rule = tmp_path / "mine.yaml"
    rule.write_text("name: mine\nconditions:\n  - {kind: threshold, target: 3.27, test: mean}\n")
    assert main(["rank", str(path), "--rule", str(rule), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["variants"][0]["verdict"] == "fails"
    assert answer["rule"]["name"] == "mine"
    rule.write_text("name: mine\nname: other\n")
    for options in (["--rule", str(rule)], ["--rule", "mine"], ["--rule", "modded-nanogpt", "--csv"]):
        assert main(["rank", str(path), *options]) == 2
        assert capsys.readouterr().err.count("\n") == 1
