"""Grouped attention on a GPU: kernels that stream over keys and, per tile, over the terms; see derivation.md."""
