"""A residual of the catalogue between the branches of anybody's modules: `addnorm.joint`."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, get_args

import torch
from jaxtyping import Float
from torch import Tensor, nn

from addnorm.catalogue import MECHANISM_ROOMS, ROOMS, Spec
from addnorm.errors import InputError, UnknownName
from addnorm.model.initialisation import initialise
from addnorm.norm import NormSpec
from addnorm.residual import Parts, Residual, ResidualSpec, Site, Stream
from addnorm.shape import Place, Role, Shape

__all__ = ["Joint", "JointState", "joint"]


class JointState(NamedTuple):
    """The residual's own state, and the place in depth that has been reached.

    Example:
        >>> import torch
        >>> joint("add", width=16, depth=1).open(torch.zeros(1, 5, 16)).site
        0
    """

    residual: Any
    """State of the residual."""
    # The count is the state's, not the module's: a layer that activation checkpointing runs again finds its own place, and one
    # module serves several passes at once.
    site: int
    """Index of the branch that reads or writes next."""
    reads: bool = True
    """True if a read comes next, False if a write does."""


class Joint(nn.Module):
    """A residual with the order of its sites. `addnorm.joint` makes it.

    Args:
        build: makes the residual for these sites, with its starting values, on torch's default device.
        sites: every branch in order of depth.
        width: entries of the stream per position.
        refused: reason why no norm may act on the stream; None if one may.

    Example:
        >>> import torch
        >>> rezero = joint("rezero", width=16, depth=2, alpha_init=0.5)
        >>> state = rezero.open(torch.zeros(1, 5, 16))
        >>> for branch in range(4):
        ...     h, state = rezero.read(state)
        ...     state = rezero.write(state, torch.ones_like(h))
        >>> rezero.close(state)[0, 0, 0].item()
        2.0
    """

    def __init__(self, build: Callable[[], Residual], sites: Sequence[Place], width: int, refused: str | None) -> None:
        super().__init__()
        self._build, self.width = build, width
        self.residual = build()
        self.sites = tuple(Site(place.index, place.layer, place.role) for place in sites)
        self.refused = refused

    def open(self, x: Float[Tensor, "*positions width"]) -> JointState:
        """The state before the first branch, from the embeddings: sequences [batch, seq, width], or positions of any form, such
        as packed tokens [tokens, width] or an image [batch, height, width of it, width].

        Raises:
            InputError: another width than the joint was made for.
        """
        if x.shape[-1] != self.width:
            raise InputError(
                f"joint: expected a stream of width {self.width}, for which it was made, got {x.shape[-1]}."
            )
        return JointState(self.residual.open(x), 0)

    def read(self, state: JointState) -> tuple[Any, JointState]:
        """The input of the next branch, before its norm, and the state for its `write`.

        With `separate_reads=True`, the input of an attention branch may be a `SeparateReads` of three.

        Raises:
            InputError: the branch before has not written yet, or there is no further branch.
        """
        if not state.reads:
            raise InputError(
                f"joint: expected a write of branch {state.site}, which has read, got another read. Call write(state, output)."
            )
        if state.site == len(self.sites):
            raise InputError(
                f"joint: expected {len(self.sites)} reads, one for every branch of the depth it was made for, got one more. "
                "Make the joint with the depth and the branches of the model, and open a new state for every pass."
            )
        read, residual = self.residual.read(state.residual, self.sites[state.site])
        return read, JointState(residual, state.site, reads=False)

    def write(self, state: JointState, y: Float[Tensor, "*positions width"]) -> JointState:
        """The state after the branch's output has joined.

        Raises:
            InputError: the branch has not read.
        """
        if state.reads:
            raise InputError(
                f"joint: expected a read before the write of branch {state.site}, got none. Call h, state = read(state) first: "
                "it hands on what the write needs."
            )
        return JointState(self.residual.write(state.residual, y, self.sites[state.site]), state.site + 1)

    def run(self, state: JointState, branch: Callable[[Any], Tensor]) -> JointState:
        """Read, apply a branch and write: the joint's form of `x = x + branch(x)`.

        Raises:
            InputError: as `read`.

        Example:
            >>> import torch
            >>> add = joint("add", width=16, depth=1, branches=("feedforward",))
            >>> add.close(add.run(add.open(torch.ones(1, 5, 16)), lambda h: 2 * h)).mean().item()
            3.0
        """
        h, state = self.read(state)
        return self.write(state, branch(h))

    def norm_stream(self, state: JointState, norm: Callable[[Tensor], Tensor]) -> JointState:
        """The state with a norm on the stream, after a write: `x = norm(x + f(x))`, as in post-norm.

        Raises:
            InputError: the residual has no single stream; the message says why.
        """
        if self.refused is not None:
            raise InputError(
                f"joint: expected no norm on the stream with this residual, because {self.refused}, got one. "
                "Put norms on the inputs or the outputs of branches."
            )
        place = self.sites[max(state.site - 1, 0)]
        return state._replace(residual=self.residual.map_stream(state.residual, norm, place))

    def view(self, state: JointState) -> Stream:
        """The stream that the final norm would get if the model ended here, as for an early exit."""
        return self.residual.view(state.residual)

    def close(self, state: JointState) -> Stream:
        """The input of the final norm, after all branches.

        Raises:
            InputError: branches are missing.
        """
        if state.site != len(self.sites) or not state.reads:
            raise InputError(
                f"joint: expected {len(self.sites)} written branches before the close, got {state.site}. Make the joint with "
                "the depth and the branches of the model; `view` gives the stream in between."
            )
        return self.residual.close(state.residual)

    def advance(self, step: int) -> None:
        """Take note of the training step that comes next, for residuals that change with it."""
        self.residual.advance(step)

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Give all parameters and buffers their starting values again.

        A model that is built on the meta device and made real by `to_empty` holds whatever the memory held. Call this where
        the model fills its other parameters.

        Raises:
            InputError: the joint is still on the meta device.

        Example:
            >>> import torch
            >>> with torch.device("meta"):
            ...     rezero = joint("rezero", width=16, depth=2, alpha_init=0.5)
            >>> rezero = rezero.to_empty(device="cpu")
            >>> rezero.reset_parameters()
            >>> [alpha.tolist() for alpha in rezero.parameters()]
            [[0.5, 0.5, 0.5, 0.5]]
        """
        own = [*self.residual.named_parameters(), *self.residual.named_buffers()]
        if any(tensor.is_meta for _, tensor in own):
            raise InputError(
                "joint: expected parameters on a device, got some on 'meta', which hold no values. Call "
                "model.to_empty(device=...) first."
            )
        # On the joint's own device: a generator draws other numbers on a GPU than on a CPU.
        with torch.device(own[0][1].device if own else "cpu"):
            fresh = self._build()
        start = dict([*fresh.named_parameters(), *fresh.named_buffers()])
        for name, tensor in own:
            tensor.copy_(start[name])


