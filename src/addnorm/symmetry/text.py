"""`Symmetries` as text for a terminal."""

import textwrap
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from addnorm.words import translated

_MOST_LINES = 6
"""Sets of parameters that are listed per family."""


def text(content: Mapping[str, Any], *, width: int = 100) -> str:
    """Describe a result from its JSON.

    Args:
        content: `Symmetries.to_json()`.
        width: columns of the terminal.
    """
    explained = sum(each["size"] for each in content["families"])
    head = (
        f"{content['model']}: {content['parameters']} numbers"
        + (f", of which {content['unread']} are read at no input" if content["unread"] else ""),
        f"{content['effective']} directions change the output, {content['redundant']} do not, {explained} of these are "
        "explained" + (f" (gap {content['gap']:.0e})" if content["gap"] else ""),
        *(["in training mode"] if content["training"] else []),
    )
    lines = list(map(translated, head))
    for family in content["families"]:
        lines += ["", f"{family['size']:6}  {translated(family['name'])}"]
        lines += _members(family["members"], width)
    for title, key in (
        ("unexplained", "unexplained"),
        ("nearly free: only a small constant such as eps breaks it", "near"),
    ):
        if content[key]:
            lines += ["", translated(title)]
            for each in content[key][:_MOST_LINES]:
                size = (
                    f"{each['size']:6}  "
                    if key == "unexplained"
                    else f"{each['singular_value']:6.0e}  {translated(each['family'])}: "
                )
                lines += _wrapped(size, each["parameters"], width)
            if len(content[key]) > _MOST_LINES:
                lines.append(translated(f"        and {len(content[key]) - _MOST_LINES} more"))
    for each in content["refuted"]:
        lines += ["", f"{translated('refuted, a defect of addnorm')}: {each}"]
    for each in content["notes"]:
        lines += ["", *textwrap.wrap(f"{translated('note')}: {translated(each)}", width)]
    return "\n".join(lines) + "\n"


def _members(members: Iterable[Mapping[str, Any]], width: int) -> list[str]:
    """One line per set of parameters; sets that differ in layer numbers alone are one line."""
    sizes: dict[tuple[str, ...], Counter[int]] = {}
    for each in members:
        pattern = tuple(dict.fromkeys(_pattern(name) for name in each["parameters"]))
        sizes.setdefault(pattern, Counter())[each["size"]] += 1
    lines: list[str] = []
    for pattern, counts in list(sizes.items())[:_MOST_LINES]:
        count = " + ".join(f"{times} × {size}" if times > 1 else str(size) for size, times in counts.items())
        lines += _wrapped(f"        {count}: ", pattern, width)
    if len(sizes) > _MOST_LINES:
        rest = sum(size * times for counts in list(sizes.values())[_MOST_LINES:] for size, times in counts.items())
        lines.append(translated(f"        {rest} in {len(sizes) - _MOST_LINES} more sets of parameters"))
    return lines


def _pattern(name: str) -> str:
    return ".".join("*" if part.isdigit() else part for part in name.split("."))


def _wrapped(head: str, names: Iterable[str], width: int) -> list[str]:
    return textwrap.wrap(
        f"{head.strip()} {', '.join(names)}", width, initial_indent=" " * 8, subsequent_indent=" " * 10
    )
