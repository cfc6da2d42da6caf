"""The number of directions and their names, for models whose counts were derived by hand."""

import pytest
import torch
from torch import nn

import addnorm
from addnorm.symmetry import Symmetries

SIZES = {"vocab": 11, "width": 8, "depth": 2, "heads": 2, "kv_heads": 1, "hidden": 5, "max_seq": 16}
X = torch.randn(80, 2, generator=torch.Generator().manual_seed(0))
TOKENS = torch.tensor([[0, 1, 2, 3, 4, 5, 6, 7, 8], [9, 10, 3, 1, 4, 1, 5, 9, 2]])
LLAMA = {
    "gain into the next matrix": 40,
    "basis of queries and keys": 8,
    "basis of values": 32,
    "scale of a unit": 10,
    "basis of the stream": 28,
}


def counted(**fields: object) -> Symmetries:
    model = addnorm.preset("llama", **{**SIZES, **fields}).build(seed=0).eval()
    return addnorm.symmetries(model, TOKENS, points=1)


def sizes(found: Symmetries) -> dict[str, int]:
    return {each.name: each.size for each in found.families}


def agrees(found: Symmetries, count: int) -> None:
    assert (found.redundant, found.explained, found.unexplained, found.refuted) == (count, count, (), ())
    assert found.gap > 1e6


@pytest.mark.parametrize(
    ("fields", "count"),
    [({"depth": 1}, 77), pytest.param({"kv_heads": 2, "hidden": 6}, 160, marks=pytest.mark.thorough)],
)
def test_llama(fields: dict[str, int], count: int) -> None:
    agrees(counted(**fields), count)


@pytest.mark.thorough
def test_two_layers_by_family() -> None:
    found = counted()
    agrees(found, 118)
    assert found.parameters == 840
    assert sizes(found) == LLAMA


JOINTS = [
    ("residual", "rezero", 4, 4),
    ("residual", "layer_scale", 32, 32),
    ("residual", "lambdas", 4, 2),
    ("scores", "weighted", 3, 2),
    ("scores", "free", 3, 2),
    ("scores", "power", 4, 3),
    ("scores", "weighted_power", 6, 5),
    ("residual", "gate", 36, 0),
    ("residual", "dense", 5, 0),
    ("residual", "dynamic_dense", 172, 0),
    ("sink", "logit", 4, 0),
    ("attended", "head_scale", 4, 4),
    ("position", "alibi", 0, 24),
]
QUICK = {"lambdas": ()}


@pytest.mark.parametrize(
    ("socket", "kind", "numbers", "more"),
    [
        pytest.param(*each, id=each[1], marks=QUICK.get(each[1], pytest.mark.soak if at % 4 else pytest.mark.thorough))
        for at, each in enumerate(JOINTS)
    ],
)
def test_joints(socket: str, kind: str, numbers: int, more: int) -> None:
    found = counted(**{socket: kind})
    # The derivation counts an exponent of 1 among the directions; no output depends on it, so that it is `unread` here.
    agrees(found, 118 + more - found.unread)
    assert found.unread == (1 if kind == "power" else 0)
    assert found.parameters == 840 + numbers
    if kind != "alibi":
        assert sizes(found).get("learned factor of a branch", 0) == more - found.unread


class StackedConvolutions(nn.Module):
    """A convolution per channel, and one over all channels, of an input with zeros before it."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.depthwise, self.joint = nn.Conv1d(3, 3, 2, groups=3), nn.Conv1d(3, 2, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.joint(self.depthwise(nn.functional.pad(x.transpose(1, 2), (2, 0))))


def test_two_stacked_convolutions() -> None:
    """As ZAYA has them: the first's bias goes into the second's (3), and so does a scale of each channel between them (3)."""
    x = torch.randn(30, 6, 3, generator=torch.Generator().manual_seed(0))
    found = addnorm.symmetries(StackedConvolutions(), x, points=1)
    assert (found.redundant, found.explained, found.refuted) == (6, 6, ())


@pytest.mark.parametrize(
    ("between", "scales"),
    # Each channel: what its gain and its bias do, the map before it does; a ReLU passes one more scale on to the next map.
    [([], 0), ([nn.ReLU()], 3), ([nn.Dropout(0.5), nn.GELU()], 0)],
)
@pytest.mark.parametrize("affine", [True, False])
def test_stored_statistics_of_a_batch_norm(between: list[nn.Module], scales: int, *, affine: bool) -> None:
    torch.manual_seed(1)
    layers = [nn.Linear(2, 3), nn.BatchNorm1d(3, affine=affine), *between, nn.Linear(3, 4)]
    if not between:
        layers[-1] = nn.Tanh()
    made = addnorm.symmetries(nn.Sequential(*layers), X)
    assert (made.redundant, made.explained, made.refuted) == (6 * affine + scales,) * 2 + ((),)


def test_statistics_of_the_batch_are_not_explained() -> None:
    made = addnorm.symmetries(nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Tanh()), X, training=True)
    assert (made.training, made.explained, made.refuted) == (True, 0, ())
    assert made.redundant >= 3  # a batch's mean takes the bias away


def test_channels_of_convolutions_with_batch_norms() -> None:
    model = nn.Sequential(nn.Conv2d(2, 3, 2, bias=False), nn.BatchNorm2d(3), nn.ReLU(), nn.Conv2d(3, 2, 2))
    made = addnorm.symmetries(model, torch.randn(8, 2, 4, 4, generator=torch.Generator().manual_seed(0)))
    assert (made.redundant, made.explained, made.refuted) == (6, 6, ())


class Encoder(nn.Module):
    """torch's own encoder, as it is made: in training mode, with a mask that is compared with a causal one."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.head = nn.Embedding(11, 4), nn.Linear(4, 11)
        layer = nn.TransformerEncoderLayer(4, 2, 6, dropout=0.1, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 1, norm=nn.LayerNorm(4))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(ids.shape[1])
        made: torch.Tensor = self.head(self.layers(self.table(ids), mask=mask))
        return made


def test_torchs_own_encoder_with_a_mask() -> None:
    torch.manual_seed(0)
    made = addnorm.symmetries(Encoder(), torch.arange(22).reshape(2, 11) % 11, points=1)
    assert (made.redundant, made.explained, made.refuted) == (80, 80, ())
    assert not any("does not export" in note for note in made.notes)
