"""Writes docs/bias-table.md, which bias can go under which joint, by audits of small models: `python docs/bias_table.py`.

Every mechanism of the catalogue takes the place of one in a plain model; both methods of the audit must agree on a cell.
"""

import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

import addnorm
from addnorm.catalogue import MECHANISM_ROOMS, ROOMS
from addnorm.errors import AddnormError
from addnorm.model.presets import FIELD_OF_ROOM
from addnorm.redundancy.verdict.finding import Finding

SIZES = {"vocab": 11, "width": 8, "depth": 2, "heads": 2, "kv_heads": 2, "hidden": 12, "max_seq": 8}
PLAIN = {"position": "learned", "norm": "rms", "bias": True}
COLUMNS = {
    "q": (".qk_bias.q", ".qk_bias.qk"),
    "k": (".qk_bias.k", ".qk_bias.qk"),
    "v": (".body.value.bias",),
    "o": (".body.output.bias",),
    "gate": (".body.gate.bias",),
    "up": (".body.up.bias",),
    "down": (".body.down.bias",),
    "norm": ("norm.bias",),
    "head": ("head.bias",),
}
"""Biases by the ends of their names."""

FIELDS: dict[str, dict[str, Any]] = {
    "normalisation: softpick": {"normalisation": "softpick"},
    "score_cap: 2": {"score_cap": 2.0},
    "forgetting": {"forgetting": {"start": 1.0}},
    "convolution": {"convolution": {"positions": 3}},
    "sharing": {"sharing": {"layers": 1}},
}
"""Fields of the model that are no mechanisms of a room."""

HEAD = """# Which bias can go under which joint

Every row is a plain model of two layers (RMS norm before each branch, learned positions, all
biases) with one mechanism in its place; every cell is an audit's verdict, proved over the exported
graph and confirmed by numerical changes in float64. `python docs/bias_table.py` writes this page.

| in a cell | meaning |
|---|---|
| **goes** | redundant: it changes nothing, whatever its value |
| folds | another bias can take all of it over; of two that fold into each other, one must stay |
| part | some of its directions change nothing, or another bias can take some of it over |
| stays | it changes the output, and no other bias can take it over |
| ? | the two methods do not prove the same; `addnorm audit` has both counts |
| – | the model has no such bias |

Where layers differ, the first layer's verdict stands before the others'. The columns are the biases
of queries, keys, values and attention's output, of the gated feed-forward (gate, up, down), the
shifts of norms, and the head's bias. Matrices are not asked: under `sink: query` the sink's own
matrix can take the key bias over, which an audit of both proves (`--track "sink|qk_bias.k"`).

Three rules follow. The key bias goes where it shifts each row's scores as a whole, which a softmax
does not see; a sink, softpick, a cap of scores, a rotary position, most norms of queries and keys,
a convolution of keys, or a bias that queries and keys share ends that. The value bias folds into
the output's bias while attention rows add up to one and nothing multiplies what they gather; a
sink, a gate, exclusive attention, a norm or a convolution of values ends that. How layers are
joined across depth changes neither, in all residuals, scores and further values of the catalogue; a
residual with shifts of its own (`affine`) can take a feed-forward's output bias over. Under a
column of earlier layers both are joint: one layer's key bias can go if the key biases of all other
layers move by as much, and likewise for values. Under `values: depth_attention` key biases are.
"""


def rows() -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Room, name and fields of every model of the page."""
    yield "plain", "plain", {}
    for room in MECHANISM_ROOMS:
        for kind in ROOMS[room].kinds():
            yield room, kind, {FIELD_OF_ROOM[room]: kind} | ({"heads": 1, "kv_heads": 1} if kind == "gau" else {})
    for kind in ROOMS["norm"].kinds():
        yield "qk_norm", kind, {"qk_norm": kind}
    for name, fields in FIELDS.items():
        yield "field", name, fields


def line(name: str, fields: Mapping[str, Any]) -> str:
    """The row of one model."""
    try:
        cells = audited(fields)
    except AddnormError as error:
        reason = " ".join(str(error).split()).replace("|", "\\|")
        return f"| `{name}` | {_short(reason)} |" + " |" * (len(COLUMNS) - 1)
    return f"| `{name}` | " + " | ".join(cells.values()) + " |"


def audited(fields: Mapping[str, Any]) -> dict[str, str]:
    """The cells of one model, by column.

    Raises:
        AddnormError: the model cannot be built or audited.
    """
    model = addnorm.preset("llama", **(SIZES | PLAIN | fields)).build(seed=0).eval()
    model.residual.advance(10**6)  # a schedule begins as the identity, where no bias matters
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(SIZES["vocab"], (2, 6), generator=generator)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        findings = addnorm.audit(model, tokens).findings
    cells = {}
    for column, ends in COLUMNS.items():
        words = [_word(finding) for finding in findings if finding.parameter.endswith(ends)]
        cells[column] = ", then ".join(dict.fromkeys(words)) or "–"
    return cells


def _word(finding: Finding) -> str:
    match finding.verdict:
        case "redundant":
            return "**goes**"
        case "effective":
            return "stays"
        case "foldable" if finding.absorbable_dof == finding.size:
            return "folds"
        case "foldable" | "partly redundant":
            whole = finding.redundant_dof + finding.absorbable_dof == finding.size
            return "folds" if whole else "part"
        case _:
            return "?"


def _short(reason: str, most: int = 60) -> str:
    return reason if len(reason) <= most else reason[: most - 1] + "…"


def page() -> str:
    """The text of docs/bias-table.md."""
    text, room = [HEAD], ""
    for joint, name, fields in rows():
        if joint != room:
            room = joint
            text.append(f"\n## {room}\n\n| {room} | {' | '.join(COLUMNS)} |\n|{'---|' * (len(COLUMNS) + 1)}\n")
        text.append(line(name, fields) + "\n")
    return "".join(text)


if __name__ == "__main__":
    Path(__file__).with_name("bias-table.md").write_text(page(), encoding="utf-8")
