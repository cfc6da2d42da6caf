"""Tiers: the gaps between the references that a variant's verdicts allow.

The references, best first, are lines. Neighbouring references without a claimed difference share a line, because nothing can
lie between two levels that may be the same. k lines leave k + 1 gaps. A verdict of better than a reference excludes the gaps
below its line, worse excludes those above it, and undecided excludes nothing. A variant that is equivalent to a reference
lies at that line: both gaps beside it remain, and the label says "level with".
"""

from collections.abc import Callable, Mapping, Sequence

from addnorm.statistics.ranking import Comparison, Tier


def reference_lines(ordered: Sequence[str], differ: Callable[[str, str], bool]) -> tuple[tuple[str, ...], ...]:
    """Divide the references, best first, wherever every one above differs from every one below.

    Args:
        ordered: references from lowest to highest loss.
        differ: tells if the difference of two references is claimed.

    Example:
        >>> reference_lines(["a", "b", "c"], lambda one, two: two == "c")
        (('a', 'b'), ('c',))
    """
    lines: list[list[str]] = []
    for position, name in enumerate(ordered):
        divided = all(differ(upper, lower) for upper in ordered[:position] for lower in ordered[position:])
        if position == 0 or divided:
            lines.append([])
        lines[-1].append(name)
    return tuple(tuple(line) for line in lines)


def tier_of(versus: Mapping[str, Comparison], lines: Sequence[Sequence[str]]) -> Tier:
    """The gaps that the verdicts allow.

    Args:
        versus: verdicts against each reference.
        lines: references from best to worst, as `reference_lines` returns them.
    """
    verdicts = {name: comparison.verdict for name, comparison in versus.items()}
    if verdicts and all(verdict == "failed" for verdict in verdicts.values()):
        return Tier(label="failed", gaps=(), firm=False)
    if not lines:
        return Tier(label="open", gaps=(0,), firm=False)
    first, last = 0, len(lines)
    level: list[str] = []
    for index, line in enumerate(lines):
        at_line = {verdicts.get(name) for name in line}
        if "worse" in at_line:
            first = max(first, index + 1)
        if "better" in at_line:
            last = min(last, index)
        if "equivalent" in at_line:
            first, last = max(first, index), min(last, index + 1)
            level += [name for name in line if verdicts.get(name) == "equivalent"]
    gaps = tuple(range(first, last + 1))
    return Tier(label=_label(lines, level, first, last), gaps=gaps, firm=len(gaps) == 1 and not level)


def _label(lines: Sequence[Sequence[str]], level: Sequence[str], first: int, last: int) -> str:
    names = [" / ".join(line) for line in lines]
    if level:
        return f"level with {' / '.join(level)}"
    if first > last:  # better than a reference of this line and worse than another
        return f"among {names[last]}"
    if (first, last) == (0, len(lines)):
        return "open"
    if first == 0:
        return f"above {names[last]}"
    if last == len(lines):
        return f"below {names[first - 1]}"
    return f"between {names[first - 1]} and {names[last]}"
