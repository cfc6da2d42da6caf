"""Progress of `addnorm.run` in a notebook, whose IPython is replaced by one that records what it is asked to display."""

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from addnorm.store import RunStatus
from addnorm.study.loading import load_study
from addnorm.supervision.run import in_notebook, progress_html
from train_here import train_here


class Notebook:
    """Stand-in for IPython in the kernel of a notebook."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, shell: Any) -> None:
        self.outputs: list[list[str]] = []
        module, display = ModuleType("IPython"), ModuleType("IPython.display")
        module.get_ipython = lambda: shell  # type: ignore[attr-defined]
        display.HTML = lambda html: html  # type: ignore[attr-defined]
        display.display = self.display  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "IPython", module)
        monkeypatch.setitem(sys.modules, "IPython.display", display)

    def display(self, html: str, *, display_id: bool) -> Any:
        assert display_id
        self.outputs.append([html])
        return SimpleNamespace(update=self.outputs[-1].append)


def test_a_run_in_a_notebook_updates_one_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tiny_study_text: str
) -> None:
    notebook = Notebook(monkeypatch, shell=SimpleNamespace(kernel=object()))
    file = tmp_path / "tiny.yaml"
    file.write_text(tiny_study_text, encoding="utf-8")
    train_here(load_study(file, settings=("seeds=[0]", "training.steps=2")), tmp_path / "runs")
    (output,) = notebook.outputs
    assert len(output) > 1
    assert "2 finished" in output[-1]
    assert "100% of all steps" in output[-1]


@pytest.mark.parametrize("shell", [None, SimpleNamespace()])
def test_a_terminal_is_no_notebook(monkeypatch: pytest.MonkeyPatch, shell: Any) -> None:
    assert not in_notebook()
    Notebook(monkeypatch, shell)
    assert not in_notebook()


def test_progress_names_running_runs_and_escapes_them() -> None:
    statuses = [
        RunStatus(run="a", variant="<b>", seed=1, state="running", step=5, steps=10, loss=2.5),
        RunStatus(run="b", variant="base", seed=1, state="queued", step=0, steps=10),
    ]
    html = progress_html("study", statuses)
    assert "&lt;b&gt;, seed 1: step 5 of 10, loss 2.5000" in html
    assert "1 running, 1 queued" in html
    assert "25% of all steps" in html
