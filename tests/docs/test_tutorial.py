"""The tutorial is run line by line, in the order of the page; the Chinese page has the same lines (test_translations.py)."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from addnorm.catalogue import remove_plugin
from addnorm.cli import commands, main
from train_here import workers_here

PAGE = Path(__file__).parents[2] / "docs" / "guide" / "tutorial.md"
ELSEWHERE = ("make demo", "addnorm watch")
"""The first takes minutes (docs/release.md has it), the second serves until it is stopped (tests/web)."""
PARTS = re.compile(r"^```(python|yaml)\n(.*?)^```$|^    ((?:addnorm|make) [^\n]*)$", re.M | re.S)


def parts(page: Path) -> list[tuple[str, str]]:
    """Code blocks and commands in their order: language or `command`, and text."""
    found = PARTS.finditer(page.read_text(encoding="utf-8"))
    return [(match[1], match[2]) if match[1] else ("command", match[3]) for match in found]


@pytest.fixture
def _forget_plugin() -> Iterator[None]:
    yield
    remove_plugin("recent")


@pytest.mark.usefixtures("_forget_plugin", "blank_pictures")
def test_every_line_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """With 4 steps instead of 300, and a tenth of the text: the rest is as printed."""
    monkeypatch.chdir(tmp_path)
    ran = []
    for kind, text in parts(PAGE):
        if kind == "yaml":
            short = text.replace("steps: 300", "steps: 4").replace("eval_sequences: 128", "eval_sequences: 8")
            assert short != text
            Path("recent.yaml").write_text(short, encoding="utf-8")
        elif kind == "python" and "ResidualSpec" in text:
            Path("recent.py").write_text(text, encoding="utf-8")
        elif kind == "python":
            exec(text, {})
            Path("my.txt").write_text(Path("my.txt").read_text(encoding="utf-8")[:400_000], encoding="utf-8")
        elif any(text.startswith(line) for line in ELSEWHERE):
            assert text.split()[1] in {"demo", *commands()}
        else:
            with workers_here():
                code = main(shlex.split(text)[1:])
            out, err = capsys.readouterr()
            assert code == 0, f"{text}: {err}"
            ran.append((text.split()[1], out))
    assert [command for command, _ in ran] == ["list", "plan", "run", "rank", "run", "rank", "inspect", "report"]
    outputs = dict(ran)
    assert "recent" in outputs["list"]
    assert all(f"half-s{seed}" in outputs["inspect"] for seed in (0, 1, 2))
    assert "x_{l+1} = keep" in Path("report/recent.html").read_text(encoding="utf-8")
