"""Names of torch's operations that do one thing, for rules that ask what happens to the numbers and not by which name."""

COPIES = frozenset(
    {"alias", "clone", "contiguous", "detach", "lift_fresh", "lift_fresh_copy", "to", "_to_copy", "type_as"}
)
"""The numbers of the first argument, which another type may round: ask for the types where that matters."""
VIEWS = frozenset(
    {"view", "view_as", "_unsafe_view", "reshape", "reshape_as", "flatten", "unflatten", "unsqueeze", "squeeze"}
)
"""The numbers in their order, in another shape. A `view` as another type has the same bits, and other numbers."""
PERMUTING = frozenset({"permute", "transpose", "t", "movedim", "swapaxes", "numpy_T", "adjoint", "mT"})
"""The axes in another order."""
SOFTMAXES = frozenset({"softmax", "_softmax", "_safe_softmax"})
"""The second argument is the axis. A score of minus infinity has weight zero."""
LOG_SOFTMAXES = frozenset({"log_softmax", "_log_softmax"})
"""Their logarithms, of which a score of minus infinity remains one."""
