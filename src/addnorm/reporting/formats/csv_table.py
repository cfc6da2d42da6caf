"""Comma-separated values."""

import csv
import io
from collections.abc import Sequence
from typing import Any


def as_csv(rows: Sequence[dict[str, Any]]) -> str:
    """Rows with the same keys as comma-separated values: numbers in full precision, an empty cell for None."""
    out = io.StringIO()
    writer = csv.DictWriter(out, fieldnames=list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()
