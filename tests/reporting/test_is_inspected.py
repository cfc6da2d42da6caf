"""Which runs a report leaves as they were inspected: the same that `addnorm.inspect` would not measure again."""

import json
import os
from pathlib import Path

import pytest

import made_study
from addnorm import __version__
from addnorm.insight.flow import runs as flow
from addnorm.reporting.reading import inspections
from addnorm.reporting.reading.inspections import is_inspected
from addnorm.store import RunFolder


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    run = made_study.finished(tmp_path / "study").runs()[0]
    steps = run.spec["steps"]
    weights = {"file": "final.safetensors", "step": steps, "steps": steps}
    write(run, {"format": flow.FORMAT, "addnorm": __version__, "weights": weights})
    return run


def write(run: RunFolder, content: object) -> None:
    (run.path / flow.INSIGHT).write_text(json.dumps(content))


def test_it_knows_the_names_and_the_format_of_the_analysis() -> None:
    assert (inspections.NAME, inspections.FORMAT) == (flow.INSIGHT, flow.FORMAT)


def test_measures_of_the_final_weights_stand(run: RunFolder) -> None:
    assert is_inspected(run)


@pytest.mark.parametrize(
    "changed",
    [{"format": 1}, {"addnorm": "0.0.1"}, {"weights": {"file": "checkpoints/step-2", "step": 2, "steps": 40}}],
)
def test_measures_of_other_weights_or_versions_do_not(run: RunFolder, changed: dict[str, object]) -> None:
    write(run, json.loads((run.path / flow.INSIGHT).read_text()) | changed)
    assert not is_inspected(run)


def test_measures_that_are_older_than_the_weights_do_not(run: RunFolder) -> None:
    os.utime(run.path / flow.INSIGHT, (1, 1))
    assert not is_inspected(run)


def test_a_run_at_work_or_a_damaged_file_does_not(run: RunFolder) -> None:
    (run.path / "DONE").rename(run.path / "was-done")
    assert not is_inspected(run)
    (run.path / "was-done").rename(run.path / "DONE")
    write(run, {})
    (run.path / flow.INSIGHT).write_text("{")
    assert not is_inspected(run)
