"""`addnorm trend` on run folders made through the store, on stored results and on tables, without training."""

import csv
import io
import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import addnorm
from addnorm.cli import main
from addnorm.errors import InputError
from addnorm.store import StudyFolder, write_json
from addnorm.store.study import COSTS

PARAMETERS = {"small": 50_000, "middle": 100_000, "large": 200_000}
CHANGES = {"base": 0.0, "gains": -0.03, "steady": 0.0}


def loss(variant: str, seed: int, parameters: float) -> float:
    doublings = math.log2(parameters / 50_000)
    noise = 0.002 * np.random.default_rng([ord(variant[0]), seed, int(parameters)]).normal()
    return float(2.5 - 0.3 * doublings + CHANGES[variant] * doublings + 0.01 * math.cos(seed) + noise)


def folder(path: Path, parameters: int, seeds: int = 4, *, counted: bool = True) -> Path:
    """A finished study of models of that size."""
    runs = [
        {"run": f"{variant}-s{seed}", "variant": variant, "seed": seed, "steps": 10}
        for seed in range(seeds)
        for variant in CHANGES
    ]
    fixed = {"study": "demo", "references": ["base"], "margin": 0.02, "data_hash": "corpus", "tokenizer_hash": "bytes"}
    study = StudyFolder.create(path, {**fixed, "plan_hash": path.name, "seeds": list(range(seeds)), "runs": runs})
    for run in study.runs():
        at = loss(run.spec["variant"], run.spec["seed"], parameters)
        with run.claim() as events:
            events.write("eval", step=10, loss=at, accuracy=0.5, perplexity=float(np.exp(at)), final=True)
            run.mark("finished", step=10, content_hash=f"{path.name} {run.name}")
    if counted:
        write_json(path / COSTS, {"variants": {name: {"parameters": parameters} for name in CHANGES}})
    return path


def table(path: Path, parameters: int) -> Path:
    lines = [f"{name},{seed},{loss(name, seed, parameters)}" for name in CHANGES for seed in range(4)]
    path.write_text("\n".join(["model,seed,val_loss", *lines]) + "\n", encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    path = tmp_path_factory.mktemp("sizes")
    return [str(folder(path / name, number)) for name, number in PARAMETERS.items()]


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["trend", *arguments]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return out


def test_the_table(capsys: pytest.CaptureFixture[str], folders: list[str]) -> None:
    out = printed(capsys, *folders)
    lines = [line.split() for line in out.splitlines()]
    assert ["variant", "50,000", "100,000", "200,000", "change", "per", "doubling"] in lines
    rows = {line[0]: line for line in lines if line and line[0] in CHANGES}
    assert list(rows) == ["gains", "steady"]
    assert rows["gains"][4:6] == ["falls", "4/4"]
    assert float(rows["gains"][6]) == pytest.approx(-30, abs=4)
    assert rows["steady"][4] == "level"  # within the study's own margin of 0.02
    assert printed(capsys, *folders[::-1]) == out


def test_numbers_agree_in_every_form(capsys: pytest.CaptureFixture[str], folders: list[str]) -> None:
    found = json.loads(printed(capsys, *folders, "--json"))
    change = {row["variant"]: row["versus"] for row in found["variants"]}["gains"]["base"]["change"]
    rows = [row for row in csv.DictReader(io.StringIO(printed(capsys, *folders, "--csv"))) if row["variant"] == "gains"]
    assert [float(row["parameters"]) for row in rows] == list(PARAMETERS.values())
    assert {float(row["change"]) for row in rows} == {change["difference"]}
    expected = np.mean([loss("gains", seed, 100_000) - loss("base", seed, 100_000) for seed in range(4)])
    assert float(rows[1]["difference"]) == pytest.approx(expected)
    assert addnorm.trend(folders).to_json() == found
    assert found["margin"] == 0.02


def test_tables_of_other_code_need_their_sizes(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, folders: list[str]
) -> None:
    tables = [str(table(tmp_path / f"{name}.csv", number)) for name, number in PARAMETERS.items()]
    columns = ("--columns", "variant=model,loss=val_loss")
    found = json.loads(printed(capsys, *tables, *columns, "--json", "--parameters", "5e4,1e5,2e5", "--margin", "0.02"))
    of_folders = json.loads(printed(capsys, *folders, "--json"))
    assert [size["parameters"] for size in found["sizes"]] == list(PARAMETERS.values())
    for one, other in zip(found["variants"], of_folders["variants"], strict=True):
        assert one["variant"] == other["variant"]
        if one["variant"] != "base":
            assert one["versus"]["base"]["change"]["p"] == pytest.approx(other["versus"]["base"]["change"]["p"])
    assert main(["trend", *tables, *columns]) == 2
    assert "--parameters 54168,90656" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("column", "unit", "heading", "margin"),
    [
        ("val_loss", "nats per token", "val_loss minus that of base, in thousandths of a nat, by", "±5;"),
        ("val_bpb", "bits per byte", "val_bpb minus that of base, in bits per byte, by", "±0.005;"),
        ("ppl", None, "ppl minus that of base, in ppl, by", "±0.005;"),
    ],
)
def test_differences_are_in_the_unit_of_the_column(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, column: str, unit: str | None, heading: str, margin: str
) -> None:
    tables = [str(table(tmp_path / f"{name}.csv", number)) for name, number in PARAMETERS.items()]
    for path in map(Path, tables):
        path.write_text(path.read_text(encoding="utf-8").replace("val_loss", column), encoding="utf-8")
    command = [*tables, "--columns", f"variant=model,loss={column}", "--parameters", "5e4,1e5,2e5"]
    out = " ".join(printed(capsys, *command, "--plot", str(tmp_path / "trend.svg")).split())
    in_nats = unit == "nats per token"
    assert heading in out
    assert margin in out
    assert (f"Differences in {column} of less count as none" in out) is not in_nats
    assert re.search(r"falls 4/4 -(\d+\.\d|0\.\d+) ", out)[1].startswith("0.") is not in_nats
    found = json.loads(printed(capsys, *command, "--json", "--margin", "0.01"))
    assert (found["metric"], found["unit"], found["warnings"]) == (column, unit, [])


