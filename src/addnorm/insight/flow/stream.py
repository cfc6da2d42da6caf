"""Size of the stream at every site and after every layer, and the share that each branch adds."""

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from addnorm.insight.flow.recording import RecordedLayer, RecordedSite
from addnorm.shape import Role


@dataclass
class Squares:
    """Sum of squares over any number of entries."""

    total: float = 0.0
    entries: int = 0

    def add(self, values: Tensor) -> None:
        """Add the entries of a tensor."""
        # In float64: squares of millions of entries in float32 would stop growing.
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
class SiteTally:
    """Sums of a site over passes."""

    role: Role
    modules: tuple[nn.Module, ...] | None
    """As in `RecordedSite`, whose tensors are not kept."""
    after: Squares = field(default_factory=Squares)
    written: Squares = field(default_factory=Squares)
    added: Squares = field(default_factory=Squares)
    gradient: Squares = field(default_factory=Squares)
    """Of the summed loss with respect to the stream after the site."""

    def add(self, site: RecordedSite) -> None:
        """Add one pass."""
        self.after.add(site.after)
        if site.added is not None:
            self.written.add(site.written)
            self.added.add(site.added)

    def measures(self) -> dict[str, float]:
        """Return `rms`, `update_rms` and `share`; `rms` alone if the site's streams have different shapes."""
        measures = {"rms": self.after.rms}
        if self.added.entries:
            share = self.added.norm / self.written.norm if self.written.norm > 0 else math.nan
            measures |= {"update_rms": self.added.rms, "share": share}
        return measures


@dataclass
class LayerTally:
    """Sums of a layer over passes."""

    output: Squares = field(default_factory=Squares)
    cosines: list[float] = field(default_factory=list)
    """One per pass, of input and output, mean over positions; none if these have different shapes."""
    exit_nats: float | None = None
    """Summed loss of a read-out after this layer; None if there is none."""

    def add(self, layer: RecordedLayer) -> None:
        """Add one pass, without a read-out."""
        self.output.add(layer.output)
        if layer.entry.shape == layer.output.shape:
            cosine = torch.cosine_similarity(layer.entry.double(), layer.output.double(), dim=-1)
            self.cosines.append(cosine.mean().item())
