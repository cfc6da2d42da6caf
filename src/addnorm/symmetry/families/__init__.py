"""The families of symmetries, one file each: what may be traded for what, and how many numbers that is.

A family claims a direction by what acts where (`Signature`): the roles that the graph gives to spaces, never by names. Every
direction is claimed by the first family in `CLAIMING`; families are counted in the order `COUNTED`, each by the directions
that those before it do not span.
"""

from addnorm.symmetry.families import (
    bias,
    embedding_position,
    factor,
    gain,
    inner_basis,
    query_key,
    shift,
    stream_basis,
    stream_mean,
    stream_scale,
    unit,
    unread,
    unseen,
    value_output,
)
from addnorm.symmetry.families._signature import Signature as Signature

CLAIMING = (
    factor,
    query_key,
    value_output,
    unit,
    stream_basis,
    gain,
    inner_basis,
    embedding_position,
    shift,
    unseen,
    unread,
    stream_mean,
    bias,
)
"""Families in the order in which they claim a direction; the last takes any."""
COUNTED = (
    gain,
    shift,
    query_key,
    value_output,
    unit,
    factor,
    inner_basis,
    unseen,
    unread,
    stream_mean,
    embedding_position,
    bias,
    stream_basis,
    stream_scale,
)
"""Families in the order in which they are counted and reported."""


def family_of(signature: Signature) -> str:
    """Return the name of the family that claims a direction."""
    return next(each.NAME for each in CLAIMING if each.claims(signature))
