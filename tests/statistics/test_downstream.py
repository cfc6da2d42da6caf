"""Scores of the same items: intervals that hold the truth, McNemar as a special case, and sample files of tools."""

import json
import math
import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import statsmodels.api as sm
from scipy.optimize import minimize_scalar
from scipy.stats import binom, norm, t
from statsmodels.stats.contingency_tables import mcnemar

import addnorm
from addnorm.cli import main
from addnorm.errors import InputError, UnknownName
from addnorm.statistics.effects.downstream import compare_items
from sampled import sampled

SIMULATION = runpy.run_path(str(Path(__file__).parents[2] / "benchmarks" / "item_scores.py"))
Setting = SIMULATION["Setting"]
TABLES = 300


def coverage(setting: Any, tables: int) -> tuple[float, float]:
    """Shares of tables whose interval and unpaired interval hold the truth, which is taken from many more items and seeds."""
    rng = np.random.default_rng(5)
    exact = np.mean(
        [np.subtract(*SIMULATION["scores"](setting, rng, 20_000, 20)[0].mean(axis=(1, 2))) for _ in range(20)]
    )
    held = np.zeros(2)
    for _ in range(tables):
        made, documents = SIMULATION["scores"](setting, rng, setting.items, setting.seeds)
        compared = compare_items(
            made[0], made[1], documents if setting.per_document > 1 else None, shared_seeds=setting.shared
        )
        held += [low <= exact <= high for low, high in (compared.interval, compared.unpaired_z)]
    return float(held[0] / tables), float(held[1] / tables)


@pytest.mark.parametrize(
    ("setting", "unpaired"),
    sampled(
        2,
        [
            (Setting(300, per_document=6, own_sd=1.5, graded=True), 0.85),
            (Setting(300), None),
            (Setting(400, seeds=3, seed_sd=0.3, run_sd=0.5), 0.9),
        ],
    ),
)
def test_intervals_hold_the_truth_where_the_unpaired_z_does_not(setting: Any, unpaired: float | None) -> None:
    own, plain = coverage(setting, TABLES)
    low, high = binom.ppf([5e-5, 1 - 5e-5], TABLES, 0.95) / TABLES
    assert low <= own <= high
    if unpaired is not None:
        assert plain < unpaired


def answers(both: int, first: int, second: int, none: int) -> tuple[np.ndarray, np.ndarray]:
    """One row of right and wrong answers of each model."""
    counts = (both, first, second, none)
    return np.repeat([1.0, 1.0, 0.0, 0.0], counts)[None], np.repeat([1.0, 0.0, 1.0, 0.0], counts)[None]


@pytest.mark.parametrize("counts", [(40, 12, 4, 44), (3, 9, 1, 2), (0, 5, 5, 0), (90, 0, 7, 3)])
def test_one_checkpoint_each_is_the_test_of_mcnemar(counts: tuple[int, int, int, int]) -> None:
    first, second = answers(*counts)
    compared = compare_items(first, second)
    both, one, two, none = counts
    expected = mcnemar([[both, one], [two, none]], exact=False, correction=False).pvalue
    assert (compared.method, compared.only_first, compared.only_second) == ("mcnemar", one, two)
    assert compared.p == pytest.approx(expected)


@pytest.mark.parametrize("counts", [(40, 12, 4, 44), (3, 9, 1, 2), (90, 0, 7, 3)])
def test_its_interval_ends_where_the_score_test_rejects(counts: tuple[int, int, int, int]) -> None:
    """The nuisance parameter is maximised numerically here, where the code has its closed form."""
    number, one, two = sum(counts), counts[1], counts[2]
    for end, z in zip(compare_items(*answers(*counts)).interval, (norm.ppf(0.975), norm.ppf(0.025)), strict=True):

        def unlikely(only_second: float, at: float = end) -> float:
            shares = only_second + at, only_second, 1 - 2 * only_second - at
            return -sum(
                count * math.log(max(share, 1e-300))
                for count, share in zip((one, two, number - one - two), shares, strict=True)
                if count
            )

        best = minimize_scalar(
            unlikely, bounds=(max(0.0, -end), (1 - end) / 2), method="bounded", options={"xatol": 1e-12}
        ).x
        statistic = (one - two - number * end) / math.sqrt(number * (2 * best + end * (1 - end)))
        assert statistic == pytest.approx(z, abs=1e-4)


