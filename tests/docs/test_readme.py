"""The readme's own-mechanism example is run exactly as it stands, and both languages show the same code."""

import re
import shlex
from pathlib import Path

import pytest

from addnorm.catalogue import remove_plugin
from addnorm.cli import commands, main
from train_here import workers_here

ROOT = Path(__file__).parents[2]
README, README_ZH = ROOT / "README.md", ROOT / "README.zh-CN.md"


def blocks(path: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", path.read_text(encoding="utf-8"), flags=re.M | re.S)


def commands_in(path: Path) -> list[str]:
    lines = path.read_text(encoding="utf-8").splitlines()
    return [line.split("#")[0].strip() for line in lines if re.match(r"    (addnorm|make) [a-z]", line)]


@pytest.fixture
def _forget_plugin():
    yield
    remove_plugin("damped")


@pytest.mark.usefixtures("_forget_plugin")
def test_the_readmes_own_mechanism_runs_as_printed(tmp_path, monkeypatch, capsys):
    """In English: the test below shows that the code and the commands of the Chinese readme are the same."""
    monkeypatch.chdir(tmp_path)
    (mechanism,) = (block for block in blocks(README, "python") if "ResidualSpec" in block)
    (study,) = blocks(README, "yaml")
    Path("damped.py").write_text(mechanism, encoding="utf-8")
    Path("damping.yaml").write_text(study, encoding="utf-8")
    assert len([line for line in mechanism.splitlines() if line.strip()]) <= 18
    for line in [line for line in commands_in(README) if "damp" in line]:
        with workers_here():
            code = main(shlex.split(line)[1:])
        out, err = capsys.readouterr()
        assert code == 0, f"{line}: {err}"
        assert "damped" in out or "runs finished" in out


def test_both_readmes_show_the_same_code_and_commands():
    for language in ("python", "yaml"):
        english, chinese = ("\n".join(blocks(path, language)) for path in (README, README_ZH))
        assert re.sub(r"#.*", "", english) == re.sub(r"#.*", "", chinese)
    assert commands_in(README) == commands_in(README_ZH)


def test_a_line_for_one_run_works_on_such_a_run(finished, tmp_path, monkeypatch, capsys):
    """The Chinese readme has the same lines, by the test above."""
    lines = [line for line in commands_in(README) if "-s0-…" in line]
    assert {line.split()[1] for line in lines} == {"audit", "export", "generate"}
    monkeypatch.chdir(tmp_path)
    for line in lines:
        words = shlex.split(line)[1:]
        (run,) = finished.glob(f"{Path(words[1]).name.removesuffix('…')}*")
        assert main([words[0], str(run), *words[2:]]) == 0, f"{line}: {capsys.readouterr().err}"


def test_every_command_stands_in_both_readmes_or_a_guide():
    text = "".join(path.read_text(encoding="utf-8") for path in (README, README_ZH, *(ROOT / "docs").rglob("*.md")))
    missing = [name for name in commands() if f"addnorm {name}" not in text]
    assert not missing


@pytest.mark.parametrize("path", [README, README_ZH, ROOT / "ARCHITECTURE.md", ROOT / "CONTRIBUTING.md"])
def test_links_lead_somewhere(path):
    for target in re.findall(r"\]\((?!http)([^)#]+)", path.read_text(encoding="utf-8")):
        assert (ROOT / target).exists(), f"{path.name}: {target}"
