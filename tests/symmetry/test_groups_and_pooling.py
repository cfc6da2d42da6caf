"""Maps of their own for groups of channels, kernels over the tokens of a head, and means over tokens before a norm: every
measured direction is explained, and by the family that a reader would look for."""

from collections.abc import Callable, Mapping

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import addnorm
from addnorm.redundancy.execution.generic_weights import generic
from addnorm.symmetry.actions.equations import IllConditioned, null_basis
from addnorm.symmetry.bases.representative import canonicalised, equal_up_to, freedom_of, random_moves
from sampled import sampled

TOKENS = torch.tensor([[0, 1, 2, 3, 4, 5, 6], [7, 8, 3, 1, 4, 1, 5]])
MANY_TOKENS = torch.randint(0, 9, (40, 5), generator=torch.Generator().manual_seed(1))


class Stream(nn.Module):
    """A table, RMS norms and a head around a branch."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.norm, self.last = nn.Embedding(9, 6), nn.RMSNorm(6), nn.RMSNorm(6)
        self.out, self.read = nn.Linear(6, 6, bias=False), nn.Linear(6, 9, bias=False)

    def branch(self, x: Tensor) -> Tensor:
        raise NotImplementedError

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.table(tokens)
        read: Tensor = self.read(self.last(x + self.out(self.branch(self.norm(x)))))
        return read


class GatedRecurrence(Stream):
    """As Griffin: gates by a matrix for each of two blocks of channels, in a recurrence of every channel by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.into = nn.Linear(6, 6)
        self.weight, self.bias = nn.Parameter(torch.randn(2, 3, 3)), nn.Parameter(torch.randn(2, 1, 3))

    def gates(self, x: Tensor) -> Tensor:
        """The gates of [batch, token, channel]."""
        blocks = x.reshape(-1, 2, 3).permute(1, 0, 2)
        return torch.baddbmm(self.bias, blocks, self.weight).transpose(0, 1).reshape(x.shape)

    def branch(self, x: Tensor) -> Tensor:
        x = self.into(x)
        gates = torch.sigmoid(self.gates(x))
        state, states = torch.zeros_like(x[:, 0]), torch.zeros_like(x)
        for at in range(x.shape[1]):
            state = gates[:, at] * state + x[:, at]
            states[:, at] = state
        return states


class BlocksByMatmul(GatedRecurrence):
    """The same with the product of a tensor that has the batch before its blocks."""

    def gates(self, x: Tensor) -> Tensor:
        """The gates of [batch, token, channel]."""
        blocks = x.unflatten(-1, (2, 3)).transpose(1, 2)
        return (torch.matmul(blocks, self.weight) + self.bias).transpose(1, 2).flatten(2)


class BlocksByEinsum(GatedRecurrence):
    """The same as an Einstein sum."""

    def gates(self, x: Tensor) -> Tensor:
        """The gates of [batch, token, channel]."""
        made = torch.einsum("btgi,gij->btgj", x.unflatten(-1, (2, 3)), self.weight)
        return made.flatten(2) + self.bias.flatten()


class KernelOfEachHead(Stream):
    """As Nyströmformer: beside the attention, a convolution over tokens with one kernel for all numbers of a head."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(6, 6, bias=False) for _ in range(3))
        self.kernel = nn.Conv2d(2, 2, (3, 1), padding=(1, 0), bias=False, groups=2)

    def branch(self, x: Tensor) -> Tensor:
        query, key, value = (
            each(x).unflatten(-1, (2, 3)).transpose(1, 2) for each in (self.query, self.key, self.value)
        )
        made = F.scaled_dot_product_attention(query, key, value) + self.kernel(value)
        return made.transpose(1, 2).flatten(2)


class MeanBeforeTheNorm(nn.Module):
    """As BEiT: a mean over tokens, then a layer norm."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(9, 4)
        self.norm, self.up, self.down = nn.LayerNorm(4), nn.Linear(4, 3), nn.Linear(3, 4)
        self.last, self.read = nn.LayerNorm(4), nn.Linear(4, 4)

    def pooled(self, x: Tensor) -> Tensor:
        """[batch, token, channel] to [batch, channel]."""
        return self.last(x.mean(1))

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.table(tokens)
        x = x + torch.tanh(x.cumsum(1))
        read: Tensor = self.read(self.pooled(x + self.down(torch.tanh(self.up(self.norm(x))))))
        return read


