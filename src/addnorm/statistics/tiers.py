"""Tiers: the gaps between the references that a variant's verdicts allow.

The references, best first, are lines across the page. Neighbours that cannot be told apart are one line: nothing can
lie between two levels that may be the same. With k lines there are k + 1 gaps. Better than any reference of a line
rules out the gaps below it, worse than any rules out those above it; undecided rules out nothing. A variant that is
equivalent to a reference lies at that line: both gaps beside it stay, and the label says "level with".
"""

from collections.abc import Callable, Mapping, Sequence

from addnorm.statistics.ranking import Comparison, Tier


def reference_lines(ordered: Sequence[str], told_apart: Callable[[str, str], bool]) -> tuple[tuple[str, ...], ...]:
    """Cut the references, best first, wherever every one above is told apart from every one below."""
    lines: list[list[str]] = []
    for position, name in enumerate(ordered):
        cut = all(told_apart(upper, lower) for upper in ordered[:position] for lower in ordered[position:])
        if position == 0 or cut:
            lines.append([])
        lines[-1].append(name)
    return tuple(tuple(line) for line in lines)


def tier_of(versus: Mapping[str, Comparison], lines: Sequence[Sequence[str]]) -> Tier:
    """The gaps that the verdicts leave.

    Args:
        versus: verdicts against each reference.
        lines: references from best to worst, those not told apart together.
    """
    verdicts = {name: comparison.verdict for name, comparison in versus.items()}
    if verdicts and all(verdict == "failed" for verdict in verdicts.values()):
        return Tier(label="failed", gaps=(), firm=False)
    if not lines:
        return Tier(label="open", gaps=(0,), firm=False)
    first, last = 0, len(lines)
    level: list[str] = []
    for index, line in enumerate(lines):
        found = {verdicts.get(name) for name in line}
        if "worse" in found:
            first = max(first, index + 1)
        if "better" in found:
            last = min(last, index)
        if "equivalent" in found:
            first, last = max(first, index), min(last, index + 1)
            level += [name for name in line if verdicts.get(name) == "equivalent"]
    gaps = tuple(range(first, last + 1))
    names = [" / ".join(line) for line in lines]
    if level:
        label = f"level with {' / '.join(level)}"
    elif not gaps:
        label = f"among {names[last]}"
    elif len(gaps) == len(lines) + 1:
        label = "open"
    elif first == 0:
        label = f"above {names[last]}"
    elif last == len(lines):
        label = f"below {names[first - 1]}"
    else:
        label = f"between {names[first - 1]} and {names[last]}"
    return Tier(label=label, gaps=gaps, firm=len(gaps) == 1 and not level)
