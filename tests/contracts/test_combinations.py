"""Mechanisms keep the laws together, not only alone.

Of all choices below every pair meets in some model: each sibling of a room with each sibling of every other room, with
each kind of heads or units (and their activation), depth and set of biases. A sibling takes its settings in turn. Attention
sees one input, whatever the residual: pairs of residuals with what is inside attention and with placements (which the test
of refused pairs builds) are left to the soak, where their model has no other new pair.
"""

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from siblings import mechanisms, settings_of, siblings

from addnorm.bias import Biases
from addnorm.block.gau import Gau
from addnorm.block.macaron import Macaron
from addnorm.block.parallel import Parallel
from addnorm.block.token_tables import TokenTables
from addnorm.catalogue import MECHANISM_ROOMS, ROOMS
from addnorm.errors import InputError
from addnorm.model.presets import FIELD_OF_ROOM as FIELD
from addnorm.model.spec import ModelSpec
from addnorm.placement.pre import Pre
from addnorm.testing.contract import shrunk
from addnorm.testing.laws import LAWS
from pairwise import pairwise

BODIES: dict[str, dict[str, Any]] = {
    "one key head": {"heads": 4, "kv_heads": 1, "activation": "gelu"},
    "grouped heads": {"heads": 4, "kv_heads": 2, "activation": "relu"},
    "a key for each head": {"heads": 4, "kv_heads": 4, "activation": "swiglu"},
    "parallel": {"heads": 4, "kv_heads": 2, "block": Parallel(norms="one")},
    "parallel, two norms": {"heads": 4, "kv_heads": 4, "block": Parallel(norms="two")},
    "macaron": {"heads": 4, "kv_heads": 2, "block": Macaron()},
    "token tables": {"heads": 4, "kv_heads": 2, "block": TokenTables(entries=8)},
    "softpick": {"heads": 4, "kv_heads": 2, "normalisation": "softpick"},
    "capped scores": {"heads": 4, "kv_heads": 1, "score_cap": 2.0},
    "softmax units": {"block": Gau(normalisation="softmax", key_dim=8), "heads": 1, "kv_heads": None},
    "squared ReLU units": {"block": Gau(normalisation="squared_relu", key_dim=8), "heads": 1, "kv_heads": None},
}
ROOMS_APART = tuple(room for room in MECHANISM_ROOMS if room != "block")  # blocks go with the sizes that they allow
BIASES = {
    "all": Biases.all(True),
    "queries and keys": Biases(q=True, k=True),
    "all others": Biases.all(True, q=False, k=False),
}
MODELS: dict[str, tuple[object, ...]] = {
    **{room: [kind for _, kind in siblings(room)] for room in ROOMS_APART},  # type: ignore[dict-item]
    "qk_norm": (None, *(kind for _, kind in siblings("norm"))),
    "body": tuple(BODIES),
    "biases": tuple(BIASES),
    "depth": (1, 2, 3),
    "tied": (False, True),
    "objective": ("causal", "masked"),
    "init_branch": ("same", "depth"),
}  # fmt: skip


def rows(*, soak: bool) -> list[tuple[tuple[object, ...], bool]]:
    """Choices of each model; true for the models of the soak, in which every pair meets without exception."""
    columns = list(MODELS)
    apart = {*ROOMS_APART, "qk_norm"} - {"norm"}
    beside = [column for column in columns if column not in apart]
    missing = {(kind, column, choice) for kind in MODELS["residual"] for column in beside for choice in MODELS[column]}
    found: list[tuple[tuple[object, ...], bool]] = []
    for row in pairwise(*(MODELS[column] for column in columns if column != "residual")):  # type: ignore[arg-type]
        chosen = dict(zip([column for column in columns if column != "residual"], row, strict=True))
        news = {kind: {(kind, column, chosen[column]) for column in beside} & missing for kind in MODELS["residual"]}
        kind = max(MODELS["residual"], key=lambda kind: len(news[kind]))
        missing -= news[kind]
        found.append((tuple({**chosen, "residual": kind}[column] for column in columns), False))
    return found + [(row, True) for row in pairwise(*MODELS.values()) if soak]  # type: ignore[arg-type]


