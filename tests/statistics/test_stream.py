"""`addnorm judge`: the e-value against scipy, error rates of streams, and a ledger that cannot be changed unseen."""

import json
import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom, nct
from scipy.stats import t as student

import addnorm
from addnorm.cli import main
from addnorm.errors import InputError, JobError
from addnorm.statistics.stream import StreamRule, log_e_value, log_ratio
from addnorm.store.files import Damaged
from addnorm.store.lock import Lock

SIMULATION = runpy.run_path(str(Path(__file__).parents[2] / "benchmarks" / "judge_stream.py"))
simulate = SIMULATION["simulate"]


@pytest.mark.parametrize("df", [2, 7, 40])
@pytest.mark.parametrize("noncentrality", [0.5, 2.0, 6.0])
def test_the_likelihood_ratio_is_that_of_noncentral_t(df: int, noncentrality: float) -> None:
    t = np.array([-3.0, -0.5, 0.0, 1.0, 4.0, 9.0])
    expected = nct.logpdf(t, df, noncentrality) - student.logpdf(t, df)
    got = log_ratio(t, np.full(6, float(df)), np.full(6, noncentrality))
    np.testing.assert_allclose(got, expected, atol=1e-8)


@pytest.mark.thorough
def test_the_e_value_has_a_mean_of_one_when_runs_stop_at_will() -> None:
    """Stopped when it is large, or after ten runs: its mean is 1 without effect, and less for a worse proposal."""
    rng = np.random.default_rng(0)
    for worse in (0.0, 0.3):
        base = rng.normal(size=(60_000, 6))
        values = rng.normal(size=(60_000, 10)) + worse
        stopped, open_ = np.zeros(60_000), np.ones(60_000, bool)
        for runs in range(1, 11):
            y = values[:, :runs]
            squares = ((base - base.mean(1, keepdims=True)) ** 2).sum(1) + ((y - y.mean(1, keepdims=True)) ** 2).sum(1)
            df = 5 + runs - 1
            e = np.exp(log_e_value(base.mean(1) - y.mean(1), runs, 6, squares / df, df))
            now = open_ & ((e > 4) | (runs == 10))
            stopped[now], open_ = e[now], open_ & ~now
        error = stopped.std() / np.sqrt(stopped.size)
        assert stopped.mean() < 1 + 4 * error
        assert (worse > 0) == (stopped.mean() < 1 - 4 * error)


def test_few_streams_without_effect_keep_anything_and_proposals_cost_two_runs() -> None:
    """The mean rate is below 5 %; with 100 streams at most eleven can have a false keep unless that is wrong."""
    made = simulate(100, 60)
    assert (made.false > 0).sum() <= binom.ppf(0.999, 100, 0.05)
    assert made.runs.mean() <= 2 * 60 + 12 + 6  # two for each proposal, beside the first baseline


def test_large_improvements_are_kept_and_raise_the_baseline() -> None:
    made = simulate(60, 60, share=0.2, effect=4.0)
    assert made.kept.mean() > 0.9 * 60 * 0.2
    assert (made.false / np.maximum(made.kept, 1)).mean() <= 0.05
    assert made.progress.mean() == pytest.approx(4.0 * (made.kept - made.false).mean())


def test_the_bar_spends_alpha_once_and_falls_with_every_keep() -> None:
    rule = StreamRule()
    numbers = np.arange(1, 1_000_001)
    spent = np.exp(-rule.log_bar(numbers, 0)).sum()  # type: ignore[arg-type]
    # The rest is an integral: that of j^-1.1 from a million and a half on.
    rest = float(np.exp(-rule.log_bar(1, 0))) * 10 * 1_000_000.5**-0.1
    assert spent + rest == pytest.approx(rule.alpha, rel=1e-6)
    assert rule.log_bar(7, 3) == pytest.approx(rule.log_bar(7, 0) - np.log(4))


def rows(**groups: list[float]) -> list[dict[str, Any]]:
    return [
        {"variant": name, "seed": seed, "loss": loss} for name, of in groups.items() for seed, loss in enumerate(of)
    ]


RNG = np.random.default_rng(1)
BASE = list(2.9 + 0.01 * RNG.normal(size=12))
GOOD = list(2.85 + 0.01 * RNG.normal(size=10))
BAD = [2.93]


