"""An option that means nothing together with another is refused: one that was ignored would look as if it had been heeded."""

import json
from pathlib import Path

import pytest
from test_bad_input import STUDY

import made_study
from addnorm.cli import main
from addnorm.store import StudyFolder

TABLE = "variant,seed,loss\n" + "".join(f"{v},{s},{2.9 + 0.01 * s}\n" for v in ("base", "idea") for s in range(4))
DEVICES = "gpus=2,tflops=1,memory=80"


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("s.yaml").write_text(STUDY)
    Path("t.csv").write_text(TABLE)
    made_study.finished(Path("made"))


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (["audit", "--diff", "a.py:a", "b.py:b", "--html", "x.html"], "html"),
        (["audit", "--diff", "a.py:a", "b.py:b", "--track", "scalars"], "track"),
        (["audit", "--diff", "a.py:a", "b.py:b", "--kv-cache"], "kv-cache"),
        (["plan", "s.yaml", "--cluster", DEVICES, "--workers", "3"], "workers"),
        (["plan", "s.yaml", "--cluster", DEVICES, "--numbers"], "numbers"),
        (["report", "made", "--site", "site", "--out", "r.html"], "out"),
        (["report", "made", "--site", "site", "--lang", "zh"], "lang"),
        (["run", "s.yaml", "--freeze", "--watch"], "watch"),
        (["run", "s.yaml", "--freeze", "--on-end", "true"], "on-end"),
        (["rank", "t.csv", "--csv", "--latex"], "latex"),
        (["explain", "made", "--tables", "--entries"], "entries"),
    ],
)
def test_it_is_named(arguments: list[str], name: str, capsys: pytest.CaptureFixture[str]) -> None:
    before = sorted(Path().rglob("*"))
    assert main(arguments) == 2
    message = capsys.readouterr().err
    assert f"--{name}: " in message
    assert "expected no such option with --" in message or "一起不应有该选项" in message
    assert sorted(Path().rglob("*")) == before


@pytest.mark.parametrize("option", [("--unit", "bits"), ("--direction", "higher"), ("--columns", "loss=loss")])
def test_a_ledger_alone_reads_no_columns(option: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["judge", "ledger.jsonl", "--propose", "t.csv", "--baseline-runs", "4"]) == 0
    assert main(["judge", "ledger.jsonl", *option]) == 2
    assert f"{option[0]}: expected together with --propose" in capsys.readouterr().err


def test_a_ledger_keeps_its_unit(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["judge", "l.jsonl", "--propose", "t.csv", "--baseline-runs", "4", "--unit", "nats"]) == 0
    assert main(["judge", "l.jsonl", "--propose", "t.csv"]) == 0
    assert main(["judge", "l.jsonl", "--propose", "t.csv", "--unit", "bits"]) == 2
    assert "expected unit 'nats' as in its first line, got 'bits'" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--strip", "--canonical", "--quantise-ready"])
def test_no_rewrite_replaces_the_weights_of_a_run(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    run = StudyFolder(Path("made")).runs()[0].path
    weights = run / "final.safetensors"
    weights.write_bytes(b"trained")
    for place in (weights, run / "smaller.safetensors", run):
        assert main(["audit", str(run), option, str(place)]) == 2
        assert "expected a place outside of a run's folder" in capsys.readouterr().err
    assert weights.read_bytes() == b"trained"


TUNED = STUDY + "tune: {seeds: [9], over: {training.optimizer.learning_rate: [1e-3, 3e-3]}}\n"


def planned(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict:
    assert main(["plan", "s.yaml", "--json", *arguments]) == 0
    answer: dict = json.loads(capsys.readouterr().out)
    return answer


def test_more_workers_than_runs_do_not_shorten_the_longest_run(capsys: pytest.CaptureFixture[str]) -> None:
    Path("s.yaml").write_text(STUDY.replace("seeds: [0]", "seeds: [0, 1, 2]"))
    for workers, rounds in ((64, 1), (3, 1), (2, 2), (1, 3)):
        plan = planned(capsys, "--workers", str(workers))
        assert plan["seconds"] == pytest.approx(rounds * plan["variants"][0]["seconds"])


def test_a_plan_has_the_workers_of_its_executor(capsys: pytest.CaptureFixture[str]) -> None:
    Path("s.yaml").write_text(STUDY + "executor: {kind: local, at_once: 5}\n")
    assert planned(capsys)["workers"] == 5
    assert planned(capsys, "--workers", "3")["workers"] == 3


def test_a_tuned_study_is_counted_whole_on_a_cluster(capsys: pytest.CaptureFixture[str]) -> None:
    Path("s.yaml").write_text(TUNED + "replicate: [1, 2, 3]\n")
    here, there = planned(capsys), planned(capsys, "--cluster", DEVICES)
    assert here["runs"] == there["runs"] == 3
    assert main(["plan", "s.yaml", "--cluster", DEVICES]) == 0
    assert "3 further seeds (1, 2, 3): up to 3 further runs" in " ".join(capsys.readouterr().out.split())
