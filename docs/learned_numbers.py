"""Counts the learned numbers of every mechanism that can matter: `python docs/learned_numbers.py` writes
src/addnorm/insight/learned_numbers.json (minutes), and docs/learned-numbers.md from it; `--page` the page alone.

Every mechanism takes the place of one in a plain model of two layers. Both methods of `addnorm.symmetries` run.
"""

import json
import sys
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

import addnorm
from addnorm.catalogue import MECHANISM_ROOMS, ROOMS
from addnorm.errors import AddnormError
from addnorm.insight.identifiable import groups_of
from addnorm.model.presets import FIELD_OF_ROOM
from addnorm.model.spec import ModelSpec
from addnorm.symmetry.counting import learned_numbers

DATA = Path(__file__).parents[1] / "src" / "addnorm" / "insight" / "learned_numbers.json"
PAGE = Path(__file__).with_name("learned-numbers.md")
SIZES = {"vocab": 11, "width": 8, "depth": 2, "heads": 2, "kv_heads": 1, "hidden": 5, "max_seq": 16}
TOKENS = torch.tensor([[0, 1, 2, 3, 4, 5, 6, 7, 8], [9, 10, 3, 1, 4, 1, 5, 9, 2]])
MORE = {("block", "parallel"), ("block", "macaron"), ("residual", "cross")}
"""Mechanisms with a part that reads tokens alone, whose numbers need more tokens than they are."""
SMALLER: dict[tuple[str, str], dict[str, Any]] = {
    ("block", "token_tables"): {"block": {"kind": "token_tables", "entries": 3}},
    ("residual", "kronecker_streams"): {"residual": {"kind": "kronecker_streams", "streams": 2}},
    ("residual", "gated_streams"): {"residual": {"kind": "gated_streams", "streams": 2, "rank": 2}},
    ("residual", "low_rank"): {"residual": {"kind": "low_rank", "rank": 2}},
    ("residual", "altup"): {"residual": {"kind": "altup", "streams": 2, "rank": 1}},
    # Of many rounds, which nearly undo factors of rows and columns, float64 cannot tell what they leave.
    ("residual", "hyper_connections"): {
        "residual": {"kind": "hyper_connections", "streams": 2, "rounds": 1, "eps": 0.1}
    },
}
"""Mechanisms with many numbers, and what makes them few."""
MOST_REST = 3

HEAD = """# Which learned numbers of a mechanism can matter

A learned number is a *gauge* if other parameters can take any change of it over: the factor of a
branch, which the matrix before it can absorb. Then it changes how a model is written down and how
it trains, not what it can compute. `python docs/learned_numbers.py` writes this page.

Every row is a Llama of two layers (width 8, two heads, one key head, 5 hidden units, 11 tokens)
with one mechanism in its place, at generic weights. `hyper_connections` has two streams, one round
and an eps of 0.1: of many rounds, which nearly undo factors of rows and columns, float64 cannot
tell what they leave. `token_tables` has three entries per token.

- **numbers**: learned numbers of the mechanism; **matter**: independent directions of them that no
  other parameter can absorb, apart from a rotation of the stream. A dash: it has none.
- **redundant**: directions of all parameters that change no output, measured as the null space of
  the Jacobian; **explained**: those that the families of
  [the guide](guide/symmetries.md) have, proven over the graph, confirmed and moved. The plain model
  has 118.
- **rest**: what is measured and not proven, with the parameters that it moves: a finding, neither
  denied nor claimed.

Counted on processors with AVX2 and with AVX-512, `redundant` is the same in every row but
`orthogonal_streams`, which was counted once. How the rest falls into sets differed in two rows
(`none`, `clip`), because rounding decides among sets that fit equally well.
"""


def rows() -> Iterator[tuple[str, str]]:
    """Room and kind of every mechanism."""
    for room in MECHANISM_ROOMS:
        for kind in ROOMS[room].kinds():
            yield room, kind


def row(room: str, kind: str) -> dict[str, Any]:
    """The counts of one mechanism, or why there are none."""
    fields = SIZES | {FIELD_OF_ROOM[room]: kind} | SMALLER.get((room, kind), {})
    tokens = TOKENS
    if (room, kind) in MORE:
        fields, tokens = fields | {"vocab": 27}, torch.arange(27).reshape(3, 9)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return counted(addnorm.preset("llama", **fields), room, tokens)
    except AddnormError as error:
        return {"reason": " ".join(str(error).split())}


