"""Tables as people write them: every number is read exactly, or the file is refused with the line and what to do."""

import gzip
import json
from pathlib import Path

import pytest

import addnorm
from addnorm.cli import main
from addnorm.errors import InputError
from addnorm.statistics.run_tables import read_run_table, read_runs
from addnorm.statistics.run_tables.numerals import NotANumber, Notation, number, whole

HEADER = "variant,seed,loss\n"
PLAIN = "base,0,2.912\nbase,1,2.93\nmine,0,2.8\nmine,1,2.81\n"
EXPECTED = {("base", 0): 2.912, ("base", 1): 2.93, ("mine", 0): 2.8, ("mine", 1): 2.81}

SAME = {
    "crlf.csv": (HEADER + PLAIN).replace("\n", "\r\n"),
    "cr.csv": (HEADER + PLAIN).replace("\n", "\r"),
    "no newline at the end.csv": (HEADER + PLAIN).rstrip(),
    "CAPITALS.CSV": HEADER + PLAIN,
    "semicolons and decimal commas.csv": (HEADER + PLAIN).replace(",", ";").replace(".", ","),
    "quoted decimal commas.csv": HEADER + 'base,0,"2,912"\nbase,1,"2,93"\nmine,0,"2,8"\nmine,1,"2,81"\n',
    "tabs and decimal commas.tsv": (HEADER + PLAIN).replace(",", "\t").replace(".", ","),
    "tabs.csv": (HEADER + PLAIN).replace(",", "\t"),
    "bars.csv": (HEADER + PLAIN).replace(",", "|"),
    "spaces.csv": " variant , seed , loss \n" + PLAIN.replace(",", " , "),
    "no-break spaces.csv": HEADER + PLAIN.replace(",", ",\u00a0").replace("\n", "\u202f\n"),
    "full width.csv": HEADER + PLAIN.replace("2.912", "２．９１２").replace("base,1", "base,１"),
    "index.csv": ",variant,seed,loss\n" + "".join(f"{i},{row}\n" for i, row in enumerate(PLAIN.split())),
    "every cell quoted.csv": "\n".join(
        ",".join(f'"{cell}"' for cell in row.split(",")) for row in (HEADER + PLAIN).split()
    ),
    "joined files.csv": HEADER + PLAIN[:25] + HEADER + PLAIN[25:],
    "joined files with marks.csv": "\ufeff" + HEADER + PLAIN[:25] + "\ufeff" + HEADER + PLAIN[25:],
    "blank rows.csv": HEADER + ",,\n\n" + PLAIN + "\n,,\n",
    "invisible marks in names.csv": HEADER
    + PLAIN.replace("base,1", "ba\u200bse,1").replace("mine,1", "m\u00adine\ufeff,1"),
    "end of file of DOS.csv": HEADER + PLAIN + "\x1a",
    "comments.csv": "# trained on two machines\n" + HEADER + PLAIN[:25] + "# the second machine\n" + PLAIN[25:],
    "header behind a mark.csv": "# " + HEADER + PLAIN,
    "separator at the end.csv": HEADER + PLAIN.replace("\n", ",\n"),
    "powers.csv": HEADER + PLAIN.replace("2.912", "2912e-3").replace("2.8\n", "+.28E1\n"),
    "seeds of pandas.csv": HEADER + PLAIN.replace(",0,", ",0.0,").replace(",1,", ",1.0,"),
    "note over lines.csv": "variant,note,seed,loss\n"
    + PLAIN.replace(",", ',"two\nlines, of ""text""",', 1).replace("base,1", "base,,1").replace("mine,", "mine,,"),
    "separators of lines.jsonl": "".join(
        json.dumps({"variant": v, "seed": s, "loss": x, "note": "a\u2028b\u0085c\x0cd"}, ensure_ascii=False) + "\r\n"
        for (v, s), x in EXPECTED.items()
    ),
    "numbers as text.jsonl": "".join(
        json.dumps({"variant": v, "seed": str(s), "loss": f" {x} "}) + "\n" for (v, s), x in EXPECTED.items()
    ),
    "capitals.JSON": json.dumps([{"variant": v, "seed": s, "loss": x} for (v, s), x in EXPECTED.items()]),
    "CAPITALS.NDJSON": "".join(
        json.dumps({"variant": v, "seed": s, "loss": x}) + "\n" for (v, s), x in EXPECTED.items()
    ),
}


