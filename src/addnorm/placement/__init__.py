"""Room of the placements, which choose the sockets of the architecture that hold a norm.

    x <- embedding(tokens)                             socket `embedding`
    y <- output( branch( input( read(state) ) ) )      sockets `branch_input`, `branch_output`
    state <- stream( write(state, y) )                 socket `stream`
    logits <- head( final( close(state) ) )            socket `final`

A placement is a table of sockets; the rest of the block is the same for all placements.

Example: norms on branch outputs alone

    @dataclass(frozen=True, kw_only=True)
    class Output(PlacementSpec):
        def sockets(self) -> Sockets:
            return Sockets(branch_output=True, final=True)
"""

from abc import abstractmethod
from dataclasses import dataclass

from addnorm.catalogue import Spec

__all__ = ["PlacementSpec", "Sockets"]


@dataclass(frozen=True, kw_only=True)
class Sockets:
    """The sockets that hold a norm (True); the others pass their input through."""

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
        """The sockets that hold a norm."""
