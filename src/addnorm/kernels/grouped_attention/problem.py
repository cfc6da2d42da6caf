"""One checked grouped-attention problem: what every implementation receives.

Axes, everywhere in this folder:

    batch      sequences that do not see each other
    heads      query heads; kv_heads of keys and values serve heads / kv_heads query heads each (the group)
    query      query positions: the last `query` of the `key` positions
    key        key and value positions
    head_dim   entries of one query or key head; value_dim entries of one value head
    term       one Q_i K_iᵀ of the sum; terms are usually the layers up to this one
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

Normalisation = Literal["softmax", "squared_relu"]
"""What makes a row of scores its attention."""

_CAPABILITIES = torch.cpu.get_capabilities()
MULTIPLIES_BFLOAT16: bool = _CAPABILITIES.get("avx512_bf16", False) or _CAPABILITIES.get("amx_bf16", False)
"""Whether this processor has instructions for it; without, torch's products would be slower than float32's."""


@dataclass(frozen=True, kw_only=True)
class AttentionProblem:
    """Tensors and settings of one call, already checked; nothing here is optional to honour."""

    queries: tuple[Tensor, ...]
    """One Float[Tensor, "batch heads query head_dim"] per term."""
    keys: tuple[Tensor, ...]
    """One Float[Tensor, "batch kv_heads key head_dim"] per term."""
    value: Tensor
    """Float[Tensor, "batch kv_heads key value_dim"]."""
    weights: float | Tensor
    """One number for all terms, or Float[Tensor, "#batch #heads term"]."""
    causal: bool
    """Query row r sees the keys up to r + key - query."""
    sliding_window: int | None
    """Keys that a row sees at most, its own position's the last; None for all. Only with `causal`."""
    bias: Tensor | None
    """Added once to the summed scores: Float[Tensor, "#batch #heads query key"], or "#batch #heads span" by distance."""
    first_distance: int | None
    """Distance of the first entry of a bias by distance; None where the bias is a matrix, and without one."""
    padding: Tensor | None
    """Bool[Tensor, "batch key"], True at real tokens."""
    dropout: float
    """Share of probabilities dropped; the kept ones are divided by 1 - dropout."""
    seed: Tensor | None
    """int64 scalar that decides which probabilities drop; None only without dropout."""
    normalisation: Normalisation

    @property
    def offset(self) -> int:
        """Position of the first query."""
        return self.key - self.query

    def keys_seen(self, rows: slice) -> slice:
        """The keys that some of these query rows may see."""
        if not self.causal:
            return slice(0, self.key)
        first = 0 if self.sliding_window is None else max(0, rows.start + self.offset - self.sliding_window + 1)
        return slice(first, rows.stop + self.offset)

    @property
    def batch(self) -> int:
        return self.value.shape[0]

    @property
    def heads(self) -> int:
        return self.queries[0].shape[1]

    @property
    def kv_heads(self) -> int:
        return self.value.shape[1]

    @property
    def group(self) -> int:
        """Query heads that share one key head."""
        return self.heads // self.kv_heads

    @property
    def query(self) -> int:
        return self.queries[0].shape[2]

    @property
    def key(self) -> int:
        return self.value.shape[2]

    @property
    def head_dim(self) -> int:
        return self.queries[0].shape[3]

    @property
    def value_dim(self) -> int:
        return self.value.shape[3]

    @property
    def dtype(self) -> torch.dtype:
        """Type of the scores and of every sum: float64 stays, all narrower types are summed in float32."""
        return torch.float64 if self.value.dtype == torch.float64 else torch.float32

    @property
    def tile_dtype(self) -> torch.dtype:
        """Type of a tile's factors, scores and probabilities: bfloat16 where the processor multiplies it, else `dtype`.

        Its products add in float32 and round once, when a tile is written: what softmax(Q Kᵀ) V in bfloat16 does, too.
        """
        narrow = self.value.dtype == torch.bfloat16 and self.value.device.type == "cpu" and MULTIPLIES_BFLOAT16
        return torch.bfloat16 if narrow else self.dtype