def test_stored_results_have_their_counts(tmp_path: Path) -> None:
    paths = []
    for name, number in PARAMETERS.items():
        runs = [
            {"variant": variant, "seed": seed, "loss": loss(variant, seed, number)}
            for variant in CHANGES
            for seed in range(4)
        ]
        costs = {variant: {"parameters": number} for variant in CHANGES}
        paths.append(tmp_path / f"{name}.json")
        write_json(paths[-1], {"references": ["base"], "runs": runs, "costs": costs})
    found = addnorm.trend(paths, margin=0.02)
    assert found["gains"].direction("base") == "falls"
    assert [size.parameters for size in found.sizes] == list(PARAMETERS.values())


def test_a_figure_is_drawn(capsys: pytest.CaptureFixture[str], tmp_path: Path, folders: list[str]) -> None:
    out = printed(capsys, *folders, "--plot", str(tmp_path / "trend.svg"))
    assert f"Drawn: {tmp_path / 'trend.svg'}" in out
    drawn = (tmp_path / "trend.svg").read_text(encoding="utf-8")
    assert "<svg" in drawn


def test_the_figure_shows_every_seed(folders: list[str]) -> None:
    from addnorm.reporting.drawing.trend import figure

    found: Any = addnorm.trend(folders).to_json()
    panels = [axes for axes in figure(found).axes if axes.get_visible()]
    assert [axes.get_title(loc="left").split("\n")[0] for axes in panels] == ["gains", "steady"]
    for axes in panels:
        ticks, means = axes.lines[1], axes.lines[2]
        assert len(ticks.get_xdata()) == 12
        assert len(means.get_xdata()) == 3
    without = {**found, "variants": [row for row in found["variants"] if row["variant"] == "base"]}
    with pytest.raises(ValueError, match="at least one variant"):
        figure(without)


def test_the_figure_hides_the_places_of_its_last_line_that_are_free(folders: list[str]) -> None:
    from addnorm.reporting.drawing.trend import figure

    found: Any = addnorm.trend(folders).to_json()
    one = next(row for row in found["variants"] if row["variant"] == "gains")
    drawn = figure({**found, "variants": [{**one, "variant": f"v{number}"} for number in range(5)]})
    shown = [axes for axes in drawn.axes if axes.get_visible()]
    assert [axes.get_title(loc="left").split("\n")[0] for axes in shown] == ["v0", "v1", "v2", "v3", "v4"]
    labelled = [axes.get_title(loc="left")[:2] for axes in shown if axes.xaxis.get_tick_params()["labelbottom"]]
    assert labelled == ["v1", "v2", "v3", "v4"]  # the lowest of every column


def test_nothing_to_draw_is_told(capsys: pytest.CaptureFixture[str], tmp_path: Path, folders: list[str]) -> None:
    plot = tmp_path / "empty.svg"
    left_out = [word for name in CHANGES if name != "base" for word in ("--exclude", name)]
    assert main(["trend", *folders, *left_out, "--plot", str(plot)]) == 2
    assert "expected a variant besides 'base' with a seed at every size" in capsys.readouterr().err
    assert not plot.exists()


def test_a_look_is_recorded_in_every_folder(folders: list[str]) -> None:
    looks = [Path(path) / "looks.jsonl" for path in folders]
    before = [len(path.read_text(encoding="utf-8").splitlines()) if path.exists() else 0 for path in looks]
    addnorm.trend(folders)
    assert [len(path.read_text(encoding="utf-8").splitlines()) for path in looks] == [count + 1 for count in before]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "needs at least two sizes, got no path"),
        (["{small}"], "needs at least two sizes, got 1"),
        (["{small}", "nowhere"], "nowhere holds no study"),
        (["{small}", "{small}"], "expected two sizes, got 50,000 parameters in both"),
        (["{small}", "{large}", "--parameters", "1e5"], "expected one number for each of the 2 paths, got 1"),
        (
            ["{small}", "{large}", "--parameters", "a,b"],
            "--parameters: expected numbers such as 124e6,355e6, got 'a,b'",
        ),
        (["{small}", "{large}", "--reference", "bsae"], "Did you mean 'base'"),
        (["{small}", "{large}", "--exclude", "gans"], "Did you mean 'gains'"),
        (["{small}", "{large}", "--columns", "loss=x"], "expected a table of runs where columns are given"),
        (["{small}", "{large}", "--plot", "x.gif"], "--plot: expected a file name that ends with"),
    ],
)
def test_wrong_input_is_one_message(
    capsys: pytest.CaptureFixture[str], folders: list[str], arguments: list[str], message: str
) -> None:
    named = dict(zip(PARAMETERS, folders, strict=True))
    assert main(["trend", *(argument.format(**named) for argument in arguments)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert message.lower() in err.lower()
    assert len(err.splitlines()) == 1


def test_a_folder_without_counts_says_what_to_give(tmp_path: Path) -> None:
    paths = [folder(tmp_path / "a", 50_000), folder(tmp_path / "b", 100_000, counted=False)]
    with pytest.raises(InputError, match="expected a count of the parameters of 'base', got none"):
        addnorm.trend(paths)
    assert addnorm.trend(paths, parameters=[50_000, 100_000])["gains"].direction("base") in ("falls", "undecided")
