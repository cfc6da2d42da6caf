"""Families of learned numbers: those of one mechanism over all layers, which are tested together."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats

from addnorm.catalogue import JOINT_ROOMS, MECHANISM_ROOMS, ROOMS, family_of
from addnorm.errors import InputError
from addnorm.insight.ablation import group_of, room_of
from addnorm.insight.scalars.over_seeds import over_seeds
from addnorm.insight.scalars.scalar import LearnedScalar
from addnorm.model.presets import FIELD_OF_ROOM, belongs
from addnorm.model.transformer import Transformer
from addnorm.testing.contract import tiny
from sampled import sampled

NAMES = {
    "scores.log_a.3": "scores.log_a",
    "layers.2.gate.bias": "gate.bias",
    "residual.gates.3.static": "residual.gates.static",
    "residual.input_norms.0.weight": "residual.input_norms.weight",
    "residual.layers.0.static": "residual.layers.static",
    "module.layers.11.mix.0.scale": "module.layers.mix.scale",
    "residual.alpha2": "residual.alpha2",
}


@pytest.mark.parametrize(("name", "family"), NAMES.items())
def test_a_family_has_no_numbers_of_layers(name: str, family: str) -> None:
    assert family_of(name) == family


def model_of(room: str, kind: str, depth: int) -> Transformer:
    with torch.device("meta"):
        return Transformer(tiny(room, ROOMS[room].spec_class(kind)(), depth=depth))


@pytest.mark.parametrize("room", MECHANISM_ROOMS)
def test_the_families_of_a_mechanism_do_not_depend_on_the_depth(room: str) -> None:
    compared = 0
    for kind in ROOMS[room].kinds():
        try:
            models = [model_of(room, kind, depth) for depth in (8, 4)]
        except InputError:
            continue  # a mechanism of one depth
        deep, shallow = ({family_of(name) for name, _ in model.named_parameters()} for model in models)
        assert shallow == deep, kind
        names = [name for name, _ in models[1].named_parameters()]
        assert not any(part.isdigit() for name in deep for part in name.split("."))
        own = [name for name in names if belongs(name, room)]
        if room in JOINT_ROOMS:
            assert own == [name for name in names if room_of(name) == room]
            assert all(family_of(name).endswith(group_of(name, room).removeprefix(f"{room}.")) for name in own)
            compared += len(own)
    assert compared > 0 or room not in ("residual", "scores", "values")


def test_parts_of_other_rooms_do_not_belong() -> None:
    assert belongs("layers.0.attention.input_norm.weight", "norm")
    assert belongs("residual.alpha.3", "residual")
    assert not belongs("layers.0.attention.input_norm.weight", "residual")
    assert not belongs("layers.0.attention.body.query.weight", "bias")
    assert {FIELD_OF_ROOM[room] for room in JOINT_ROOMS} >= {"residual", "scores", "values"}


@pytest.mark.parametrize(
    "pattern", sampled(3, ["residual.gates.{}.static", "residual.input_norms.{}.weight", "scores.log_a.{}"])
)
def test_noise_in_all_layers_departs_in_one_of_twenty_studies(pattern: str) -> None:
    """Holm's level is that of a family: tested layer by layer, about half of all studies would show a departure."""
    rng, studies, names = np.random.default_rng(0), 100, [(pattern.format(i), j) for i in range(12) for j in range(8)]
    departed = 0
    for _ in range(studies):
        runs: list[Any] = []
        for values in rng.normal(size=(5, len(names))).tolist():
            scalars = [
                LearnedScalar(
                    parameter=name,
                    layer=None,
                    index=(place,),
                    effective=value,
                    init=0.0,
                    final=value,
                    decay_only=0.0,
                    decay_move=0.0,
                    gradient_move=value,
                    snr=1.0,
                    driven=True,
                )
                for (name, place), value in zip(names, values, strict=True)
            ]
            verdicts = ["learned"] * len(names)
            runs.append(
                SimpleNamespace(
                    variant="noise", scalars=scalars, directions=(), steps=1, verdicts=lambda of=verdicts: of
                )
            )
        rows, counted = over_seeds(runs)
        assert [row["parameter"] for row in counted] == [family_of(pattern.format(0))]
        departed += any(row["verdict"] == "learned" for row in rows)
    assert departed <= stats.binom.ppf(0.9999, studies, 0.05)
