"""Room of the hidden-stream residuals: how a branch's output joins the stream.

Four verbs, and the whole architecture is one line:

    state = residual.open(x)                      # embeddings -> state
    h     = residual.read(state, site)            # input of the branch at `site`, before its norm
    state = residual.write(state, y, site)        # the branch's output joins
    x     = residual.close(state)                 # input of the final norm

A state is the stream itself (a tensor) or a `NamedTuple` with a field `stream`; its other fields belong to the sibling.
Post-norm can therefore normalise the stream of any residual: see `map_stream`.

Example: a residual that halves every branch, as a plug-in file

    @dataclass(frozen=True, kw_only=True)
    class Halved(ResidualSpec):
        def build(self, shape: Shape) -> "HalvedResidual":
            return HalvedResidual()

    class HalvedResidual(Residual):
        def write(self, state: Tensor, y: Stream, site: Site) -> Tensor:
            return state + 0.5 * y

`addnorm.testing.check("halved.py")` holds it to the laws of every mechanism.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from jaxtyping import Float
from torch import Tensor, nn

from addnorm.catalogue import Spec
from addnorm.roles import ParameterRole
from addnorm.shape import Shape

__all__ = ["Replay", "Residual", "ResidualSpec", "Site", "Stream", "map_stream", "stream_of"]

Stream = Float[Tensor, "batch seq width"]
Coefficients = dict[str, tuple[list[int], Float[Tensor, " entries"]]]
Replay = Callable[[Stream], Float[Tensor, "earlier batch seq width"]]


@dataclass(frozen=True)
class Site:
    """The place of one branch in depth."""

    index: int
    """Number of branches before this one."""
    layer: int
    """0-based layer; layer m of the formulas is `layer + 1`."""
    role: Literal["attention", "feedforward"]
    """Kind of the branch; of a pair of gated attention units, the kind that it stands for."""
    replay_layers: Replay | None = None
    """Runs every earlier layer again on a new input, each with the attention that it computed on its own input."""
    replay_feedforwards: Replay | None = None
    """Runs every earlier layer's feed-forward branch, or what stands for it, again on a new input."""


class Residual(nn.Module, ABC):
    """A residual of the hidden stream. One instance serves all sites of a model."""

    parameter_roles: ClassVar[Mapping[str, ParameterRole]] = {}
    """Role of each parameter, by name; see `addnorm.roles`. A parameter without a role is not treated as a matrix."""
    replays: ClassVar[bool] = False
    """True if `write` calls a site's replay; the model then keeps what every layer's attention was computed from."""

    def open(self, x: Stream) -> Any:
        """The state before the first site."""
        return x

    def read(self, state: Any, site: Site) -> Stream:
        """The input of the branch at `site`, before its norm."""
        return stream_of(state)

    @abstractmethod
    def write(self, state: Any, y: Stream, site: Site) -> Any:
        """The state after the branch's output `y` has joined."""

    def coefficients(self) -> Coefficients:
        """The effective coefficients: for every parameter, the layers of its entries and the coefficients there.

        The base class covers parameters with one number per site, which are coefficients themselves; a sibling of another
        form overrides this method.
        """
        return {
            name: ([entry // 2 for entry in range(parameter.numel())], parameter.detach())
            for name, parameter in self.named_parameters()
            if parameter.ndim == 1
        }

    def close(self, state: Any) -> Stream:
        """The input of the final norm."""
        return stream_of(state)


@dataclass(frozen=True, kw_only=True)
class ResidualSpec(Spec):
    """Base of every residual's specification."""

    @classmethod
    def neutral(cls) -> "ResidualSpec | None":
        """Settings that make it start as the plain residual; None if there are no such settings."""
        return None

    @abstractmethod
    def build(self, shape: Shape) -> Residual:
        """Build the module. Its method `initialise`, if it has one, fills its parameters later."""


def stream_of(state: Any) -> Tensor:
    """Return the stream inside a state."""
    return state if isinstance(state, Tensor) else state.stream


def map_stream(state: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """Return the state with a changed stream and all other fields kept."""
    return change(state) if isinstance(state, Tensor) else state._replace(stream=change(state.stream))
