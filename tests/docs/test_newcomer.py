"""A newcomer's whole path, in both languages: clone, demo, own text, own mechanism, verdict, page, report.

Every command is a process of its own in a fresh clone, as a newcomer types it. Only what takes long is less: steps, held-out
sequences, the demo's models. `test_tutorial.py` runs the tutorial's lines in one process, in every session.

Training does not depend on the language, and takes most of the time: of each study the second language trains one run anew, and
finds the others that the first one has trained.
"""

import os
import re
import select
import shlex
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from test_tutorial import parts

from sampled import sampled

ROOT = Path(__file__).parents[2]
CHINESE = re.compile(r"[\u4e00-\u9fff]")
LOCALES = {"en": "C.UTF-8", "zh": "zh_CN.UTF-8"}
GUIDES = {"en": "tutorial.md", "zh": "tutorial.zh-CN.md"}
SHORT_DEMO = (
    *("training.steps=4", "training.eval_sequences=4", "model.depth=2"),
    *("seeds=[0,1,2]", "variants=[pre,scale]"),
)
ADDRESS = re.compile(r"http://[\w.:/?=&-]+")

pytestmark = pytest.mark.thorough


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("newcomer")


@pytest.fixture
def clone(place: Path) -> Path:
    """A fresh clone in one place for both languages, since a study remembers where its text and plug-in are."""
    if not (ROOT / ".git").exists() or shutil.which("git") is None:
        pytest.skip("a source distribution cannot be cloned")
    for earlier in ("addnorm", "state"):
        shutil.rmtree(place / earlier, ignore_errors=True)
    subprocess.run(["git", "clone", "-q", "--no-hardlinks", str(ROOT), str(place / "addnorm")], check=True)
    return place / "addnorm"


# Each language takes about a minute, most of it for starting processes. In Chinese it is the soak's: what a
# newcomer reads then is a test of tests/cli/test_language.py.
@pytest.fixture(params=sampled(2, LOCALES, pytest.mark.soak))
def language(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def environment(clone: Path, language: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("LC_", "LANG"))}
    return {
        **kept,
        "PYTHONPATH": str(clone / "src"),
        "ADDNORM_STATE": str(clone.parent / "state"),
        "LANG": LOCALES[language],
        "JAXTYPING_DISABLE": "1",
    }


@pytest.fixture
def type_in(clone: Path, environment: dict[str, str]) -> Callable[..., str]:
    """Runs a command line of the guide in the clone; its output."""

    def run(line: str, *more: str) -> str:
        words = [sys.executable, "-m", "addnorm", *shlex.split(line)[1:], *more]
        study = Path(words[words.index("--out") + 1]) if words[3] == "run" else None
        if study is not None and (trained := clone.parent / "trained" / study).exists():
            shutil.copytree(trained, clone / study, symlinks=True)
            shutil.rmtree(min(path.parent for path in (clone / study).glob("*/events.jsonl")))
        done = subprocess.run(words, cwd=clone, env=environment, capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, f"{line}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
        if study is not None and not trained.exists():
            shutil.copytree(clone / study, trained, symlinks=True)
        return done.stdout

    return run


@pytest.fixture
def page(clone: Path, environment: dict[str, str]) -> Iterator[Callable[[str], str]]:
    """Opens the page that `addnorm watch` prints, as a browser in the newcomer's language does."""
    started: list[subprocess.Popen[str]] = []

    def opened(line: str) -> str:
        words = [sys.executable, "-u", "-m", "addnorm", *shlex.split(line)[1:], "--port", "0"]
        served = subprocess.Popen(words, cwd=clone, env=environment, stdout=subprocess.PIPE, text=True)
        started.append(served)
        assert served.stdout is not None
        end, printed = time.monotonic() + 120, ""
        while (found := ADDRESS.search(printed)) is None:
            assert time.monotonic() < end, f"{line}: no address in {printed!r}"
            if select.select([served.stdout], [], [], 1)[0]:
                printed += served.stdout.readline()
        accepted = environment["LANG"].partition(".")[0].replace("_", "-").replace("C", "en", 1)
        request = urllib.request.Request(found[0], headers={"Accept-Language": accepted})
        with urllib.request.urlopen(request, timeout=120) as answer:
            return str(answer.read().decode())

    yield opened
    for served in started:
        with served:  # closes its output
            served.terminate()


def test_from_clone_to_report(
    clone: Path, language: str, type_in: Callable[..., str], page: Callable[[str], str]
) -> None:
    # The demo: the commands of `make demo`, on fewer models.
    demo = re.findall(r"^\t\$\(BIN\)/(addnorm .*)$", (clone / "Makefile").read_text(encoding="utf-8"), re.M)[:2]
    assert [line.split()[1] for line in demo] == ["run", "rank"]
    outputs = [
        type_in(demo[0], *(part for setting in SHORT_DEMO for part in ("--set", setting))),
        type_in(demo[1]),
    ]
    assert "scale" in outputs[1]
    ran, pages = ["demo"], []
    for kind, text in parts(clone / "docs" / "guide" / GUIDES[language]):
        if kind == "yaml":
            short = text.replace("steps: 300", "steps: 4").replace("eval_sequences: 128", "eval_sequences: 8")
            (clone / "recent.yaml").write_text(short, encoding="utf-8")
        elif kind == "python" and "ResidualSpec" in text:
            (clone / "recent.py").write_text(text, encoding="utf-8")
        elif kind == "python":
            subprocess.run([sys.executable, "-c", text], cwd=clone, check=True)
            words = (clone / "my.txt").read_text(encoding="utf-8")
            (clone / "my.txt").write_text(words[:400_000], encoding="utf-8")
        elif text.startswith("addnorm watch"):
            pages.append(page(text))
        elif text.startswith("addnorm"):
            outputs.append(type_in(text))
            ran.append(text.split()[1])
    assert ran == ["demo", "list", "plan", "run", "rank", "run", "rank", "inspect", "report"]
    # The page shows the question, every model and the formula's name; all in the newcomer's language.
    assert len(pages) == 1
    assert all(name in pages[0] for name in ("base", "recent", "half"))
    assert f'lang="{language}' in pages[0]
    assert ("变体" in pages[0]) == (language == "zh")
    report = (clone / "report" / "recent.html").read_text(encoding="utf-8")
    assert "x_{l+1} = keep" in report
    assert "half" in report
    without = [text for text in outputs if bool(CHINESE.search(text)) != (language == "zh")]
    assert without == []
