"""Redundant numbers that have walked far: no output shows them, and a low precision pays for them.

A bias adds to W x. For inputs with entries of size one, an entry of W x has about the size of the row of W. A part that
cannot matter and is larger than that takes digits from the part that matters wherever their sum is stored: in bfloat16, or
in a quantised key cache.
"""

from collections.abc import Mapping, Sequence

from torch import Tensor, linalg

from addnorm.redundancy.verdict.finding import Finding

FAR = 1.0
"""Size of a redundant part, relative to the rows of its module's weight, from which it is noted. Freshly initialised biases
are at one over the root of the width."""


def drift_notes(findings: Sequence[Finding], parameters: Mapping[str, Tensor]) -> tuple[str, ...]:
    """Return a sentence per parameter whose redundant part is larger than what the weight beside it adds."""
    notes = []
    for each in findings:
        weight = parameters.get(f"{each.parameter.rpartition('.')[0]}.weight".removeprefix("."))
        if not each.idle_norm or weight is None or weight.dim() < 2 or len(weight) != each.size:
            continue
        rows = float(linalg.vector_norm(weight.detach().double().flatten(1), dim=1).square().mean().sqrt())
        size = each.idle_norm / each.size**0.5
        if size > FAR * rows:
            notes.append(
                f"{each.parameter} has walked far where it cannot matter: {size:.3g} per entry, {size / max(rows, 1e-300):.2g} "
                "times the rows of its weight. That costs digits in low precision, for keys in a quantised cache "
                "(`addnorm audit --kv-cache`); `Audit.canonicalize` removes it"
            )
    return tuple(notes)
