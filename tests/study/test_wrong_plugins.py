"""Wrong plug-ins: each ends in one line that names the true cause, and leaves the catalogue as it was."""

# ruff: noqa: E501 - tables of whole messages

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from addnorm.catalogue import ROOMS, remove_plugin
from addnorm.errors import AddnormWarning, InputError
from addnorm.study.plugins import load_plugins
from sampled import sampled

_SPEC = '''
from dataclasses import dataclass
from typing import NamedTuple
import torch
from torch import nn
from addnorm.{room} import {base}
from addnorm.reduction import Reduction

@dataclass(frozen=True, kw_only=True)
class Own({base}):
    """A mechanism."""

    weight: float = 1.0
    """Of a branch."""

    @classmethod
    def reduces_to(cls):
        return ()

    def build(self, {arguments}):
        return OwnModule({values})
'''
RESIDUAL = (
    _SPEC.format(
        room="residual", base="ResidualSpec, Residual", arguments="shape, parts", values="self.weight"
    ).replace("(ResidualSpec, Residual)", "(ResidualSpec)")
    + """
class OwnModule(Residual):
    def __init__(self, weight):
        super().__init__()
        self.weight = weight

    def write(self, state, y, site):
        return state + self.weight * y
"""
)
SCORES = (
    _SPEC.format(room="scores", base="ScoresSpec, Scores", arguments="shape", values="shape").replace(
        "(ScoresSpec, Scores)", "(ScoresSpec)"
    )
    + """
class OwnModule(Scores):
    def __init__(self, shape):
        super().__init__()
        self.scale = shape.head_dim**-0.5

    def weights(self, layer):
        return (self.scale,) * (layer + 1)
"""
)
NORM = (
    _SPEC.format(room="norm", base="NormSpec", arguments="dim, *, shift", values="dim")
    + """
class OwnModule(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(dim))

    def forward(self, x):
        return x / (x.square().mean(-1, keepdim=True) + 1e-5).sqrt() * self.gain
"""
)
WRITE = "return state + self.weight * y"
IN_A_DICT = """

    def open(self, x):
        return {"x": x}

    def read(self, state, site):
        return state["x"], state

    def view(self, state):
        return state["x"]
"""


def changed(old: str, new: str, text: str = RESIDUAL) -> str:
    assert old in text
    return text.replace(old, new)


def law(name: str, room: str = "residual") -> str:
    return rf": {room} 'mine' breaks the law '{name}': "


