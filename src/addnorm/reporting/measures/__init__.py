"""Measures per layer that `addnorm inspect` takes: one file per measure, found by its presence in this folder."""

from collections.abc import Mapping

from addnorm.reporting.discovery import classes_in
from addnorm.reporting.measure import LayerMeasure


def measures() -> Mapping[str, LayerMeasure]:
    """All measures by name, in their order."""
    by_name = [(name, cls()) for name, cls in classes_in(__name__, __path__, LayerMeasure).items()]
    return dict(sorted(by_name, key=lambda item: item[1].order))
