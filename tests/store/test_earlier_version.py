"""Run folders written by version 0.1.0 are read, ranked, explained and continued by this version, with the same numbers.

`fixtures/runs-0.1.tar.gz` holds two studies that version 0.1.0 trained: `finished` (three variants, three seeds) and
`stopped` (one run, interrupted at step 12 of 300 with a checkpoint). `fixtures/golden/` holds what its commands printed;
in `rank.json`, what depends on the noise is by the method of decision 0030, which sets one of the variants apart, and
equivalence by that of decision 0079.
"""

import io
import json
import shutil
import tarfile
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest

from addnorm.cli import main
from train_here import work_here

FIXTURES = Path(__file__).parents[1] / "fixtures"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder `runs` of version 0.1.0."""
    folder = tmp_path_factory.mktemp("earlier")
    with tarfile.open(FIXTURES / "runs-0.1.tar.gz") as archive:
        archive.extractall(folder, filter="data")
    return folder / "runs"


def addnorm(*arguments: str | Path) -> Any:
    with redirect_stdout(io.StringIO()) as out:
        assert main([*map(str, arguments), "--json"]) == 0
    return json.loads(out.getvalue())


def assert_extends(new: Any, old: Any, path: str = "$") -> None:
    """Every key and value of `old` stands in `new`; numbers agree within rounding, and `new` may have further keys."""
    if isinstance(old, dict):
        assert isinstance(new, dict), path
        for key, value in old.items():
            assert key in new, f"{path}.{key}"
            assert_extends(new[key], value, f"{path}.{key}")
    elif isinstance(old, list):
        assert isinstance(new, list), path
        assert len(new) == len(old), path
        for place, (left, right) in enumerate(zip(new, old, strict=True)):
            assert_extends(left, right, f"{path}[{place}]")
    elif isinstance(old, float):
        assert new == pytest.approx(old, rel=1e-9, abs=1e-12), path
    elif isinstance(old, str) and " " in old:  # prose, which may be reworded
        assert isinstance(new, str), path
        assert new, path
    else:
        assert new == old, path


@pytest.mark.parametrize("command", ["status", "rank", "explain"])
def test_an_earlier_versions_study_gives_the_same_numbers(command: str, runs: Path) -> None:
    golden = json.loads((FIXTURES / "golden" / f"{command}.json").read_text(encoding="utf-8"))
    assert_extends(addnorm(command, runs / "finished"), golden)


@pytest.mark.parametrize(("field", "value"), [("margin", 0.5), ("data_hash", "0"), ("seeds", [0])])
def test_a_plan_that_was_edited_is_marked(runs: Path, tmp_path: Path, field: str, value: Any) -> None:
    folder = tmp_path / "edited"
    shutil.copytree(runs / "finished", folder)
    plan = json.loads((folder / "study.json").read_text())
    assert "plan" not in addnorm("rank", folder)["unplanned"]
    (folder / "study.json").write_text(json.dumps({**plan, field: value}))
    ranking = addnorm("rank", folder)
    assert "plan" in ranking["unplanned"]
    assert "study.json was edited after it was written" in " ".join(ranking["warnings"])


def test_an_earlier_versions_run_is_resumed(runs: Path, tmp_path: Path) -> None:
    """The worker continues from the earlier checkpoint, and its replay check compares the steps it repeats."""
    folder = tmp_path / "stopped"
    shutil.copytree(runs / "stopped", folder)
    (run,) = folder.glob("v2m3-s0-*")
    before = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
    assert work_here(run) == 0, (run / "log.txt").read_text()
    events = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
    assert events[: len(before)] == before
    starts = [event for event in events if event["type"] == "start"]
    assert starts[-1]["attempt"] == 2
    assert starts[-1]["resumed_from"] == 12
    assert json.loads((run / "DONE").read_text())["step"] == 300
