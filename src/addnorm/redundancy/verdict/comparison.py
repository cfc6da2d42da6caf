"""Comparison of the two methods' counts.

If moves refute a claim of the static method, the methods contradict each other and the parameter is undecided. If the
numerical method counts more than the static method proves, the rest is unproved: free at the inputs tested, by no rule.
"""

from dataclasses import dataclass
from math import isfinite

from addnorm.redundancy.execution.tracked_parameters import TrackedParameter
from addnorm.redundancy.graph.null_space import NullSpace
from addnorm.redundancy.numeric.numerical_analysis import NumericalAnalysis


@dataclass(frozen=True, kw_only=True)
class ComparedCounts:
    """Counts for one parameter on which both methods agree, or the smaller ones and the reason why they are
    undecided."""

    redundant: int
    absorbable: int
    negligible: int = 0
    effect: float | None = None
    undecided: str = ""
    """Reason why the parameter is undecided; empty if it is not."""
    contradicted: bool = False
    """True if moves refute the static method's claim."""
    unproved: str = ""
    """Counts of both methods, in words, where the numerical method counts more than the static method proves."""
    hidden: bool = False
    """True if `unproved` and gradients show an effect that rounding hides from moves: no rule is missing."""
    unread: int = 0
    """Number of entries of which no tested input shows an effect."""
    without_gradient: int = 0
    """Number of entries whose gradients are zero although moving them changes the output."""
    counted: bool = True
    """True if the numerical method counted directions, so that joint moves with other parameters were tested."""


_ILL_CONDITIONED = (
    "its path to the output is too ill-conditioned for float64 to determine which of its directions matter"
)


def compare(
    entry: TrackedParameter, index: int, static: NullSpace | None, numerical: NumericalAnalysis | None
) -> ComparedCounts:
    """Compare the two methods' counts for one parameter.

    Args:
        entry: the parameter.
        index: its position among the tracked parameters.
        static: the null space of the static method; None if it did not run.
        numerical: the counts of the numerical method; None if it did not run. One of the two must be given.
    """
    if static is None:
        assert numerical is not None
        return _numerical_only(entry, index, numerical)
    proved = (len(static.redundant(entry.name)), static.absorbable(entry.name))
    # Before any count of the other method: numbers that float64 cannot resolve are not confirmed by a method with the
    # same float64.
    if static.unsure(entry.name):
        return ComparedCounts(redundant=0, absorbable=proved[1], undecided=_ILL_CONDITIONED)
    if numerical is None:
        return ComparedCounts(redundant=proved[0], absorbable=proved[1], counted=False)
    unread = numerical.unread[index]
    counted = _counted(numerical, index)
    refuted = numerical.refuted[index]
    if refuted is not None:
        # Refuted: of both counts the smaller, and of a claim that was only tested, nothing.
        confirmed = counted or (0, 0)
        return ComparedCounts(
            redundant=min(proved[0], confirmed[0]),
            absorbable=min(proved[1], confirmed[1]),
            undecided=(
                f"the static method proves {_in_words(proved)}, but moving along them changes "
                + (f"the output by {refuted:.1e}" if isfinite(refuted) else "an integer, or makes the output infinite")
            ),
            contradicted=True,
        )
    if numerical.unmoved[index] and unread == entry.size:
        return _unread(entry, proved, unread)
    if numerical.unmoved[index]:
        return ComparedCounts(
            redundant=proved[0],
            absorbable=proved[1],
            unproved=f"the static method proves {_in_words(proved)}, and moving along the others changed nothing",
        )
    if counted is not None and counted != proved:
        both_counts = f"the static method proves {_in_words(proved)}, the numerical method counts {_in_words(counted)}"
        # Fewer than proved, without a move that refutes it: the Jacobian could not resolve the rest. More is
        # `unproved`, a freedom without a rule.
        if counted[0] < proved[0] or counted[1] < proved[1] or numerical.unclear[index]:
            return ComparedCounts(
                redundant=min(proved[0], counted[0]),
                absorbable=min(proved[1], counted[1]),
                undecided=f"{both_counts}; {_ILL_CONDITIONED}",
            )
        return ComparedCounts(
            redundant=proved[0], absorbable=proved[1], unproved=both_counts, hidden=numerical.hidden[index]
        )
    # Both say zero, one of them because it saw nothing.
    if counted is not None and unread and not any(proved):
        return _unread(entry, proved, unread)
    return ComparedCounts(
        redundant=proved[0],
        absorbable=proved[1],
        negligible=numerical.negligible[index],
        effect=numerical.effect[index],
        unread=unread if counted is not None else 0,
        without_gradient=numerical.without_gradient[index],
        counted=counted is not None,
    )


