"""Learned scalars of one family over seeds: counts, and the sentences that say them on the page and in `addnorm explain`."""

from collections.abc import Mapping, Sequence

import numpy as np

from addnorm.reporting.sections.scalars.record import ScalarFamily
from addnorm.statistics.departures import FamilyDepartures, by_family, departures
from addnorm.words import Phrases


def over_seeds(
    families: Sequence[ScalarFamily], directions: Sequence[Mapping[str, float]] = ()
) -> list[FamilyDepartures]:
    """Count each family of a variant over the seeds that all its numbers have.

    Args:
        families: all of one variant.
        directions: redundant directions, each as the change of its scalars by name.
    """
    names = [family.name for family in families for _ in family.entries]
    entries = [entry for family in families for entry in family.entries]
    if not entries:
        return []
    seeds = sorted(set.intersection(*(set(dict(entry.finals)) for entry in entries)))
    finals, expected = (
        np.array([[of[seed] for of in by_entry] for seed in seeds]).reshape(-1, len(entries))
        for by_entry in ([dict(entry.finals) for entry in entries], [dict(entry.decays) for entry in entries])
    )
    known = {entry.name for entry in entries}
    vectors = [
        np.array([direction.get(entry.name, 0.0) for entry in entries])
        for direction in directions
        if direction.keys() <= known
    ]
    steps = max(family.step for family in families)
    over_numbers = departures(finals, expected, families=names, steps=steps, directions=vectors)
    return by_family(over_numbers, names, vectors)


def sentences(family: FamilyDepartures, t: Phrases) -> list[str]:
    """Say how many numbers of a family departed, and how many directions of it are redundant."""
    if family.seeds == 1:
        parts = [t("scalars.one_seed", numbers=family.numbers)]
    elif family.departed is None:
        parts = [t("scalars.few_seeds", numbers=family.numbers, seeds=family.seeds)]
    else:
        parts = [t("scalars.over_seeds", numbers=family.numbers, seeds=family.seeds, moved=family.departed)]
    if family.mixed:
        parts.append(t("scalars.mixed", mixed=family.mixed))
    if family.directions:
        left = family.numbers - family.directions
        parts.append(t("scalars.directions", directions=family.directions, left=left))
    if family.shared_directions:
        others = t("joint.comma").join(family.shared_with)
        parts.append(t("scalars.shared", directions=family.shared_directions, names=others))
    return parts
