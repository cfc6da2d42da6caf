"""Runs that other code trained: tables and TensorBoard folders, and what is wrong with them."""

import json
import math
import struct
from collections.abc import Mapping
from pathlib import Path

import pytest

import addnorm
from addnorm.cli import main
from addnorm.errors import InputError, UnknownName
from addnorm.statistics import Result, rank
from addnorm.statistics.run_tables import columns_from, read_runs
from addnorm.statistics.run_tables.event_files import LastValue, read_events

LOSSES = {"base": (2.50, 2.52, 2.51), "rezero": (2.41, 2.44, 2.42), "deep": (2.49, 2.53, 2.50)}
RESULTS = [Result(variant=v, seed=s, loss=x) for v, row in LOSSES.items() for s, x in enumerate(row)]
ROWS = [{"variant": r.variant, "seed": r.seed, "loss": r.loss, "note": "ignored, with a comma"} for r in RESULTS]


def csv_text(separator: str = ",") -> str:
    lines = [separator.join((str(r["variant"]), str(r["seed"]), str(r["loss"]), '"a, b"')) for r in ROWS]
    return separator.join(("variant", "seed", "loss", "note")) + "\n" + "\n".join(lines) + "\n"


WRITTEN = {
    "runs.csv": csv_text(),
    "runs.tsv": csv_text("\t"),
    "marked.csv": "\ufeff" + csv_text(),
    "runs.jsonl": "".join(json.dumps(row) + "\n\n" for row in ROWS),
    "runs.json": json.dumps(ROWS, indent=1),
}


