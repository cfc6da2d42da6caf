"""Commands that need no torch work where it cannot be imported: so they answer in a fraction of a second."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import made_study
from addnorm.catalogue import ROOMS, preset_docs
from addnorm.cli import commands
from addnorm.model.presets import PRESETS

# Not an ImportError: one would pass unseen where a library tries torch and goes on without it.
NO_TORCH = """
import importlib.abc, sys


class NoTorch(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("tokenizers", "torch"):
            raise RuntimeError(f"{name} was imported")
        return None


sys.meta_path.insert(0, NoTorch())
"""
# Prints exit code, output and messages of every line that it reads, or the traceback instead of the code.
ANSWERS = """
import contextlib, io, json, sys, traceback
from addnorm.cli import main

answers = []
for arguments in json.load(sys.stdin):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = main(arguments)
        except Exception:
            code = traceback.format_exc()
    answers.append([code, out.getvalue(), err.getvalue()])
json.dump(answers, sys.stdout)
"""
STUDY = "STUDY"
"""Stands for the folder of a finished study."""
NEEDS_TORCH = ("plan", "residual-scores")
LISTED = ("study", "preset", *ROOMS)
LINES: tuple[tuple[str, ...], ...] = (
    ("--help",),
    ("--version",),
    *((name, "--help") for name in commands()),
    ("list",),
    ("list", "--json"),
    *(("list", name, *form) for name in LISTED for form in ((), ("--json",))),
    ("list", "skill"),
    ("list", "skill", "--json"),
    ("list", "schema"),
    ("list", "schema", "--json"),
    ("list", "study-file"),
    ("list", "study-file", "--json"),
    ("new", "--blank", "--to", f"{STUDY}/blank.yaml"),
    ("new", "residual-scores", "--to", f"{STUDY}/mine.yaml"),
    ("new", "qk-bias", "--to", f"{STUDY}/other.yaml", "--json"),
    ("status", STUDY),
    ("status", STUDY, "--json"),
    *(
        ("rank", target, *form)
        for target in (STUDY, "kuang-2025", f"{STUDY}/runs.csv")
        for form in ((), ("--json",), ("--csv",), ("--latex",))
    ),
    *(("noise", target, *form) for target in (STUDY, f"{STUDY}/runs.csv") for form in ((), ("--json",))),
    *(
        ("trend", f"{STUDY}/runs.csv", f"{STUDY}/larger.csv", "--parameters", "1e6,2e6", *form)
        for form in ((), ("--json",), ("--csv",))
    ),
    ("judge", f"{STUDY}/stream.jsonl", "--propose", f"{STUDY}/runs.csv", "--baseline", "a"),
    ("judge", f"{STUDY}/stream.jsonl", "--json"),
    ("rank", f"{STUDY}/runs.csv", "--metric", "loss", "--posterior"),
    ("report", STUDY, "--no-inspect", "--out", f"{STUDY}-report.html"),
    ("report", f"{STUDY}/runs.csv", "--out", f"{STUDY}-table.html"),
)


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, ...], Any]:
    """Exit code, output and messages of every line, all from one process that cannot import torch."""
    study = tmp_path_factory.mktemp("without-torch") / "study"
    made_study.finished(study)
    runs = [
        f"{variant},{seed},{2.5 + seed / 100 + level}" for variant, level in (("a", 0), ("b", 0.1)) for seed in range(3)
    ]
    for name in ("runs.csv", "larger.csv"):
        (study / name).write_text("\n".join(["variant,seed,loss", *runs]) + "\n", encoding="utf-8")
    given = [[part.replace(STUDY, str(study)) for part in line] for line in (*LINES, NEEDS_TORCH)]
    done = light(NO_TORCH + ANSWERS, "", given=given, COLUMNS="200")
    return dict(zip((*LINES, NEEDS_TORCH), json.loads(done.stdout), strict=True))


def light(code: str, *arguments: str, given: object = (), **environment: str) -> subprocess.CompletedProcess[str]:
    """Run code in a process of its own, which reads what is given."""
    source = str(Path(__file__).parents[2] / "src")
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        input=json.dumps(given),
        env={**os.environ, "PYTHONPATH": source, **environment},
        capture_output=True,
        check=False,
        text=True,
        timeout=120,
    )


@pytest.mark.parametrize("line", LINES, ids=" ".join)
def test_the_command_needs_no_torch(answers: dict[tuple[str, ...], Any], line: tuple[str, ...]) -> None:
    code, out, err = answers[line]
    assert code == 0, f"{code}\n{err}"
    assert out
    assert err == ""


def test_torch_really_cannot_be_imported_there(answers: dict[tuple[str, ...], Any]) -> None:
    code, _, _ = answers[NEEDS_TORCH]
    assert "torch was imported" in code


def test_presets_read_are_presets_built(answers: dict[tuple[str, ...], Any]) -> None:
    imported = {name: (build.__doc__ or "").split() for name, build in PRESETS.items()}
    assert list(preset_docs()) == list(imported), "in the same order"
    assert {name: text.split() for name, text in preset_docs().items()} == imported
    listed = json.loads(answers["list", "preset", "--json"][1])["preset"]
    assert [entry["kind"] for entry in listed] == list(imported)
    assert all(entry["summary"] for entry in listed[:7])


LIGHT = """
import importlib.abc, sys


class NotInstalled(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("tokenizers", "torch", *sys.argv[1:2]):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return None


sys.meta_path.insert(0, NotInstalled())
"""
"""An installation without the extra: the first argument names a package that is missing too."""
NEEDING = (
    ("plan", "demo"),
    ("run", "demo", "--out", "nowhere"),
    ("inspect", "nowhere"),
    ("explain", "nowhere"),
    ("extrapolate", "nowhere"),
    ("audit", "model.py:build"),
    ("port", "model.py:build", "other.py:build"),
    ("generate", "nowhere", "--prompt", "a"),
    ("export", "nowhere"),
)
CHECK = ("doctor", "--json")


@pytest.fixture(scope="module")
def light_answers() -> dict[tuple[str, ...], Any]:
    """Exit code, output and messages of commands where torch is not installed, all from one process."""
    done = light(LIGHT + ANSWERS, "no_other", given=[*NEEDING, CHECK])
    return dict(zip((*NEEDING, CHECK), json.loads(done.stdout), strict=True))


@pytest.mark.parametrize("line", NEEDING, ids=lambda line: line[0])
def test_a_command_that_needs_torch_says_what_to_install(
    line: tuple[str, ...], light_answers: dict[tuple[str, ...], Any]
) -> None:
    code, _, err = light_answers[line]
    assert code == 1, err
    assert err.startswith(f"addnorm {line[0]}: this needs ")
    assert "pip install 'addnorm[torch]'" in err
    assert "Traceback" not in err


def test_the_check_of_a_machine_says_so_too(light_answers: dict[tuple[str, ...], Any]) -> None:
    code, out, _ = light_answers[CHECK]
    checks = json.loads(out)
    assert code == 1
    assert checks["python"]["ok"]
    assert not checks["torch"]["ok"]
    assert "addnorm[torch]" in checks["devices"]["detail"]


def test_any_other_missing_package_is_no_choice() -> None:
    done = light(LIGHT + ANSWERS, "scipy", given=[("rank", "kuang-2025")])
    ((traceback, _, err),) = json.loads(done.stdout)
    assert "No module named 'scipy'" in traceback
    assert "addnorm[torch]" not in err


def test_the_functions_say_so_too() -> None:
    done = light(LIGHT + "import addnorm\nprint(addnorm.rank('kuang-2025').references)\naddnorm.preset")
    assert done.stdout
    assert "addnorm.preset: this needs torch, which is not installed" in done.stderr.splitlines()[-1]


PAGE = """
import asyncio, sys
from pathlib import Path

from starlette.testclient import TestClient

from addnorm.reporting.reading.run_table import TableReader
from addnorm.web.app import application
from addnorm.web.live import Live

path = Path(sys.argv[2])
client = TestClient(application(path, live=Live(TableReader(path))), base_url="http://127.0.0.1:8321")
print([client.get(address).status_code for address in ("/", "/ranking", "/curves")])
"""


def test_the_page_of_a_table_is_served_without_torch(tmp_path: Path) -> None:
    runs = [f"{name},{seed},{2.5 + seed / 100}" for name in "ab" for seed in range(3)]
    (tmp_path / "runs.csv").write_text("\n".join(["variant,seed,loss", *runs]), encoding="utf-8")
    done = light(LIGHT + PAGE, "no_other", str(tmp_path / "runs.csv"))
    assert done.stdout.strip() == "[200, 200, 200]", done.stderr


def test_runs_are_read_without_scipy() -> None:
    """It takes a quarter of a second to import, which every worker and `addnorm status` would pay for a name of a measure."""
    code = "import sys, addnorm.store.run, addnorm.store.index; print('scipy' in sys.modules)"
    assert light(code).stdout.strip() == "False"
