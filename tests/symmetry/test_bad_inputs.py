"""What a count cannot tell is said: integers, NaN, jumps, shared weights, and a vocabulary that is too small."""

import pytest
import torch
from torch import Tensor, nn

import addnorm
from addnorm.errors import InputError

X = torch.randn(20, 5, 3, generator=torch.Generator().manual_seed(0))


def seeded(*modules: nn.Module) -> nn.Sequential:
    generator = torch.Generator().manual_seed(0)
    made = nn.Sequential(*modules)
    with torch.no_grad():
        for each in made.parameters():
            each.copy_(torch.randn(each.shape, generator=generator))
    return made.eval()


class Largest(nn.Module):
    """The number of the largest entry."""

    def forward(self, x: Tensor) -> Tensor:
        return x.argmax(-1)


class Sign(nn.Module):
    """The sign of every entry."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.sign(x)


class Twice(nn.Module):
    """One map, used two times."""

    def __init__(self) -> None:
        super().__init__()
        self.map = nn.Linear(3, 3, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.map(torch.tanh(self.map(x)))


class Stopped(nn.Module):
    """A map whose result is cut off from its gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(3, 4), nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.first(x).data)


class Moving(nn.Module):
    """A mean of all calls so far, which this one reads and the next one, too."""

    def __init__(self, *, assigns: bool = False) -> None:
        super().__init__()
        self.map, self.assigns = nn.Linear(3, 3), assigns
        self.register_buffer("mean", torch.zeros(3))

    def forward(self, x: Tensor) -> Tensor:
        made = self.map(x)
        added = 0.1 * made.detach().mean((0, 1))
        if self.assigns:
            self.mean = 0.9 * self.mean + added
        else:
            self.mean.mul_(0.9).add_(added)
        return torch.tanh(made + self.mean)


@pytest.mark.parametrize(
    ("model", "buffer"),
    [
        (Moving(), "mean"),
        (nn.Sequential(Moving(assigns=True)), "0.mean"),
        (nn.utils.parametrizations.spectral_norm(nn.Linear(3, 3)), "parametrizations.weight.0._v"),
    ],
)
def test_calls_that_read_what_an_earlier_one_wrote_are_refused(model: nn.Module, buffer: str) -> None:
    with pytest.raises(InputError, match=f"reads what an earlier call wrote to {buffer}"):
        addnorm.symmetries(model, X, training=True)
    if buffer.endswith("_v"):
        assert addnorm.symmetries(model, X).parameters == 12


class WritesOver(nn.Module):
    """Halves a weight that it has read."""

    def __init__(self) -> None:
        super().__init__()
        self.map = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = self.map(torch.tanh(self.map(x)))
        with torch.no_grad():
            self.map.weight.mul_(0.5)
        return made


def test_a_forward_that_writes_over_what_it_has_read_is_refused() -> None:
    with pytest.raises(InputError, match="writes over a weight or buffer after it has read it"):
        addnorm.symmetries(WritesOver(), X)


def test_integers_are_refused() -> None:
    with pytest.raises(
        InputError, match="expected a model that returns floating-point tensors, got Tensor with int64 only"
    ):
        addnorm.symmetries(seeded(nn.Linear(3, 4), Largest()), X)


def test_nan_is_refused() -> None:
    model = seeded(nn.Linear(3, 4))
    with torch.no_grad():
        next(model.parameters())[0, 0] = float("nan")
    with pytest.raises(InputError, match=r"NaN|nan|finite"):
        addnorm.symmetries(model, X)


@pytest.mark.parametrize(
    ("model", "names", "unread"),
    [
        (seeded(nn.Linear(3, 4), Sign(), nn.Linear(4, 2)), "0.weight, 0.bias", 16),
        (Stopped().eval(), "first.weight, first.bias", 16),
    ],
    ids=["sign", "data"],
)
def test_what_matters_by_jumps_is_named(model: nn.Module, names: str, unread: int) -> None:
    found = addnorm.symmetries(model, X, points=1)
    assert found.unread == unread
    assert [each for each in found.notes if each.startswith(f"the outputs change with {names} but have no derivative")]


def test_what_nothing_reads_is_not_named() -> None:
    class Idle(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.idle, self.map = nn.Parameter(torch.ones(2)), nn.Linear(3, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.map(x)

    found = addnorm.symmetries(Idle().eval(), X, points=1)
    assert (found.unread, found.notes) == (2, ())


def test_shared_weights_count_once_and_move_together() -> None:
    found = addnorm.symmetries(Twice().eval(), X, points=1)
    assert (found.parameters, found.redundant, found.refuted) == (9, 0, ())
    tied = addnorm.preset("llama", vocab=11, width=4, depth=1, heads=1, hidden=3, max_seq=9, tied=True).build(seed=0)
    made = addnorm.symmetries(tied.eval(), torch.arange(18).reshape(2, 9) % 11, points=1)
    assert (made.explained, made.refuted) == (made.redundant, ())
    assert made.parameters == sum(each.numel() for each in tied.parameters())


def test_a_small_vocabulary_is_said() -> None:
    sizes = {"width": 4, "depth": 1, "heads": 1, "hidden": 4, "max_seq": 9, "block": "parallel"}
    few = addnorm.preset("llama", vocab=4, **sizes).build(seed=0).eval()
    found = addnorm.symmetries(few, torch.arange(18).reshape(2, 9) % 4, points=1)
    assert found.unexplained
    assert [each for each in found.notes if "free on this vocabulary only" in each]
    more = addnorm.preset("llama", vocab=18, **sizes).build(seed=0).eval()
    found = addnorm.symmetries(more, torch.arange(18).reshape(2, 9), points=1)
    assert (found.unexplained, found.notes) == ((), ())


def test_no_names_have_no_numbers() -> None:
    found = addnorm.symmetries(seeded(nn.Linear(3, 4)), X, points=1)
    assert found.effective_of([]) == 0