def counted(spec: ModelSpec, room: str, tokens: torch.Tensor) -> dict[str, Any]:
    """The counts of one model.

    Raises:
        AddnormError: it cannot be analysed.
    """
    model = spec.build(seed=0).eval()
    model.residual.advance(10**6)  # a schedule begins as the identity, where nothing of a branch matters
    found = addnorm.symmetries(model, tokens, points=1)
    own = groups_of(model, (room,)).get(room, [])
    if room == "block":  # the one block with numbers of its own has them in a branch
        own = [name for name, _ in model.named_parameters() if ".table." in name]
    row: dict[str, Any] = {
        "numbers": sum(model.get_parameter(name).numel() for name in own),
        "parameters": found.parameters,
        "redundant": found.redundant,
        "explained": found.explained,
        "rest": [{"size": each.size, "parameters": list(each.parameters)} for each in found.unexplained],
        "families": {each.name: each.size for each in found.families},
        "refuted": len(found.refuted),
    }
    if found.gap < 1e3:
        return row | {"gap": found.gap, "matter": None, "unread": found.unread}
    counts = learned_numbers(model, tokens, {room: own}, upright="embedding.weight")[room] if own else None
    return row | {"matter": counts.matter if counts else 0, "unread": counts.unread if counts else 0}


def line(kind: str, counts: Mapping[str, Any]) -> str:
    """The row of one mechanism."""
    if "reason" in counts:
        return f"| `{kind}` | | | | | {counts['reason'].replace('|', ' ')[:80]} |\n"
    rest = "; ".join(_part(each) for each in counts["rest"][:MOST_REST])
    left = sum(each["size"] for each in counts["rest"][MOST_REST:])
    if left:
        rest += f"; {left} in larger sets"
    if counts["matter"] is None:
        rest = f"no clear gap ({counts['gap']:.0f}): near-symmetries, counted by neither method"
    numbers = counts["numbers"] or "–"
    matter = ("?" if counts["matter"] is None else counts["matter"]) if counts["numbers"] else "–"
    if counts.get("unread"):
        matter = f"{matter} ({counts['unread']} unread)" if counts["numbers"] else matter
    return f"| `{kind}` | {numbers} | {matter} | {counts['redundant']} | {counts['explained']} | {rest} |\n"


def _part(each: Mapping[str, Any]) -> str:
    names = [name.rpartition(".")[0].rpartition(".")[2] or name for name in each["parameters"]]
    names = list(dict.fromkeys(names))
    return f"{each['size']} of {', '.join(names[:3])}{' …' if len(names) > 3 else ''}"


def page(data: Mapping[str, Mapping[str, Any]]) -> str:
    """The text of docs/learned-numbers.md."""
    parts, last = [HEAD], ""
    for room, kind in rows():
        if room != last:
            last = room
            parts.append(
                f"\n## {room}\n\n| {room} | numbers | matter | redundant | explained | rest |\n|---|---|---|---|---|---|\n"
            )
        if f"{room}.{kind}" in data:
            parts.append(line(kind, data[f"{room}.{kind}"]))
    return "".join(parts)


def write(names: list[str]) -> None:
    """Count the named mechanisms, or all, and write both files."""
    data = json.loads(DATA.read_text(encoding="utf-8")) if DATA.exists() else {}
    for room, kind in rows():
        if not names or f"{room}.{kind}" in names:
            data[f"{room}.{kind}"] = row(room, kind)
            data = {f"{one}.{two}": data[f"{one}.{two}"] for one, two in rows() if f"{one}.{two}" in data}
            DATA.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
            sys.stdout.write(f"{room}.{kind}: {line(kind, data[f'{room}.{kind}'])}")
            sys.stdout.flush()


if __name__ == "__main__":
    if "--page" not in sys.argv:
        write(sys.argv[1:])
    PAGE.write_text(page(json.loads(DATA.read_text(encoding="utf-8"))), encoding="utf-8")