def _unread(entry: TrackedParameter, proved: tuple[int, int], unread: int) -> ComparedCounts:
    """A parameter about which neither method says that it matters: the static method only did not prove the opposite."""
    return ComparedCounts(
        redundant=proved[0],
        absorbable=proved[1],
        undecided=(
            f"none of the inputs tried reads {_part(entry, unread)}, and the static method does not prove it redundant: a row, "
            "an expert or a unit that no input reaches, or a cancellation without a rule"
        ),
        unread=unread,
    )


def _part(entry: TrackedParameter, unread: int) -> str:
    return "it" if unread == entry.size else f"{unread} of its {entry.size} numbers"


def _numerical_only(entry: TrackedParameter, index: int, numerical: NumericalAnalysis) -> ComparedCounts:
    counted = _counted(numerical, index)
    if counted is None:
        return ComparedCounts(
            redundant=0, absorbable=0, undecided="too many parameters to count without a static analysis"
        )
    if numerical.unclear[index]:
        return ComparedCounts(redundant=0, absorbable=counted[1], undecided=_ILL_CONDITIONED)
    unread = numerical.unread[index]
    return ComparedCounts(
        redundant=counted[0],
        absorbable=counted[1],
        negligible=numerical.negligible[index],
        effect=numerical.effect[index],
        undecided=f"none of the inputs tried reads {_part(entry, unread)}" if unread else "",
        unread=unread,
        without_gradient=numerical.without_gradient[index],
    )


def _counted(numerical: NumericalAnalysis, index: int) -> tuple[int, int] | None:
    redundant, absorbable = numerical.redundant[index], numerical.absorbable[index]
    return (redundant, absorbable) if redundant is not None and absorbable is not None else None


def _in_words(counts: tuple[int, int]) -> str:
    return f"{counts[0]} redundant and {counts[1]} absorbable directions"


def joint_null(static: NullSpace | None, numerical: NumericalAnalysis | None) -> int:
    """Count the joint null directions that neither method contradicts.

    Args:
        static: the null space of the static method, or of the numerical method if it ran alone.
        numerical: the counts of the numerical method.
    """
    if static is None:
        return 0
    if numerical is None:
        return static.dim
    if numerical.joint is not None:
        return min(static.dim, numerical.joint)
    refuted = {
        entry.name
        for entry, change in zip(static.tracked.entries, numerical.refuted, strict=True)
        if change is not None
    }
    return sum(each.dim for each in static.components if refuted.isdisjoint(each.names))


def joint_disagreement(static: NullSpace, numerical: NumericalAnalysis) -> tuple[str, ...]:
    """Return a sentence if the numerical method counts fewer joint null directions than the static method proves, which
    happens where moves refute the proof."""
    if numerical.joint is None or numerical.joint >= static.dim:
        return ()
    return (f"the static method counts {static.dim} joint null directions, the numerical method {numerical.joint}.",)


def joint_unproved(static: NullSpace, numerical: NumericalAnalysis) -> tuple[str, ...]:
    """Return a note if the numerical method counts more joint null directions than the static method proves."""
    if numerical.joint is None or numerical.joint <= static.dim:
        return ()
    return (
        f"the static method proves {static.dim} joint null directions; at the inputs tested {numerical.joint} change nothing",
    )
