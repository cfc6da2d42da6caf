"""Branches that are given all streams of a residual and add to each, such as tables of n-grams."""

from dataclasses import replace
from typing import Any

from torch import Tensor

from addnorm.residual import Read, Residual, Site, Stream
from addnorm.shape import Place

BESIDE = "tables"
"""Role of such a branch's site."""


class ResidualBeside(Residual):
    """A residual of several streams, and the sites that it does not join.

    Args:
        residual: built for all other sites, which it counts without these.
        places: every site.
    """

    def __init__(self, residual: Residual, places: tuple[Place, ...]) -> None:
        super().__init__()
        self.residual = residual
        joined = [place.index for place in places if str(place.role) != BESIDE]
        self.joined = {index: number for number, index in enumerate(joined)}

    @property
    def frozen(self) -> bool:
        return self.residual.frozen

    @frozen.setter
    def frozen(self, frozen: bool) -> None:
        self.residual.frozen = frozen

    def open(self, x: Stream) -> Any:
        return self.residual.open(x)

    def read(self, state: Any, site: Site) -> tuple[Read, Any]:
        if site.index not in self.joined:
            return state.streams, state
        return self.residual.read(state, replace(site, index=self.joined[site.index]))

    def write(self, state: Any, y: Tensor, site: Site) -> Any:
        if site.index not in self.joined:
            return state._replace(streams=state.streams + y)
        return self.residual.write(state, y, replace(site, index=self.joined[site.index]))

    def view(self, state: Any) -> Stream:
        return self.residual.view(state)

    def close(self, state: Any) -> Stream:
        return self.residual.close(state)
