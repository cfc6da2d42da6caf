"""Keys and values of earlier positions, for decoding."""

import torch
from jaxtyping import Int64
from torch import Tensor


class Grown:
    """Tensor that grows along its second last axis, the positions, by doubling its capacity."""

    def __init__(self) -> None:
        self._buffer: Tensor | None = None
        self._length = 0

    def append(self, new: Tensor) -> Tensor:
        """Append new positions; return all positions so far as [..., position, entry]."""
        end = self._length + new.shape[-2]
        # Doubling copies each position a constant number of times on average. Growing by what is appended would copy
        # the whole past for every token.
        if self._buffer is None or end > self._buffer.shape[-2]:
            capacity = max(end, 2 * self._length, 64)
            buffer = new.new_empty(*new.shape[:-2], capacity, new.shape[-1])
            if self._buffer is not None:
                buffer[..., : self._length, :] = self._buffer[..., : self._length, :]
            self._buffer = buffer
        # Earlier callers hold views of the buffer, which stay right: positions that were written never change, and a
        # buffer that was outgrown lives as long as its views.
        self._buffer[..., self._length : end, :] = new
        self._length = end
        return self._buffer[..., :end, :]

    def select(self, items: Tensor, axis: int) -> "Grown":
        """Copy these items of an axis."""
        selected = Grown()
        if self._buffer is not None:
            selected._buffer, selected._length = self._buffer.index_select(axis, items), self._length
        return selected


class Cache:
    """State of a model between the calls of a decoding loop, for one batch of sequences.

    Memory: 2 x kv_heads x head_dim numbers per layer and position. `replay` also keeps the values of every pair of layers:
    layers squared over two. A convolution keeps its last inputs, few per sequence.

    Example::

        cache = model.new_cache()
        logits = model(prompt, cache=cache)
        logits = model(logits[:, -1:].argmax(-1), cache=cache)  # the next position
    """

    def __init__(self, depth: int) -> None:
        self.length = 0
        """Number of positions so far."""
        self.keys = [Grown() for _ in range(depth)]
        self.values = [Grown() for _ in range(depth)]
        self.forgotten = [Grown() for _ in range(depth)]
        """Per layer: sums of the logarithms of forgetting gates, [batch, heads, position, 1]; empty without gates."""
        self.recent: dict[tuple[int, str], Tensor] = {}
        """Last inputs of every convolution, [batch, position, entry], by its layer and what it acts on."""
        self.replayed_values = [Grown() for _ in range(depth)]
        """Per layer m: values of the earlier layers on the inputs of m, [layer, batch, kv_heads, position, value_dim]."""

    def preceded(self, convolution: tuple[int, str], new: Tensor, positions: int) -> Tensor:
        """Return new positions of a convolution's input, [batch, position, entry], with the `positions` before them; zeros
        before the first. The last of them are kept."""
        earlier = self.recent.get(convolution)
        if earlier is None:
            earlier = new.new_zeros(new.shape[0], positions, new.shape[-1])
        together = torch.cat([earlier, new], dim=1)
        # A copy: a view would keep the whole prompt in memory.
        self.recent[convolution] = together[:, together.shape[1] - positions :].clone()
        return together

    def select(self, sequences: Int64[Tensor, " kept"]) -> "Cache":
        """Copy the state of these sequences of the batch; one may be named several times."""
        selected = Cache(0)
        selected.length = self.length
        selected.keys = [keys.select(sequences, 0) for keys in self.keys]
        selected.values = [values.select(sequences, 0) for values in self.values]
        selected.forgotten = [sums.select(sequences, 0) for sums in self.forgotten]
        selected.recent = {name: inputs.index_select(0, sequences) for name, inputs in self.recent.items()}
        selected.replayed_values = [values.select(sequences, 1) for values in self.replayed_values]
        return selected
