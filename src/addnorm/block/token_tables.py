r"""Token tables: behind its feed-forward, every layer looks its token up in a table of its own, through a gate.

    x <- x + a(x),  x <- x + f(x),  x <- x + t(x)        if residual is add
    x <- write(x, a(x)),  x <- write(x, f(x)),  x <- write(x, t(x))        if residual is not add
    t(x) = block.scale * V_l (sigma(G_l x) * E_l[token])

a, f, t: the branches, with their norms. E_l has a row of block.entries numbers for each token; gate and row are multiplied
entry by entry. `write` is the residual's own way to join an output to the stream.

Why: parameters that cost no products: a layer has at hand what a token means to it, and need not carry it in the stream.

Source: Gemma 4 and EmbeddingGemma 2 (`per_layer_input`) in Transformers,
https://github.com/huggingface/transformers/blob/v5.23.0/src/transformers/models/gemma4/modeling_gemma4.py.
Differs from the source: the gate is a sigmoid, there GELU; a table's row stands alone, to which the source adds a projection of
the embeddings; Qwen 4 (experimental) looks up hashes of several tokens. `values: table` has such tables in values.
"""

from dataclasses import dataclass

from addnorm.block import BlockSpec, BranchPlan, SitePlan, sequence
from addnorm.fields import require_at_least
from addnorm.reduction import Reduction


@dataclass(frozen=True, kw_only=True)
class TokenTables(BlockSpec):
    """Three branches per layer."""

    entries: int = 16
    """Numbers of a token's row."""
    scale: float = 1.0
    """Factor of the tables' output."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_at_least(self, 1, "entries")

    @classmethod
    def reduces_to(cls) -> tuple[Reduction, ...]:
        return (Reduction(settings={"scale": 0.0}, to={"block": "sequential"}),)

    def sites(self, layer: int, depth: int) -> tuple[SitePlan, ...]:
        return sequence(
            BranchPlan(name="attention", body="attention"),
            BranchPlan(name="feedforward", body="feedforward"),
            BranchPlan(name="table", body="token_table", factor=self.scale, entries=self.entries),
        )
