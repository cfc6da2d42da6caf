"""Size of the stream at every site, and the share that each branch adds."""

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor

from addnorm.model.trace import SiteTrace, Trace


@dataclass
class Squares:
    """Sum of squares over any number of entries."""

    total: float = 0.0
    entries: int = 0

    def add(self, values: Tensor) -> None:
        """Add the entries of a tensor."""
        self.total += float(values.detach().double().square().sum())
        self.entries += values.numel()

    @property
    def rms(self) -> float:
        """Root of the mean square."""
        return (self.total / self.entries) ** 0.5

    @property
    def norm(self) -> float:
        """Root of the sum of squares."""
        return self.total**0.5


@dataclass
class StreamTally:
    """Sums over batches."""

    entry: Squares = field(default_factory=Squares)
    after: dict[int, Squares] = field(default_factory=dict)
    written: dict[int, Squares] = field(default_factory=dict)
    added: dict[int, Squares] = field(default_factory=dict)

    def add(self, trace: Trace) -> None:
        """Add one pass."""
        if trace.entry is not None:
            self.entry.add(trace.entry)
        for place, site in enumerate(trace.sites):
            self.after.setdefault(place, Squares()).add(site.after)
            if comparable(site):
                self.written.setdefault(place, Squares()).add(site.written)
                self.added.setdefault(place, Squares()).add(site.written - site.before)

    def of_site(self, place: int) -> dict[str, float]:
        """Return `rms`, `update_rms` and `share` of a site; `rms` alone if its streams have different shapes."""
        measures = {"rms": self.after[place].rms}
        if place in self.added:
            measures["update_rms"] = self.added[place].rms
            measures["share"] = added_share(self.added[place], self.written[place])
        return measures


def layer_cosines(trace: Trace) -> dict[int, float]:
    """Compute the cosine of every layer's input and output, mean over positions, by layer; without those of another shape."""
    found: dict[int, float] = {}
    entries: dict[int, Tensor] = {}
    for site in trace.sites:
        layer = site.site.layer
        entry = entries.setdefault(layer, site.before)
        if entry.shape == site.after.shape:
            found[layer] = mean_cosine(entry, site.after)
    return found


def mean_cosine(x: Tensor, y: Tensor) -> float:
    """Compute the cosine of two streams, mean over positions."""
    return torch.cosine_similarity(x.double(), y.double(), dim=-1).mean().item()


def added_share(added: Squares, written: Squares) -> float:
    """The norm of what joins the stream over that of the stream after it; NaN if that is zero."""
    return added.norm / written.norm if written.norm > 0 else math.nan


def comparable(site: SiteTrace) -> bool:
    """Return True if the streams before and after the branch have one shape, so that their difference is defined."""
    return site.before.shape == site.written.shape
