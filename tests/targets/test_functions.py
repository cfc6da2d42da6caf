"""A user's own function as a target, and names that are no target at all."""

import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from addnorm.errors import InputError
from addnorm.outside.targets import resolve

MODULE = """
import torch
from torch import nn

ready = nn.Linear(2, 2)

def both():
    return nn.Linear(3, 2), torch.ones(1, 3)

def alone():
    return nn.Linear(3, 2)

def nothing():
    return 3

def broken():
    raise KeyError("lost")

def leaves():
    raise SystemExit(0)
"""


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    Path("my_models.py").write_text(MODULE, encoding="utf-8")
    yield
    sys.modules.pop("my_models", None)


@pytest.mark.parametrize("home", ["my_models", "my_models.py"])
def test_a_model_with_its_inputs(home):
    before = list(sys.path)
    target = resolve(f"{home}:both")
    assert isinstance(target.model, nn.Linear)
    assert torch.equal(target.inputs, torch.ones(1, 3))
    assert target.kind == "function"
    assert sys.path == before


def test_inputs_that_are_given_stand_in():
    given = {"0": {"values": [[1.0, 2.0, 3.0]]}}
    for name in ("both", "alone"):
        target = resolve(f"my_models:{name}", inputs=given)
        assert torch.equal(target.inputs[0], torch.tensor([[1.0, 2.0, 3.0]]))


def test_a_module_object_is_a_model():
    target = resolve("my_models:ready", inputs={"0": {"shape": [1, 2]}})
    assert isinstance(target.model, nn.Linear)


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("my_models:alone", "expected inputs beside the model, got none"),
        ("my_models:both_", "no function 'both_'. Did you mean 'both'?"),
        ("my_models:nothing", "expected a torch.nn.Module, or a module and its inputs, got int"),
        ("my_models.py:broken", ", line 17: failed: KeyError: 'lost'"),
        ("my_models:leaves", ", line 20: failed: SystemExit: 0"),
        ("no_such_module:f", "module 'no_such_module' failed to import: ModuleNotFoundError"),
        ("no_such_file.py:f", "no_such_file.py: no such file"),
        ("nowhere", "expected a target, got 'nowhere', which is not a folder"),
        (".", "expected the folder of a run or of a checkpoint, got .. A run has a file spec.json"),
    ],
)
def test_a_mistake_is_named(target, said):
    with pytest.raises(InputError) as error:
        resolve(target)
    assert said in str(error.value)


def test_a_file_that_does_not_import_is_named_with_its_line():
    Path("bad.py").write_text("x = 1\nnope\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"bad\.py, line 2: failed to import: NameError"):
        resolve("bad.py:f")


def test_a_configuration_belongs_to_a_class():
    with pytest.raises(InputError, match="--config: expected a transformers:CLASS, got my_models:both, a function"):
        resolve("my_models:both", config={})
