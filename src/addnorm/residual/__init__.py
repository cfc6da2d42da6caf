"""Room of the hidden-stream residuals: how a branch's output joins the stream.

Four verbs, and the whole architecture is one line:

    state = residual.open(x)                      # embeddings -> state
    h     = residual.read(state, site)            # what branch `site` sees, before its norm
    state = residual.write(state, y, site)        # its output joins
    x     = residual.close(state)                 # what the final norm sees

A state is the stream itself (a tensor) or a `NamedTuple` whose field `stream` is the stream; whatever else it carries is
the sibling's own. That convention is what lets post-norm normalise the stream of any residual: see `map_stream`.
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
    """One branch's place in depth."""

    index: int
    """Number of branches before this one."""
    layer: int
    """0-based layer; layer m of the formulas is `layer + 1`."""
    role: Literal["attention", "feedforward"]
    """What the branch is, or, of a pair of gated attention units, what it stands for."""
    replay_layers: Replay | None = None
    """Runs every earlier layer again on a new input, each with the attention pattern that it computed on its own."""
    replay_feedforwards: Replay | None = None
    """Runs every earlier layer's feed-forward branch, or what stands for it, again on a new input."""


class Residual(nn.Module, ABC):
    """A hidden-stream residual. One instance serves all sites of a model."""

    parameter_roles: ClassVar[Mapping[str, ParameterRole]] = {}
    """What its parameters are, by name; see `addnorm.roles`. Without a role none of them is taken for a matrix."""
    replays: ClassVar[bool] = False
    """True if `write` calls a site's replay; the model then keeps the layers' attention patterns."""

    def open(self, x: Stream) -> Any:
        """The state before the first site."""
        return x

    def read(self, state: Any, site: Site) -> Stream:
        """What the branch at `site` sees, before its norm."""
        return stream_of(state)

    @abstractmethod
    def write(self, state: Any, y: Stream, site: Site) -> Any:
        """The state after the branch's output `y` has joined."""

    def coefficients(self) -> Coefficients:
        """What each learned number leads to: for every parameter, the layers of its entries and the coefficients there.

        A parameter of one number per site is known, and is its own coefficient; a sibling of another form says so itself.
        """
        return {
            name: ([entry // 2 for entry in range(parameter.numel())], parameter.detach())
            for name, parameter in self.named_parameters()
            if parameter.ndim == 1
        }

    def close(self, state: Any) -> Stream:
        """What the final norm sees."""
        return stream_of(state)


@dataclass(frozen=True, kw_only=True)
class ResidualSpec(Spec):
    """Base of every residual's configuration."""

    @classmethod
    def neutral(cls) -> "ResidualSpec | None":
        """Settings under which it starts as the plain residual; None where there are none."""
        return None

    @abstractmethod
    def build(self, shape: Shape) -> Residual:
        """The module. Parameters are filled by its `initialise`, if it has one."""


def stream_of(state: Any) -> Tensor:
    """The stream inside a state."""
    return state if isinstance(state, Tensor) else state.stream


def map_stream(state: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """The state with its stream changed and everything else kept."""
    return change(state) if isinstance(state, Tensor) else state._replace(stream=change(state.stream))
