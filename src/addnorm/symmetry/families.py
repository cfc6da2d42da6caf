"""The families of symmetries: what may be traded for what, and how many numbers that is.

A family claims a direction by what acts where (`Signature`): the roles that the graph gives to spaces, never by names. Every
direction is claimed by the first family in `CLAIMING`; families are counted in the order `COUNTED`, each by the directions
that those before it do not span.
"""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Signature:
    """The roles of the spaces on which a direction acts."""

    linear: frozenset[str]
    """Roles of spaces with a linear action."""
    shifted: frozenset[str]
    """Roles of spaces with a shift."""
    free: bool
    """True if a weight makes a free shift, or reads along a null form of its input."""
    unseen: bool
    """True if a weight reads along a form that vanishes because its input is an image of fewer numbers."""
    unread: bool
    """True if a weight writes along a direction that no reader reads."""
    factors: bool
    """True if it moves a weight that multiplies another value than that of a norm."""
    together: bool
    """True if rows of tables trade a constant that are only read together."""
    lengths: bool
    """True if rows of tables change their lengths, which a norm removes."""


STREAM_ROLES = frozenset({"embedding", "position"})
"""Roles by which the spaces of a stream are told from those inside a branch."""


@dataclass(frozen=True)
class FamilyRule:
    """A family of directions, and what tells that a direction is one of it."""

    name: str
    claims: Callable[[Signature], bool]
    """True if a direction is of this family."""


GAIN = FamilyRule(
    "gain into the next matrix",
    lambda signature: bool(signature.linear & {"gain"}),
)
"""The gain of a norm against the columns of what reads it: g_i -> c g_i, W_ji -> W_ji / c. One per channel."""
SHIFT = FamilyRule(
    "shift into the next bias",
    lambda signature: "gain" in signature.shifted or ("shift" in signature.shifted and "norm" in signature.shifted),
)
"""The shift of a norm against the biases of all that read it: c -> c + d, bias -> bias - W d. One per channel."""
QUERY_KEY = FamilyRule(
    "basis of queries and keys",
    lambda signature: bool(signature.linear & {"query", "key"}) and not signature.linear & {"sum", "embedding"},
)
"""Q -> G Q, K -> G^-T K within a key head and all its query heads: any G without positions (d_h²), those that commute with
a rotation by position (d_h: a complex number per pair), scales between the gains of two norms (half of d_h)."""
VALUE_OUTPUT = FamilyRule(
    "basis of values",
    lambda signature: bool(signature.linear & {"value", "average"}) and not signature.linear & STREAM_ROLES,
)
"""V -> G V, O -> O G^-1 within a key head: d_h²."""
UNIT = FamilyRule(
    "scale of a unit",
    # The state of a recurrence is a sum as well; a stream of tokens begins with their table.
    lambda signature: "unit" in signature.linear and "embedding" not in signature.linear,
)
"""A hidden unit that enters homogeneously, by a gate's product or a ReLU: up -> c up, down -> down / c. One per unit; so of the
numbers of a recurrence's state, between what writes and what reads it: B -> c B, C -> C / c."""
FACTOR = FamilyRule(
    "learned factor of a branch",
    # Where nothing acts, numbers are traded of which the model reads only a function, such as a product.
    lambda signature: (
        signature.factors
        or not any(
            (
                signature.linear,
                signature.shifted,
                signature.free,
                signature.unseen,
                signature.unread,
                signature.together,
            )
        )
    ),
)
"""A learned factor, alone or per channel or head, that a matrix beside it can take over: a -> c a, W -> W / c; or several
factors of one value, of which only the sum counts."""
INNER_BASIS = FamilyRule(
    "basis between two linear maps",
    lambda signature: bool(signature.linear),
)
"""W -> G W, U -> U G^-1 where nothing but linear maps lies between: rank² for a product of two matrices."""
UNSEEN = FamilyRule(
    "subspace that a reader never sees",
    lambda signature: signature.unseen,
)
"""The part of a matrix that reads what its input never holds: of n numbers that are a linear image of r < n others, every row
of a reader has n - r free numbers."""
UNREAD = FamilyRule(
    "subspace that no reader reads",
    lambda signature: signature.unread,
)
"""The part of a writer's result that no reader reads: where all that follows ignores r of n channels' directions, every column
of the writer has r free numbers."""
STREAM_MEAN = FamilyRule(
    "mean of the stream",
    lambda signature: signature.free,
)
"""The part that is equal in all channels of a stream that only layer norms read: every writer's part along it, per
row of tables and per column of matrices, and every reader's part along the direction that the norm removed."""
EMBEDDING_POSITION = FamilyRule(
    "embedding against position",
    lambda signature: signature.together or ("embedding" in signature.shifted and "position" in signature.shifted),
)
"""A constant from the table of tokens to that of positions. One per channel, less what the mean of the stream has; and as many
for rows that are only read together, such as that of padding and that of its position."""
BIAS = FamilyRule(
    "redundant bias",
    lambda signature: True,
)
"""Redundant biases, as the audit proves them: a key bias, which a softmax ignores; a value bias, which the output's
bias can take over; a bias of a branch, which a later one can."""
STREAM_BASIS = FamilyRule(
    "basis of the stream",
    # A sum of what a gain gives for two tokens is no stream.
    lambda signature: bool(
        signature.linear & {*STREAM_ROLES, "normed"} or ("sum" in signature.linear and "gain" not in signature.linear)
    ),
)
"""A rotation of the stream, undone by all that reads it: w (w - 1) / 2 where every norm is an RMS norm, (w - 1)(w - 2) / 2
in the plane that a layer norm keeps."""
STREAM_SCALE = FamilyRule(
    "scale of the stream, up to eps",
    # That of all is told by the equations that it breaks, not by roles.
    lambda signature: signature.lengths,
)
"""The scale of a stream that only norms read, where a norm's eps is too small for float64 to see (BERT's 1e-12).

It is a near-symmetry that is counted, because no measurement tells it from an exact one. With a larger eps it is reported as
near."""

CLAIMING = (
    STREAM_SCALE,
    FACTOR,
    QUERY_KEY,
    VALUE_OUTPUT,
    UNIT,
    STREAM_BASIS,
    GAIN,
    INNER_BASIS,
    EMBEDDING_POSITION,
    SHIFT,
    UNSEEN,
    UNREAD,
    STREAM_MEAN,
    BIAS,
)
"""Families in the order in which they claim a direction; the last takes any."""
COUNTED = (
    GAIN,
    SHIFT,
    QUERY_KEY,
    VALUE_OUTPUT,
    UNIT,
    FACTOR,
    INNER_BASIS,
    UNSEEN,
    UNREAD,
    STREAM_MEAN,
    EMBEDDING_POSITION,
    BIAS,
    STREAM_BASIS,
    STREAM_SCALE,
)
"""Families in the order in which they are counted and reported."""


def family_of(signature: Signature) -> str:
    """Return the name of the family that claims a direction."""
    return next(rule.name for rule in CLAIMING if rule.claims(signature))