def test_a_stream_step_by_step(tmp_path: Path) -> None:
    ledger = tmp_path / "stream.jsonl"
    first = addnorm.judge(ledger, rows(base=BASE[:5]))
    assert (first.baseline, first.baseline_missing, first.recorded) == ("base", 7, 5)
    assert "Run base at further seeds: 7" in first.next
    ready = addnorm.judge(ledger, rows(base=BASE, bad=BAD))
    assert ready.recorded == 7 + 1
    assert (ready["bad"].verdict, ready["bad"].why, ready["bad"].runs) == ("discard", "futile", 1)
    opened = addnorm.judge(ledger, rows(good=GOOD[:1]))
    assert opened.open is not None
    assert "Run good at one more seed" in opened.next
    other = addnorm.judge(ledger, rows(other=[2.9]))
    assert other.recorded == 0
    assert "Proposal good is open" in other.notes[0]
    kept = addnorm.judge(ledger, rows(good=GOOD))
    assert kept["good"].verdict == "keep"
    assert [proposal.name for proposal in kept.decided] == ["good"]
    assert kept["good"].log_e is not None
    assert kept["good"].log_e >= kept["good"].log_bar
    # The runs that it was kept for do not count for it as the baseline.
    assert kept.baseline == "good"
    used = kept["good"].runs
    assert kept.baseline_runs == len(GOOD) - used
    # One noise for all, each variant and role around a mean of its own; one run alone tells nothing.
    groups = (BASE, GOOD[:used], GOOD[used:])
    squares = sum(((np.array(group) - np.mean(group)) ** 2).sum() for group in groups)
    assert kept.noise_sd == pytest.approx(np.sqrt(squares / sum(len(group) - 1 for group in groups)))
    assert addnorm.judge(ledger).to_json()["proposals"] == kept.to_json()["proposals"]


def test_the_same_runs_give_the_same_ledger_in_one_call_or_in_many(tmp_path: Path) -> None:
    every = rows(base=BASE, bad=BAD, good=GOOD, late=list(2.84 + 0.01 * RNG.normal(size=20)))
    whole = addnorm.judge(tmp_path / "whole.jsonl", every)
    for row in every:
        one_by_one = addnorm.judge(tmp_path / "single.jsonl", [row])
    for _ in range(2):  # rows that had to wait
        one_by_one = addnorm.judge(tmp_path / "single.jsonl", every)
    assert one_by_one.to_json()["proposals"] == whole.to_json()["proposals"]
    assert (tmp_path / "whole.jsonl").read_bytes() == (tmp_path / "single.jsonl").read_bytes()


def test_higher_can_be_better_and_divergence_discards(tmp_path: Path) -> None:
    scores = [{**row, "acc": -row["loss"]} for row in rows(base=BASE, good=GOOD)]
    options: dict[str, Any] = {"columns": {"loss": "acc"}, "direction": "higher"}
    judged = addnorm.judge(tmp_path / "scores.jsonl", scores, **options)
    assert judged["good"].verdict == "keep"
    assert judged["good"].difference == pytest.approx(0.05, abs=0.02)
    lost = addnorm.judge(tmp_path / "lost.jsonl", rows(base=BASE, wild=[float("nan"), 2.8]))
    assert (lost["wild"].verdict, lost["wild"].why, lost["wild"].runs) == ("discard", "diverged", 1)
    with pytest.raises(InputError) as refused:
        addnorm.judge(tmp_path / "base.jsonl", rows(base=[2.9, float("nan")]))
    assert "A baseline has to train at every seed" in str(refused.value)


def test_what_is_doubtful_in_a_table_is_said(tmp_path: Path) -> None:
    own = [{**row, "progress": 0.62 if row["seed"] == 1 else 1.0} for row in rows(base=[2.91, 2.93, 2.92, 2.94])]
    judgement = addnorm.judge(tmp_path / "s.jsonl", own, baseline_runs=4)
    assert "'progress' ('0.62')" in str(judgement.notes[0])


def cut(lines: list[str]) -> list[str]:
    return [*lines[:5], *lines[6:]]


def lower(lines: list[str]) -> list[str]:
    return [*lines[:-1], lines[-1].replace('"loss":2.', '"loss":1.')]


def keep(lines: list[str]) -> list[str]:
    return [*lines[:-1], lines[-1].replace('"discard"', '"keep"')]