class PoolingBehindTheNorm(MeanBeforeTheNorm):
    """As Swin: the norm of every token, then a pooling to one place."""

    def pooled(self, x: Tensor) -> Tensor:
        """[batch, token, channel] to [batch, channel]."""
        return F.adaptive_avg_pool1d(self.last(x).transpose(1, 2), 1).flatten(1)


@pytest.mark.parametrize(
    ("cls", "tokens", "families"),
    sampled(
        6,
        [
            # A scale of each channel of the state, between the matrix into it and the one behind it.
            (GatedRecurrence, TOKENS, {"scale of a unit": 6}),
            (BlocksByMatmul, TOKENS, {"scale of a unit": 6}),
            (BlocksByEinsum, TOKENS, {"scale of a unit": 6}),
            # Three numbers of each of two heads: nine.
            (KernelOfEachHead, TOKENS, {"basis of queries and keys": 18, "basis of values": 18}),
            # The mean of what the second matrix writes, 3, and its bias, 1; the table is read by tanh. What the readers of both
            # norms have along the direction that these remove, 3 + 4.
            (MeanBeforeTheNorm, MANY_TOKENS, {"mean of the stream": 10, "redundant bias": 1}),
            (PoolingBehindTheNorm, MANY_TOKENS, {"mean of the stream": 10, "redundant bias": 1}),
        ],
    ),
)
def test_families(cls: Callable[[], nn.Module], tokens: Tensor, families: Mapping[str, int]) -> None:
    torch.manual_seed(0)
    counted = addnorm.symmetries(cls().eval(), tokens, points=1)
    assert (counted.explained, counted.unexplained, counted.refuted) == (counted.redundant, (), ()), counted.notes
    sizes = {each.name: each.size for each in counted.families}
    assert {name: sizes.get(name) for name in families} == families, sizes


class MatrixOfData(nn.Module):
    """Two blocks of a vector, each times a matrix that the same data make."""

    def __init__(self) -> None:
        super().__init__()
        self.vector, self.matrices, self.read = nn.Linear(6, 6), nn.Linear(6, 12), nn.Linear(4, 2, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        made = torch.einsum("gi,gij->gj", self.vector(x).view(2, 3), self.matrices(x).view(2, 3, 2))
        read: Tensor = self.read(made.flatten())
        return read


def test_a_matrix_that_data_make_is_no_weight() -> None:
    torch.manual_seed(0)
    counted = addnorm.symmetries(MatrixOfData().eval(), torch.randn(6, dtype=torch.float64), points=1)
    assert counted.refuted == ()
    # At least a scale for each of the six numbers, and for each of the four that are made.
    assert counted.explained >= 6 + 4


@pytest.mark.parametrize(
    ("cls", "tokens", "left"),
    sampled(
        6,
        [
            # Scales of a state, kernels of heads, and poolings to one place are used up by no rule, and named.
            (GatedRecurrence, TOKENS, 7),
            (KernelOfEachHead, TOKENS, 19),
            (PoolingBehindTheNorm, MANY_TOKENS, 12),
            # The first norm reads what no move reaches: its gain and shift go into the next matrix all the same.
            (MeanBeforeTheNorm, MANY_TOKENS, 0),
        ],
    ),
)
def test_what_the_canonical_form_leaves_is_named(cls: Callable[[], nn.Module], tokens: Tensor, left: int) -> None:
    torch.manual_seed(0)
    model = generic(cls().eval(), torch.float64)
    freedom = freedom_of(model, tokens)
    made = canonicalised(model, tokens, freedom=freedom)
    assert made.certificate.passed
    explained = addnorm.symmetries(model, tokens, points=1).explained
    assert (explained - sum(freedom.used().values()), bool(made.stays)) == (left, left > 0), made.stays
    assert equal_up_to(model, random_moves(model, tokens, freedom=freedom).model, tokens, freedom=freedom).equal


def test_a_rank_is_clear_by_its_gap_and_not_by_a_size() -> None:
    generator = np.random.default_rng(0)
    left, right = (np.linalg.qr(generator.standard_normal((6, 6)))[0] for _ in range(2))
    values = np.array([1.0, 0.3, 2e-5, 7e-9, 0.0, 0.0])
    basis = null_basis(left @ np.diag(values) @ right)
    assert basis.shape == (6, 2)
    assert np.abs(right[:4] @ basis).max() < 1e-7
    with pytest.raises(IllConditioned, match=r"in 6 unknowns, got singular values .* times the largest"):
        null_basis(left @ np.diag([1.0, 1e-3, 1e-6, 1e-9, 1e-12, 1e-15]) @ right)
