"""The first and the last site of every layer."""

from collections.abc import Sequence

from addnorm.shape import Place


def first_sites(sites: Sequence[Place]) -> list[int]:
    """Return the index of every layer's first site."""
    return [place.index for place in sites if not place.index or sites[place.index - 1].layer != place.layer]


def last_sites(sites: Sequence[Place]) -> list[int]:
    """Return the index of every layer's last site."""
    return [index - 1 for index in first_sites(sites)[1:]] + [len(sites) - 1]
