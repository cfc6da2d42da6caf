"""Room of the placements: which sockets of the architecture hold a norm.

    x <- embedding(tokens)                             socket `embedding`
    y <- output( branch( input( read(state) ) ) )      sockets `branch_input`, `branch_output`
    state <- stream( write(state, y) )                 socket `stream`
    logits <- head( final( close(state) ) )            socket `final`

A placement is a table of sockets and nothing more; the block is the same for all of them.
"""

from abc import abstractmethod
from dataclasses import dataclass

from addnorm.catalogue import Spec

__all__ = ["PlacementSpec", "Sockets"]


@dataclass(frozen=True, kw_only=True)
class Sockets:
    """Which sockets hold a norm; the others pass through."""

    embedding: bool = False
    branch_input: bool = False
    branch_output: bool = False
    stream: bool = False
    final: bool = False


@dataclass(frozen=True, kw_only=True)
class PlacementSpec(Spec):
    """Base of every placement."""

    @abstractmethod
    def sockets(self) -> Sockets:
        """Where the norms are."""
