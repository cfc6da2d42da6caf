r"""Gated attention units: two branches per layer, each attention and gated feed-forward at once.

    (U, V, Z) = silu(x W_i)        U, V: hidden entries;  Z: block.key_dim entries
    Q = Z * gamma_q + a,  K = Z * gamma_k + b        a, b: q and k biases, if there are any
    y = (U * A V) W_o        A: attention of one head
    A = softmax(scores)        if block.normalisation is softmax
    A = relu(scores)^2 / (number of visible keys)        if block.normalisation is squared_relu
    A = relu(e^scores - 1) / (sum |e^scores - 1|)        if block.normalisation is softpick

Why: one attention head, gated by entry, is as good as many, and the layer has fewer matrices.

Source: Hua et al. 2022, "Transformer Quality in Linear Time", arXiv:2202.10447; GAU-α,
https://github.com/ZhuiyiTechnology/GAU-alpha; Su (2023).
Differs from the source: gamma starts at one, in the paper at random; the paper divides squared scores by the length, with which
later tokens of a causal model would change earlier ones.
"""

from dataclasses import dataclass, replace

from addnorm.block import BlockSpec, BranchPlan, SitePlan
from addnorm.fields import require_at_least
from addnorm.kernels.grouped_attention import Normalisation
from addnorm.reduction import Reduction
from addnorm.shape import Shape


@dataclass(frozen=True, kw_only=True)
class Gau(BlockSpec):
    """Two units per layer, which stand for its attention and its feed-forward; the model's `hidden` is the width of U and V."""

    key_dim: int = 128
    """Width of Z, of the queries and of the keys."""
    normalisation: Normalisation = "softmax"
    """Function from scores to attention."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_at_least(self, 1, "key_dim")

    @classmethod
    def reduces_to(cls) -> tuple[Reduction, ...]:
        return ()

    def sites(self, layer: int, depth: int) -> tuple[SitePlan, ...]:
        first = BranchPlan(name="first", body="gated_attention_unit")
        second = BranchPlan(name="second", body="gated_attention_unit")
        return (SitePlan(role="attention", branches=(first,)), SitePlan(role="feedforward", branches=(second,)))

    def attention_shape(self, shape: Shape, attentions: int) -> Shape:
        return replace(shape, depth=attentions, key_dim=self.key_dim)

    def normalises_by(self) -> Normalisation:
        return self.normalisation

    def refuses_separate_reads(self) -> str | None:
        return "one matrix makes all of a gated attention unit"
