"""Inputs like an example: fresh values, and other lengths if the model takes them."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map

from addnorm.errors import InputError
from addnorm.redundancy.execution.checks import check_call
from addnorm.redundancy.execution.copies import call_on, in_type
from addnorm.redundancy.execution.float64 import Float64Mode
from addnorm.redundancy.execution.inputs import Inputs, cloned
from addnorm.redundancy.execution.observation import Observe
from addnorm.redundancy.execution.operation_names import MASKED


@dataclass
class _Lookups(TorchFunctionMode):
    """Records the number of rows of the tables that each integer tensor indexes."""

    rows: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__init__()

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is torch.nn.functional.embedding and len(args) > 1:
            self._note(args[0], args[1])
        if func is Tensor.__getitem__ and isinstance(args[1], Tensor) and not args[1].is_floating_point():
            self._note(args[1], args[0])
        return func(*args, **kwargs)

    def _note(self, index: Tensor, table: Tensor) -> None:
        # Ids may index several tables (tokens and types of one tensor): fresh ones have to be valid in the shortest.
        address = index.data_ptr()
        self.rows[address] = min(self.rows.get(address, table.shape[0]), table.shape[0])


@dataclass(frozen=True, kw_only=True)
class InputTemplate:
    """A template of inputs: the example, and the range of every integer tensor that indexes a table."""

    example: Inputs
    rows: tuple[int | None, ...]
    """Per tensor of the example, the number of rows of the table that it indexes; None if it indexes none."""

    @classmethod
    def of(cls, model: nn.Module, example: Inputs) -> "InputTemplate":
        """Observe one call of a copy of the model.

        A view of an input counts as the input: `ids[:, :-1]` starts at the same address.
        """
        lookups, inputs = _Lookups(), cloned(example)
        with torch.no_grad(), Float64Mode(), lookups:
            call_on(model, inputs)
        return cls(example=example, rows=tuple(lookups.rows.get(leaf.data_ptr()) for leaf in tensors(inputs)))

    def fresh(self, seed: int, start: int | None = 0) -> Inputs:
        """Return the example with other values: successive rows for indices, floats of the same mean and standard
        deviation. Masks, flags, and integers that index nothing are kept.

        Args:
            seed: seed of the random numbers.
            start: position of the first row. The random order of the rows depends only on their number, so that calls
                that start where others ended read all of them. None for the example's own rows in another order.
        """
        generator = torch.Generator().manual_seed(seed)
        rows, alone = iter(self.rows), len(self.rows) == 1
        return _each(self.example, lambda leaf: _fresh(leaf, next(rows), alone, generator, start))

    @cached_property  # asked for in every case
    def step(self) -> int:
        """Number of rows that one call reads of every table that its integers index; 0 if they index none."""
        read = [int((leaf >= 0).sum()) for leaf, rows in self._selecting]
        return min(read, default=0)

    @property
    def most_rows(self) -> int:
        """Number of rows of the longest table that integers index."""
        return max((rows for _, rows in self._selecting), default=0)

    @property
    def _selecting(self) -> list[tuple[Tensor, int]]:
        pairs = zip(tensors(self.example), self.rows, strict=True)
        return [(leaf, rows) for leaf, rows in pairs if rows is not None and not leaf.is_floating_point()]

    def resized(self, dim: int, size: int) -> "InputTemplate | None":
        """Return the same call at another length (dimension 1) or batch size (dimension 0): every tensor's dimensions
        from `dim` on that have the old size get the new one. None if no tensor has such a dimension."""
        sizes = [leaf.shape[dim] for leaf in tensors(self.example) if leaf.dim() > dim]
        if not sizes or size < 1:
            return None
        # The length is that of the first tensor with such a dimension; tensors in which it does not occur, such as an
        # image next to a text, keep theirs.
        old = sizes[0]
        # An integer tensor's trailing dimensions are positions; a float's last one is its width, except for square
        # masks.
        return InputTemplate(example=_each(self.example, lambda leaf: _resize(leaf, dim, old, size)), rows=self.rows)


def _each(inputs: Inputs, change: Callable[[Tensor], Tensor]) -> Inputs:
    """The same call with every tensor changed."""

    def one(leaf: Any) -> Any:
        return change(leaf) if isinstance(leaf, Tensor) else leaf

    return Inputs(args=tree_map(one, inputs.args), kwargs=tree_map(one, inputs.kwargs))


def cast(inputs: Inputs, dtype: torch.dtype) -> Inputs:
    """Move a call to the CPU, with floating-point tensors in `dtype`."""
    return _each(inputs, lambda leaf: leaf.detach().to("cpu", in_type(leaf, dtype)))


def like(inputs: Inputs, given: Inputs) -> Inputs:
    """Inputs in the types of others."""

    def one(leaf: Any, own: Any) -> Any:
        return leaf.to(own.dtype) if isinstance(leaf, Tensor) and isinstance(own, Tensor) else leaf

    return Inputs(
        args=tree_map(one, inputs.args, given.args), kwargs=tree_map(one, dict(inputs.kwargs), dict(given.kwargs))
    )


def tensors(inputs: Inputs) -> list[Tensor]:
    """All tensors of a call."""
    return [leaf for leaf in tree_leaves([inputs.args, dict(inputs.kwargs)]) if isinstance(leaf, Tensor)]


def _fresh(leaf: Tensor, rows: int | None, alone: bool, generator: torch.Generator, start: int | None) -> Tensor:
    if rows is not None and not leaf.is_floating_point():
        return _rows_in_turn(leaf, rows, generator, start)
    if leaf.is_floating_point() and (alone or not _is_mask(leaf)):  # a single tensor of ones is data, not a mask
        spread = float(leaf.double().std(correction=0)) or 1.0
        noise = torch.randn(leaf.shape, generator=generator, dtype=torch.float64)
        return (noise * spread + float(leaf.double().mean())).to(leaf)
    if leaf.dtype in (torch.int64, torch.int32) and leaf.numel() and int(leaf.max()) > 1:
        seen = leaf[leaf >= 0]
        drawn = seen[torch.randint(0, seen.numel(), leaf.shape, generator=generator).to(leaf.device)]
        return torch.where(leaf < 0, leaf, drawn)
    return leaf.clone()


def _rows_in_turn(leaf: Tensor, rows: int, generator: torch.Generator, start: int | None) -> Tensor:
    kept = leaf < 0
    free = int((~kept).sum())
    made, shuffle = leaf.clone(), torch.randperm(free, generator=generator)
    if start is None:
        made[~kept] = leaf[~kept][shuffle.to(leaf.device)]
        return made
    # Rows in a random order that never changes: successive calls take successive parts of it, and the shuffle within a
    # call is the seed's.
    order = torch.randperm(rows, generator=torch.Generator().manual_seed(rows))
    made[~kept] = order[(start + torch.arange(free)) % rows][shuffle].to(leaf)
    return made


def _is_mask(leaf: Tensor) -> bool:
    return bool((leaf <= MASKED).any()) or bool(((leaf == 0) | (leaf == 1)).all())


def _resize(leaf: Tensor, dim: int, old: int, size: int) -> Tensor:
    for axis in range(dim, leaf.dim()):
        last_of_floats = leaf.is_floating_point() and axis == leaf.dim() - 1 and axis > dim and not _is_mask(leaf)
        if leaf.shape[axis] == old and not last_of_floats and (axis == dim or dim > 0):
            places = torch.arange(size, device=leaf.device) % old
            leaf = leaf.index_select(axis, places)
    return leaf.clone()


def lengths(model: nn.Module, template: InputTemplate, observe: Observe) -> dict[int, InputTemplate]:
    """Return templates at other lengths that the model takes, by length; empty if it takes only the example's.

    A length is taken if the model runs and its output is finite: models that check lengths raise.
    """
    templates: dict[int, InputTemplate] = {}
    sizes = [leaf.shape[1] for leaf in tensors(template.example) if leaf.dim() > 1]
    if not sizes:
        return templates
    for size in sorted({max(2, math.ceil(sizes[0] / 2)), sizes[0] + 1, sizes[0] + 5} - {sizes[0]}):
        other = template.resized(1, size)
        if other is not None and accepts(model, other.example, observe):
            templates[size] = other
    return templates


def accepts(model: nn.Module, inputs: Inputs, observe: Observe) -> bool:
    """Test whether the model takes these inputs."""
    try:
        check_call(model, inputs, observe)
    except InputError:
        return False
    return True