def test_documents_give_the_clustered_error() -> None:
    rng = np.random.default_rng(2)
    documents = rng.integers(0, 25, size=200)
    first = rng.random((1, 200)) + rng.normal(size=25)[documents] * 0.3
    second = rng.random((1, 200))
    compared = compare_items(first, second, documents)
    fitted = sm.OLS((first - second)[0], np.ones(200)).fit(cov_type="cluster", cov_kwds={"groups": documents})
    assert compared.standard_error == pytest.approx(float(fitted.bse[0]))
    assert (compared.method, compared.documents, compared.df) == ("items", 25, 24)
    half = t.ppf(0.975, 24) * compared.standard_error
    assert compared.interval == pytest.approx((compared.difference - half, compared.difference + half))


def test_seeds_alone_decide_where_all_items_agree() -> None:
    """Every item has the run's mean: what is left is the t test of the runs, paired or not."""
    levels = np.array([[0.5, 0.6, 0.55], [0.4, 0.42, 0.5]])
    first, second = (np.repeat(row[:, None], 50, axis=1) for row in levels)
    paired = compare_items(first, second, shared_seeds=True)
    difference = levels[0] - levels[1]
    assert paired.standard_error == pytest.approx(difference.std(ddof=1) / math.sqrt(3))
    assert paired.df == pytest.approx(2)
    apart = compare_items(first, second)
    assert apart.standard_error == pytest.approx(math.sqrt(sum(row.var(ddof=1) / 3 for row in levels)))
    assert 2 < apart.df < 4


def test_models_that_agree_everywhere_do_not_differ() -> None:
    same = np.linspace(0, 1, 30)[None]
    compared = compare_items(same, same)
    assert (compared.difference, compared.interval, compared.p) == (0.0, (0.0, 0.0), 1.0)


def harness(folder: Path, run: str, right: list[float], task: str = "arc_easy", **more: Any) -> None:
    """A sample file as lm-evaluation-harness writes it with --log_samples."""
    (folder / run).mkdir(parents=True, exist_ok=True)
    lines = [
        {
            "doc_id": place,
            "doc": {"question": f"q{place}", "passage": f"p{place // 3}"},
            "target": "A",
            "arguments": {"gen_args_0": {}},
            "resps": [[["-1.0", "False"]]],
            "filtered_resps": [["-1.0", "False"]],
            "filter": "none",
            "metrics": ["acc"],
            "doc_hash": "00",
            "acc": value,
            **more,
        }
        for place, value in enumerate(right)
    ]
    path = folder / run / f"samples_{task}_2025-01-15T10-11-12.123456.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")


def inspect_log(path: Path, model: str, values: list[Any], status: str = "success") -> None:
    """A JSON log as Inspect writes it; every item is answered in two epochs."""
    samples = [
        {"id": place, "epoch": epoch, "input": "", "target": "x", "scores": {"match": {"value": value, "answer": ""}}}
        for place, value in enumerate(values)
        for epoch in (1, 2)
    ]
    log = {"version": 2, "status": status, "eval": {"task": "theory", "model": model}, "plan": {}, "samples": samples}
    path.write_text(json.dumps(log, indent=2), encoding="utf-8")