def joint(
    residual: str | ResidualSpec | Mapping[str, Any],
    *,
    width: int,
    depth: int,
    branches: Sequence[Role] = ("attention", "feedforward"),
    norm: str | NormSpec = "rms",
    std: float = 0.02,
    seed: int = 0,
    separate_reads: bool = False,
    **fields: Any,
) -> Joint:
    """Make a residual of the catalogue for the layers of your own model.

    Args:
        residual: its kind, a mapping with its `kind`, or its spec.
        width: entries of the stream per position.
        depth: number of layers.
        branches: the branches of a layer, in the order in which they read the stream: "attention", "feedforward", or
            "parallel" for both at once. A branch that attends to another sequence, such as an encoder's, is "attention" too.
        norm: kind or spec of the norms that some residuals have of their own.
        std: standard deviation of the entries of the residual's matrices at the start, where they start at random.
        seed: decides these entries.
        separate_reads: True if attention takes a `SeparateReads`, inputs of its own for queries, keys and values, from
            residuals that give them.
        fields: fields of the residual, such as `streams=4`.

    Returns:
        A module with `open`, `read`, `write` and `close`, whose parameters are the residual's.

    Raises:
        UnknownName: no such residual, norm or branch.
        InputError: a field or size does not fit; a residual that runs earlier layers again, which the joint does not know; or
            one that reads separately, without `separate_reads`.

    Example:
        >>> import torch
        >>> streams = joint("streams", width=16, depth=2, streams=2)
        >>> state = streams.open(torch.zeros(1, 5, 16))
        >>> h, state = streams.read(state)  # what the first branch reads
        >>> state = streams.write(state, 2 * h)  # its output joins
    """
    spec: ResidualSpec = _spec("residual", ResidualSpec, residual, fields)
    if spec.replays:
        raise InputError(
            f"joint: expected a residual that needs the outputs of branches alone, got {spec.kind!r}, which runs earlier "
            "layers again. Use it in a model of addnorm.preset, or take 'cumulative'."
        )
    if spec.separate_reads and not separate_reads:
        raise InputError(
            f"joint: expected one input for queries, keys and values, got residual {spec.kind!r} with one for each. "
            "Pass reads='one', or separate_reads=True if your attention takes h.query, h.key and h.value."
        )
    if isinstance(branches, str):
        raise InputError(f"joint: expected as branches a sequence such as ({branches!r},), got the text {branches!r}.")
    for role in branches:
        if role not in get_args(Role):
            raise UnknownName("branch of a joint", role, get_args(Role))
    if not branches:
        raise InputError("joint: expected at least one branch per layer, got branches=().")
    shape = Shape(width=width, depth=depth, heads=1, kv_heads=1, hidden=width, max_seq=1)
    places = tuple(
        Place(layer * len(branches) + number, layer, role)
        for layer in range(depth)
        for number, role in enumerate(branches)
    )
    norm_spec: NormSpec = _spec("norm", NormSpec, norm, {})
    parts = Parts(sites=places, norm=partial(norm_spec.build, shift=False), std=std)
    return Joint(partial(_started, spec, shape, parts, seed), places, width, spec.refused_sockets().get("stream"))


