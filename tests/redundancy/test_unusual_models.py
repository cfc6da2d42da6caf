"""Models whose weights, buffers or outputs are no plain arrays of numbers: each works, or gets one message that names them."""

import dataclasses
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence
from toys import data, seeded

import addnorm
from addnorm.cli import main
from addnorm.errors import InputError

pytestmark = [
    pytest.mark.filterwarnings(f"ignore:{each}:UserWarning")
    for each in ("The PyTorch API of nested tensors", "Sparse CSC tensor support", "torch.quantize_per_tensor")
]


class Returns(nn.Module):
    """A linear layer, and a function of its output."""

    def __init__(self, made: Callable[[Tensor], Any] = lambda y: y) -> None:
        super().__init__()
        self.linear, self.made = nn.Linear(4, 4), made

    def forward(self, x: Tensor) -> Any:
        return self.made(self.linear(x))


class Holds(nn.Module):
    """A weight in an unusual form, as parameter or as buffer."""

    def __init__(self, weight: Tensor, kind: str) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        if kind == "parameter":
            self.weight = nn.Parameter(weight, requires_grad=False)
        else:
            self.register_buffer("weight", weight)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x) @ self.weight.to_dense().to(x.dtype)


def _quantised(values: Tensor) -> Tensor:
    return torch.quantize_per_tensor(values.detach().float(), 0.1, 0, torch.qint8)


def _refusal(model: nn.Module, x: Any) -> str:
    """The message of an audit, which a comparison repeats."""
    messages = []
    for call in (lambda: addnorm.audit(model, x), lambda: addnorm.equivalent(model, model, x)):
        with pytest.raises(InputError) as raised:
            call()
        messages.append(str(raised.value))
    assert messages[0] == messages[1]
    assert "\n" not in messages[0]
    return messages[0]


@pytest.mark.parametrize("kind", ["parameter", "buffer"])
@pytest.mark.parametrize(
    ("weight", "words"),
    [
        (Tensor.to_sparse, "sparse (sparse_coo)"),
        (Tensor.to_sparse_csc, "sparse (sparse_csc)"),
        (lambda eye: torch.nested.nested_tensor([eye[:2], eye]), "nested"),
        (lambda eye: eye.to(torch.float8_e4m3fn), "float8_e4m3fn"),
        (lambda eye: eye.to("meta"), "on the meta device"),
        (lambda eye: eye / 0, "NaN"),
    ],
)
def test_a_weight_in_an_unusual_form_is_named(kind: str, weight: Callable[[Tensor], Tensor], words: str) -> None:
    message = _refusal(Holds(weight(torch.eye(4)), kind), data(2, 4))
    if kind == "parameter" and "meta" in words:
        assert "expected all parameters on one device, got cpu, meta" in message
    else:
        assert "'weight'" in message
        assert words in message


def test_a_quantised_buffer_is_named() -> None:
    message = _refusal(Holds(_quantised(torch.eye(4)), "buffer"), data(2, 4))
    assert "buffer 'weight' in qint8" in message


def test_a_norm_that_diverged_is_named() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)).eval()
    model[1].running_var[2] = torch.nan
    assert "NaN in '1.running_var' (1 of 4 numbers)" in _refusal(model, data(3, 4))


def test_a_mask_of_infinities_is_no_mistake() -> None:
    model = Holds(torch.eye(4), "buffer")
    model.register_buffer("mask", torch.full((4,), -torch.inf))
    assert addnorm.audit(model, data(2, 4), methods="static").size == 4


def test_lazy_modules_are_named_by_the_command(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Estimating the cost comes before the audit."""
    module = type(sys)("lazy_models")
    module.model = lambda: (nn.Sequential(nn.LazyLinear(3)), data(2, 4))
    monkeypatch.setitem(sys.modules, "lazy_models", module)
    assert main(["audit", "lazy_models:model"]) == 2
    assert "got '0.weight', which is lazy" in capsys.readouterr().err


def _compiled(what: Any) -> Any:
    return torch.compile(what, backend="aot_eager")


class _InPlace(nn.Module):
    """One layer was compiled by its method."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.norm = nn.Linear(4, 4), nn.LayerNorm(4)
        self.linear.compile(backend="aot_eager")

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.linear(x))


def _made_for_inference() -> nn.Module:
    with torch.inference_mode():
        return nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4))


