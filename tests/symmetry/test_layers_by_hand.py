"""Layers as people write them by hand, of which every measured direction is explained: streams that a weight mixes, experts as
Einsum sums, group norms, matrices of unit rows."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import addnorm
from addnorm.redundancy.execution.generic_weights import generic
from addnorm.symmetry.bases.representative import canonicalised
from sampled import sampled

WIDTH = 8
NUMBERS = torch.randn(9, 7, 10, generator=torch.Generator().manual_seed(3), dtype=torch.float64)


class Layer(nn.Module):
    """A layer between a map of ten numbers and a norm with a head."""

    def __init__(self) -> None:
        super().__init__()
        self.into, self.read = nn.Linear(10, WIDTH), nn.Linear(WIDTH, 9, bias=False)
        self.norm, self.last = (nn.RMSNorm(WIDTH, eps=1e-3) for _ in range(2))
        self.up, self.down = nn.Linear(WIDTH, 5), nn.Linear(5, WIDTH)

    def layer(self, x: Tensor) -> Tensor:
        raise NotImplementedError

    def forward(self, x: Tensor) -> Tensor:
        read: Tensor = self.read(self.last(self.layer(self.into(x))))
        return read


class Streams(Layer):
    """As hyper-connections: two copies, of which the layer reads a mixture, and which another one mixes."""

    def __init__(self) -> None:
        super().__init__()
        self.mixing, self.reading, self.writing = (nn.Parameter(torch.rand(*size)) for size in ((2, 2), (2, 1), (2, 1)))

    def layer(self, x: Tensor) -> Tensor:
        streams = x.unsqueeze(-2).expand(-1, -1, 2, -1)
        made = self.down(F.gelu(self.up(self.norm((self.reading * streams).sum(-2)))))
        return (torch.einsum("ij,btjd->btid", self.mixing, streams) + self.writing * made.unsqueeze(-2)).sum(-2)


class Experts(Layer):
    """All experts at once, with weights of a softmax, as a product of two and a sum."""

    def __init__(self) -> None:
        super().__init__()
        self.router = nn.Linear(WIDTH, 3)
        self.first, self.second = nn.Parameter(torch.randn(3, WIDTH, 4)), nn.Parameter(torch.randn(3, 4, WIDTH))

    def layer(self, x: Tensor) -> Tensor:
        y = self.norm(x)
        return x + self.joined(F.gelu(torch.einsum("btd,edh->bteh", y, self.first)), self.router(y).softmax(-1))

    def joined(self, hidden: Tensor, shares: Tensor) -> Tensor:
        return (torch.einsum("bteh,ehd->bted", hidden, self.second) * shares[..., None]).sum(2)


class ExpertsInOneSum(Experts):
    """The same as a product of three."""

    def joined(self, hidden: Tensor, shares: Tensor) -> Tensor:
        return torch.einsum("bteh,ehd,bte->btd", hidden, self.second, shares)


class GroupedNorm(Layer):
    """A group norm before a convolution over tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.groups, self.kernel = nn.GroupNorm(2, WIDTH), nn.Conv1d(WIDTH, WIDTH, 3, padding=1)

    def layer(self, x: Tensor) -> Tensor:
        return x + self.kernel(F.relu(self.groups(x.transpose(1, 2)))).transpose(1, 2)


class UnitRows(Layer):
    """As nGPT: matrices whose rows are divided by their lengths, and a stream of length one."""

    def __init__(self) -> None:
        super().__init__()
        self.step = nn.Parameter(torch.rand(WIDTH))

    def layer(self, x: Tensor) -> Tensor:
        x = F.normalize(x, dim=-1)
        hidden = F.silu(F.linear(x, F.normalize(self.up.weight, dim=-1)))
        made = F.normalize(F.linear(hidden, F.normalize(self.down.weight, dim=0)), dim=-1)
        return F.normalize(x + self.step * (made - x), dim=-1)


@pytest.mark.parametrize(
    ("cls", "directions", "beside"),
    sampled(
        2,
        [
            # Gains, the stream's basis, four factors. Equal copies are read and written by the sums of two numbers each, which
            # no rule says: two directions, and the factor of what is written.
            (Streams, 16 + 28 + 4, 3),
            # Gains and the stream's basis, what all of a router's numbers have in common.
            (Experts, 16 + 28 + 9, 0),
            (ExpertsInOneSum, 16 + 28 + 9, 0),
            # Gains, scales of the kernel's inputs, and two sums of biases that the means of the groups remove.
            (GroupedNorm, 8 + 8 + 2, 0),
            # Gains, the lengths of ten rows, and the length of the stream.
            (UnitRows, 8 + 10 + 1, 0),
        ],
    ),
)
def test_every_direction_is_explained(cls: type[Layer], directions: int, beside: int) -> None:
    torch.manual_seed(0)
    model = generic(cls().eval(), torch.float64)
    counted = addnorm.symmetries(model, NUMBERS, points=1)
    assert counted.refuted == ()
    assert (counted.explained, counted.redundant) == (directions, directions + beside)
    representative = canonicalised(model, NUMBERS)
    assert representative.certificate.passed
    assert representative.stays  # their canonical form is not complete, and says so


class NormOfNumbers(Layer):
    """A norm with gain and shift of what nothing moves, which a stream begins with."""

    def layer(self, x: Tensor) -> Tensor:
        return x + self.down(F.gelu(self.up(self.norm(x))))

    def forward(self, x: Tensor) -> Tensor:
        read: Tensor = self.read(self.last(self.layer(self.first(x[..., :WIDTH]))))
        return read

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.LayerNorm(WIDTH)


class ScaledByData(Layer):
    """As in diffusion Transformers: a norm's result times 1 + a, plus b, with a and b computed from data."""

    def __init__(self) -> None:
        super().__init__()
        self.modulation = nn.Linear(3, 2 * WIDTH)

    def layer(self, x: Tensor) -> Tensor:
        return x

    def forward(self, x: Tensor) -> Tensor:
        gain, shift = self.modulation(F.silu(x[..., :3])).chunk(2, -1)
        stream = self.into(x)
        read: Tensor = self.read(self.last(stream + self.down(F.gelu(self.up(self.norm(stream) * (1 + gain) + shift)))))
        return read


def test_channels_of_a_norm_of_data_keep_their_order() -> None:
    torch.manual_seed(0)
    assert canonicalised(generic(NormOfNumbers().eval(), torch.float64), NUMBERS).certificate.passed


def test_scales_of_one_more_than_a_map_are_named() -> None:
    torch.manual_seed(0)
    made = canonicalised(generic(ScaledByData().eval(), torch.float64), NUMBERS)
    assert made.certificate.passed
    (named,) = made.stays.values()
    assert "modulation.weight" in named