def swap(lines: list[str]) -> list[str]:
    return [lines[0], lines[2], lines[1], *lines[3:]]


@pytest.mark.parametrize("change", [cut, lower, keep, swap])
def test_a_changed_ledger_is_refused_with_its_line(
    change: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ledger = tmp_path / "stream.jsonl"
    addnorm.judge(ledger, rows(base=BASE, bad=BAD))
    lines = ledger.read_text(encoding="utf-8").splitlines()
    assert change(lines) != lines
    ledger.write_text("".join(f"{line}\n" for line in change(lines)), encoding="utf-8")
    with pytest.raises(Damaged, match=r"stream\.jsonl, line \d+: expected a line as it was written"):
        addnorm.judge(ledger)
    assert main(["judge", str(ledger)]) == 1
    assert "restore it from a copy" in capsys.readouterr().err


def test_a_torn_last_line_is_completed_by_the_same_call(tmp_path: Path) -> None:
    ledger = tmp_path / "stream.jsonl"
    addnorm.judge(ledger, rows(base=BASE, bad=BAD))
    whole = ledger.read_bytes()
    ledger.write_bytes(whole[:-20])
    assert not addnorm.judge(ledger).proposals
    addnorm.judge(ledger, rows(base=BASE, bad=BAD))
    assert ledger.read_bytes() == whole


def test_settings_and_runs_that_differ_from_the_ledger_are_refused(tmp_path: Path) -> None:
    ledger = tmp_path / "stream.jsonl"
    with pytest.raises(InputError, match="expected a ledger, got no such file"):
        addnorm.judge(ledger)
    addnorm.judge(ledger, rows(base=BASE[:5]))
    for options, said in (
        ({"alpha": 0.1}, "expected alpha 0.05 as in its first line, got 0.1"),
        ({"baseline": "other"}, "expected baseline 'base'"),
        ({"columns": {"seed": ""}}, "number the runs of each variant"),
        ({"columns": {"loss": "ppl"}}, "expected a column 'ppl'"),
    ):
        with pytest.raises(InputError) as refused:
            addnorm.judge(ledger, rows(base=BASE[:6]), **options)  # type: ignore[arg-type]
        assert said in str(refused.value)
    with pytest.raises(InputError, match="A recorded run is never changed"):
        addnorm.judge(ledger, rows(base=[2.5]))
    with pytest.raises(InputError, match="got equal losses, which tell no noise"):
        addnorm.judge(tmp_path / "flat.jsonl", rows(base=[2.9, 2.9, 2.9]), baseline_runs=3)
    for options in ({"alpha": 5.0}, {"baseline_runs": 2}, {"most_runs": 1}):
        with pytest.raises(InputError, match="expected"):
            addnorm.judge(tmp_path / "new.jsonl", rows(base=BASE), **options)  # type: ignore[arg-type]
    assert not (tmp_path / "new.jsonl").exists()


def test_a_ledger_that_another_process_adds_to_is_left_alone(tmp_path: Path) -> None:
    ledger = tmp_path / "stream.jsonl"
    lock = Lock(tmp_path / "stream.jsonl.lock")
    assert lock.try_acquire()
    try:
        with pytest.raises(JobError, match="expected a free ledger"):
            addnorm.judge(ledger, rows(base=BASE))
    finally:
        lock.release()


def test_the_command_prints_text_and_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # a long path would wrap the lines
    table, ledger = Path("runs.csv"), Path("stream.jsonl")
    lines = [f"{row['variant']},{row['seed']},{row['loss']!r}" for row in rows(base=BASE, bad=BAD, good=GOOD[:3])]
    table.write_text(
        "\n".join(["variant,seed,loss", *lines]).replace("np.float64(", "").replace(")", ""), encoding="utf-8"
    )
    assert main(["judge", str(ledger), "--propose", str(table), "--baseline", "base"]) == 0
    text = capsys.readouterr().out
    assert "proposals 2, kept 1" in text
    assert "no promise" in text
    assert "Next: Run good at further seeds" in text
    assert main(["judge", str(ledger), "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert content == addnorm.judge(ledger).to_json()
    assert [proposal["verdict"] for proposal in content["proposals"]] == ["discard", "keep"]
    assert main(["judge", str(tmp_path / "none.jsonl")]) == 2
