"""What an audit's rewrite did and how it was checked, and whether two models are the same, as text."""

import textwrap
from collections.abc import Mapping
from typing import Any

from addnorm.reporting.audit.table import merged_names

Json = Mapping[str, Any]


def text(certificate: Json, path: str, *, width: int = 120) -> str:
    """What was removed, what took over, and every comparison with its bound.

    Args:
        certificate: the JSON of a certificate.
        path: of the file that was written.
        width: columns.
    """
    lines = [f"Wrote {path}: {certificate['scalars']} bias scalars less."]
    for key, told in (
        ("removed", "Gone"),
        ("zeroed", "Zeros, where the class needs numbers"),
        ("changed", "Took over"),
        ("refused", "Kept, since what takes over would grow too large"),
    ):
        if certificate[key]:
            lines.append(f"  {told}: {', '.join(merged_names(certificate[key]))}.")
    lines += [
        f"  Not carried over from the smaller model: {told}." for told in merged_names(certificate.get("left", []))
    ]
    lengths = f" and lengths {', '.join(map(str, certificate['lengths']))}" if certificate["lengths"] else ""
    verdict = "PASSED" if certificate["passed"] else "FAILED"
    lines.append(
        f"Certificate {verdict}: on {certificate['fresh']} inputs{lengths}, relative to the output's own size:"
    )
    lines += [f"  {_compared(row)}" for row in certificate["compared"]]
    return "\n".join(wrapped for line in lines for wrapped in textwrap.wrap(line, width, subsequent_indent="    "))


def difference(found: Json, first: str, second: str) -> str:
    """Whether two models compute the same.

    Args:
        found: the JSON of a comparison.
        first, second: the targets' names.
    """
    if found["equivalent"]:
        kind = "are the same in every parameter" if found["moved"] == 0 else "differ only where it cannot matter"
        return (
            f"{first} and {second} {kind}: parameters are up to {found['moved']:.2g} apart, of which "
            f"{found['difference']:.2g} is left once what cannot matter is taken out; rounding explains {found['bound']:.2g}."
        )
    return (
        f"{first} and {second} are different models: {found['parameter']} is {found['difference']:.2g} apart even once "
        f"what cannot matter is taken out; rounding would explain {found['bound']:.2g}."
    )


def _compared(row: Json) -> str:
    where = f"{row['mode']}, {row['dtype']}"
    if row["skipped"]:
        return f"{where}: not compared, since the model itself does not run so: {row['skipped']}"
    mark = "" if row["passed"] else "  <-- TOO LARGE"
    return (
        f"{where}: differs by {row['difference']:.1e} (allowed {row['bound']:.1e}; the model's own rounding "
        f"{row['rounding']:.1e}){mark}"
    )
