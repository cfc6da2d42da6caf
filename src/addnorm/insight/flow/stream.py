"""The stream's size at every site, and how much of it each branch adds."""

from dataclasses import dataclass, field

from torch import Tensor

from addnorm.model.trace import SiteTrace, Trace


@dataclass
class Squares:
    """A sum of squares over any number of entries."""

    total: float = 0.0
    entries: int = 0

    def add(self, values: Tensor) -> None:
        """Take in a tensor's entries."""
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
    """Sums over the batches seen."""

    entry: Squares = field(default_factory=Squares)
    after: dict[int, Squares] = field(default_factory=dict)
    written: dict[int, Squares] = field(default_factory=dict)
    added: dict[int, Squares] = field(default_factory=dict)

    def add(self, trace: Trace) -> None:
        """Take in one pass."""
        if trace.entry is not None:
            self.entry.add(trace.entry)
        for place, site in enumerate(trace.sites):
            self.after.setdefault(place, Squares()).add(site.after)
            if comparable(site):
                self.written.setdefault(place, Squares()).add(site.written)
                self.added.setdefault(place, Squares()).add(site.written - site.before)

    def of_site(self, place: int) -> dict[str, float]:
        """`rms` and `share` of a site; the share is absent where the branch joins something else than one stream."""
        found = {"rms": self.after[place].rms}
        if place in self.added:
            written = self.written[place].norm
            found["share"] = self.added[place].norm / written if written > 0 else float("nan")
        return found


def comparable(site: SiteTrace) -> bool:
    """Whether what joined can be told from the streams before and after."""
    return site.before.shape == site.written.shape
