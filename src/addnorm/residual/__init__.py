"""Room of the hidden-stream residuals: how a branch's output joins the stream.

Six verbs, and the whole architecture is one line:

    state    = residual.open(x)                         # embeddings -> state
    h, state = residual.read(state, site)               # input of the branch at `site`, before its norm
    state    = residual.write(state, y, site)           # the branch's output joins
    state    = residual.map_stream(state, norm, site)   # what a norm on the stream acts on
    x        = residual.view(state)                     # what the final norm would see if the model ended here
    x        = residual.close(state)                    # input of the final norm

A state is the stream itself (a tensor) or a `NamedTuple`, whose fields belong to the sibling. `read` may hand on what it
computed in the state, for the write at the same site to use. A residual with a field `stream` inherits every verb but `write`.

Example: a residual that halves every branch, as a plug-in file

    @dataclass(frozen=True, kw_only=True)
    class Halved(ResidualSpec):
        @classmethod
        def reduces_to(cls) -> tuple[Reduction, ...]:
            return (Reduction(to={"residual": {"kind": "scale", "alpha": 0.5}}),)

        def build(self, shape: Shape, parts: Parts) -> "HalvedResidual":
            return HalvedResidual()

    class HalvedResidual(Residual):
        def write(self, state: Tensor, y: Stream, site: Site) -> Tensor:
            return state + 0.5 * y

`addnorm.testing.check("halved.py")` holds it to the laws of every mechanism.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from addnorm.catalogue import Spec
from addnorm.reduction import Reducible
from addnorm.roles import ParameterRole
from addnorm.shape import Place, Shape

__all__ = [
    "Parts",
    "Place",
    "Read",
    "Replay",
    "Residual",
    "ResidualSpec",
    "SeparateReads",
    "Site",
    "Stream",
    "separate",
]

Stream = Float[Tensor, "batch seq width"]
"""The hidden stream, or an input or output of a branch.

Example:
    >>> import torch
    >>> isinstance(torch.zeros(2, 5, 16), Stream)
    True
"""
Coefficients = dict[str, tuple[list[int], Float[Tensor, " entries"]]]
Replay = Callable[[Stream], Float[Tensor, "earlier batch seq width"]]
"""Outputs of every earlier layer on a new input.

Example:
    >>> import torch
    >>> site = Site(index=2, layer=1, role="attention", replay_layers=lambda x: torch.stack([2 * x]))
    >>> site.replay_layers(torch.ones(1, 3, 4)).shape
    torch.Size([1, 1, 3, 4])
"""


@dataclass(frozen=True)
class Site(Place):
    """The place of one branch, in a pass of the model.

    Example:
        >>> Site(index=3, layer=1, role="feedforward").layer
        1
    """

    replay_layers: Replay | None = None
    """Runs every earlier layer again on a new input, each with the attention that it computed on its own input."""
    replay_feedforwards: Replay | None = None
    """Runs every earlier layer's feed-forward branch, or what stands for it, again on a new input."""


class SeparateReads(NamedTuple):
    """Inputs of an attention branch whose queries, keys and values read the state differently; each gets the input norm.

    Example:
        >>> import torch
        >>> x = torch.ones(1, 3, 4)
        >>> SeparateReads(query=x, key=2 * x, value=3 * x).value.mean().item()
        3.0
    """

    query: Stream
    key: Stream
    value: Stream


Read = Stream | SeparateReads
"""Result of `Residual.read`: one input of a branch, or one for each of queries, keys and values.

Example:
    >>> import torch
    >>> isinstance(SeparateReads(*torch.zeros(3, 1, 5, 16)), Read)
    True
"""


def separate(read: Read) -> SeparateReads:
    """The inputs of queries, keys and values, which are one input unless the residual reads them separately.

    Example:
        >>> import torch
        >>> x = torch.ones(1, 3, 4)
        >>> separate(x).key is x
        True
    """
    return read if isinstance(read, SeparateReads) else SeparateReads(read, read, read)


Change = Callable[[Tensor], Tensor]


def equal_steps(first: float, last: float, count: int) -> Float[Tensor, "count"]:
    """Numbers from the first to the last in equal steps; the first alone where there is one.

    Not `torch.linspace`: Transformers replaces it while it builds a model, and where that is the first thing that a process
    does on the meta device, `torch.device("meta")` does not know the original from then on and leaves its numbers on the CPU.
    """
    return torch.tensor([first + (last - first) * number / max(count - 1, 1) for number in range(count)])


