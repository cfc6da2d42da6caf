"""Messages that name the real cause of what an audit refuses, and of failed exports."""

import importlib
import io
import logging
import threading
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import toys
from torch import nn
from toys import WIDTH, Behind, data, seeded

import addnorm
from addnorm.errors import InputError
from addnorm.redundancy.execution.tracked_parameters import track_parameters
from addnorm.redundancy.graph.export import NotExported, export
from addnorm.redundancy.graph.place_in_model import source_of


def scripted() -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch.jit is deprecated
        return torch.jit.script(nn.Linear(3, 3))


def quantised() -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # and so is torch.ao.quantization
        return torch.ao.quantization.quantize_dynamic(nn.Sequential(nn.Linear(3, 3)), {nn.Linear})


def with_nan(model: nn.Module) -> nn.Module:
    with torch.no_grad():
        next(model.parameters())[0, 0] = float("nan")
    return model


def on_two_devices() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3, device="meta"))


class Pair(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.map = nn.Linear(3, 2)

    def forward(self, x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return self.map(x) - target


def holding(make: Callable[[torch.Tensor], object]) -> nn.Module:
    """A model with an attribute made of its bias."""
    model = Behind(lambda h, x: h)
    made = make(model.maps[0].bias.detach())
    if isinstance(made, torch.Tensor):
        model.register_buffer("copy", made)
    else:
        model.kept = made
    return model


def closure_over_the_original() -> nn.Module:
    """A copy of the model would add the original's bias, which no audit moves."""
    model = Behind(lambda h, x: h.softmax(-1))
    bias = model.maps[0].bias
    model.register_forward_hook(lambda module, given, out: out + bias)
    return model


def numeric(model: object, inputs: object, **options: object) -> addnorm.Audit:
    return addnorm.audit(model, inputs, **({"methods": "numeric"} | options))


X, NAN = data(2, 3), torch.tensor([[0.0, torch.nan, 1.0], [2.0, 3.0, 4.0]])
PLAIN, WIDE = Behind(lambda h, x: h), data(3, 4, WIDTH)
REFUSED: dict[str, tuple[Callable[[], object], str]] = {
    # Inputs.
    "another width": (
        lambda: numeric(nn.Linear(3, 3), data(2, 4)),
        "runs on its example inputs, got RuntimeError at .* from Linear on float32.*mat1 and mat2 shapes cannot be multiplied"),
    "another width, when parameters are chosen": (
        lambda: track_parameters(nn.Linear(3, 3), torch.ones(3, 5)),
        r"got RuntimeError at .* from Linear on float32\[3, 5\]: mat1"),
    "a misspelt attribute": (
        lambda: addnorm.audit(Behind(lambda h, x: h.missing), data(3, 4, WIDTH)),
        r"got AttributeError at .*test_messages.py:\d+ from Behind on float32\[3, 4, \d+\]: .* or mend it"),
    "outputs that are all NaN": (
        lambda: addnorm.audit(Behind(lambda h, x: torch.sqrt(-h.abs() - 1)), data(3, 4, WIDTH)),
        "expected finite outputs, got none at these inputs"),
    "text": (
        lambda: numeric(nn.Linear(3, 3), "text"),
        "a tensor, a tuple of positional or a dict of keyword arguments, got str"),
    "NaN": (
        lambda: numeric(nn.Linear(3, 3), {"input": NAN}),
        r"inputs without NaN, got 1 of 6 numbers that are NaN in a tensor of shape \[2, 3\]"),
    "a missing argument": (lambda: numeric(Pair(), X), "missing 1 required positional argument: 'target'"),
    # Weights.
    "NaN in a weight": (lambda: numeric(with_nan(nn.Linear(3, 3)), X), "NaN in 'weight'"),
    "NaN, when parameters are chosen": (
        lambda: track_parameters(with_nan(nn.Linear(3, 3)), X), "expected finite weights, got NaN or infinity in 'weight'"),
    "two devices": (lambda: numeric(on_two_devices(), X), "one device, got cpu, meta"),
    "two devices, when parameters are chosen": (
        lambda: track_parameters(on_two_devices(), X), "all parameters on one device, got cpu, meta"),
    "the meta device": (
        lambda: numeric(nn.Linear(3, 3, device="meta"), X), "parameters with values, got a model on the meta device"),
    "a lazy module": (lambda: numeric(nn.LazyLinear(3), X), "initialised parameters, got .*, which is lazy"),
    "a scripted module": (lambda: numeric(scripted(), X), "a module of Python code, got a scripted or traced one"),
    "a quantised module": (
        lambda: numeric(quantised(), X), r"floating-point weights, got quantised ones in 0 \(Linear\)"),
    # A step of training would change both, an audit would move one.
    "two names of one memory": (
        lambda: addnorm.audit(holding(lambda bias: bias.data), WIDE),
        r"maps\.0\.bias and copy, which are two names of the same memory"),
    "a view kept aside": (
        lambda: addnorm.audit(holding(lambda bias: [bias[:3]]), WIDE), "are two names of the same memory"),
    "a closure over the original": (
        lambda: addnorm.audit(closure_over_the_original(), WIDE), r"reads maps\.0\.bias of the original"),
    "no copy": (lambda: addnorm.audit(holding(lambda _: threading.Lock()), WIDE), "deepcopy can copy"),
    # Options.
    "an unfinished expression": (lambda: numeric(nn.Linear(3, 3), X, track="("), "regular expression"),
    "a name of nothing": (
        lambda: numeric(nn.Linear(3, 3), X, track="nonesuch"), "parameters whose name matches 'nonesuch'"),
    "training as text": (
        lambda: addnorm.audit(PLAIN, WIDE, training="yes"), "expected `training` to be a bool, got 'yes'"),
    "a number to track": (lambda: addnorm.audit(PLAIN, WIDE, track=3), "expected `track` to be a str, got 3"),
    "a number as model": (lambda: addnorm.equivalent(PLAIN, 3, WIDE), r"expected a torch\.nn\.Module, got int"),
    "an amplification of NaN": (
        lambda: addnorm.audit(PLAIN, WIDE).strip(max_amplification=float("nan")),
        "expected `max_amplification` to be at least zero, got nan"),
}  # fmt: skip
"""What an audit refuses, and a part of the message."""


@pytest.mark.compiled
@pytest.mark.parametrize("name", REFUSED)
def test_the_cause_is_named(name: str) -> None:
    call, message = REFUSED[name]
    with pytest.raises(InputError, match=message):
        call()


def test_a_mask_of_infinities_is_not_nan() -> None:
    mask = torch.zeros(4, 4).masked_fill(torch.ones(4, 4).triu(1) > 0, float("-inf"))
    layer = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True).eval()
    assert addnorm.audit(layer, {"src": data(2, 4, 4), "src_mask": mask}, methods="numeric").joint_null > 0


@pytest.mark.compiled
@pytest.mark.parametrize("asked", [False, True])
def test_the_tracers_own_logs_appear_only_when_asked_for(monkeypatch: pytest.MonkeyPatch, asked: bool) -> None:
    logger = logging.getLogger("torch.fx.experimental.symbolic_shapes")
    before, written = logger.level, io.StringIO()
    monkeypatch.setattr(logger, "handlers", [logging.StreamHandler(written)])

    def failing(*_: object, **__: object) -> None:
        logger.error("graph of 500 lines")
        raise RuntimeError("cannot trace")

    monkeypatch.setattr(torch.export, "export", failing)
    monkeypatch.setenv("TORCH_LOGS", "+dynamo" if asked else "")
    with pytest.raises(NotExported, match="cannot trace"):
        export(seeded(toys.Attention), data(2, 4, WIDTH), observe="logits", training=False)
    assert ("graph of 500 lines" in written.getvalue()) == asked
    assert logger.level == before


def test_the_place_that_is_named_is_in_the_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also in a folder of torch's name and in mechanisms of our own; parts of torch alone have none."""
    folder = tmp_path / "torch"
    folder.mkdir()
    (folder / "in_torch_folder.py").write_text(
        "from torch import nn, tanh\n\n\nclass Bent(nn.Linear):\n    def forward(self, x):\n"
        "        return tanh(super().forward(x))\n"
    )
    monkeypatch.syspath_prepend(str(folder))
    x = torch.randn(2, 5, 8, generator=torch.Generator().manual_seed(0))
    (found,) = addnorm.audit(importlib.import_module("in_torch_folder").Bent(8, 3).eval(), x).findings
    assert {each.where for each in found.blocked_by} == {f"{folder / 'in_torch_folder.py'}:6"}
    (folder / "in_helper.py").write_text(
        "from torch import nn, tanh\n\n\ndef bent(x):\n    return tanh(x)\n\n\nclass Bent(nn.Linear):\n"
        "    def forward(self, x):\n        return bent(super().forward(x))\n"
    )
    (found,) = addnorm.audit(importlib.import_module("in_helper").Bent(8, 3).eval(), x).findings
    assert {each.where for each in found.blocked_by} == {f"{folder / 'in_helper.py'}:5"}  # not the line of the call
    found, _ = addnorm.audit(nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 3)).eval(), x).findings
    assert {each.where for each in found.blocked_by} == {""}
    sizes = {"vocab": 11, "width": 8, "depth": 1, "heads": 2, "hidden": 5, "max_seq": 9}
    program = export(
        addnorm.preset("gpt2", **sizes).build(seed=0).eval(),
        torch.zeros(1, 4, dtype=torch.int64),
        observe="logits",
        training=False,
    )
    places = {source_of(node)[1] for node in program.nodes if node.op == "call_function"}
    assert any("addnorm/model/attention.py" in each for each in places)
    assert not any("/redundancy/" in each for each in places)
