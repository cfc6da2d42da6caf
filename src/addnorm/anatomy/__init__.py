"""Anatomy of any module that maps tokens to logits: its layers, the branches that join the stream, attention, norms.

One forward pass is recorded (`recording`): calls of modules, additions of two tensors of one shape, and attention. `structure`
reads from it where branches read the stream and where their outputs join it. No class and no attribute is named.
"""
