"""Norms on the channels of a graph, and the sums of squares and means of which they are made."""

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from addnorm.symmetry.bases.operations import Maps
from addnorm.symmetry.bases.states import Data, Entries, NoRequirement, WeightAxes, ids_of, of_one_token, varies_along


class Norms(Maps):
    """Norms and what they are made of."""

    def _reduced(self) -> Any:
        state = self._of("self")
        if isinstance(state, Entries) and state.squared:
            return self._length(replace(state, squared=False), self.named.get("dim"))
        entries = self._entries("self")
        dims = self.named.get("dim")
        if dims is None:
            raise NoRequirement
        axes = [axis % entries.first.dim() for axis in (dims if isinstance(dims, list | tuple) else [dims])]
        if any(varies_along(entries.first)[axis] for axis in axes):
            raise NoRequirement
        keep = bool(self.named.get("keepdim", False))
        first = entries.first
        for axis in sorted(axes, reverse=True):
            first = first.narrow(axis, 0, 1) if keep else first.select(axis, 0)
        return Entries(first, None, entries.plain)

    def _length(self, state: Entries, dims: Any) -> Data:
        # A rotation by position keeps lengths.
        if dims is None or self.named.get("ord", 2) != 2 or (not state.plain and state.second is None):
            raise NoRequirement
        axes = [axis % state.first.dim() for axis in (dims if isinstance(dims, list | tuple) else [dims])]
        self._rotates(state.first, axes, "rotation")
        return Data(False)

    def _rotates(self, first: Tensor, axes: list[int], kind: Any) -> None:
        rest = [axis for axis in range(first.dim()) if axis not in axes]
        token = of_one_token(first).permute(*rest, *axes)
        lead = int(np.prod(token.shape[: len(rest)], dtype=np.int64))
        flat = token.reshape(lead, -1)
        self.given.together(ids_of(flat), np.repeat(np.arange(lead), flat.shape[1]))
        self.given.kind(ids_of(flat), kind)

    def _norm(self, kind: Any) -> Entries:
        weight = self._of("weight")
        if len(self.named["normalized_shape"]) != 1 or not isinstance(weight, WeightAxes | None):
            raise NoRequirement
        if isinstance(self._of("input"), Data):  # its gain and shift can be moved all the same
            channels = self.given.fresh(self.shape[-1])
            self.given.kind(channels, "still")
            self.given.pinned.append(channels)  # what the norm reads keeps its order
            made = Entries(torch.from_numpy(channels).expand(self.shape))
        else:
            made = self._entries("input")
            if not made.plain and (made.second is None or self._of("bias") is not None):
                raise NoRequirement
            self._rotates(made.first, [made.first.dim() - 1], kind)
        if weight is not None:
            made = self._gained(made, made.first, weight, self.shape[-1:])
        self._add("bias", ids_of(made.first.reshape(-1, made.first.shape[-1])[0]).copy())
        return made
