"""Construction of a parameter's finding: its verdict, its redundant directions and the reason in one sentence."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from addnorm.redundancy.execution.tracked_parameters import TrackedParameter
from addnorm.redundancy.graph.null_space import NullSpace
from addnorm.redundancy.graph.propagation import Blocker
from addnorm.redundancy.graph.rules import rules
from addnorm.redundancy.numeric.null_space_estimate import NEGLIGIBLE
from addnorm.redundancy.verdict.comparison import ComparedCounts
from addnorm.redundancy.verdict.finding import Blocked, Directions, Finding, Fold, directions, idle_norm, verdict_of


def finding(
    entry: TrackedParameter,
    counts: ComparedCounts,
    *,
    space: NullSpace | None,
    blockers: Sequence[Blocker],
    folds: Sequence[Fold],
    numeric: tuple[int | None, int | None],
    value: Tensor,
    inputs: str,
) -> Finding:
    """Describe one parameter.

    Args:
        entry: the parameter.
        counts: the compared counts.
        space: the null space, for the redundant directions.
        blockers: the operations that block the parameter, the strongest first.
        folds: the parameters that can absorb it.
        numeric: its redundant and absorbable directions as the numerical method counts them.
        value: its present numbers.
        inputs: the lengths or shapes of the inputs, in words.
    """
    word = (
        "undecided"
        if counts.undecided
        else "unproved"
        if counts.unproved
        else verdict_of(entry.size, counts.redundant, counts.absorbable, counts.negligible)
    )
    blocked = tuple(
        Blocked(op=each.op, module=each.module, where=each.where, rank=each.rank, why=each.demand) for each in blockers
    )
    free = Directions(kind="none")
    if space is not None and counts.redundant:
        free = directions(space.redundant(entry.name))
    if counts.redundant == entry.size:
        free = Directions(kind="coordinates", coordinates=tuple(range(entry.size)))
    return Finding(
        parameter=entry.name,
        verdict=word,
        size=entry.size,
        redundant_dof=counts.redundant,
        absorbable_dof=counts.absorbable,
        directions=free,
        reason=_with_unread(_reason(word, entry, counts, free, blocked, folds, inputs), word, entry, counts),
        fold_into=tuple(folds),
        blocked_by=blocked,
        effect=counts.effect,
        negligible_dof=counts.negligible,
        norm=float(torch.linalg.vector_norm(value.detach().double())),
        largest=float(value.detach().abs().max()),
        idle_norm=idle_norm(free, value) if entry.coordinates == "entries" else None,
        unread=counts.unread,
        contradicted=counts.contradicted,
        numeric_redundant_dof=numeric[0],
        numeric_absorbable_dof=numeric[1],
    )


def _reason(
    word: str,
    entry: TrackedParameter,
    counts: ComparedCounts,
    free: Directions,
    blocked: Sequence[Blocked],
    folds: Sequence[Fold],
    inputs: str,
) -> str:
    held = _held(blocked[0]) if blocked else ""
    names = " and ".join(fold.into for fold in folds)
    others = f"{names} can" if names else "other parameters can"
    match word:
        case "undecided":
            return f"{counts.undecided}."
        case "unproved":
            if counts.hidden:
                return (
                    f"{counts.unproved}: the gradients of the others are small but not zero, and float64's rounding hides what "
                    "a move along them changes."
                )
            return f"{counts.unproved}: free at the inputs tested, which no rule proves{'; ' + held if held else ''}."
        case "redundant":
            return "no value of it changes the output: every operation that it reaches cancels or ignores it."
        case "negligible":
            return (
                f"a unit move changes the output by {counts.effect or 0.0:.1e} of its size, below float32's {NEGLIGIBLE:.1e}, "
                f"at {inputs}; not exactly zero."
            )
        case "partly redundant":
            which = {
                "all-ones": "adding the same number to all entries changes",
                "coordinates": "some of its entries change",
            }
            alone = f"{counts.redundant} of its {entry.size} directions change"
            first = f"{which.get(free.kind, alone)} nothing"
            more = ""
            if counts.absorbable > counts.redundant:
                more = f"; {others} absorb {counts.absorbable} of {entry.size}"
            return f"{first}{more}{'; ' + held if held else ''}."
        case "foldable":
            part = (
                "all of it"
                if counts.absorbable == entry.size
                else f"{counts.absorbable} of its {entry.size} directions"
            )
            return f"it changes the output when moved alone, but {others} absorb {part}."
        case _ if counts.without_gradient:
            some = f" of {counts.without_gradient} of its {entry.size} numbers"
            return (
                f"moving it changed the output at the inputs tested{'; ' + held if held else ''}. Its gradients"
                f"{some if counts.without_gradient < entry.size else ''} are zero (a threshold, or a model that leaves "
                "autograd), so that only single moves were tried: other parameters may compensate for it."
            )
        case _:
            weak = f"; {counts.negligible} of its {entry.size} directions are negligible" if counts.negligible else ""
            first = held or ("moving it changes the output" if counts.counted else "it reaches the output")
            if counts.counted:
                return f"{first}, and no other tracked parameter can compensate for it{weak}."
            return f"{first}; the static method finds no parameter that compensates for it, and no joint move was tested{weak}."


def _held(blocked: Blocked) -> str:
    """The demand of one operation; one without a rule demands more than it may need."""
    # Without a rule the demand is only sufficient; whoever reads the sentence should know that more may be free.
    known = blocked.op in rules() or blocked.op == "output"
    return (
        f"{blocked.op} in {blocked.module or 'the model'}{'' if known else ', for which there is no rule,'} requires it "
        f"{blocked.why}"
    )


def _with_unread(reason: str, word: str, entry: TrackedParameter, counts: ComparedCounts) -> str:
    """The reason, with the entries about which nothing is known."""
    if not counts.unread or word in ("undecided", "redundant"):
        return reason
    return f"{reason.removesuffix('.')}; none of the inputs tried reads {counts.unread} of its {entry.size} numbers."


def disagreements(findings: Sequence[Finding]) -> tuple[str, ...]:
    """Return one sentence per parameter on which the methods contradict each other, given findings on which both ran."""
    return tuple(f"{each.parameter}: {each.reason}" for each in findings if each.contradicted)


def strongest(blockers: Mapping[str, Sequence[Blocker]], entry: TrackedParameter) -> tuple[Blocker, ...]:
    """Return the blockers of one parameter by decreasing rank."""
    return tuple(sorted(blockers.get(entry.name, ()), key=lambda each: -each.rank))
