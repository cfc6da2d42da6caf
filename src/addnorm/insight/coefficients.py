"""From a learned number to the coefficient that the model uses because of it."""

import re
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float64
from torch import nn

from addnorm.blocks.spec import ModelSpec
from addnorm.catalogue import room
from addnorm.errors import InputError

_NAME = re.compile(r"(.+)\[(.*)\]")


def position_of(name: str, layer: int | None) -> dict[str, Any]:
    """Parameter, layer and index of an entry called `scores.log_a.3[1]`.

    Raises:
        InputError: that is no entry's name.
    """
    matched = _NAME.fullmatch(name)
    if matched is None:
        raise InputError(f"the record of learned scalars is damaged: {name!r} is no entry's name.")
    index = tuple(int(part) for part in matched[2].split(",") if part.strip())
    return {"parameter": matched[1], "layer": layer, "index": index}


def coefficients(
    model: ModelSpec, names: Sequence[str], values: Float64[np.ndarray, " scalar"]
) -> dict[int, tuple[int | None, float]]:
    """For every entry its layer and the coefficient that the model uses because of it."""
    known: dict[str, tuple[list[int], list[float]]] = {}
    mechanisms: dict[str, nn.Module] = {
        "residual": model.residual.build(model.shape),
        "scores": model.scores.build(model.shape),
    }
    for path, mechanism in mechanisms.items():
        with torch.no_grad():
            for name, parameter in mechanism.named_parameters():
                mine = [value for n, value in zip(names, values, strict=True) if n.startswith(f"{path}.{name}[")]
                if len(mine) == parameter.numel():
                    parameter.copy_(torch.tensor(mine).reshape(parameter.shape))
            coefficients = mechanism.double().coefficients()  # type: ignore[operator]
        for name, (layers, leads_to) in coefficients.items():
            known[f"{path}.{name}"] = (layers, leads_to.double().flatten().tolist())
    found: dict[int, tuple[int | None, float]] = {}
    seen: dict[str, int] = defaultdict(int)
    for place, name in enumerate(names):
        owner = name.partition("[")[0]
        at, seen[owner] = seen[owner], seen[owner] + 1
        if owner in known:
            found[place] = (known[owner][0][at], known[owner][1][at])
        else:
            matched = re.match(r"layers\.(\d+)\.", name)
            found[place] = (int(matched[1]) if matched else None, float(values[place]))
    return found


def mechanism(model: ModelSpec) -> str:
    """What the model's scalars belong to, in words."""
    return f"residual {model.residual.kind}, scores {model.scores.kind}"


def formula(model: ModelSpec) -> str:
    """The formulas of those mechanisms, as their docstrings give them."""
    rooms = {"residual": model.residual.kind, "scores": model.scores.kind}
    return "\n".join(room(name).doc(kind).formula for name, kind in rooms.items() if kind not in ("add", "own"))
