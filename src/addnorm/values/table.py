r"""Value embeddings: a table of values per token joins the values of some layers, through a gate.

    v_l <- v_l + values.scale * sigma(G_l x_l) E_l[token],  G_l = 0 at initialisation        if values.gate
    v_l <- v_l + E_l[token]        if not values.gate
    l = L, L-2, L-4, ...        if values.layers is alternate

E_l has a row for each token and G_l a row for each value head; G_l reads the first values.gate_entries entries of x_l.

Why: what a token contributes to attention no longer has to pass through all the layers before; parameters without products.

Source: Jordan et al. 2024, modded-nanogpt, https://github.com/KellerJordan/modded-nanogpt; Karpathy 2025, nanochat,
https://github.com/karpathy/nanochat.
Differs from the source: E starts normal, with the standard deviation of the model's matrices, in nanochat uniform with that of
the value matrix. modded-nanogpt has three tables, each for one of the first and one of the last layers, and learned weights.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from addnorm.fields import require_at_least
from addnorm.reduction import Reduction
from addnorm.shape import Shape
from addnorm.values import Values, ValuesSpec


@dataclass(frozen=True, kw_only=True)
class Table(ValuesSpec):
    """One table per layer that has one."""

    layers: Literal["alternate", "all"] = "alternate"
    """Layers with a table: every other one, the last among them, or all."""
    gate: bool = True
    """True for a gate per position and value head; it starts at half of `scale`."""
    scale: float = 2.0
    """Largest value of the gate."""
    gate_entries: int = 32
    """Number of entries of the branch's input that the gate reads; all of them if there are fewer."""

    @classmethod
    def reduces_to(cls) -> tuple[Reduction, ...]:
        return (
            Reduction(parameters={"weight": 0.0}, to={"values": "own"}),
            Reduction(settings={"scale": 0.0}, to={"values": "own"}),
            Reduction(parameters={"0": 0.0, "1": 0.0}, to={"values": {"kind": "table", "gate": False}}),
        )

    def __post_init__(self) -> None:
        super().__post_init__()
        require_at_least(self, 1, "gate_entries")

    @property
    def reads_tokens(self) -> bool:
        return True

    def build(self, shape: Shape, *, vocab: int, std: float) -> "TableValues":
        return TableValues(self, shape, vocab, std)


class TokenTable(nn.Embedding):
    def __init__(self, vocab: int, row: int, std: float) -> None:
        super().__init__(vocab, row, _weight=torch.empty(vocab, row))
        self.std = std

    def initialise(self, name: str, generator: torch.Generator) -> None:
        nn.init.normal_(self.weight, std=self.std, generator=generator)


class TableValues(Values):
    parameter_roles = {"gate": "hidden_matrix"}

    def __init__(self, spec: Table, shape: Shape, vocab: int, std: float) -> None:
        super().__init__()
        self.scale, self.value_dim = spec.scale, shape.value_dim
        self.entries = min(spec.gate_entries, shape.width)
        step = 2 if spec.layers == "alternate" else 1
        layers = [str(layer) for layer in reversed(range(shape.depth - 1, -1, -step))]
        row = shape.kv_heads * shape.value_dim
        self.table = nn.ModuleDict({layer: TokenTable(vocab, row, std) for layer in layers})
        gated = layers if spec.gate else []
        self.gate = nn.ParameterDict({layer: torch.zeros(shape.kv_heads, self.entries) for layer in gated})

    def join(self, layer: int, own: Tensor | None, earlier: Sequence[Tensor], x: Tensor, tokens: Tensor) -> Tensor:
        assert own is not None
        name, looked_up = str(layer), self.looked_up(layer, tokens)
        if looked_up is None:
            return own
        if name in self.gate:
            gates = self.scale * torch.sigmoid(F.linear(x[..., : self.entries], self.gate[name]))
            looked_up = gates.transpose(1, 2)[..., None] * looked_up
        return own + looked_up.to(own.dtype)

    def looked_up(self, layer: int, tokens: Tensor) -> Tensor | None:
        name = str(layer)
        if name not in self.table:
            return None
        rows: Tensor = self.table[name](tokens)
        return rows.unflatten(-1, (-1, self.value_dim)).transpose(1, 2)
