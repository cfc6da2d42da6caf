"""A mechanism on one screen, which `python -m addnorm.residual.rezero` prints, and so on for every file of a mechanism.

Its formula with the values of the settings, what it equals, its parameters at the start of a small model, and the weights with
which that model's reads have their sources.
"""

import re
import textwrap
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from torch import Tensor

from addnorm.catalogue import Doc, room
from addnorm.insight.depth.matrix import DepthRoom, depth_matrix, joined_rooms
from addnorm.model.presets import belongs
from addnorm.model.spec import ModelSpec
from addnorm.model.transformer import Transformer
from addnorm.reduction import Reducible, Reduction
from addnorm.study.encoding import encode
from addnorm.testing.contract import tiny
from addnorm.testing.laws import some_tokens

_DEPTH = 2
_WIDTH = 100
_WRITTEN_OUT = 8
"""Largest number of entries of a parameter that are written one by one."""
_JOINED_BY: dict[str, DepthRoom] = {
    "residual": "residual",
    "placement": "residual",
    "block": "residual",
    "scores": "scores",
    "values": "values",
    "column": "column",
}
"""The depth matrix that shows what a mechanism of a room does."""


def on_one_screen(room_name: str, kind: str) -> str:
    """Describe a mechanism.

    Raises:
        UnknownName: no such room or kind.

    Example:
        >>> print(on_one_screen("residual", "rezero").splitlines()[0])
        residual rezero: every branch is scaled by its own learned scalar, zero at the start unless set.
    """
    home = room(room_name)
    doc, cls = home.doc(kind), home.spec_class(kind)
    spec = tiny(room_name, cls(), depth=_DEPTH)
    model = spec.build(seed=0)
    sections = (
        _about(room_name, doc, spec),
        _equalities(cls),
        _parameters(room_name, model),
        _depth_matrix(room_name, model, some_tokens(spec)),
    )
    return "\n\n".join("\n".join(lines) for lines in map(list, sections) if lines) + "\n"


def _about(room_name: str, doc: Doc, spec: ModelSpec) -> Iterator[str]:
    yield f"{room_name} {doc.kind}: {doc.summary.partition(': ')[2] or doc.summary}"
    if formula := doc.formula_in(encode(spec)):
        yield f"\n{formula}"
    for label, text in (("Why", doc.why), ("Source", doc.source)):
        if text:
            yield "\n" + textwrap.fill(f"{label}: {text}", _WIDTH, break_long_words=False, break_on_hyphens=False)


def _equalities(cls: type[Any]) -> Iterator[str]:
    declared = cls.reduces_to() if issubclass(cls, Reducible) else None
    if declared:
        yield "Equals:"
        for reduction in declared:
            yield textwrap.fill(_in_words(reduction), _WIDTH, initial_indent="    ", subsequent_indent="        ")


def _in_words(reduction: Reduction) -> str:
    """The mechanism that it equals, and the settings and values of parameters with which it does."""
    conditions = {
        "settings": _listed(reduction.settings),
        "parameters": "as at the start" if reduction.parameters == "start" else _listed(reduction.parameters),
        "the model": _listed(reduction.given),
    }
    given = "; ".join(f"{name}: {text}" for name, text in conditions.items() if text)
    after = "" if reduction.equal == "exactly" else f", {reduction.equal}"
    return f"{_listed(reduction.to)}{after}{given and f'  ({given})'}"


def _listed(values: Any) -> str:
    return ", ".join(f"{name} = {value!r}" for name, value in dict(values).items())


def _parameters(room_name: str, model: Transformer) -> Iterator[str]:
    """The mechanism's parameters; those of all layers with one name, one shape and equal values once."""
    own = [
        (re.sub(r"(?<=\.)\d+(?=\.)", "*", name), str(list(parameter.shape)), _values(parameter.detach()))
        for name, parameter in model.named_parameters()
        if belongs(name, room_name)
    ]
    if own:
        yield f"Parameters at the start of a model with {_DEPTH} layers of width {model.spec.width}:"
        rows = [(name, shape, f"{count} times" if count > 1 else "", at) for (name, shape, at), count in _counted(own)]
        yield from _table(rows)


def _counted(rows: Sequence[tuple[str, str, str]]) -> list[tuple[tuple[str, str, str], int]]:
    return list(Counter(rows).items())


def _values(parameter: Tensor) -> str:
    flat = parameter.double().flatten()
    if bool((flat == flat[0]).all()):
        return f"all {flat[0].item():.4g}"
    if len(flat) <= _WRITTEN_OUT:
        return " ".join(f"{value:.4g}" for value in flat.tolist())
    return f"mean {flat.mean().item():.2g}, standard deviation {flat.std().item():.2g}"


def _depth_matrix(room_name: str, model: Transformer, tokens: Tensor) -> Iterator[str]:
    joins = _JOINED_BY.get(room_name)
    if joins is None or joins not in joined_rooms(model):
        return
    matrix = depth_matrix(model, tokens, joins)
    yield "Weights of every source (column) in every read (row), at the start:"
    weights = [[f"{value:.2f}" if value else "" for value in row] for row in matrix.weights.tolist()]
    yield from _table([("", *matrix.sources), *((name, *row) for name, row in zip(matrix.reads, weights, strict=True))])


def _table(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "    " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
