"""Room of the placements, which choose the sockets of the architecture that hold a norm.

    x <- embedding(tokens)                             socket `embedding`
    y <- output( branch( input( read(state) ) ) )      sockets `branch_input`, `branch_output`
    branch: inner( ... ) W                             socket `inner`, before the matrix that writes to the stream
    state <- stream( write(state, y) )                 socket `stream`
    logits <- head( final( close(state) ) )            socket `final`

A placement is a table of sockets; the rest of the block is the same for all placements. Where layers differ, or numbers stand
beside the norms, a sibling overrides `at`.

Example: norms on branch outputs alone

    @dataclass(frozen=True, kw_only=True)
    class Output(PlacementSpec):
        @classmethod
        def reduces_to(cls) -> tuple[Reduction, ...]:
            return (Reduction(given={"norm": "none"}, to={"placement": "none"}),)

        def sockets(self) -> Sockets:
            return Sockets(branch_output=True, final=True)
"""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from addnorm.catalogue import Spec
from addnorm.reduction import Reducible
from addnorm.shape import Place

__all__ = ["PlacementSpec", "Sockets"]


@dataclass(frozen=True, kw_only=True)
class Sockets:
    """The sockets that hold a norm (True); the others pass their input through.

    Example:
        >>> Sockets(branch_input=True, branch_output=True, final=True).stream
        False
    """

    embedding: bool = False
    branch_input: bool = False
    branch_output: bool = False
    inner: bool = False
    stream: bool = False
    final: bool = False
    input_factor: float = 1.0
    """Factor of what the norm on a branch's input returns."""
    stream_factor: float = 1.0
    """Factor of the stream before a branch's output joins it."""


@dataclass(frozen=True, kw_only=True)
class PlacementSpec(Reducible, Spec):
    """Base of every placement.

    Example:
        >>> from addnorm.placement.pre import Pre
        >>> Pre().sockets() == Sockets(branch_input=True, final=True)
        True
    """

    @abstractmethod
    def sockets(self) -> Sockets:
        """The sockets that hold a norm; where sites differ, those that hold one at some site."""

    def at(self, place: Place, places: Sequence[Place]) -> Sockets:
        """The sockets of one of a model's places; `embedding` and `final` are read from `sockets()`."""
        return self.sockets()

    def initial_gain(self, sites: int) -> float:
        """Factor of the initial standard deviation of value, output and feed-forward matrices, for so many sites."""
        return 1.0
