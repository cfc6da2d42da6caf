"""Measures per layer that `addnorm inspect` takes: one file per measure, found by its presence in this folder."""

from collections.abc import Mapping

from addnorm.reporting.discovery import classes_in
from addnorm.reporting.measure import Measure


def measures() -> Mapping[str, Measure]:
    """All measures by name, in their order."""
    found = [(name, cls()) for name, cls in classes_in(__name__, __path__, Measure).items()]
    return dict(sorted(found, key=lambda item: item[1].order))