WRAPPED: dict[str, Callable[[], nn.Module]] = {
    "compiled": lambda: _compiled(nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4))),
    "a compiled part": lambda: nn.Sequential(_compiled(nn.Linear(4, 4)), nn.LayerNorm(4)),
    "compiled in place": _InPlace,
    "a compiled function": lambda: nn.Sequential(
        Returns(_compiled(lambda y: y - y.mean(-1, keepdim=True))), nn.LayerNorm(4)
    ),
    "data parallel": lambda: nn.DataParallel(nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4))),
    "averaged": lambda: torch.optim.swa_utils.AveragedModel(nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4))),
    "made for inference": _made_for_inference,
}


@pytest.mark.parametrize("kind", WRAPPED)
def test_a_wrapped_model_is_audited_as_it_was_written(kind: str, capfd: pytest.CaptureFixture[str]) -> None:
    """A compiled model was compiled again at every length, and a part of its biases was missing."""
    model, x = WRAPPED[kind]().eval(), data(3, 4)
    audit = addnorm.audit(model, x)
    assert [finding.redundant_dof for finding in audit.findings] == [1, 0]
    assert audit.methods == "both"
    _, certificate = audit.strip()
    assert certificate.passed
    assert addnorm.equivalent(model, model, x)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (lambda y: y.to_sparse(), "output, which is sparse (sparse_coo)"),
        (lambda y: {"scores": (y, torch.nested.nested_tensor([y[0], y[1, :2]]))}, "scores[1], which is nested"),
        (lambda y: [y, torch.nested.as_nested_tensor([y[:1], y], layout=torch.jagged)], "output[1], which is nested"),
        (lambda y: None, "got NoneType without any"),
        (lambda y: "text", "got str without any"),
        (lambda y: y.argmax(-1), "got Tensor with int64 only"),
        (lambda y: y > 0, "got Tensor with bool only"),
        (lambda y: (y[:0], y.argmax(-1)), "got output[0] of shape [0, 4]"),
    ],
)
def test_an_output_without_plain_numbers_is_named(made: Callable[[Tensor], Any], words: str) -> None:
    assert words in _refusal(Returns(made), data(2, 4))


def test_a_quantised_output_is_named() -> None:
    with pytest.raises(InputError, match=r"got output, which is quantised.*dequantize\(\)"):
        addnorm.audit(Returns(_quantised), data(2, 4))


@dataclasses.dataclass
class Answer:
    scores: Tensor
    label: str


@pytest.mark.parametrize(
    "made",
    [
        lambda y: Answer(y, "cat"),
        lambda y: (y, None, [y[0], "cat", {"inner": y[:1, :2]}]),
        lambda y: torch.fft.fft(y),
        lambda y: (y[:0], y, (y > 0).any()),
    ],
)
def test_outputs_of_several_kinds_are_observed(made: Callable[[Tensor], Any]) -> None:
    model, x = Returns(made), data(2, 4)
    assert addnorm.audit(model, x).joint_null == 0
    assert addnorm.equivalent(model, model, x)


