"""Training settings that variants of a study do not share."""

from addnorm.reporting.formats.spec import differing
from addnorm.reporting.snapshot import Snapshot


def own_training(snapshot: Snapshot) -> dict[str, dict[str, str]]:
    """Settings of the training that differ between variants: path, variant, value."""
    specs = {name: snapshot.spec(name) for name in snapshot.variants}
    return differing({name: {"training": spec["training"]} for name, spec in specs.items() if "training" in spec})