@pytest.mark.parametrize("name", WRITTEN)
def test_every_form_holds_the_same_runs(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text(WRITTEN[name], encoding="utf-8")
    assert list(read_runs(tmp_path / name)) == RESULTS
    ranking = addnorm.rank(tmp_path / name)
    assert ranking.to_json() == rank(RESULTS, references=["base"]).to_json(), "the first variant is the reference"
    assert ranking["rezero"].versus["base"].verdict == "better"


def test_columns_of_other_names(tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    path.write_text(csv_text().replace("variant,seed,loss", "model,Seed,val_loss"), encoding="utf-8")
    columns = columns_from("variant=model, seed=Seed,loss=val_loss")
    assert list(read_runs(path, columns)) == RESULTS
    for text, message in (("loss", "expected NAME=COLUMN"), ("los=x", "Did you mean 'loss'?")):
        with pytest.raises(InputError, match=message.replace("?", r"\?")):
            columns_from(text)


def test_a_loss_that_is_not_finite_is_a_run_that_diverged(tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    path.write_text(csv_text().replace("rezero,1,2.44", "rezero,1,nan"), encoding="utf-8")
    comparison = addnorm.rank(path)["rezero"].versus["base"]
    assert comparison.verdict == "failed"
    assert "diverged at seed 1" in str(comparison.reason)


BAD = {
    "no column": ("variant,seed\na,0\n", "line 1: expected a column 'loss', got variant, seed."),
    "text in the loss": (
        "variant,seed,loss\na,0,2.5\na,1,high\n",
        "line 3: expected a number in column 'loss', got 'high'.",
    ),
    "empty loss": ("variant,seed,loss\na,0,\n", "line 2: expected a number in column 'loss', got ''."),
    "text in the seed": ("variant,seed,loss\na,x,2.5\n", "line 2: expected a number in column 'seed', got 'x'."),
    "half a seed": ("variant,seed,loss\na,0.5,2.5\n", "line 2: expected a whole number in column 'seed', got '0.5'."),
    "short row": ("variant,seed,loss\na,0\n", "line 2: expected 3 cells as the header has, got 2: a, 0."),
    "one seed": ("variant,seed,loss\na,7,2.5\nb,7,2.4\n", "expected at least two seeds, got seed 7 alone."),
    "two runs": (
        "variant,seed,loss\na,0,2.5\na,1,2.5\na,0,2.6\n",
        "line 4: expected one run of variant 'a' at seed 0, got a second one after",
    ),
    "no rows": ("variant,seed,loss\n", "expected a row for each run, got none."),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_table_is_one_message_with_path_and_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    text, message = BAD[name]
    path = tmp_path / "runs.csv"
    path.write_text(text, encoding="utf-8")
    assert main(["rank", str(path)]) == 2
    said = capsys.readouterr().err
    assert f"{path}" in said
    assert message in " ".join(said.split())


def test_bad_json_names_its_line(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    path.write_text('{"variant": "a", "seed": 0, "loss": 2.5}\n{"variant"\n', encoding="utf-8")
    with pytest.raises(InputError, match="line 2: expected JSON"):
        read_runs(path)
    path.write_text("[1, 2]\n", encoding="utf-8")
    with pytest.raises(InputError, match="line 1: expected an object"):
        read_runs(path)
    with pytest.raises(InputError, match="No such file"):
        addnorm.rank(tmp_path / "none.csv")
    (tmp_path / "bytes.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="UTF-8"):
        read_runs(tmp_path / "bytes.csv")


def varint(value: int) -> bytes:
    found = b""
    while value > 127:
        found += bytes([value & 127 | 128])
        value >>= 7
    return found + bytes([value])


def field(number: int, content: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(content)) + content


def event(step: int, scalars: Mapping[str, float], *, as_tensor: bool = False) -> bytes:
    """A record of an event file, checksums left at zero."""
    summary = b""
    for tag, value in scalars.items():
        packed = struct.pack("<f", value)
        held = field(8, b"\x08\x01" + field(4, packed)) if as_tensor else varint(2 << 3 | 5) + packed
        summary += field(1, field(1, tag.encode()) + held)
    message = varint(1 << 3 | 1) + struct.pack("<d", 1.5) + varint(2 << 3) + varint(step) + field(5, summary)
    return struct.pack("<Q", len(message)) + bytes(4) + message + bytes(4)


VERSION = struct.pack("<Q", 15) + bytes(4) + field(3, b"brain.Event:2") + bytes(4)


@pytest.mark.parametrize("as_tensor", [False, True], ids=["float", "tensor"])
@pytest.mark.parametrize("form", ["{}/seed-{}", "{}-s{}", "{}-s{}-1f2e3d4c", "{}_{}", "{}/{}"])
def test_a_folder_of_events(tmp_path: Path, form: str, as_tensor: bool) -> None:
    for result in RESULTS:
        run = tmp_path / form.format(result.variant, result.seed)
        run.mkdir(parents=True)
        steps = [(1, 9.0), (300, result.finished_loss)]
        content = VERSION + b"".join(
            event(step, {"eval/loss": loss, "other": 1.0}, as_tensor=as_tensor) for step, loss in steps
        )
        (run / "events.out.tfevents.1.host").write_bytes(content + b"\x05\x00")
    told = {} if "s{}" in form or "seed" in form else {"run": form.format("{variant}", "{seed}")}
    if told:
        with pytest.raises(InputError, match="expected a run named by variant and seed"):
            read_runs(tmp_path, {"loss": "eval/loss"})
    found = read_runs(tmp_path, {"loss": "eval/loss", **told})
    assert {(r.variant, r.seed) for r in found} == {(r.variant, r.seed) for r in RESULTS}
    expected = {(r.variant, r.seed): r.finished_loss for r in RESULTS}
    assert all(math.isclose(r.finished_loss, expected[r.variant, r.seed], rel_tol=1e-6) for r in found)
    ranking = addnorm.rank(tmp_path, columns=told, references=["base"])
    assert ranking["rezero"].versus["base"].verdict == "better"
    assert ranking.metric == "eval/loss", "the one loss on held-out text is found"
    with pytest.raises(InputError, match="expected a scalar 'nll', got eval/loss, other"):
        read_runs(tmp_path, {"loss": "nll"})


def test_events_of_runs_that_are_not_named_by_seed(tmp_path: Path) -> None:
    (tmp_path / "base").mkdir()
    file = tmp_path / "base" / "events.out.tfevents.1.host"
    file.write_bytes(VERSION + event(1, {"loss": 2.5}))
    assert read_events(file).last == {"loss": LastValue(1, 1, 2.5)}
    with pytest.raises(InputError, match="named by variant and seed"):
        read_runs(tmp_path)
    file.write_bytes(struct.pack("<Q", 3) + bytes(4) + b"\xff\xff\xff" + bytes(4))
    with pytest.raises(InputError, match="expected TensorBoard events"):
        read_runs(tmp_path)


def test_variants_are_chosen_and_left_out(tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    path.write_text(csv_text(), encoding="utf-8")
    expected = rank([r for r in RESULTS if r.variant != "deep"], references=["base"])
    for chosen in (addnorm.rank(path, exclude=["deep"]), addnorm.rank(path, variants=["rezero"])):
        assert [row.variant for row in chosen.variants] == [row.variant for row in expected.variants]
        assert chosen["rezero"].versus == expected["rezero"].versus
        (said,) = [w for w in chosen.warnings if w.note["code"] == "left_out"]
        assert "deep" in said
    with pytest.raises(UnknownName, match="Did you mean 'deep'"):
        addnorm.rank(path, exclude=["dep"])
    with pytest.raises(InputError, match="expected one that is left"):
        addnorm.rank(path, exclude=["base"])
    with pytest.raises(InputError, match="got one that is excluded"):
        addnorm.rank(path, exclude=["deep"], references=["deep"])
    assert addnorm.rank(path, exclude=["base"], references=["deep"]).references == ("deep",)


def test_columns_are_for_tables_alone() -> None:
    with pytest.raises(InputError, match="Leave the columns out"):
        addnorm.rank("kuang-2025", columns={"loss": "x"})


def test_the_tools_own_event_files_are_read(tmp_path: Path) -> None:
    writer = pytest.importorskip("tensorboard.summary.writer.event_file_writer")
    event_pb2 = pytest.importorskip("tensorboard.compat.proto.event_pb2")
    summary_pb2 = pytest.importorskip("tensorboard.compat.proto.summary_pb2")
    for seed in (0, 1):
        for variant in ("a", "b"):
            file = writer.EventFileWriter(str(tmp_path / f"{variant}-s{seed}"))
            value = summary_pb2.Summary.Value(tag="loss", simple_value=2.5 + seed)
            file.add_event(event_pb2.Event(step=7, wall_time=1.0, summary=summary_pb2.Summary(value=[value])))
            file.close()
    assert {(r.variant, r.seed, r.loss) for r in read_runs(tmp_path)} == {
        (v, s, 2.5 + s) for v in ("a", "b") for s in (0, 1)
    }
