"""Parts of shipped classes in the canonical form: moved at random, signs among them, a copy comes back to it."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from addnorm.symmetry.bases.representative import (
    NO_RULE,
    SHORT,
    ZEROS,
    canonicalised,
    equal_up_to,
    freedom_of,
    random_moves,
)
from sampled import sampled

TOKENS = torch.arange(60).reshape(4, 15) % 23
IMAGES = torch.randn(30, 2, 4, 4, generator=torch.Generator().manual_seed(3), dtype=torch.float64)


class Part(nn.Module):
    """A table, a part, and a readout."""

    inputs: Tensor = TOKENS

    def __init__(self, *shapes: tuple[int, ...], width: int = 6) -> None:
        super().__init__()
        self.table, self.out = nn.Embedding(23, 6), nn.Linear(width, 4)
        self.weights = nn.ParameterList(nn.Parameter(torch.randn(shape)) for shape in shapes)

    def part(self, x: Tensor) -> Tensor:
        raise NotImplementedError

    def forward(self, tokens: Tensor) -> Tensor:
        made: Tensor = self.out(self.part(self.table(tokens)))
        return made


class Latent(Part):
    """As DeepSeek-V3: a latent of four numbers between two maps, behind a norm; two heads' queries and keys read it, of which
    each key is assembled in place."""

    def __init__(self) -> None:
        super().__init__((6, 6), (8, 4), (4, 4), (4, 4), (6, 4))

    def part(self, x: Tensor) -> Tensor:
        down, query, shared, value, out = self.weights
        latent, of_both = F.linear(F.rms_norm(x, [6]), down).split([4, 2], -1)
        latent = F.rms_norm(latent, [4])
        queries = F.linear(latent, query).view(4, 15, 2, 4).transpose(1, 2)
        # The first two numbers of each head's key are its own, the others are those of both heads.
        own = F.linear(latent, shared).view(4, 15, 2, 2).transpose(1, 2)
        keys = own.new_empty(4, 2, 15, 4)
        keys[..., :2] = own
        keys[..., 2:] = of_both[:, None]
        values = F.linear(latent, value).view(4, 15, 2, 2).transpose(1, 2)
        heads = F.scaled_dot_product_attention(queries, keys, values, is_causal=True)
        return torch.tanh(F.linear(heads.transpose(1, 2).reshape(4, 15, 4), out))


class Widened(Part):
    """As ELECTRA: a map of 6 to 9 behind a norm, whose result a branch reads, and a norm behind their sum. Its columns span 5,
    with its bias 6: a row of the first reader, which has a bias, has 4 free numbers, one of the second 3."""

    def __init__(self) -> None:
        super().__init__((9, 6), (9,), (4, 9), (4,), (4, 9), (9, 4), width=9)

    def summed(self, x: Tensor) -> Tensor:
        wider, constant, one, shift, other, back = self.weights
        wide = F.linear(F.layer_norm(x, [6]), wider, constant)
        return wide + F.linear(torch.tanh(F.linear(wide, one, shift)) * torch.tanh(F.linear(wide, other)), back)

    def part(self, x: Tensor) -> Tensor:
        return F.layer_norm(self.summed(x), [9])


class WidenedFreely(Widened):
    """Without the norm behind it the basis of the sum is any: what is orthogonal in one is not in another."""

    def part(self, x: Tensor) -> Tensor:
        return self.summed(x)


class RotaryPairs(Part):
    """Positions that turn neighbouring channels, written by strided slices: x cos - y sin beside x sin + y cos. Two heads of
    four channels, in each of which both pairs may be turned and scaled."""

    def __init__(self) -> None:
        super().__init__((8, 6), (8, 6), (8, 6), (6, 8))

    def turned(self, x: Tensor) -> Tensor:
        angles = torch.arange(15.0, dtype=x.dtype)[:, None] * torch.tensor([1.0, 0.1], dtype=x.dtype)
        one, other = x[..., ::2], x[..., 1::2]
        made = [one * angles.cos() - other * angles.sin(), one * angles.sin() + other * angles.cos()]
        return torch.stack(made, -1).flatten(-2)

    def part(self, x: Tensor) -> Tensor:
        query, key, value, out = self.weights
        heads = [F.linear(x, each).view(4, 15, 2, 4).transpose(1, 2) for each in (query, key, value)]
        made = F.scaled_dot_product_attention(*map(self.turned, heads[:2]), heads[2], is_causal=True)
        return torch.tanh(F.linear(made.transpose(1, 2).reshape(4, 15, 8), out))


class Image(nn.Module):
    """As ViT: biases of patches and a class token before a table of positions, and norms that remove the mean."""

    inputs = IMAGES

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(2, 6, 2, stride=2)
        self.first, self.positions = nn.Parameter(torch.randn(1, 1, 6)), nn.Parameter(torch.randn(1, 5, 6))
        self.norm, self.out = nn.LayerNorm(6, elementwise_affine=False), nn.Linear(6, 4)

    def forward(self, images: Tensor) -> Tensor:
        x = self.patches(images).flatten(2).transpose(1, 2)
        x = torch.cat([self.first.expand(len(x), -1, -1), x], 1) + self.positions
        made: Tensor = self.out(torch.tanh(self.out(self.norm(x))) @ self.out.weight)
        return made


class ScoresOfATable(Part):
    """As T5: a table of distances is added to scores, which a mask replaces before a softmax."""

    def __init__(self) -> None:
        super().__init__((9, 2), (6, 6))
        self.register_buffer("distances", (torch.arange(15)[:, None] - torch.arange(15)).clamp(-4, 4) + 4)

    def part(self, x: Tensor) -> Tensor:
        table, value = self.weights
        scores = F.embedding(self.get_buffer("distances"), table).permute(2, 0, 1)
        mask = torch.ones(15, 15, dtype=torch.bool).tril()
        weights = torch.softmax(torch.where(mask, scores, -3e38), -1)
        heads = weights @ F.linear(x, value).view(4, 15, 2, 3).transpose(1, 2)
        return torch.tanh(heads.transpose(1, 2).reshape(4, 15, 6))


class ScaledLayer(Part):
    """As DINOv2: a branch is multiplied by learned factors before a norm that removes the mean."""

    def __init__(self) -> None:
        super().__init__((6, 5), (5, 6), (6,))

    def part(self, x: Tensor) -> Tensor:
        down, up, scale = self.weights
        return torch.tanh(F.layer_norm(x + scale * F.linear(torch.tanh(F.linear(x, up)), down), [6]))


class GatedConvolution(Part):
    """As LFM2: y = c · conv(b · x), of which three may be scaled by what the fourth is divided by."""

    def __init__(self) -> None:
        super().__init__((18, 6), (6, 1, 3), (6, 6))

    def part(self, x: Tensor) -> Tensor:
        into, kernel, out = self.weights
        b, c, u = F.linear(torch.tanh(x), into).transpose(1, 2).chunk(3, 1)
        y = c * F.conv1d(b * u, kernel.squeeze(1).unsqueeze(1), None, padding=2, groups=6)[..., :15]
        return torch.tanh(F.linear(y.transpose(1, 2), out))


class TwiceReadFactor(GatedConvolution):
    """The second factor is read elsewhere, too, so that the first is not free to make up for its scale."""

    def part(self, x: Tensor) -> Tensor:
        into, kernel, out = self.weights
        b, c, u = F.linear(torch.tanh(x), into).transpose(1, 2).chunk(3, 1)
        y = c * F.conv1d(b * u, kernel, None, padding=2, groups=6)[..., :15]
        return torch.tanh(F.linear((y + torch.sin(b) + torch.sin(c)).transpose(1, 2), out))


class SharedGate(GatedConvolution):
    """The same weights make two gated convolutions, one behind the other."""

    def part(self, x: Tensor) -> Tensor:
        return super().part(super().part(x))


class Columns(Part):
    """As Mamba: a weight times columns of tokens, of which others are read by something without a rule."""

    def __init__(self) -> None:
        super().__init__((5, 6), (6, 3), (6, 1))

    def part(self, x: Tensor) -> Tensor:
        into, steps, shift = self.weights
        few, other = F.linear(torch.tanh(x), into).split([3, 2], -1)
        return F.softplus(steps @ few.transpose(1, 2) + shift).transpose(1, 2) + torch.erfinv(torch.tanh(other)).sum(
            -1, keepdim=True
        )


@pytest.mark.parametrize(
    ("part", "sizes"),
    sampled(
        3,
        [
            # Two heads' own parts, and the part that both share.
            (Latent, {"basis of the stream": 15 + 6, "basis of values": 8, "basis of queries and keys": 3 * 4}),
            (RotaryPairs, {"basis of queries and keys": 2 * 4, "basis of values": 2 * 16}),
            (Widened, {"subspace that a reader never sees": 4 * 4 + 4 * 3}),
            (WidenedFreely, {"subspace that a reader never sees": 0}),
            # Two constants go to the positions; means of 8 taps, the patches' bias, the token and 5 positions.
            (Image, {"redundant bias": 10, "mean of the stream": 15}),
            (ScoresOfATable, {"embedding against position": 2, "basis of values": 0}),
            # The means of the branch's five columns, and x + 1 φ(x) of the table's rows, which the branch reads, too.
            (ScaledLayer, {"learned factor of a branch": 6, "mean of the stream": 5 + 6}),
            (GatedConvolution, {"scale of a unit": 24}),
            (TwiceReadFactor, {"scale of a unit": 6}),
            (SharedGate, {"scale of a unit": 6}),
            (Columns, {"basis between two linear maps": 9}),
        ],
    ),
    ids=lambda each: each.__name__ if isinstance(each, type) else "",
)
def test_copies_of_a_part_have_one_form(part: type[nn.Module], sizes: dict[str, int]) -> None:
    torch.manual_seed(0)
    model = part().double().eval()
    inputs = part.inputs
    freedom = freedom_of(model, inputs)
    made = canonicalised(model, inputs, freedom=freedom)
    assert made.certificate.passed
    assert {name: made.sizes.get(name, 0) for name in sizes} == sizes
    for seed in range(3):
        moved = random_moves(model, inputs, seed=seed, freedom=freedom)
        assert moved.certificate.exact < 1e-11
        found = equal_up_to(model, moved.model, inputs, freedom=freedom)
        assert found.equal, found.apart
        assert found.as_stored > 0.01


def test_parameters_that_no_rule_reads_are_named() -> None:
    class Sorted(Columns):
        """The shift is sorted before it is added."""

        def part(self, x: Tensor) -> Tensor:
            into, steps, shift = self.weights
            return torch.tanh(F.linear(torch.tanh(F.linear(x, into)[..., :3]), steps) + shift.squeeze(1).sort().values)

    torch.manual_seed(0)
    # Five rows read a table of six columns, and nothing reads two of them.
    few = ("weights.0", "table.weight")
    assert canonicalised(Sorted().double(), TOKENS).stays == {NO_RULE: ("weights.2",), SHORT: few}


def test_a_factor_of_zero_keeps_the_means_of_its_branch() -> None:
    torch.manual_seed(0)
    model = ScaledLayer().double()
    with torch.no_grad():
        model.weights[2][1] = 0.0
    freedom = freedom_of(model, TOKENS)
    made = canonicalised(model, TOKENS, freedom=freedom)
    assert made.certificate.passed
    assert made.stays == {ZEROS: ("weights.2",)}
    assert random_moves(model, TOKENS, freedom=freedom).certificate.exact < 1e-11