def losses(path: Path) -> dict[tuple[str, int], float | None]:
    return {(run.variant, run.seed): run.loss for run in read_runs(path)}


@pytest.mark.parametrize("name", SAME)
def test_the_same_runs_in_other_writing(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(SAME[name].encode())
    assert losses(tmp_path / name) == EXPECTED
    packed = tmp_path / f"{name}.GZ"
    packed.write_bytes(gzip.compress(SAME[name].encode()))
    assert losses(packed) == EXPECTED


def test_utf_16_as_spreadsheets_save_it(tmp_path: Path) -> None:
    (tmp_path / "runs.csv").write_bytes((HEADER + PLAIN).replace(",", "\t").encode("utf-16"))
    assert losses(tmp_path / "runs.csv") == EXPECTED


@pytest.mark.parametrize("form", ["runs.csv", "runs.csv.gz"])
def test_a_cell_of_any_length(tmp_path: Path, form: str) -> None:
    import csv

    limit = csv.field_size_limit()
    text = "variant,seed,loss,config\n" + "".join(f"{row},{'x' * 200_000}\n" for row in PLAIN.split())
    data = text.encode()
    (tmp_path / form).write_bytes(gzip.compress(data) if form.endswith("gz") else data)
    assert losses(tmp_path / form) == EXPECTED
    assert csv.field_size_limit() == limit, "the limit of others is left as it was"


REFUSED = {
    "decimal comma": (HEADER + "base,0,2,912\n", 2, "expected 3 cells as the header has, got 4: base, 0, 2, 912"),
    "decimal comma in the last row": (HEADER + PLAIN + "mine,2,2,8\n", 6, "needs quotes"),
    "either": (HEADER + 'base,0,"2,912"\nbase,1,"2,934"\n', 2, "write 2.912 or 2912"),
    "two marks": (HEADER + 'base,0,2.9\nbase,1,"2,93"\n', 3, "another decimal mark"),
    "points of thousands": (HEADER + 'base,0,"2,93"\nbase,1,2.934\n', 2, "another decimal mark"),
    "cell too few": (HEADER.replace("loss", "loss,hours") + "base,0,2.912\n", 2, "got 3: base, 0, 2.912"),
    "cut off": (HEADER + PLAIN + "mine,2", 6, "got 2: mine, 2"),
    "percent": (HEADER + "base,0,71.2%\n", 2, "--unit %"),
    "with a spread": (HEADER + "base,0,2.31 ± 0.02\n", 2, "give every run a row"),
    "with a spread in brackets": (HEADER + "base,0,2.31(2)\n", 2, "give every run a row"),
    "unit": (HEADER + "base,0,2.31 nats\n", 2, "without a unit"),
    "power as a small digit": (HEADER + "base,0,2.31²\n", 2, "expected a number in column 'loss'"),
    "underscore": (HEADER + "base,0,2_31\n", 2, "expected a number in column 'loss'"),
    "seed with an underscore": (HEADER + "base,1_0,2.31\n", 2, "expected a whole number in column 'seed'"),
    "dash": (HEADER + "base,0,-\n", 2, "Write nan for a run that diverged"),
    "nothing": (HEADER + "base,0,\n", 2, "leave out one that has not ended"),
    "not available": (HEADER + "base,0,N/A\n", 2, "expected a number in column 'loss'"),
    "too large": (HEADER + "base,0,1e999\n", 2, "too large"),
    "too small": (HEADER + "base,0,1e-400\n", 2, "too small"),
    "word": (HEADER + "base,0,OOM\n", 2, "Write nan for a run that diverged"),
    "not a number of Windows": (HEADER + "base,0,-nan(ind)\n", 2, "Write nan for a run that diverged"),
    "division by zero": (HEADER + "base,0,#DIV/0!\n", 2, "Write nan for a run that diverged"),
    "tensor": (HEADER + "base,0,tensor(2.9)\n", 2, "Write the number alone"),
    "bold": (HEADER + "base,0,**2.9**\n", 2, "Write the number alone"),
    "step of nan": (HEADER.replace("l", "step,l", 1) + "base,0,nan,2.9\n", 2, "a step, a number from 0"),
    "step of inf": (HEADER.replace("l", "step,l", 1) + "base,0,inf,2.9\n", 2, "a step, a number from 0"),
    "step below zero": (HEADER.replace("l", "step,l", 1) + "base,0,-1,2.9\n", 2, "a step, a number from 0"),
    "step in some rows": (
        HEADER.replace("l", "step,l", 1) + "base,0,10,2.9\nbase,0,,2.8\n",
        3,
        "expected the step of the row, as other rows of variant 'base' at seed 0 have, got none",
    ),
    "many columns": (",".join(f"c{n}" for n in range(400)) + "\n", 1, "c22, c23, and 376 more."),
    "line break in a name": ('variant,seed,"val\nloss"\nbase,0,2.9\n', 1, r"got variant, seed, 'val\nloss'."),
    "no name": (HEADER + " ,0,2.9\n", 2, "expected a name in column 'variant'"),
    "column twice": ("variant,seed,loss,loss\nbase,0,2.9,2.8\n", 1, "expected one column 'loss', got 2"),
    "no column": ("variant,seed\nbase,0\n", 1, "expected a column 'loss'"),
    "other header": (HEADER + PLAIN + "seed,variant,loss\n0,deep,2.5\n", 6, "the header of another table"),
    "row behind a mark": (HEADER + PLAIN + "#mine,2,2.5\n", 6, "begins with '#'"),
    "open quote": (HEADER + 'base,0,2.9\n"mine,0,2.5\nmine,1,2.4\n', 3, "Close the quotes"),
    "empty": ("", 1, "got an empty file"),
    "run twice": (HEADER + PLAIN + "base,0,2.5\n", 6, "got a second one after"),
    "nul": (HEADER + "base,0,2.9\0\n", 2, "NUL"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_read_exactly_is_refused_with_its_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    text, line, message = REFUSED[name]
    (tmp_path / "runs.csv").write_bytes(text.encode())
    assert main(["rank", str(tmp_path / "runs.csv")]) == 2
    err = " ".join(capsys.readouterr().err.split())
    assert f"runs.csv, line {line}: " in err
    assert message in err


JSON_REFUSED = {
    "true": ('{"variant": "a", "seed": 0, "loss": true}', "expected a number in column 'loss', got True"),
    "a list": ('{"variant": ["a"], "seed": 0, "loss": 2.5}', "expected a name in column 'variant'"),
    "twice": ('{"variant": "a", "seed": 0, "loss": 2.5, "loss": 2.4}', "the field 'loss' twice"),
    "too large": ('{"variant": "a", "seed": 0, "loss": 1e999}', "too large"),
    "no name": ('{"variant": null, "seed": 0, "loss": 2.5}', "expected a name in column 'variant', got None"),
    "spread over lines": ("{\n", "Write each object in a line of its own."),
    "a whole table": (
        json.dumps([{"variant": "a", "seed": s, "loss": 2.5} for s in range(99)]),
        "'loss': 2.5}, {'variant': 'a', ….",
    ),
    "null": ('{"variant": "a", "seed": 0, "loss": null}', "expected a number in column 'loss', got None"),
    "deep": ("[" * 100_000, "expected"),
}


@pytest.mark.parametrize("name", JSON_REFUSED)
def test_json_that_cannot_be_read_exactly_is_refused_with_its_line(tmp_path: Path, name: str) -> None:
    text, message = JSON_REFUSED[name]
    (tmp_path / "runs.jsonl").write_text('{"variant": "a", "seed": 1, "loss": 2.5}\n' + text + "\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"line 2: ") as raised:
        read_runs(tmp_path / "runs.jsonl")
    assert message in str(raised.value)


def test_an_inner_field_of_the_name_of_another_is_refused(tmp_path: Path) -> None:
    row = {"variant": "a", "seed": 0, "eval": {"loss": 2.5}, "eval.loss": 2.4}
    (tmp_path / "runs.jsonl").write_text(json.dumps(row) + "\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"line 1: expected one column 'eval.loss', got 2"):
        read_runs(tmp_path / "runs.jsonl", {"loss": "eval.loss"})


@pytest.mark.parametrize("names", [(True, False), (1, 2), (0.1, 1)])
def test_settings_that_name_variants(tmp_path: Path, names: tuple[object, object]) -> None:
    rows = [{"variant": name, "seed": s, "loss": 2.5 + s} for name in names for s in (0, 1)]
    (tmp_path / "runs.json").write_text(json.dumps(rows), encoding="utf-8")
    assert [run.variant for run in read_runs(tmp_path / "runs.json")] == [str(name) for name in names for _ in (0, 1)]


@pytest.mark.parametrize(
    ("other", "alike"),
    [
        ("Base", True),
        ("ba-se", False),
        ("base", False),
        ("base ", False),
        ("ｂａｓｅ", True),
        ("base_", True),
        ("bas", False),
    ],
)
def test_names_that_may_be_one_variant_are_named(tmp_path: Path, other: str, alike: bool) -> None:
    (tmp_path / "runs.csv").write_text(HEADER + PLAIN + f"{other},2,2.9\n", encoding="utf-8")
    said = " ".join(addnorm.rank(tmp_path / "runs.csv").warnings)
    assert (f"'base' and '{other}'. They count as different variants" in said) == alike


@pytest.mark.parametrize(("one", "other"), [("1", "1.0"), ("1e-3", "0.001"), ("pre-norm", "pre_norm"), ("a–b", "a-b")])
def test_one_number_or_name_in_two_spellings(tmp_path: Path, one: str, other: str) -> None:
    (tmp_path / "runs.csv").write_text(
        HEADER + f"{one},0,2.5\n{other},1,2.6\nlr1e3,0,2\nlr1e-3,1,3\n", encoding="utf-8"
    )
    (said,) = (each for each in addnorm.rank(tmp_path / "runs.csv").warnings if "differ in capitals" in each)
    assert f": {one!r} and {other!r}. They" in said


@pytest.mark.parametrize(
    ("one", "other", "alike"),
    [
        ("lr=0.1 norm=rms", "norm=rms lr=0.1", True),
        ("lr=1e-3", "lr=0.001", True),
        ('{"norm": "rms", "lr": 0.1}', "{'lr': 0.1, 'norm': 'rms'}", True),
        ('{"lr":0.1}', '{"lr": 0.10}', True),
        ("lr=0.1 norm=rms", "lr=0.1 norm=layer", False),
        ("12 layers 6 heads", "6 layers 12 heads", False),
    ],
)
def test_settings_in_another_order_or_notation(tmp_path: Path, one: str, other: str, alike: bool) -> None:
    rows = [{"variant": name, "seed": seed, "loss": 2.5} for name in (one, other) for seed in (0, 1)]
    (tmp_path / "runs.json").write_text(json.dumps(rows), encoding="utf-8")
    assert ("differ in capitals" in " ".join(addnorm.rank(tmp_path / "runs.json").warnings)) == alike


@pytest.mark.parametrize("name", ["runs.csv.bz2", "runs.tex", "study.yaml"])
def test_a_file_of_another_form(tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    (tmp_path / name).write_text(HEADER + PLAIN, encoding="utf-8")
    assert main(["rank", str(tmp_path / name)]) == 2
    err = " ".join(capsys.readouterr().err.split())
    assert "expected a table of runs" in err
    assert ("the folder of its runs" if name.endswith("yaml") else "as CSV") in err


@pytest.mark.parametrize(
    "data", [b"\x1f\x8b\x08\x00broken", gzip.compress((HEADER + PLAIN).encode())[:-9]], ids=["other bytes", "cut off"]
)
def test_a_damaged_gzip_file_is_refused(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "runs.csv.gz").write_bytes(data)
    with pytest.raises(InputError, match="expected a whole gzip file"):
        read_runs(tmp_path / "runs.csv.gz")
    (tmp_path / "runs.json.gz").write_bytes(data)
    with pytest.raises(InputError):
        addnorm.rank(tmp_path / "runs.json.gz")


@pytest.mark.parametrize(
    ("text", "decimal", "value"),
    [
        ("1,234.5", ".", 1234.5),
        ("1.234,5", ",", 1234.5),
        ("12,345,678", ".", 12345678.0),
        ("1 234.5", ".", 1234.5),
        ("1\u202f234,5", ",", 1234.5),
        ("1’234.5", ".", 1234.5),
        ("−2.5", ".", -2.5),
        ("٢٫٥".replace("٫", "."), ".", 2.5),
        ("0,912", ",", 0.912),
        ("1,5e-3", ",", 0.0015),
        ("\u200b2.5\ufeff", ".", 2.5),
    ],
)
def test_numbers_of_one_reading(text: str, decimal: str, value: float) -> None:
    assert number(text, Notation.of([text])) == value
    assert Notation.of([text]).decimal == decimal


@pytest.mark.parametrize("text", ["1,23,456", "1.2.3", "2,5,", "--2", "0x10", "1e", "2 5", "½", "12 34", "1,2345.6"])
def test_numbers_of_no_reading(text: str) -> None:
    with pytest.raises(NotANumber):
        number(text, Notation.of([text]))


def test_seeds_keep_every_digit(tmp_path: Path) -> None:
    assert whole("18446744073709551615") == 2**64 - 1
    for text in ("1.5", "1e30", "9007199254740993.0", "nan", "inf", "1,000", "", "s1"):
        with pytest.raises(NotANumber):
            whole(text)
    path = tmp_path / "runs.csv"
    path.write_text(HEADER + "a,9007199254740992,2.5\na,9007199254740993,2.6\n", encoding="utf-8")
    assert [run.seed for run in read_runs(path)] == [9007199254740992, 9007199254740993]


def test_a_semicolon_tells_that_commas_are_decimal_marks() -> None:
    assert Notation.of(["2,912", "2,934"], ";").decimal == ","
    assert Notation.of(["2,912", "2.9"], ";").decimal == "."
    with pytest.raises(NotANumber, match="decimal mark or separate thousands"):
        number("2,912", Notation.of(["2,912", "2.9"], ";"))


SETTINGS = {
    ("sgd", 0.1, 0): 2.5,
    ("sgd", 0.1, 1): 2.6,
    ("sgd", 0.3, 0): 2.4,
    ("adam", 0.1, 0): 2.3,
    ("adam", 0.1, 1): 2.2,
}
BY_SETTINGS = {"variant": "optimizer+lr"}


@pytest.mark.parametrize("form", ["csv", "semicolons", "json lines", "objects", "rows"])
def test_several_columns_tell_a_variant(form: str, tmp_path: Path) -> None:
    rows = [{"optimizer": o, "lr": lr, "seed": s, "loss": loss} for (o, lr, s), loss in SETTINGS.items()]
    path = tmp_path / ("runs.jsonl" if "json" in form or form == "objects" else "runs.csv")
    columns = BY_SETTINGS
    if form in ("csv", "semicolons"):
        mark = "," if form == "csv" else ";"
        lines = [mark.join(["optimizer", "lr", "seed", "loss"]), *(mark.join(map(str, row.values())) for row in rows)]
        path.write_text("\n".join(lines) + "\n")
    elif form == "objects":
        columns = {"variant": "config.optimizer+config.lr"}
        nested = [
            {"config": {"optimizer": row["optimizer"], "lr": row["lr"]}, "seed": row["seed"], "loss": row["loss"]}
            for row in rows
        ]
        path.write_text("".join(f"{json.dumps(row)}\n" for row in nested))
    else:
        path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    read = read_run_table(rows if form == "rows" else path, columns).runs
    before = "config." if form == "objects" else ""
    assert {(run.variant, run.seed): run.loss for run in read} == {
        (f"{before}optimizer={o} {before}lr={lr}", s): loss for (o, lr, s), loss in SETTINGS.items()
    }


def test_a_column_that_is_lacking_in_a_name_is_told(tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    path.write_text("optimizer,lr,seed,loss\nsgd,0.1,0,2.5\nsgd,0.3,0,2.4\n")
    with pytest.raises(InputError, match=r"name its column too: variant=model\+NAME"):
        read_run_table(path, {"variant": "optimizer"})
    with pytest.raises(InputError, match=r"line 1: expected a column 'optimizer\+rate', got optimizer, lr"):
        read_run_table(path, {"variant": "optimizer+rate"})
    path.write_text('optimizer,lr,seed,loss\nsgd,0.1,0,"[2.5, 2.4]"\n')
    with pytest.raises(InputError, match="A cell holds one number"):
        read_run_table(path, BY_SETTINGS)
