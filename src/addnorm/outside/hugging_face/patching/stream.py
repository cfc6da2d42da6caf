"""Hooks that join a model's branches by a residual of ours.

A branch reads what the residual reads at its site, and its output is written to the residual's state. The layer's own
additions are computed as before, and not used: a layer returns what a final norm would see there.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from addnorm.errors import AddnormError
from addnorm.outside.hugging_face.patching.joints import Decoder
from addnorm.residual import Residual, SeparateReads, Site


class JoinedStream:
    """The state of a residual during a pass, and the hooks that carry it."""

    def __init__(self, residual: Residual, decoder: Decoder) -> None:
        self.residual = residual
        self.state: Any = None
        self.shape = torch.Size()
        """Of the stream: [batch, seq, width]. A branch may take both first axes as one."""
        self.handles: list[RemovableHandle] = []
        first, last = decoder.layers[0], decoder.layers[-1]
        self.handles.append(first.register_forward_pre_hook(Opening(self), with_kwargs=True))
        for joint in decoder.sites:
            site = Site(joint.place.index, joint.place.layer, joint.place.role)
            self.handles.append(joint.reader.register_forward_pre_hook(Reading(self, site), with_kwargs=True))
            self.handles.append(joint.writer.register_forward_hook(Writing(self, site)))
        for layer in decoder.layers:
            self.handles.append(layer.register_forward_hook(Returning(self, closes=layer is last)))

    def remove(self) -> None:
        """Take the hooks away."""
        for handle in self.handles:
            handle.remove()


class _Hook:
    """A hook as an object, which `copy.deepcopy` copies with its model."""

    def __init__(self, stream: JoinedStream) -> None:
        self.stream = stream


class Opening(_Hook):
    """Before the first layer."""

    def __call__(self, layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        x = _first(args, kwargs)[0]
        self.stream.shape, self.stream.state = x.shape, self.stream.residual.open(x)


class Reading(_Hook):
    """Before the module that reads the stream for a branch."""

    def __init__(self, stream: JoinedStream, site: Site) -> None:
        super().__init__(stream)
        self.site = site

    def __call__(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        read, self.stream.state = self.stream.residual.read(self.stream.state, self.site)
        if isinstance(read, SeparateReads):
            raise AddnormError("patch: expected one read for queries, keys and values, got three.")
        x, name = _first(args, kwargs)
        # A branch may take batch and positions as one axis; the state keeps both.
        read = read.reshape(x.shape)
        return ((read, *args[1:]), kwargs) if name is None else (args, {**kwargs, name: read})


class Writing(_Hook):
    """After the module whose output joins the stream."""

    def __init__(self, stream: JoinedStream, site: Site) -> None:
        super().__init__(stream)
        self.site = site

    def __call__(self, module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        y = output if isinstance(output, Tensor) else output[0]
        self.stream.state = self.stream.residual.write(self.stream.state, y.reshape(self.stream.shape), self.site)


class Returning(_Hook):
    """After a layer."""

    def __init__(self, stream: JoinedStream, *, closes: bool) -> None:
        super().__init__(stream)
        self.closes = closes

    def __call__(self, layer: nn.Module, args: tuple[Any, ...], output: Any) -> Any:
        residual, state = self.stream.residual, self.stream.state
        # The layer has computed its own x + f(x), which is dropped. Between layers the output is only a view of the
        # state, for hooks of others and for outputs of hidden states: the next branch reads the state itself. After the
        # last layer it is what the final norm gets.
        x = residual.close(state) if self.closes else residual.view(state)
        if self.closes:
            self.stream.state = None
        return x if isinstance(output, Tensor) else (x, *output[1:])


def _first(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Tensor, str | None]:
    """The first tensor of a call, and its name if it was passed by name."""
    if args:
        return args[0], None
    return next((value, name) for name, value in kwargs.items() if isinstance(value, Tensor))
