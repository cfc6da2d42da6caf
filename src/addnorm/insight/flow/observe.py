"""A forward pass watched from outside: what every site added to the stream, and who attended to whom.

The model runs its own code. It is watched where its parts meet: at the residual's `write`, at the norm that follows it (an
identity where the placement has none), and at the branches, which receive the context. When the block ends, every hook is
gone and the model is what it was.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, cast

from torch import Tensor, nn

from addnorm.model.forward_context import ForwardContext, Pattern
from addnorm.model.layer import Branch
from addnorm.model.transformer import Transformer
from addnorm.residual import Site, stream_of


@dataclass
class SeenSite:
    """One site of one pass. Streams are [batch, seq, width], unless the residual's own is of another form."""

    site: Site
    branch: Branch
    before: Tensor
    """The stream before the branch joined."""
    written: Tensor
    """The stream after it joined."""
    state: Any
    """The residual's state after it joined."""
    after: Tensor
    """The stream as the next site finds it: `written`, or its norm."""
    pattern: int | None
    """Place of the site's attention in `Seen.patterns`; None for a branch without attention."""


@dataclass
class Seen:
    """What the newest pass showed."""

    entry: Tensor | None = None
    """The stream that enters the first site."""
    sites: list[SeenSite] = field(default_factory=list)
    context: ForwardContext | None = None

    @property
    def patterns(self) -> list[Pattern]:
        """One attention pattern per branch that attends, in order of depth."""
        return [] if self.context is None else self.context.patterns


@contextmanager
def watched(model: Transformer) -> Iterator[Seen]:
    """Watch a model's passes for the length of the block; each pass takes the place of the one before."""
    seen, residual = Seen(), model.residual
    called: list[Branch] = []  # the newest call; while a residual replays layers, their branches are called again
    write, opened = residual.write, residual.open

    def open_watched(x: Tensor) -> Any:
        state = opened(x)
        seen.entry, seen.sites, seen.context = stream_of(state), [], None
        return state

    def write_watched(state: Any, y: Tensor, site: Site) -> Any:
        branch = called[-1]
        new = write(state, y, site)
        written = stream_of(new)
        attends = len(seen.patterns) > sum(earlier.pattern is not None for earlier in seen.sites)
        pattern = len(seen.patterns) - 1 if attends else None
        seen.sites.append(SeenSite(site, branch, stream_of(state), written, new, written, pattern))
        return new

    def saw_branch(branch: nn.Module, inputs: tuple[Any, ...]) -> None:
        called[:] = [cast(Branch, branch)]
        for value in inputs:
            if isinstance(value, ForwardContext):
                # The context belongs to this one pass: asked to keep its patterns, it computes nothing else.
                value.keep_patterns = True
                if vars(value).get("impl") == "carry":  # a carried sum of scores no longer knows its terms
                    vars(value)["impl"] = "auto"
                seen.context = value

    def saw_norm(norm: nn.Module, inputs: tuple[Any, ...], output: Tensor) -> None:
        if seen.sites:
            seen.sites[-1].after = output

    hooks = []
    for module in model.modules():
        if isinstance(module, Branch):
            hooks.append(module.register_forward_pre_hook(saw_branch))
            hooks.append(module.stream_norm.register_forward_hook(saw_norm))
    vars(residual).update(open=open_watched, write=write_watched)
    try:
        yield seen
    finally:
        for name in ("open", "write"):
            del vars(residual)[name]
        for hook in hooks:
            hook.remove()