WRONG: dict[str, tuple[str, str]] = {
    # The file.
    "raises at import": ("x = 1\ny = x / 0\n", r", line 2: failed to import: ZeroDivisionError: division by zero$"),
    "wrong syntax": ("x = = 1\n", r": failed to import: SyntaxError: invalid syntax \(mine\.py, line 1\)$"),
    "ends the process": ("import sys\nsys.exit(3)\n", r", line 2: failed to import: SystemExit: 3$"),
    "no class": ("x = 1\n", r": expected exactly one spec .*, got 0\. The file defines no class; `addnorm new --mechanism"),
    "a module without a spec": (RESIDUAL[: RESIDUAL.index("@dataclass")] + RESIDUAL[RESIDUAL.index("class OwnModule") :], r": .*, got 0\. The file defines the classes OwnModule;"),
    "two specs": (RESIDUAL + RESIDUAL.replace("Own", "Other"), r": .*, got 2\. The file defines the classes Own, OwnModule, Other, OtherModule;"),
    # The spec.
    "no decorator": (changed("@dataclass(frozen=True, kw_only=True)\n", ""), law("runs") + r"Own is not a dataclass, so that weight cannot be set\. Write @dataclass"),
    "not frozen": (changed("(frozen=True, kw_only=True)", ""), r", line 9: failed to import: TypeError: cannot inherit non-frozen dataclass from a frozen one$"),
    "no default": (changed("weight: float = 1.0", "weight: float"), r": Own: expected a default for every field, .* got none for weight\.$"),
    "a mutable default": (changed("weight: float = 1.0", "weight: list = []"), r", line 9: failed to import: ValueError: mutable default <class 'list'> for field weight"),
    "a default of another type": (changed("= 1.0", "= 'one'"), r": mine\.weight: expected a finite number, got 'one'\.$"),
    "defaults that it refuses": (changed("    @classmethod", "    def __post_init__(self):\n        raise ValueError('too large')\n\n    @classmethod"), r": Own\(\) breaks the law 'runs': line 17: ValueError: too large\."),
    # What it builds.
    "no build": (RESIDUAL[: RESIDUAL.index("    def build")] + RESIDUAL[RESIDUAL.index("class OwnModule") :], law("runs") + r"Own has no method `build`\."),
    "build without return": (changed("return OwnModule", "OwnModule"), law("runs") + r"Own\.build returns None, not a Residual\."),
    "build with other arguments": (changed("build(self, shape, parts)", "build(self, shape)"), law("runs") + r"TypeError: Own\.build\(\) takes 2 .*\. Its signature is build\(self, shape, parts\)\.$"),
    "a norm's build without shift": (changed("dim, *, shift", "dim", NORM), law("runs", "norm") + r"TypeError: .*'shift'\. Its signature is build\(self, dim, \*, shift\)\.$"),
    "a module of another kind": (changed("class OwnModule(Residual)", "class OwnModule(nn.Module)"), law("runs") + r"Own\.build returns a OwnModule, not a Residual\. Return the module, whose class derives from addnorm\.residual\.Residual\.$"),
    "no write": (RESIDUAL[: RESIDUAL.index("    def write")], law("runs") + r"line 21: OwnModule does not define '?write'?\."),
    "no super().__init__": (changed("        super().__init__()\n        self.weight = weight", "        self.weight = nn.Parameter(torch.ones(()))"), law("runs") + r"line 25: the constructor of torch\.nn\.Module was not called .* Write super\(\)\.__init__\(\) as the first line"),
    # What its methods return.
    "write without return": (changed(WRITE, "state + self.weight * y"), law("runs") + r"write returns None, not a state\."),
    "write without a site": (changed("write(self, state, y, site)", "write(self, state, y)"), law("runs") + r"TypeError: .* Its signature is write\(self, state, y, site\)\.$"),
    "write of another shape": (changed(WRITE, "return (state + y)[:, :, :4]"), law("runs") + r"write returns a tensor of shape \[2, 9, 4\], not a stream \[batch, seq, 32\]\."),
    "read of one thing": (RESIDUAL + "\n    def read(self, state, site):\n        return state\n", law("runs") + r"read returns a Tensor, not the pair"),
    "a state in a dict": (RESIDUAL + IN_A_DICT, law("runs") + r"open returns a dict, not a state\. A state is the stream itself \(a tensor\) or a NamedTuple;"),
    "a state without stream": ("from typing import NamedTuple\nclass Held(NamedTuple):\n    x: object\n" + RESIDUAL + "\n    def open(self, x):\n        return Held(x)\n", law("runs") + r"open returns a Held without a field `stream`, which read and map_stream and view need\. Name the stream's field `stream`"),
    "a misspelt attribute": (changed("self.weight * y", "self.wieght * y"), law("runs") + r"line 29: AttributeError: 'OwnModule' object has no attribute 'wieght'\."),
    "weights of another length": (changed("(layer + 1)", "(layer + 2)", SCORES), law("runs", "scores") + r"weights must hold one number per term, 1, got 2\."),
    "weights without return": (changed("return (self.scale,)", "(self.scale,)", SCORES), law("runs", "scores") + r".*NoneType.* A method of the mechanism returns nothing: look for a `return`"),
    "a norm without return": (changed("return x /", "x /", NORM), law("runs", "norm") + r"OwnModule\.forward returns None\. Return the result\.$"),
    # Where its tensors lie, and their dtype.
    "arange on the CPU": (changed("(self.scale,) * (layer + 1)", "torch.arange(1, layer + 2) * self.scale", SCORES), law("runs_on_its_device", "scores") + r"a tensor that it makes lies on another device .* device=x\.device"),
    "a plain tensor": (changed("self.weight = weight", "self.weight = torch.eye(32)").replace("self.weight * y", "y @ self.weight.to(y.dtype)"), law("runs_on_its_device") + r"mm joins a tensor \[32, 32\] of the CPU to those of the model's device\. .*register_buffer"),
    "a float32 constant": (changed(WRITE, "return state + y @ torch.eye(32)"), law("keeps_shape_and_dtype") + r"line 29: a tensor that it makes has another dtype than the model's stream, such as float32 in a float64 model \(.*\)\. Make a constant where it is used"),
    "a tensor on a GPU": (changed(WRITE, "return state + y * torch.ones(32, device='cuda')"), law("runs_on_its_device") + r"line 29: "),
    # What it computes.
    "writes in place": (changed(WRITE, "state += self.weight * y\n        return state"), law("leaves_inputs_alone") + r"OwnModule\.write writes into a tensor"),
    "draws while it is evaluated": (changed(WRITE, "return state + torch.rand(()) * y"), law("repeats_itself") + r"two passes in evaluation mode differ"),
    "reads the future": (changed(WRITE, "return state + y.flip(1)"), law("is_causal") + r"changing token 1 moves an earlier logit"),
    "a norm over positions": (changed("mean(-1,", "mean(1,", NORM), law("is_causal", "norm")),
    "a root of zero": (changed(WRITE, "return state + y * (y - y).abs().sum(-1, keepdim=True).sqrt()"), law("has_finite_gradients") + r".*not finite at the start\. Look for 0/0 or sqrt\(0\)\.$"),
    "an idle parameter": (changed("self.weight = weight", "self.weight = weight\n        self.other = nn.Parameter(torch.ones(()))"), law("has_finite_gradients") + r"residual\.other gets no gradient\."),
    "a hidden number": (changed("self.weight = weight", "self.weight = torch.randn(()).item()"), law("survives_its_state_dict")),
    # What it says about itself.
    "nothing about what it equals": (changed("    @classmethod\n    def reduces_to(cls):\n        return ()\n", ""), law("reduces_as_declared") + r"Own does not say what it equals\."),
    "a wrong equality": (changed("return ()", "return (Reduction(to={'residual': 'rezero'}),)"), law("reduces_as_declared") + r".*a logit differs from \{'residual': 'rezero'\} by"),
    "an equality with nothing": (changed("return ()", "return (Reduction(to={'residual': 'ad'}),)"), law("reduces_as_declared") + r"no residual 'ad'\. Did you mean 'add'\?"),
    "a setting that it has not": (changed("return ()", "return (Reduction(settings={'weigth': 1.0}, to={'residual': 'add'}),)"), law("reduces_as_declared") + r"Own has no field 'weigth'.* Did you mean 'weight'\?$"),
    "an equality without its comma": (changed("return ()", "return Reduction(to={'residual': 'add'})"), law("reduces_as_declared") + r"reduces_to returns Reduction, not a tuple"),
    "coefficients of no parameter": (RESIDUAL + "\n    def coefficients(self):\n        return {'weight': ([0], torch.ones(1))}\n", law("is_viewed_and_traced") + r"residual\.coefficients\(\)\['weight'\]: .*got no parameter 'weight'\."),
    "a view of another state": (RESIDUAL + "\n    def view(self, state):\n        return state.stream\n\n    def read(self, state, site):\n        return state, state\n\n    def close(self, state):\n        return state\n", law("is_viewed_and_traced") + r"line 32: AttributeError: 'Tensor' object has no attribute 'stream'\."),
}  # fmt: skip


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    torch.set_num_threads(1)
    yield
    remove_plugin("mine")


