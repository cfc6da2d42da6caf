"""One finding per parameter from what the two methods say. Where they contradict each other, it is `undecided`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from addnorm.redundancy.execution.tracked_parameters import Entry
from addnorm.redundancy.finding import Blocked, Directions, Finding, Fold, directions, verdict
from addnorm.redundancy.graph.joint_space import Space
from addnorm.redundancy.graph.method import Blocker
from addnorm.redundancy.numeric.judgement import Judgement
from addnorm.redundancy.numeric.method import NEGLIGIBLE


@dataclass(frozen=True, kw_only=True)
class Said:
    """What both methods say about one parameter."""

    redundant: int
    absorbable: int
    negligible: int = 0
    effect: float | None = None
    against: str = ""
    """How they contradict each other; empty where they do not."""


_UNTOLD = "how it reaches the output is too ill-conditioned for float64 to tell which of its directions matter"


def compare(entry: Entry, place: int, claim: Space | None, judged: Judgement | None) -> Said:
    """Put the two methods' counts for one parameter side by side; one of the two is there."""
    static = (len(claim.redundant(entry.name)), claim.absorbable(entry.name)) if claim is not None else None
    if claim is not None and static is not None and claim.unsure(entry.name):
        return Said(redundant=0, absorbable=static[1], against=_UNTOLD)
    if judged is None:
        assert static is not None
        return Said(redundant=static[0], absorbable=static[1])
    redundant, absorbable = judged.redundant[place], judged.absorbable[place]
    numeric = (redundant, absorbable) if redundant is not None and absorbable is not None else None
    seen: dict[str, int | float | None] = {"negligible": judged.negligible[place], "effect": judged.effect[place]}
    if static is None:
        if numeric is None:
            return Said(redundant=0, absorbable=0, against="too many parameters to count without a static analysis")
        if judged.unclear[place]:
            return Said(redundant=0, absorbable=numeric[1], against=_UNTOLD)
        unread = judged.unread[place]
        if unread:
            what = "it" if unread == entry.size else f"{unread} of its {entry.size} numbers"
            against = f"no input that was tried reads {what}"
            return Said(redundant=numeric[0], absorbable=numeric[1], against=against, **seen)  # type: ignore[arg-type]
        return Said(redundant=numeric[0], absorbable=numeric[1], **seen)  # type: ignore[arg-type]
    refuted = judged.refuted[place]
    if refuted is not None:
        sure = numeric or (0, 0)
        return Said(
            redundant=min(static[0], sure[0]),
            absorbable=min(static[1], sure[1]),
            against=f"the static analysis proves {_counts(static)}, but moving along it changes the output by {refuted:.1e}",
        )
    if judged.unmoved[place]:
        return Said(
            redundant=static[0],
            absorbable=static[1],
            against=f"the static analysis proves {_counts(static)} and no more, but moving the rest changed nothing",
        )
    if numeric is not None and numeric != static:
        return Said(
            redundant=min(static[0], numeric[0]),
            absorbable=min(static[1], numeric[1]),
            against=f"the static analysis counts {_counts(static)}, the numerical method {_counts(numeric)}"
            + (f"; {_UNTOLD}" if judged.unclear[place] else ""),
        )
    return Said(redundant=static[0], absorbable=static[1], **seen)  # type: ignore[arg-type]


def _counts(counts: tuple[int, int]) -> str:
    return f"{counts[0]} redundant and {counts[1]} absorbable directions"


def finding(
    entry: Entry,
    said: Said,
    *,
    space: Space | None,
    blockers: Sequence[Blocker],
    folds: Sequence[Fold],
    numeric: tuple[int | None, int | None],
    lengths: str,
) -> Finding:
    """Word one parameter's finding."""
    word = "undecided" if said.against else verdict(entry.size, said.redundant, said.absorbable, said.negligible)
    blocked = tuple(
        Blocked(op=each.op, module=each.module, where=each.where, rank=each.rank, why=each.demand) for each in blockers
    )
    free = directions(space.redundant(entry.name)) if space is not None and said.redundant else Directions(kind="none")
    if said.redundant == entry.size:
        free = Directions(kind="coordinates", coordinates=tuple(range(entry.size)))
    return Finding(
        parameter=entry.name,
        verdict=word,
        size=entry.size,
        redundant_dof=said.redundant,
        absorbable_dof=said.absorbable,
        directions=free,
        reason=_reason(word, entry, said, free, blocked, folds, lengths),
        fold_into=tuple(folds),
        blocked_by=blocked,
        effect=said.effect,
        negligible_dof=said.negligible,
        numeric_redundant_dof=numeric[0],
        numeric_absorbable_dof=numeric[1],
    )


def _reason(
    word: str,
    entry: Entry,
    said: Said,
    free: Directions,
    blocked: Sequence[Blocked],
    folds: Sequence[Fold],
    lengths: str,
) -> str:
    held = f"{blocked[0].op} in {blocked[0].module or 'the model'} needs it {blocked[0].why}" if blocked else ""
    into = " and ".join(fold.into for fold in folds)
    others = f"{into} can" if into else "other parameters can"
    match word:
        case "undecided":
            return f"{said.against}."
        case "redundant":
            return "no value of it changes the output: every operation that it reaches cancels it or cannot see it."
        case "negligible":
            return (
                f"a unit move changes the output by {said.effect or 0.0:.1e} of its size, below float32's {NEGLIGIBLE:.1e}, "
                f"at {lengths}; not exactly zero."
            )
        case "partly redundant":
            which = {"all-ones": "adding one number to all of it changes", "coordinates": "some of its entries change"}
            alone = f"{said.redundant} of its {entry.size} directions change"
            first = f"{which.get(free.kind, alone)} nothing"
            more = f"; {others} take over {said.absorbable} of {entry.size}" if said.absorbable > said.redundant else ""
            return f"{first}{more}{'; ' + held if held else ''}."
        case "foldable":
            part = "all of it" if said.absorbable == entry.size else f"{said.absorbable} of its {entry.size} directions"
            return f"it matters alone, but {others} take over {part}."
        case _:
            weak = f"; {said.negligible} of its {entry.size} directions are negligible" if said.negligible else ""
            return f"{held or 'moving it changes the output'}, and nothing else can make up for it{weak}."


def disagreements(findings: Sequence[Finding]) -> tuple[str, ...]:
    """One sentence per undecided parameter, of findings on which two methods spoke."""
    return tuple(f"{each.parameter}: {each.reason}" for each in findings if each.verdict == "undecided")


def joint_null(claim: Space | None, judged: Judgement | None) -> int:
    """The joint null directions that no method contradicts."""
    if claim is None:
        return 0
    if judged is None:
        return claim.dim
    if judged.joint is not None:
        return min(claim.dim, judged.joint)
    doubted = {
        entry.name for entry, found in zip(claim.tracked.entries, judged.refuted, strict=True) if found is not None
    }
    return sum(each.dim for each in claim.components if doubted.isdisjoint(each.names))


def joint_disagreement(claim: Space, judged: Judgement) -> tuple[str, ...]:
    """A sentence where the methods count different joint null spaces."""
    if judged.joint is None or judged.joint == claim.dim:
        return ()
    return (f"the static analysis counts {claim.dim} joint null directions, the numerical method {judged.joint}.",)


def strongest(blockers: Mapping[str, Sequence[Blocker]], entry: Entry) -> tuple[Blocker, ...]:
    """The blockers of one parameter, those that hold most of it first."""
    return tuple(sorted(blockers.get(entry.name, ()), key=lambda each: -each.rank))
