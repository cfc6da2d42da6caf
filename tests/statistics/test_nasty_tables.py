"""Tables that other people's programs and hands leave behind: the right answer, or one message with place and cure."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import addnorm
from addnorm.cli import main
from addnorm.errors import InputError
from addnorm.statistics import Ranking
from addnorm.statistics.run_tables import read_runs

LOSSES = {
    ("base", 0): 2.912,
    ("base", 1): 2.934,
    ("base", 2): 2.921,
    ("mine", 0): 2.871,
    ("mine", 1): 2.897,
    ("mine", 2): 2.879,
}
HEADER = "variant,seed,loss\n"


def rows(form: str = "{v},{s},{x}\n", cell: Callable[[float], object] = lambda x: x) -> str:
    return "".join(form.format(v=v, s=s, x=cell(x)) for (v, s), x in LOSSES.items())


PLAIN = HEADER + rows()
RECORDS = [{"variant": v, "seed": s, "loss": x} for (v, s), x in LOSSES.items()]
WIDE_GERMAN = "modell;seed_0;seed_1;seed_2;mittel\nbase;2,912;2,934;2,921;2,92\nmine;2,871;2,897;2,879;2,88\n"
READ: dict[str, tuple[str, str | bytes, str]] = {
    "a German spreadsheet": (
        "t.csv",
        "\ufeffVariante;Seed;Verlust\r\n" + rows("{v};{s};{x}\r\n", lambda x: str(x).replace(".", ",")),
        "variant=Variante,seed=Seed,loss=Verlust",
    ),
    "a German wide table with a column of means": ("t.csv", WIDE_GERMAN, "variant=modell,run=seed_{seed}"),
    "a separator that Excel tells": ("t.csv", "sep=;\r\nvariant;seed;loss\r\n" + rows("{v};{s};{x}\r\n"), ""),
    "names of columns in capitals": ("T.CSV", "Variant,SEED,Loss\n" + rows(), ""),
    "capitals, and another column of the same letters": (
        "t.csv",
        "variant,seed,loss,LOSS\n" + rows("{v},{s},{x},9\n"),
        "",
    ),
    "a header before every job": (
        "t.csv",
        "".join(f"{HEADER}base,{s},{LOSSES['base', s]}\nmine,{s},{LOSSES['mine', s]}\n" for s in range(3)),
        "",
    ),
    "a Markdown table": (
        "results.md",
        "| variant | seed | loss |\n|:---|---:|---|\n" + rows("| {v} | {s} | {x} |\n"),
        "",
    ),
    "a Markdown table with short rules": (
        "results.md",
        "|  | variant | seed | loss |\n|--:|:-|-|:-:|\n" + rows("| 7 | {v} | {s} | {x} |\n"),
        "",
    ),
    "a table of Emacs": ("t.txt", "| variant | seed | loss |\n|---+---+---|\n" + rows("| {v} | {s} | {x} |\n"), ""),
    "a grid": (
        "t.txt",
        "+---+---+---+\n| variant | seed | loss |\n+===+===+===+\n" + rows("| {v} | {s} | {x} |\n+---+---+---+\n"),
        "",
    ),
    "lines above and below the header": (
        "t.txt",
        "-------  ----  ----\nvariant  seed  loss\n-------  ----  ----\n" + rows("{v}  {s}  {x}\n"),
        "",
    ),
    "columns aligned by spaces": ("out.txt", "variant   seed  loss\n" + rows("{v}      {s}     {x}\n"), ""),
    "seeds with their name": ("t.csv", HEADER + rows("{v},seed={s},{x}\n"), ""),
    "seeds with a letter": ("t.csv", HEADER + rows("{v},s{s},{x}\n"), ""),
    "U+2028, U+0085 and a vertical tab in a note": (
        "t.csv",
        "variant,seed,loss,note\n" + rows("{v},{s},{x},a\u2028b\x85c\x0bd\n"),
        "",
    ),
    "one cell of a million letters": (
        "t.csv",
        "variant,seed,loss,note\n" + rows("{v},{s},{x}," + "x" * 10**6 + "\n"),
        "",
    ),
    "no-break spaces and tabs around cells": ("t.csv", HEADER + rows("\u00a0{v} ,\t{s}\u202f, {x}\t\n"), ""),
    "compressed, and not named so": ("t.csv", gzip.compress(PLAIN.encode()), ""),
    "named as compressed, and not so": ("T.CSV.GZ", PLAIN, ""),
    "one name in two writings": ("t.csv", PLAIN.replace("mine", "café").replace("café", "cafe\u0301", 1), ""),
    "numbers in objects": (
        "t.jsonl",
        "".join(
            json.dumps({"config": {"model": v, "seed": s}, "summary": {"val": {"loss": x}}}) + "\n"
            for (v, s), x in LOSSES.items()
        ),
        "variant=config.model,seed=config.seed,loss=summary.val.loss",
    ),
    "wide JSON": (
        "t.json",
        json.dumps(
            [{"seed": s, "loss of base": LOSSES["base", s], "loss of mine": LOSSES["mine", s]} for s in range(3)]
        ),
        "run=loss of {variant}",
    ),
    "a column of seeds beside columns named by variants alone": (
        "t.csv",
        "seed,base,mine,step\n" + "".join(f"{s},{LOSSES['base', s]},{LOSSES['mine', s]},900\n" for s in range(3)),
        "run={variant}",
    ),
    "an empty row and a bare index": ("t.csv", f",{HEADER}\n,,,\n" + rows("7,{v},{s},{x}\n"), ""),
}


@pytest.mark.parametrize("name", READ)
def test_the_same_six_runs_are_read(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, content, columns = READ[name]
    path = tmp_path / file
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    named = ["--columns", columns] if columns else []
    assert main(["rank", str(path), *named, "--direction", "lower", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    losses = {(row["variant"], value["seed"]): value["loss"] for row in found["variants"] for value in row["values"]}
    assert losses == {
        (v.replace("mine", "café") if "two writings" in name else v, s): x for (v, s), x in LOSSES.items()
    }
    assert found["references"] == ["base"]
    assert found["variants"][0]["versus"]["base"]["verdict"] == "better"


REFUSED: dict[str, tuple[str, str | bytes, list[str], str]] = {
    "a title above the header": (
        "t.csv",
        "Results of 3 March,,\n" + PLAIN,
        [],
        "line 1: expected the names of the columns, got Results of 3 March; line 2 has them. Remove what is above it.",
    ),
    "units below the header": (
        "t.csv",
        HEADER + ",,nats\n" + rows(),
        [],
        "line 2: expected a name in column 'variant', got ''. Remove a row that is no run; where cells were",
    ),
    "cells that a spreadsheet merged": (
        "t.csv",
        HEADER + rows().replace("base,1", ",1").replace("base,2", ",2"),
        [],
        "line 3: expected a name in column 'variant', got ''. Remove a row that is no run; where cells were merged, write",
    ),
    "JSON lines under another name": (
        "t.json",
        "".join(json.dumps(record) + "\n" for record in RECORDS),
        [],
        "line 2: expected JSON, got an error: Extra data. Name a file with an object in each line .jsonl.",
    ),
    "columns of pandas": (
        "t.json",
        json.dumps({"variant": {"0": "a"}, "seed": {"0": 1}, "loss": {"0": 2.9}}),
        [],
        "With pandas: to_json(orient='records').",
    ),
    "one state of a trainer": (
        "trainer_state.json",
        json.dumps({"log_history": [], "global_step": 1, "max_steps": 1}),
        [],
        "Give the folder that holds the folders of all runs.",
    ),
    "a row of means at the end": (
        "t.csv",
        PLAIN + "mean,,2.9\n",
        [],
        "line 8: expected a number in column 'seed', got ''. Remove a row that is no run, such as a mean;",
    ),
    "three columns of other names": (
        "t.csv",
        "Name,State,val_loss\nbase-s0,finished,2.9\n",
        [],
        "line 1: expected columns 'variant', 'seed' and 'loss', got Name, State, val_loss. Did you mean 'val_loss'? If they "
        "have other names, give --columns variant=NAME,seed=NAME,loss=NAME. If the runs have no seeds, give --columns seed=",
    ),
    "hashes as seeds": (
        "t.csv",
        HEADER + rows("{v},a{s}f,{x}\n"),
        [],
        "line 2: expected a whole number in column 'seed', got 'a0f'.",
    ),
    "a column of a wide table twice": (
        "t.csv",
        "model,seed_0,seed_1,seed_1\nbase,2.9,2.8,2.7\n",
        ["--columns", "variant=model,run=seed_{seed}"],
        "line 1: expected one column 'seed_1', got 2. Remove the others.",
    ),
    "a column of a wide table in another spelling": (
        "t.csv",
        "model,seed_0,seed_1,Seed 2\nbase,2.9,2.8,2.7\n",
        ["--columns", "variant=model,run=seed_{seed}"],
        "expected names of the form 'seed_{seed}', got 'Seed 2' beside 'seed_0'. Write them alike,",
    ),
    "a column of a wide table twice, as pandas names it": (
        "t.csv",
        "model,seed_0,seed_1,seed_1.1\nbase,2.9,2.8,2.7\n",
        ["--columns", "variant=model,run=seed_{seed}"],
        "got 'seed_1.1' beside 'seed_0'.",
    ),
    "a column twice, as pandas names it": (
        "t.csv",
        "variant,seed,loss,loss.1\n" + rows("{v},{s},{x},1\n"),
        [],
        "line 1: expected one column 'loss', got 2. Remove the others.",
    ),
    "points of thousands in steps": (
        "t.csv",
        "variant,seed,step,loss\n" + rows("{v},{s},500,{x}1\n{v},{s},1.000,{x}\n"),
        [],
        "line 3: expected a number in column 'step', got '1.000' beside '500'. A point may be a decimal mark or separate",
    ),
    "a run that was begun anew in one table": (
        "t.csv",
        "variant,seed,step,loss\n" + "".join(f"base,0,{step},2.9\n" for step in (250, 500, 750, 100, 300, 600)),
        [],
        "line 5: expected one run of variant 'base' at seed 0, got a second one: step 100 behind step 750, and an end before",
    ),
    "a short row of a wide table": (
        "t.csv",
        "model,seed_0,seed_1\nbase,2.9,2.8\nmine,2.7\n",
        ["--columns", "variant=model,run=seed_{seed}"],
        "line 3: expected 3 cells as the header has, got 2: mine, 2.7. Write an empty cell for a value that is missing.",
    ),
    "a spreadsheet under another name": ("t.csv", b"PK\x03\x04" + bytes(60), [], "Save its table as CSV."),
    "a spreadsheet": ("t.xlsx", b"PK\x03\x04" + bytes(60), [], "Save the table as CSV."),
    "JSON under another name": (
        "t.csv",
        json.dumps(RECORDS),
        [],
        "line 1: expected the names of the columns, got JSON. Name the file t.json.",
    ),
    "columns of JSON": (
        "t.json",
        json.dumps({"variant": ["a"], "loss": [2.9]}),
        [],
        "got the fields variant, loss. For runs of your own, write a list of objects with variant, seed and loss.",
    ),
    "a page": ("t.csv", "<!DOCTYPE html>\n<table><tr><td>variant</td></tr></table>\n", [], "line 1: expected columns"),
    "Latin-1": ("t.csv", (PLAIN + "für,0,2.9\n").encode("latin-1"), [], "line 8: expected text in UTF-8"),
    "UTF-16 without a mark": ("t.csv", PLAIN.encode("utf-16-le"), [], "line 1: expected text, got a NUL byte."),
    "a comma that may be either": (
        "t.csv",
        HEADER + rows(cell=lambda x: f'"{x:.3f}"'.replace(".", ",")),
        [],
        "line 2: expected a number in column 'loss', got '2,912'. A comma may be a decimal mark or separate thousands:",
    ),
    "means with spreads": (
        "t.csv",
        HEADER + rows(cell=lambda x: f"{x}±0.01"),
        [],
        "line 2: expected a number in column 'loss'",
    ),
    "accuracy in per cent": (
        "t.csv",
        "variant,seed,acc (%)\n" + rows(cell=lambda x: round(100 / x, 2)),
        ["--columns", "loss=acc (%)"],
        "give --direction higher if higher is better",
    ),
    "BLEU": (
        "t.csv",
        "variant,seed,BLEU\n" + rows(cell=lambda x: 10 * x),
        ["--columns", "loss=BLEU"],
        "--direction higher",
    ),
    "one row of JSON lines on two lines": (
        "t.jsonl",
        '{"variant": "a", "seed": 0,\n"loss": 2.9}\n',
        [],
        "line 1: expected JSON, got an error",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_one_message_tells_where_and_what_to_do(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, content, options, message = REFUSED[name]
    path = tmp_path / file
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    assert main(["rank", str(path), *options]) == 2
    shown, error = capsys.readouterr()
    assert (shown, error.count("\n")) == ("", 1)
    assert file in error or "acc" in error or "BLEU" in error or "columns: " in error
    assert message in error


def metric_of(tmp_path: Path, column: str, cell: Callable[[float], object], **options: Any) -> Ranking:
    path = tmp_path / "t.csv"
    path.write_text(f"variant,seed,{column}\n{rows(cell=cell)}", encoding="utf-8")
    return addnorm.rank(path, columns={"loss": column}, **options)


def test_direction_name_and_unit_of_other_metrics(tmp_path: Path) -> None:
    """Lower losses are slower here: `mine` has fewer tokens per second, and a higher score."""
    speed = metric_of(tmp_path, "tokens/s", lambda x: round(1e5 * x), direction="higher", margin=100)
    assert speed["mine"].versus["base"].verdict == "worse"
    core = metric_of(tmp_path, "CORE", lambda x: round(1 / x, 4), direction="higher", margin=1e-4)
    assert core["mine"].versus["base"].verdict == "better"
    bits = metric_of(tmp_path, "val/bpb", lambda x: x / 3, margin=0.001)
    assert (bits.measure.unit, bits["mine"].versus["base"].verdict) == ("bits per byte", "better")
    for ranking in (speed, core, bits):
        assert "nat" not in " ".join([*map(str, ranking.warnings), str(ranking)]).replace("natur", "")


@pytest.mark.parametrize("digits", [4, 3, 2])
def test_equal_printed_losses_are_not_copies(tmp_path: Path, digits: int) -> None:
    """Twenty runs of a spread of 0.0014: at few digits many print the same loss, and all of them count."""
    losses = [3.2781 + 0.0014 * ((7 * k) % 20 - 9.5) / 6 for k in range(20)]
    path = tmp_path / "t.csv"
    table = [
        f"{name},{100 * place + s},{x + 0.001 * place:.{digits}f}\n"
        for place, name in enumerate("ab")
        for s, x in enumerate(losses)
    ]
    path.write_text(HEADER + "".join(table), encoding="utf-8")
    ranking = addnorm.rank(path)
    assert [row.seeds for row in ranking.variants] == [20, 20]
    assert all(value.counted for row in ranking.variants for value in row.values)


def test_a_wide_data_frame_is_read_as_its_file(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({s: [LOSSES["base", s], LOSSES["mine", s]] for s in range(3)}, index=["base", "mine"])
    frame = frame.add_prefix("seed_").rename_axis("model")
    frame.to_csv(tmp_path / "t.csv")
    columns = {"variant": "model", "run": "seed_{seed}"}
    assert sorted(read_runs(frame, columns), key=str) == sorted(read_runs(tmp_path / "t.csv", columns), key=str)
    twice = pandas.DataFrame(RECORDS).set_index("variant", drop=False).rename(columns={"loss": "l"})
    with pytest.raises(InputError, match="row 0: expected a column 'loss', got variant, seed, l"):
        read_runs(twice)


@pytest.mark.parametrize(
    ("column", "of"),
    [
        ("dataset", ("wikitext", "c4")),
        ("vocab_size", (50257, 32000)),
        ("Data", "ab"),
        ("split", ("test", "val")),
        ("unit", ("nats", "bits")),
        ("metric", ("val_loss", "train_loss")),
        ("checkpoint", ("last", "best")),
        ("eval_seq_len", (1024, 2048)),
        ("val_file", ("v1.bin", "v2.bin")),
        ("eval_tokens", (10485760, 524288)),
        ("loss_unit", ("nats", "bits")),
    ],
)
def test_runs_of_other_data_are_not_compared_without_a_word(tmp_path: Path, column: str, of: Any) -> None:
    path = tmp_path / "t.csv"
    lines = [f"{v},{s},{of[v == 'mine']},{x}" for (v, s), x in LOSSES.items()]
    path.write_text("\n".join([f"variant,seed,{column},loss", *lines]))
    assert f"not all of the same data, or of the same tokens ({of[0]}, {of[1]})" in " ".join(
        addnorm.rank(path).warnings
    )
    named = addnorm.rank(path, columns={"variant": f"variant+{column}"})
    assert "same data" not in " ".join(named.warnings)
    # Beside another column of that kind, which is the same for all.
    path.write_text(
        "\n".join(
            f"{line},{'tokenizer' if not place else 'bpe'}"
            for place, line in enumerate([f"variant,seed,{column},loss", *lines])
        )
    )
    assert "same data" in " ".join(addnorm.rank(path).warnings)


def test_paths_of_checkpoints_are_not_other_data(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("variant,seed,checkpoint,loss\n" + rows("{v},{s},runs/{v}-{s}/last.pt,{x}\n"))
    assert "same data" not in " ".join(addnorm.rank(path).warnings)


MEANS = {s: (LOSSES["base", s] + LOSSES["mine", s]) / 2 for s in range(3)}
SUMMED: dict[str, tuple[str, dict[str, str]]] = {
    "a row of means below a column per seed": (
        "model,seed_0,seed_1,seed_2\n"
        + "".join(f"{v}," + ",".join(str(LOSSES[v, s]) for s in range(3)) + "\n" for v in ("base", "mine"))
        + "Mean,"
        + ",".join(f"{MEANS[s]:.4f}" for s in range(3))
        + "\n",
        {"variant": "model", "run": "seed_{seed}"},
    ),
    "a column of means beside one per variant": (
        "seed,base,mine,mean\n"
        + "".join(f"{s},{LOSSES['base', s]},{LOSSES['mine', s]},{MEANS[s]:.4f}\n" for s in range(3)),
        {"run": "{variant}"},
    ),
    "a column of differences": (
        "seed,base,mine,diff\n"
        + "".join(
            f"{s},{LOSSES['base', s]},{LOSSES['mine', s]},{LOSSES['mine', s] - LOSSES['base', s]:.3f}\n"
            for s in range(3)
        ),
        {"run": "{variant}"},
    ),
    "a pivot table's grand total": (
        "model,0,1,2\n"
        + "".join(f"{v}," + ",".join(str(LOSSES[v, s]) for s in range(3)) + "\n" for v in ("base", "mine"))
        + "Grand Total,"
        + ",".join(f"{2 * MEANS[s]:.3f}" for s in range(3))
        + "\n",
        {"variant": "model", "run": "{seed}"},
    ),
    "a last row whose seed is a count": (PLAIN + "Average,6,2.9023\n", {}),
}


@pytest.mark.parametrize("name", SUMMED)
def test_a_summary_among_the_variants_is_named(tmp_path: Path, name: str) -> None:
    text, columns = SUMMED[name]
    (tmp_path / "t.csv").write_text(text)
    assert "hold a mean or another summary of the others" in " ".join(
        addnorm.rank(tmp_path / "t.csv", columns=columns).warnings
    )


def test_variants_named_like_a_summary_are_variants(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text((PLAIN + rows("max,{s},{x}1\n")[:39]).replace("mine", "mean"))
    assert "summary" not in " ".join(addnorm.rank(tmp_path / "t.csv").warnings)


def test_shares_beside_percentages_are_named(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(
        "variant,seed,acc\n" + "".join(f"{v},{s},{x / 5 if v == 'base' else 20 * x}\n" for (v, s), x in LOSSES.items())
    )
    said = " ".join(addnorm.rank(tmp_path / "t.csv", columns={"loss": "acc"}, direction="higher").warnings)
    assert "the numbers of base lie between 0 and 1" in said