@pytest.mark.parametrize(("text", "expected"), sampled(2, WRONG.values()), ids=WRONG)
def test_one_line_names_the_cause(tmp_path: Path, text: str, expected: str) -> None:
    path = tmp_path / "mine.py"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError) as caught:
        load_plugins(["mine.py"], tmp_path)
    message = str(caught.value)
    assert re.match(f"plugin {re.escape(str(path))}{expected}", message), message
    assert "\n" not in message
    assert len(message) < 900
    assert not any("mine" in room.plugins for room in ROOMS.values()), "a wrong plugin takes no part"


@pytest.mark.parametrize("text", [RESIDUAL, SCORES, NORM], ids=["residual", "scores", "norm"])
def test_what_they_are_made_from_is_right(tmp_path: Path, text: str) -> None:
    (tmp_path / "mine.py").write_text(text, encoding="utf-8")
    if text is not RESIDUAL:  # their field has no use, and no law forbids one
        assert "weight: float" in text
    load_plugins(["mine.py"], tmp_path)


def test_style_is_a_warning_and_comes_last(tmp_path: Path) -> None:
    bare = changed('    """Of a branch."""\n', "")
    path = tmp_path / "mine.py"
    path.write_text(changed(WRITE, "return state + y.flip(1)", bare), encoding="utf-8")
    with pytest.raises(InputError, match="'is_causal'"):
        load_plugins(["mine.py"], tmp_path)
    path.write_text(bare, encoding="utf-8")
    with pytest.warns(AddnormWarning, match=r"residual 'mine' breaks the law 'fields_are_documented': weight has no"):
        load_plugins(["mine.py"], tmp_path)
    assert "mine" in ROOMS["residual"].kinds()
