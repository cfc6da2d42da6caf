"""Every file of a mechanism can be run, and shows the mechanism."""

import subprocess
import sys
from pathlib import Path

import pytest

from addnorm.catalogue import MECHANISM_ROOMS, ROOMS
from addnorm.insight.mechanism import on_one_screen
from sampled import sampled

KINDS = [(name, kind) for name in MECHANISM_ROOMS for kind in ROOMS[name].kinds()]


@pytest.mark.parametrize(("room", "kind"), KINDS, ids=["-".join(each) for each in KINDS])
def test_every_mechanism_has_a_screen(room: str, kind: str) -> None:
    doc, cls, text = ROOMS[room].doc(kind), ROOMS[room].spec_class(kind), on_one_screen(room, kind)
    assert text.startswith(f"{room} {kind}: ")
    assert ("\nEquals:" in text) == bool(cls.reduces_to())
    assert doc.summary.partition(": ")[2] in text
    assert "None" not in text.partition("Parameters")[2]


def test_a_screen_shows_formula_equalities_parameters_and_weights() -> None:
    lines = on_one_screen("residual", "rezero").splitlines()
    assert "    x_{l+1} = x_l + alpha_l * f_l(x_l),        alpha_l = 0.0 at initialisation" in lines
    assert "    residual = 'add'  (settings: alpha_init = 1.0; parameters: as at the start)" in lines
    assert "    residual.alpha  [4]    all 0" in lines
    assert "    close          1.00" in lines  # branches are switched off, so the final norm reads the embeddings alone
    dense = on_one_screen("residual", "dense").splitlines()
    assert dense[-1].split() == ["close", *["1.00"] * 5]


@pytest.mark.parametrize("module", sampled(3, ["residual.rezero", "norm.rms", "scores.signed"]))
def test_a_file_that_runs_prints_its_screen(module: str) -> None:
    command = [sys.executable, "-W", "error", "-m", f"addnorm.{module}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == on_one_screen(*module.split("."))


def test_a_script_with_a_mechanism_of_its_own_runs_to_its_end(tmp_path: Path) -> None:
    script = tmp_path / "rezero.py"
    script.write_text("from addnorm.residual import ResidualSpec\nclass ReZero(ResidualSpec): ...\nprint('the end')\n")
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("the end\n", "")