def test_complex_weights_are_computed_in_twice_the_precision() -> None:
    class Turned(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bias, self.turn = nn.Parameter(torch.ones(4)), nn.Parameter(torch.randn(4, 4, dtype=torch.complex64))

        def forward(self, z: Tensor) -> Tensor:
            return torch.view_as_real((z + self.bias) @ self.turn)

    model, z = seeded(Turned), torch.view_as_complex(data(3, 4, 2))
    result = addnorm.audit(model, z)
    assert (result.methods, result.joint_null) == ("both", 0)
    assert result.strip()[1].passed
    other = seeded(Turned)
    with torch.no_grad():
        other.turn[0, 0] *= 1.0001
    assert not addnorm.equivalent(model, other, z)


def test_a_packed_sequence_is_one_input() -> None:
    class Recurrent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cell, self.head = nn.GRU(4, 4, batch_first=True), nn.Linear(4, 3)

        def forward(self, x: PackedSequence) -> Tensor:
            return self.head(pad_packed_sequence(self.cell(x)[0], batch_first=True)[0])

    packed = pack_padded_sequence(data(2, 5, 4), [5, 3], batch_first=True)
    assert addnorm.audit(Recurrent(), packed).finding("cell.bias_hh_l0").absorbable_dof > 0


class Keeps(Returns):
    """A module that keeps what an earlier call computed."""

    def forward(self, x: Tensor) -> Tensor:
        y = super().forward(x)
        self.loss, self.losses, self.parts = y.mean(), [y.sum()], {"square": (y.square().mean(),)}
        return y


def test_losses_kept_on_a_module_are_copied() -> None:
    model, x = Keeps(), data(2, 4)
    model(x)
    result = addnorm.audit(model, x)
    assert result.strip()[1].passed
    assert addnorm.equivalent(model, model, x)
    assert model.losses[0].grad_fn is not None


def test_an_attribute_that_cannot_be_copied_is_named() -> None:
    model = nn.Sequential(Returns())
    model[0].stream = open(__file__)  # noqa: SIM115 - closed below
    try:
        assert "at the attribute '0.stream' (TextIOWrapper)" in _refusal(model, data(2, 4))
    finally:
        model[0].stream.close()


class Branches(nn.Module):
    """Says that it was called, and cannot be exported, because its path depends on data."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        sys.stderr.write("called")
        y = self.linear(x)
        count = int((y > 0).sum())
        return y[:, :2] if count > 10**6 else y


@pytest.mark.parametrize("asked", [False, True])
def test_the_graph_of_a_failed_export_is_printed_only_when_asked_for(
    asked: bool, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """torch prints it, in addition to its logs. What the model prints stays."""
    monkeypatch.setenv("TORCH_LOGS", "export" if asked else "")
    result = addnorm.audit(Branches(), data(2, 4), methods="static")
    assert result.methods == "numeric"
    printed = capfd.readouterr().err
    assert ("torch.ops.aten" in printed) == asked
    assert "called" in printed


class Centred(nn.Module):
    """Scores from which a part of their own row is subtracted, so that shifts by unknown numbers cancel."""

    def __init__(self, part: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.query, self.key, self.part = nn.Linear(4, 4), nn.Linear(4, 4), part

    def forward(self, x: Tensor) -> Tensor:
        scores = self.query(x) @ self.key(x).mT
        return (scores - self.part(scores)).tanh().softmax(-1)


@pytest.mark.parametrize(
    ("part", "free"),
    [
        (lambda s: s.mean(-1, keepdim=True), 4),
        (lambda s: s.amax(-1, keepdim=True), 4),
        (lambda s: s[..., :1], 4),
        (lambda s: s.flip(-1), 4),
        (lambda s: s.mean(-2, keepdim=True), 0),
        (lambda s: s.mean((-2, -1), keepdim=True), 0),
    ],
    ids=["mean", "maximum", "first", "flipped", "other axis", "both axes"],
)
def test_scores_less_a_part_of_themselves_are_audited(part: Callable[[Tensor], Tensor], free: int) -> None:
    result = addnorm.audit(seeded(Centred, part), data(3, 5, 4))
    key = result.finding("key.bias")
    assert not key.contradicted
    assert free in (key.redundant_dof, 4 if key.verdict == "unproved" else 0)
    assert result.strip()[1].passed


@pytest.mark.parametrize(
    "made",
    [
        lambda y: (y - y.detach()).abs().sqrt() + y,
        lambda y: torch.where(y > 99.0, (y * 0).log(), y),
        lambda y: y + (y * 0).norm(dim=-1, keepdim=True).sqrt(),
        lambda y: y.softmax(-1) + (torch.finfo(y.dtype).min * y.detach().abs().exp() * 9 * y.exp()).exp(),
        lambda y: torch.where(y < 900.0, y, y.exp() * y.double().mul(1e300).exp()),
    ],
    ids=["root of zero", "unread logarithm", "root of a norm", "infinite mask", "unread overflow"],
)
def test_gradients_that_are_nan_leave_the_proof_and_the_moves(made: Callable[[Tensor], Tensor]) -> None:
    model = nn.Sequential(Returns(), nn.LayerNorm(4), Returns(made))
    result = addnorm.audit(model, data(3, 5, 4))
    assert any("contain NaN or infinity, so the numerical method counted no" in note for note in result.notes)
    first = result.finding("0.linear.bias")
    assert (first.redundant_dof, first.verdict) == (1, "partly redundant")  # the norm subtracts the mean
    assert result.strip()[1].passed
