r"""Attention over depth: every branch reads a softmax-weighted mean of all earlier outputs.

    h_l = sum_{i<=l} p_i v_i        v_0: embeddings; v_i: output of branch i, or the sum of a block of them
    p = softmax_i( w_l . (gamma_l * v_i / rms(v_i)) )        w_l = 0, gamma_l = 1 at initialisation
    h_l <- (l + 1) h_l        if residual.total is sum

The close is one more read, with w and gamma of its own. With `block` above 1, the outputs of so many branches are summed
before they become a source; the sum of the unfinished block is one more source.

Why: a fixed sum dilutes each branch by all others; here each position chooses the depths that it reads. At the start the read
is the mean of all sources, which is the plain residual's stream divided by their number.

Source: Kimi Team 2026, "Attention Residuals", arXiv:2603.15031, full and block form.
Differs from the source: total `sum` is ours; it starts exactly as the plain residual. With `mean` a stream of n sources is
n times smaller: keep the norms' eps far below its mean square.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from addnorm.errors import InputError
from addnorm.fields import require, require_positive
from addnorm.kernels.depth_mixing import normed_product, weighted_sum
from addnorm.reduction import Reduction
from addnorm.residual import Parts, Residual, ResidualSpec, Site, Stream
from addnorm.shape import Shape


@dataclass(frozen=True, kw_only=True)
class Attention(ResidualSpec):
    """A softmax over the outputs of earlier branches."""

    block: int = 1
    """Number of branches whose outputs are summed to one source; it divides the number of branches."""
    total: Literal["mean", "sum"] = "mean"
    """Weights that add up to one, or to the number of sources."""
    eps: float = 1e-8
    """Added to a source's mean square where its logit is computed."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, "block", self.block >= 1, "at least 1")
        require_positive(self, "eps")

    @classmethod
    def reduces_to(cls) -> tuple[Reduction, ...]:
        mean, sum_ = {"query": 0.0}, {"settings": {"total": "sum"}, "to": {"residual": "add"}}
        return (
            Reduction(parameters=mean, to={"residual": "add"}, equal="after the next norm"),
            Reduction(parameters=mean, settings={"block": 2}, to={"residual": "add"}, equal="after the next norm"),
            Reduction(parameters=mean, **sum_),  # type: ignore[arg-type]
            Reduction(parameters="start", **sum_),  # type: ignore[arg-type]
        )

    def refused_sockets(self) -> Mapping[str, str]:
        return {"stream": "every branch reads the whole history, so that there is no stream between branches"}

    def build(self, shape: Shape, parts: Parts) -> "AttentionResidual":
        if len(parts.sites) % self.block:
            raise InputError(
                f"attention.block: expected a divisor of the {len(parts.sites)} branches, got {self.block}."
            )
        return AttentionResidual(shape.width, len(parts.sites), self.block, self.total, self.eps)


class Sources(NamedTuple):
    """The embeddings and the outputs or sums that are complete."""

    vectors: tuple[Tensor, ...]
    logits: tuple[tuple[Tensor, ...], ...]
    """Of every source: its logit in each later read, the close last."""
    unfinished: Tensor | None
    """Sum of the outputs of the present block."""


class AttentionResidual(Residual):
    parameter_roles = {"query": "vector", "gain": "vector"}

    def __init__(self, width: int, sites: int, block: int, total: Literal["mean", "sum"], eps: float) -> None:
        super().__init__()
        self.block, self.total, self.eps = block, total, eps
        self.query = nn.Parameter(torch.zeros(sites + 1, width))
        self.gain = nn.Parameter(torch.ones(sites + 1, width))

    def open(self, x: Stream) -> Sources:
        return Sources((x,), (self._logits(x, slice(0, None)),), None)

    def read(self, state: Sources, site: Site) -> tuple[Stream, Sources]:
        return self._mix(state, site.index), state

    def write(self, state: Sources, y: Stream, site: Site) -> Sources:
        total, reads = y if state.unfinished is None else state.unfinished + y, slice(site.index + 1, None)
        if (site.index + 1) % self.block:
            return state._replace(unfinished=total)
        return Sources((*state.vectors, total), (*state.logits, self._logits(total, reads)), None)

    def view(self, state: Sources) -> Stream:
        return self._mix(state, len(self.query) - 1)

    def _logits(self, source: Tensor, reads: slice) -> tuple[Tensor, ...]:
        """The logits of one source in these reads, from one product."""
        # A source's logits in all later reads are known once it is written, since queries are parameters. One product with all
        # of them reads the source once; a product per read would read all sources again at every site, which is quadratic in
        # the depth. The norm stands between query and source, so gains join the queries: w . (gamma v/rms) = (w gamma) . v/rms.
        probes = self.query[reads] * self.gain[reads]
        return normed_product(self.seen(source), probes, self.eps).unbind(dim=-1)

    def _mix(self, state: Sources, index: int) -> Stream:
        vectors, logits = state.vectors, [of_source[index - len(self.query)] for of_source in state.logits]
        if state.unfinished is not None:  # its sum still grows, so its logit holds for this read alone
            vectors = (*vectors, state.unfinished)
            logits += self._logits(state.unfinished, slice(index, index + 1))
        weights = torch.softmax(torch.stack(logits), dim=0)
        return weighted_sum(weights * len(vectors) if self.total == "sum" else weights, vectors)