def _started(spec: ResidualSpec, shape: Shape, parts: Parts, seed: int) -> Residual:
    """A residual with its starting values."""
    residual = spec.build(shape, parts)
    residual.sites = parts.sites
    initialise(nn.ModuleDict({"residual": residual}), seed)  # the names that its parameters have inside the joint
    return residual


def _spec(room: str, base: type[Spec], given: Any, fields: Mapping[str, Any]) -> Any:
    """The spec that is meant by a kind, a mapping or a spec, with further fields."""
    if isinstance(given, base):
        return replace(given, **fields)
    kind = given.get("kind") if isinstance(given, Mapping) else given
    inside = next((other for other in MECHANISM_ROOMS if kind == other or kind in ROOMS[other].kinds()), room)
    if room == "residual" != inside:  # the first of the rooms, so that no kind of its own is taken for another's
        raise InputError(
            f"joint: expected a residual, which stands between branches, got {kind!r} of room {inside!r}, which works inside a "
            "branch. Build it into a model of addnorm.preset, or give the terms of several layers to addnorm.attend."
        )
    if isinstance(given, Mapping) and isinstance(given.get("kind"), str):
        return ROOMS[room].make(
            given["kind"], **{name: value for name, value in given.items() if name != "kind"}, **fields
        )
    if isinstance(given, str):
        return ROOMS[room].make(given, **fields)
    raise InputError(f"joint: expected as {room} a kind, a mapping with `kind` or a {base.__name__}, got {given!r}.")
