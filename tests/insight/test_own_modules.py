"""Modules that nobody here wrote are measured: torch's own attention, and layers beside longer lists of other modules."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from addnorm.errors import InputError
from addnorm.insight.probe import probe
from addnorm.training.objective import Batch

VOCAB, WIDTH, HEADS, SEQ = 11, 16, 2, 7


class Block(nn.Module):
    def __init__(self, **attention: Any) -> None:
        super().__init__()
        self.need_weights = attention.pop("need_weights", False)
        self.first, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attention = nn.MultiheadAttention(WIDTH, HEADS, **{"batch_first": True, **attention})
        self.rest = nn.Sequential(nn.Linear(WIDTH, 24), nn.GELU(), nn.Linear(24, WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x)
        hidden = torch.triu(torch.ones(x.shape[1], x.shape[1], dtype=torch.bool), 1)
        if not self.attention.batch_first:
            h = h.transpose(0, 1)
        y, self.weights = self.attention(
            h, h, h, attn_mask=hidden, need_weights=self.need_weights, average_attn_weights=False
        )
        x = x + (y if self.attention.batch_first else y.transpose(0, 1))
        return x + self.rest(self.second(x))


class Own(nn.Module):
    """Layers, with other lists before and after them."""

    def __init__(self, layers: list[nn.Module], stem: int = 0, heads: int = 0) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCAB, WIDTH)
        self.stem = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(stem))
        self.layers = nn.ModuleList(layers)
        self.heads = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(heads))
        self.head = nn.Linear(WIDTH, VOCAB)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens)
        for module in (*self.stem, *self.layers, *self.heads):
            x = module(x)
        return self.head(x)


def measured(model: nn.Module) -> dict[str, Any]:
    tokens = torch.randint(VOCAB, (2, SEQ), generator=torch.Generator().manual_seed(0))
    batch = Batch(inputs=tokens, targets=tokens.roll(-1, 1), mask=None)
    return probe(model.eval(), [batch], [batch], lambda of, given: of(given))


def entropy_of(weights: Tensor) -> float:
    """Mean entropy of the rows that see more than one position, over heads and sequences, as the measure is defined."""
    return float(-(weights * weights.clamp_min(1e-300).log()).sum(-1)[..., 1:].mean())


@pytest.mark.parametrize("need_weights", [False, True])
@pytest.mark.parametrize(
    "settings", [{}, {"bias": False}, {"batch_first": False}, {"kdim": WIDTH, "vdim": WIDTH}], ids=str
)
def test_torchs_attention_is_measured(settings: dict[str, Any], need_weights: bool) -> None:
    torch.manual_seed(1)
    layers = [Block(need_weights=need_weights, **settings) for _ in range(3)]
    model = Own(list(layers)).double()
    got = measured(model)
    assert got["missing"] == []
    assert [site["role"] for site in got["sites"]] == ["attention", "feedforward"] * 3
    for layer in layers:
        layer.need_weights = True
    with torch.no_grad():
        model(torch.randint(VOCAB, (2, SEQ), generator=torch.Generator().manual_seed(0)))
    for number, layer in enumerate(layers):
        heads = layer.weights.unflatten(0, (2, -1)) if layer.weights.dim() == 3 else layer.weights
        assert got["layers"][number]["entropy"] == pytest.approx(entropy_of(heads), abs=1e-9)


def test_the_fast_path_is_measured_too() -> None:
    layers: list[nn.Module] = [
        nn.TransformerEncoderLayer(WIDTH, HEADS, 24, batch_first=True, dropout=0.0) for _ in range(2)
    ]
    got = measured(Own(layers))
    assert got["missing"] == []
    assert all(0.9 < layer["entropy_share"] <= 1 for layer in got["layers"]), "no mask: every row sees all"


@pytest.mark.parametrize("lists", [{"stem": 6}, {"heads": 6}, {"stem": 5, "heads": 9}], ids=str)
def test_layers_are_found_beside_longer_lists(lists: dict[str, int]) -> None:
    torch.manual_seed(2)
    got = measured(Own([Block() for _ in range(3)], **lists))
    assert len(got["layers"]) == 3
    assert len(got["sites"]) == 6
    assert "joints" not in " ".join(got["missing"])


class Named(nn.Module):
    """Layers by name: parts of a ModuleDict, or attributes `layer1`, `layer2`."""

    def __init__(self, layers: nn.ModuleDict | None) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(VOCAB, WIDTH), nn.Linear(WIDTH, VOCAB)
        self.layers = layers
        if layers is None:
            self.layer1, self.layer2 = Block(), Block()

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens)
        for layer in (self.layer1, self.layer2) if self.layers is None else self.layers.values():
            x = layer(x)
        return self.head(x)


@pytest.mark.parametrize("as_dict", [True, False])
def test_layers_with_names_are_found(as_dict: bool) -> None:
    torch.manual_seed(0)
    content = measured(Named(nn.ModuleDict({"low": Block(), "high": Block()}) if as_dict else None))
    assert len(content["layers"]) == 2
    assert [site["role"] for site in content["sites"]] == ["attention", "feedforward"] * 2


def test_layers_of_several_widths_are_named() -> None:
    wide = nn.ModuleList([nn.Linear(WIDTH, 24), nn.Linear(24, 24), nn.Linear(24, WIDTH)])
    with pytest.raises(
        InputError, match=r"Own: expected layers that keep .* stream, got 16, 24 from layers.0 to layers.2\."
    ):
        measured(Own(list(wide)))