def test_samples_of_the_harness(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(0)
    for seed in range(3):
        for name, share in (("base", 0.5), ("deep", 0.8)):
            harness(tmp_path, f"{name}-s{seed}", [float(x) for x in rng.random(90) < share])
    compared = addnorm.downstream(tmp_path, columns={"document": "doc.passage"})
    row = compared["deep", "arc_easy"]
    assert (row.verdict, row.about, row.better) == ("better", "ways to train", "higher")
    assert (row.comparison.items, row.comparison.documents, row.comparison.seeds) == (90, 30, (3, 3))
    assert row.comparison.shared_seeds
    assert main(["rank", str(tmp_path), "--as", "downstream", "--reference", "deep"]) == 0
    shown = capsys.readouterr().out
    assert "worse" in shown
    assert "unpaired z" in shown
    assert main(["rank", str(tmp_path), "--as", "downstream", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rows"][0]["comparison"]["method"] == "items and seeds"


def test_logs_of_inspect(tmp_path: Path) -> None:
    inspect_log(tmp_path / "a.json", "openai/a", ["C", "I", "P", "N"] * 10)
    inspect_log(tmp_path / "b.json", "openai/b", ["C", "C", "C", 0.25] * 10)
    compared = addnorm.downstream(tmp_path, reference="openai/a")
    row = compared["openai/b", "theory"]
    assert (row.reference_mean, row.mean) == ((1 + 0 + 0.5 + 0) / 4, (3 + 0.25) / 4)
    assert (row.comparison.items, row.about) == (40, "checkpoints")
    inspect_log(tmp_path / "b.json", "openai/b", ["C"], status="error")
    with pytest.raises(InputError, match="expected a log of status success, got 'error'"):
        addnorm.downstream(tmp_path)


def test_a_table_of_items_gives_the_same_answer_as_its_samples(tmp_path: Path) -> None:
    right = {"base": [0.0, 1.0, 0.0, 1.0, 0.0] * 12, "deep": [1.0, 1.0, 0.0, 1.0, 0.0] * 12}
    for name, values in right.items():
        harness(tmp_path, name, values)
    rows = [
        {"variant": name, "item": place, "score": value, "document": f"p{place // 3}"}
        for name, values in right.items()
        for place, value in enumerate(values)
    ]
    (of_files,) = addnorm.downstream(tmp_path, columns={"document": "doc.passage"}).rows
    (of_rows,) = addnorm.downstream(rows, columns={"loss": "score", "seed": ""}).rows
    assert of_files.comparison == of_rows.comparison
    (plain,) = addnorm.downstream(tmp_path).rows
    assert plain.comparison.method == "mcnemar"
    # As in a ranking, a difference within the margin counts as none, however well it is known.
    assert plain.verdict == "better"
    assert addnorm.downstream(tmp_path, margin=0.5)["deep", "arc_easy"].verdict == "equivalent"


def test_a_metric_of_which_lower_is_better_and_items_that_only_one_has(tmp_path: Path) -> None:
    harness(tmp_path, "base-s0", [0.3, 0.4, 0.2] * 10, metrics=["brier"], brier=0.5)
    harness(tmp_path, "deep-s0", [0.3, 0.4, 0.2] * 9, metrics=["brier"], brier=0.4)
    compared = addnorm.downstream(tmp_path)
    (row,) = compared.rows
    assert (row.better, row.verdict, row.comparison.items) == ("lower", "better", 27)
    assert "3 items that some run lacks" in str(compared.warnings[0])


def test_more_comparisons_widen_every_interval(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    for name in ("base", "deep"):
        for task in ("arc", "piqa", "boolq"):
            harness(tmp_path, name, [float(x) for x in rng.random(80) < 0.5], task=task)
    three = addnorm.downstream(tmp_path)
    one = addnorm.downstream(tmp_path, columns={"task": "piqa"})
    assert (three.family, one.family) == (3, 1)
    assert np.ptp(three["deep", "piqa"].comparison.interval) > np.ptp(one["deep", "piqa"].comparison.interval)


def test_what_cannot_be_read_is_refused_once_with_its_place(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    harness(tmp_path, "base-s0", [1.0, 0.0, 1.0])
    file = next(tmp_path.rglob("*.jsonl"))
    cases: list[tuple[list[str], str]] = [
        ([], "expected a task that 'base' and another variant"),
        (["--columns", "loss=acc_norm"], "expected a metric 'acc_norm', got acc. Name one with"),
        (["--columns", "document=doc.pasage"], "line 1: expected doc.pasage, got question, passage"),
        (["--columns", "run={variant}_{seed}"], "expected a run named by"),
        (["--columns", "compute=flops"], "expected compute only with addnorm rank --as speedup"),
        (["--reference", "deep"], "no variant 'deep'"),
        (["--unit", "%"], "--unit: expected no such option"),
    ]
    for options, message in cases:
        assert main(["rank", str(tmp_path), "--as", "downstream", *options]) == 2
        error = capsys.readouterr().err
        assert message in error
        assert error.count("\n") == 1
    twice = file.read_text(encoding="utf-8").splitlines()
    for content, message in (
        ("\n".join([*twice, twice[0]]), "line 4: expected item 0 of task arc_easy once"),
        ("{}\n", "line 1: expected a sample with doc_id"),
        ("{\n", "line 1: expected JSON"),
        (twice[0].replace('"acc": 1.0', '"acc": [-3.2, 4]'), "line 1: expected a number for 'acc' of one item"),
    ):
        file.write_text(content, encoding="utf-8")
        assert main(["rank", str(tmp_path), "--as", "downstream"]) == 2
        assert message in capsys.readouterr().err
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(InputError, match="its option --log_samples"):
        addnorm.downstream(empty)
    with pytest.raises(InputError, match="row 0: expected an item"):
        addnorm.downstream([{"variant": "a", "loss": 1.0}], columns={"seed": ""})
    with pytest.raises(UnknownName):
        addnorm.downstream([{"variant": "a", "loss": 1.0, "item": 1}], columns={"seed": ""}, reference="b")
