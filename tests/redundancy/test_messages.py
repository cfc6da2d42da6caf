"""Messages that name the real cause: scripted and quantised modules, NaN inputs, missing arguments, failed exports."""

import logging
import warnings

import pytest
import torch
import toys
from torch import nn
from toys import WIDTH, data, seeded

import addnorm
from addnorm.errors import InputError
from addnorm.redundancy.graph.export import NotExported, export


def scripted() -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch.jit is deprecated
        return torch.jit.script(nn.Linear(3, 3))


def quantised() -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # and so is torch.ao.quantization
        return torch.ao.quantization.quantize_dynamic(nn.Sequential(nn.Linear(3, 3)), {nn.Linear})


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (scripted, "a module of Python code, got a scripted or traced one"),
        (quantised, r"floating-point weights, got quantised ones in 0 \(Linear\)"),
    ],
)
def test_modules_without_movable_weights_are_refused(build, message: str) -> None:
    with pytest.raises(InputError, match=message):
        addnorm.audit(build(), data(2, 3), methods="numeric")


def test_inputs_with_nan_are_refused() -> None:
    x = data(2, 3)
    x[0, 1] = float("nan")
    with pytest.raises(
        InputError, match=r"inputs without NaN, got 1 of 6 numbers that are NaN in a tensor of shape \[2, 3\]"
    ):
        addnorm.audit(nn.Linear(3, 3), {"input": x}, methods="numeric")
    mask = torch.zeros(4, 4).masked_fill(torch.ones(4, 4).triu(1) > 0, float("-inf"))
    layer = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True).eval()
    assert addnorm.audit(layer, {"src": data(2, 4, 4), "src_mask": mask}, methods="numeric").joint_null > 0


def test_a_missing_argument_is_named() -> None:
    with pytest.raises(InputError, match="missing 1 required positional argument: 'target'"):
        addnorm.audit(Pair(), data(2, 3), methods="numeric")


class Pair(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.map = nn.Linear(3, 2)

    def forward(self, x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return self.map(x) - target


@pytest.mark.compiled
@pytest.mark.parametrize("asked", [False, True])
def test_the_tracers_own_logs_appear_only_when_asked_for(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, asked: bool
) -> None:
    logger = logging.getLogger("torch.fx.experimental.symbolic_shapes")
    before = logger.level

    def failing(*_: object, **__: object) -> None:
        logger.error("graph of 500 lines")
        raise RuntimeError("cannot trace")

    monkeypatch.setattr(torch.export, "export", failing)
    monkeypatch.setenv("TORCH_LOGS", "+dynamo" if asked else "")
    monkeypatch.setattr(logger, "propagate", True)
    with pytest.raises(NotExported, match="cannot trace"):
        export(seeded(toys.Attention), data(2, 4, WIDTH), observe="logits", training=False)
    assert bool([each for each in caplog.records if "graph of 500 lines" in each.message]) == asked
    assert logger.level == before
