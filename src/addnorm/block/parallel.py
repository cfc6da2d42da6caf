r"""Parallel branches: attention and feed-forward of a layer read the same stream, and their outputs join it together.

    x <- x + a(x) + f(x)        if residual is add
    x <- write(x, a(x) + f(x))        if residual is not add
    a(x) = attention(N(x)),  f(x) = feedforward(N(x))        if block.norms is one
    a(x) = attention(N1(x)),  f(x) = feedforward(N2(x))        if block.norms is two

N, N1, N2: the norms on inputs, where the placement has them. `write` is the residual's own way to join an output.

Why: the two may be computed at once, and the stream is read and written half as often.

Source: Wang and Komatsuzaki 2021, GPT-J, https://github.com/kingoflolz/mesh-transformer-jax (one norm); Black et al. 2022,
GPT-NeoX, arXiv:2204.06745 §2.1 (two norms); Chowdhery et al. 2022, PaLM, arXiv:2204.02311 §2 (one norm).
Differs from the source: the matrices of the two branches are not joined. Norms on outputs are two in either case.
"""

from dataclasses import dataclass
from typing import Literal

from addnorm.block import BlockSpec, BranchPlan, SitePlan
from addnorm.reduction import Reduction


@dataclass(frozen=True, kw_only=True)
class Parallel(BlockSpec):
    """One site per layer."""

    norms: Literal["one", "two"] = "two"
    """One norm for what both branches read, or one for each, which gives a sequential layer's parameters."""

    @classmethod
    def reduces_to(cls) -> tuple[Reduction, ...]:
        two_norms = {"block": {"kind": "parallel", "norms": "two"}}
        return (Reduction(settings={"norms": "one"}, given={"norm": "none"}, to=two_norms),)

    def sites(self, layer: int, depth: int) -> tuple[SitePlan, ...]:
        branches = (
            BranchPlan(name="attention", body="attention"),
            BranchPlan(name="feedforward", body="feedforward"),
        )
        norm: Literal["own", "shared"] = "shared" if self.norms == "one" else "own"
        return (SitePlan(role="parallel", branches=branches, input_norm=norm),)

    def refuses_separate_reads(self) -> str | None:
        return "attention and feed-forward of a parallel layer read one input"
