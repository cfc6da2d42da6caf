"""Names of torch's operations, and groups of them that do one thing, for rules that ask what happens to the numbers."""

from typing import Any

MASKED = -1e4
"""Largest score that counts as masked: beside ordinary ones a softmax gives it probability zero."""

COPIES = frozenset(
    {"alias", "clone", "contiguous", "detach", "lift_fresh", "lift_fresh_copy", "to", "_to_copy", "type_as"}
)
"""The numbers of the first argument, which another type may round: ask for the types where that matters."""
VIEWS = frozenset(
    {"view", "view_as", "_unsafe_view", "reshape", "reshape_as", "flatten", "unflatten", "unsqueeze", "squeeze"}
)
"""The numbers in their order, in another shape."""
PERMUTING = frozenset({"permute", "transpose", "t", "movedim", "swapaxes", "numpy_T", "adjoint", "mT"})
"""The axes in another order."""
SOFTMAXES = frozenset({"softmax", "_softmax", "_safe_softmax"})
"""The second argument is the axis. A score of minus infinity has weight zero."""
LOG_SOFTMAXES = frozenset({"log_softmax", "_log_softmax"})
"""Their logarithms, of which a score of minus infinity remains one."""


def name_of(target: Any) -> str:
    """Return an operation's name without its overload. One of another library keeps its namespace: `mine::softmax` need not be
    torch's softmax. A division that rounds, and a view of the same bits as another type, are operations of their own."""
    packet = getattr(target, "overloadpacket", target)
    name, library = str(getattr(packet, "__name__", packet)), getattr(target, "namespace", "aten")
    overload = getattr(target, "_overloadname", "")
    if overload.endswith("_mode") or (name, overload) == ("view", "dtype"):
        name = f"{name}.{overload}"
    return name if library in ("aten", "prims", "prim", "higher_order") else f"{library}::{name}"
