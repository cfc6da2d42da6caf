"""Grouped attention on a GPU: kernels that stream over keys and, per tile, over the terms; see derivation.md."""

from addnorm.kernels.grouped_attention.triton.passes import attend_on_device, differentiate_on_device, refusal

__all__ = ["attend_on_device", "differentiate_on_device", "refusal"]
