"""Convolutions: over tokens with a kernel for each channel, linear maps at each place, and patches of an image."""

from dataclasses import replace

import numpy as np
import torch

from addnorm.symmetry.bases.channels import AxisUse
from addnorm.symmetry.bases.norms import Norms
from addnorm.symmetry.bases.states import Data, Entries, NoRequirement, WeightAxes, ids_of, varies_along


class Convolutions(Norms):
    """One operation, with the rules of convolutions."""

    def _convolved(self) -> Entries:
        """A convolution over tokens, [batch, channel, token], with a kernel for each channel: a gain of several taps."""
        state, kernel = self._entries("input"), self._of("weight")
        if not isinstance(kernel, WeightAxes) or state.second is not None or len(self.shape) != 3:
            raise NoRequirement
        if varies_along(state.first)[0] or varies_along(state.first)[2]:
            raise NoRequirement
        if self._shape_of("weight")[2] == 1 and self.named.get("groups", 1) == 1:
            return self._mapped_at_each_place(state, kernel)
        if self._shape_of("weight")[1] != 1:
            raise NoRequirement
        read = ids_of(state.first[0, :, 0]).copy()
        made = self.given.fresh(self.shape[1])
        if len(read) != len(made) or self.named.get("groups", 1) != len(read):
            raise NoRequirement
        for channels in (read, made):
            self.given.alone(channels)
        self.given.alike(read, made)
        self.given.uses.append(AxisUse(kernel.name, kernel.axes[0], made, dual=False))
        self._add("bias", made)
        self.given.uses.append(AxisUse(kernel.name, kernel.axes[0], read, dual=True, is_further=True))
        return Entries(torch.from_numpy(made)[:, None].expand(self.shape))

    def _mapped_at_each_place(self, state: Entries, kernel: WeightAxes) -> Entries:
        """A kernel of one tap, which is a linear map of the channels."""
        columns = replace(state, first=state.first.transpose(1, 2))
        made = self._mapped(columns, kernel, kernel.axes[0], kernel.axes[1], self.shape[1])
        self._add("bias", made)
        return Entries(torch.from_numpy(made)[:, None].expand(self.shape))

    def _patches(self) -> Entries:
        """Patches of an image, which does not move, to channels."""
        data, weight = self._of("input"), self._of("weight")
        if not isinstance(data, Data) or not isinstance(weight, WeightAxes):
            raise NoRequirement
        made = self.given.fresh(self.shape[1])
        groups = int(self.named.get("groups", 1))
        if groups > 1:  # channels of several groups are made of other channels each
            self.given.together(made, np.repeat(np.arange(groups), len(made) // groups))
        self.given.uses.append(AxisUse(weight.name, weight.axes[0], made, dual=False))
        self._add("bias", made)
        return Entries(torch.from_numpy(made).reshape(-1, *[1] * (len(self.shape) - 2)).expand(self.shape))