@dataclass(frozen=True, kw_only=True)
class Parts:
    """The model around a residual, for which it is built.

    Example:
        >>> places = (Place(index=0, layer=0, role="attention"), Place(index=1, layer=0, role="feedforward"))
        >>> parts = Parts(sites=places, norm=nn.LayerNorm, std=0.02)
        >>> parts.norm(16).weight.shape
        torch.Size([16])
    """

    sites: tuple[Place, ...]
    """Every site of the model, in order of depth."""
    norm: Callable[[int], nn.Module]
    """Builds a norm of the model's kind for vectors of this many entries."""
    std: float
    """Standard deviation of the entries of the model's matrices at the start."""


class Residual(nn.Module, ABC):
    """A residual of the hidden stream. One instance serves all sites of a model.

    Example:
        >>> import torch
        >>> class Halved(Residual):
        ...     def write(self, state, y, site):
        ...         return state + 0.5 * y
        >>> x = torch.ones(1, 3, 4)
        >>> Halved().write(x, x, Site(index=0, layer=0, role="attention")).mean().item()
        1.5
    """

    parameter_roles: ClassVar[Mapping[str, ParameterRole]] = {}
    """Role of each parameter, by name; see `addnorm.roles`. A parameter without a role is not treated as a matrix."""
    sites: tuple[Place, ...] = ()
    """Every site of the model that it was built for; the model sets them."""
    frozen: bool = False
    """True while weights that depend on the state are constants for derivatives; see `seen`."""

    def open(self, x: Stream) -> Any:
        """The state before the first site."""
        return x

    def read(self, state: Any, site: Site) -> tuple[Read, Any]:
        """The input of the branch at `site`, before its norm; and the state that `write` gets at this site."""
        return _stream_of(state), state

    @abstractmethod
    def write(self, state: Any, y: Stream, site: Site) -> Any:
        """The state after the branch's output `y` has joined."""

    def map_stream(self, state: Any, change: Change, site: Place) -> Any:
        """The state with a changed stream and all else kept: `change` is a norm on the stream, or a factor."""
        return change(state) if isinstance(state, Tensor) else state._replace(stream=change(state.stream))

    def view(self, state: Any) -> Stream:
        """The input that the final norm would get if the model ended here."""
        return _stream_of(state)

    def close(self, state: Any) -> Stream:
        """The input of the final norm."""
        return self.view(state)

    def advance(self, step: int) -> None:
        """Take note that the training step `step`, counted from 0, comes next. A residual that needs it keeps it in a buffer,
        which checkpoints and exports then hold."""

    def require_steps(self, steps: int) -> None:
        """Check that a training of so many steps is long enough.

        Raises:
            InputError: it is too short for the residual to reach its final form.
        """

    def seen(self, x: Tensor) -> Tensor:
        """Return `x`, as a constant if `frozen`: weights that depend on the state are computed from it.

        With it, `addnorm.depth_matrix` finds how much of every earlier output a branch reads.
        """
        return x.detach() if self.frozen else x

    def coefficients(self) -> Coefficients:
        """The effective coefficients: for every parameter, the layers of its entries and the coefficients there.

        The base class covers parameters of its own with one number per site, which are coefficients themselves; a sibling
        of another form overrides this method.
        """
        return {
            name: ([place.layer for place in self.sites], parameter.detach())
            for name, parameter in self.named_parameters(recurse=False)
            if parameter.shape == (len(self.sites),)
        }


@dataclass(frozen=True, kw_only=True)
class ResidualSpec(Reducible, Spec):
    """Base of every residual's specification.

    Example:
        >>> from addnorm.residual.rezero import ReZero
        >>> model = addnorm.preset("base", depth=2, residual=ReZero(alpha_init=0.5)).build(seed=0)
        >>> model.residual.alpha.tolist()  # one per branch
        [0.5, 0.5, 0.5, 0.5]
    """

    replays: ClassVar[bool] = False
    """True if `write` calls a site's replay; the model then keeps what every layer's attention was computed from."""

    def refused_sockets(self) -> Mapping[str, str]:
        """Sockets of the placement that must hold no norm with this residual, each with the reason."""
        return {}

    @property
    def separate_reads(self) -> bool:
        """True if queries, keys and values read the state separately."""
        return False

    @abstractmethod
    def build(self, shape: Shape, parts: Parts) -> Residual:
        """Build the module. Its method `initialise`, if it has one, fills its parameters later."""


def _stream_of(state: Any) -> Tensor:
    return state if isinstance(state, Tensor) else state.stream
