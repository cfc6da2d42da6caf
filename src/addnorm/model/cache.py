"""Keys and values of the positions already seen, for decoding."""

from torch import Tensor


class Grown:
    """A tensor that grows along its second last axis, the positions, by doubling its capacity."""

    def __init__(self) -> None:
        self._buffer: Tensor | None = None
        self._length = 0

    def append(self, new: Tensor) -> Tensor:
        """Everything so far, the new positions last: [..., position, entry]."""
        end = self._length + new.shape[-2]
        if self._buffer is None or end > self._buffer.shape[-2]:
            capacity = max(end, 2 * self._length, 64)
            buffer = new.new_empty(*new.shape[:-2], capacity, new.shape[-1])
            if self._buffer is not None:
                buffer[..., : self._length, :] = self._buffer[..., : self._length, :]
            self._buffer = buffer
        self._buffer[..., self._length : end, :] = new
        self._length = end
        return self._buffer[..., :end, :]


class Cache:
    """What a model remembers between calls while it decodes. Make one per sequence batch with `model.new_cache()`.

    Memory: 2 x kv_heads x head_dim numbers per layer and position. `replay` needs the values of every pair of layers as
    well: layers squared over two.
    """

    def __init__(self, depth: int) -> None:
        self.length = 0
        """Positions seen so far."""
        self.keys = [Grown() for _ in range(depth)]
        self.values = [Grown() for _ in range(depth)]
        self.replayed_values = [Grown() for _ in range(depth)]
        """Per layer m: values of the layers before it on m's inputs, [layer, batch, kv_heads, position, value_dim]."""