def models(*, soak: bool) -> list[tuple[str, ModelSpec, bool, bool]]:
    """Name and spec of each model; true if it has a choice that none before it has; true if it is left to the soak."""
    turns: Counter[tuple[str, object]] = Counter()
    known: set[tuple[str, object]] = set()
    made = []
    for row, soaked in rows(soak=soak):
        chosen: dict[str, Any] = dict(zip(MODELS, row, strict=True))
        # What is refused, in favour of the reference.
        if chosen["residual"] == "replay":
            chosen["values"] = "own"
        if chosen["residual"] == "replay" or chosen["scores"] != "own":
            chosen["column"] = "none"
        if chosen["residual"] == "replay" and chosen["body"] == "token tables":
            chosen["body"] = "macaron"
        if chosen["body"] in ("squared ReLU units", "softpick"):
            chosen["sink"] = "none"
        norm = chosen["qk_norm"]
        parts: dict[str, Any] = {"qk_norm": None if norm is None else ROOMS["norm"].make(norm)}
        for room in ROOMS_APART:
            settings = settings_of(room, chosen[room])
            if room == "values" and isinstance(BODIES[chosen["body"]].get("block"), Gau):
                settings = [spec for spec in settings if spec.projects(1)]
            parts[FIELD[room]] = settings[turns[room, chosen[room]] % len(settings)]
            turns[room, chosen[room]] += 1
        for name in ("tied", "objective", "init_branch"):
            parts[name] = chosen[name]
        depth = chosen["depth"]
        if chosen["norm"] == "batch" and chosen["body"] == "squared ReLU units":
            depth = 1  # running statistics of no batch hold nothing back: each unit's output is the sixth power of its input
        if chosen["residual"] == "none" and chosen["attended"] == "exclusive":
            depth = (
                1  # a row that sees its own value alone gives zero, and without a stream the next one sees nothing else
            )
        if chosen["residual"] == "replay":
            depth = max(depth, 2)  # one layer has none before it to replay
        parts |= {"depth": depth, "bias": BIASES[chosen["biases"]]} | BODIES[chosen["body"]]
        parts |= _allowed(parts)
        made.append(
            ("-".join(map(str, row)), shrunk(ModelSpec(), **parts), not known.issuperset(chosen.items()), soaked)
        )
        known.update(chosen.items())
    return made


def _allowed(parts: dict[str, Any]) -> dict[str, Any]:
    """Changes of a choice that the residual refuses; `test_refused_pairs` has the refusals."""
    residual = parts["residual"]
    changes: dict[str, Any] = {}
    if any(getattr(parts["placement"].sockets(), socket) for socket in residual.refused_sockets()):
        changes["placement"] = Pre()
    if residual.separate_reads and "block" in parts and parts["block"].refuses_separate_reads() is not None:
        changes["residual"] = replace(residual, reads="one")
    if parts["depth"] == 1 and getattr(residual, "block", 1) > 2:
        changes["depth"] = residual.block
    return changes


# What joining two mechanisms can spoil; the other laws look at each mechanism by itself.
JOINT = ("keeps_shape_and_dtype", "has_finite_gradients", "is_causal", "ignores_padding", "decodes_with_a_cache")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """With the shape checker where a choice is new and the pass both whole and cached. Three models in four are the soak's.

    A model without a new choice keeps one of the laws in `make test`, each in turn: the others are thorough. `test_siblings`
    has every law of every setting there.
    """
    if "law" in metafunc.fixturenames:
        cases = []
        for number, (name, spec, new, soaked) in enumerate(
            models(soak="not soak" not in metafunc.config.option.markexpr)
        ):
            for place, law in enumerate(JOINT):
                checked = new and law == "decodes_with_a_cache"
                marks = {"plain": not checked, "soak": soaked, "thorough": not new and (place - 2 * number) % 5 > 0}
                given = [getattr(pytest.mark, mark) for mark, is_given in marks.items() if is_given]
                cases.append(pytest.param(spec, law, id=f"{name}-{law}", marks=given))
        metafunc.parametrize(("spec", "law"), cases)


def test_mechanisms_keep_the_laws_together(spec: ModelSpec, law: str) -> None:
    LAWS[law](spec)


@pytest.mark.plain
def test_every_setting_takes_part() -> None:
    combined = models(soak=True)
    taking_part = {(room, getattr(spec, FIELD[room])) for _, spec, _, _ in combined for room in ROOMS_APART}
    assert taking_part == set(mechanisms(*ROOMS_APART))
    assert {spec.block.kind for _, spec, _, _ in combined} == set(ROOMS["block"].kinds())


@pytest.mark.parametrize(("room", "kind"), siblings("residual"))
@pytest.mark.parametrize("placement", ROOMS["placement"].kinds())
def test_refused_pairs_are_refused_with_the_reason_and_all_others_are_built(
    room: str, kind: str, placement: str
) -> None:
    residual = ROOMS[room].make(kind)
    normed = [name for name, on in vars(ROOMS["placement"].make(placement).sockets()).items() if on]
    refused = [reason for socket, reason in residual.refused_sockets().items() if socket in normed]
    if not refused:
        shrunk(ModelSpec(residual=residual, placement=ROOMS["placement"].make(placement)))
        return
    with pytest.raises(
        InputError, match=rf"expected no norm in the socket .* with residual '{kind}', because {refused[0]}"
    ):
        ModelSpec(residual=residual, placement=ROOMS["placement"].make(placement))
