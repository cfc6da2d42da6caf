"""The reads of the attention scores: every layer's summed scores, before biases and masks, as sums over layers.

A layer's scores are a sum of terms with fixed weights. Where a sibling merges queries and keys on their way, the merged queries
and keys are reads as well, and a layer's part in a score is that of its queries, with all keys held.
"""

import copy
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float64
from torch import Tensor
from torch.autograd import forward_ad

from addnorm.insight.depth.part import Part, attending_layers, forward_mode, tangent_of
from addnorm.insight.score_shares import shares_of, variation
from addnorm.kernels.grouped_attention import band
from addnorm.model.trace import Trace
from addnorm.model.transformer import Transformer
from addnorm.scores import Scores

sources_of = attending_layers


@dataclass(frozen=True, kw_only=True, eq=False)
class SummedScores(Part):
    """Scores of one layer, [batch, heads, query, key]."""

    seen: Bool[Tensor, "query key"] | None
    """Positions that each row sees; all if None."""

    def shares(self) -> Float64[Tensor, " source"]:
        """Find the part of each layer in the variation along the rows.

        A constant along a row changes no softmax, and what a row does not see is not read.
        """
        return shares_of(variation(self.contributions, self.seen)).mean(dim=0)


def parts(model: Transformer, tokens: Tensor) -> Iterator[Part]:
    """Every read, in order of depth. Scores are in units of 1/sqrt(width of a head).

    Memory: of one read, layers × batch × heads × seq² numbers.
    """
    trace = Trace()
    model(tokens, trace=trace)
    scores = copy.deepcopy(model.scores).double().eval()
    own = [(attention.query.double(), attention.key.double()) for attention in trace.attentions]
    queries, keys = (torch.stack(each) for each in zip(*own, strict=True))
    unit = math.sqrt(queries.shape[-1])
    merges = type(scores).merge is not Scores.merge
    passed_queries, passed_keys = _merged(scores, queries, keys)
    share = _shares_of_sources(scores, queries, keys) if merges else None  # [source, layer, …]
    group = queries.shape[2] // keys.shape[2]
    for layer in range(len(own)):
        if share is not None:
            name = ("query", passed_queries, queries, share[0]), ("key", passed_keys, keys, share[1])
            for way, merged, sources, contributions in name:
                yield Part(
                    name=f"{layer}.{way}",
                    read=merged[layer],
                    contributions=contributions[:, layer],
                    sources=_until(sources, layer),
                )
        if share is not None and scores.terms(layer) == 1:
            continue
        # A score is bilinear in queries and keys, so parts of both would make layers² products. With merged keys held,
        # it is a sum over the layers' queries.
        weights = _weights(scores, layer, len(own), queries.shape[2]).to(queries.device) * unit  # [source, heads]
        keyed = passed_keys.repeat_interleave(group, dim=2).mT / unit
        products = _until(queries @ keyed, layer)  # [source, batch, heads, seq, seq]
        contributions = weights[:, None, :, None, None] * products
        problem = trace.attentions[layer].problem
        yield SummedScores(
            name=f"{layer}.scores" if merges else str(layer),
            read=contributions.sum(dim=0),
            contributions=contributions,
            sources=products,
            weights=weights,
            seen=band(problem, slice(0, problem.query), slice(0, problem.key)),
        )


def _until(sources: Tensor, layer: int) -> Tensor:
    """Sources with those of later layers at zero."""
    earlier = torch.arange(len(sources), device=sources.device) <= layer
    return sources * earlier.view(-1, *[1] * (sources.dim() - 1))


def _weights(scores: Scores, layer: int, depth: int, heads: int) -> Tensor:
    given = torch.as_tensor(scores.weights(layer), dtype=torch.float64).detach().cpu()
    full = torch.zeros(depth, heads, dtype=torch.float64)
    full[layer + 1 - scores.terms(layer) : layer + 1] = given.expand(heads, given.shape[-1]).T
    return full


def _merged(scores: Scores, queries: Tensor, keys: Tensor) -> tuple[Tensor, Tensor]:
    """Queries and keys that every layer passes on as its own."""
    passed: list[tuple[Tensor, Tensor]] = []
    for query, key in zip(queries, keys, strict=True):
        passed.append(scores.merge(query, key, passed[-1] if passed else None))
    merged_queries, merged_keys = zip(*passed, strict=True)
    return torch.stack(merged_queries), torch.stack(merged_keys)


def _shares_of_sources(scores: Scores, queries: Tensor, keys: Tensor) -> Sequence[Tensor]:
    """The part of every layer's queries and keys in what each layer passes on: two tensors [source, layer, …]."""
    shares: list[tuple[Tensor, Tensor]] = []
    for index in range(len(queries)):
        with forward_mode():
            duals = []
            for own in (queries, keys):
                tangent = torch.zeros_like(own)
                tangent[index] = own[index]
                duals.append(forward_ad.make_dual(own, tangent))
            merged = _merged(scores, *duals)
            shares.append((tangent_of(merged[0]), tangent_of(merged[1])))
    return [torch.stack(each) for each in zip(*shares, strict=True)]
