"""Every parameter of the whole catalogue has a role, and weight decay reaches matrices alone."""

import copy
import re
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from siblings import mechanisms, name
from torch import nn

from addnorm import preset
from addnorm.bias import Biases
from addnorm.catalogue import ROOMS, Spec
from addnorm.errors import InputError
from addnorm.model.presets import FIELD_OF_ROOM as FIELD
from addnorm.model.presets import PRESETS
from addnorm.model.spec import ModelSpec
from addnorm.model.transformer import Transformer
from addnorm.optimization.optimizers import OptimizerSpec
from addnorm.residual import Residual
from addnorm.roles import roles
from addnorm.testing.contract import shrunk, tiny

pytestmark = pytest.mark.plain  # names, not shapes

MATRICES = {"embedding", "head", "hidden_matrix"}

EVERYWHERE = {
    r"embedding\.weight": "embedding",
    r"head\.weight": "head",
    r".*_norm\.weight": "vector",
    r".*_norm\.(alpha|offset)": "scalar",
    r".*_norm\.(down|up)": "hidden_matrix",
    r".*\.(query|key)_scale": "vector",
    r".*\.qk_bias\.(q|k|qk)": "bias",
    r".*\.bias": "bias",
    r"layers\..*\.convolution\.\w+\.weight": "vector",
    r"layers\..*\.(query|key|value|output|input|gate|up|down)\.weight": "hidden_matrix",
}
"""Roles by name, written down from the formulas: of what every model has."""
OF_MECHANISMS = {
    "head_scale": {r"layers\..*\.attended\.gamma": "scalar"},
    "gate": {r"(residual|layers\..*\.attended)\.weight": "hidden_matrix"},
    "hybrid_gate": {r"layers\..*\.attended\.(weight|down|up)": "hidden_matrix"},
    "rezero": {r"residual\.alpha": "scalar"},
    "admin": {r"residual\.omega": "vector"},
    "cumulative": {r"residual\.mix\.\d+": "scalar"},
    "replay": {r"residual\.mix\.\d+": "scalar"},
    "weighted": {r"scores\.log_a\.\d+": "scalar"},
    "free": {r"scores\.log_a\.\d+": "scalar"},
    "signed": {r"scores\.weight\.\d+": "scalar"},
    "power": {r"scores\.[ab]": "scalar"},
    "weighted_power": {r"scores\.(log_a|b)\.\d+": "scalar"},
    "learned": {r"position\.table": "embedding"},
    "t5": {r"position\.table": "table"},
    "kerple": {r"position\.(log_r1|log_r2|logit_r2)": "scalar"},
    "gau_additive": {r"position\.[ab]": "vector"},
    "first": {r"values\.(own|first)": "scalar"},
    "table": {r"values\.table\.\d+\.weight": "embedding", r"values\.gate\.\d+": "hidden_matrix"},
    "logit": {r"sink\.logit\.\d+": "scalar"},
    "attention": {r"residual\.(query|gain)": "vector"},
    "streams": {
        r"residual\.(pre|post|offset)": "vector",
        r"residual\.mix": "table",
        r"residual\.weight": "hidden_matrix",
        r"residual\.factor": "scalar",
    },
    "dense": {r"residual\.weights\.\d+": "vector"},
    "dynamic_dense": {
        r"residual\.layers\.\d+\.(up|down)": "hidden_matrix",
        r"residual\.layers\.\d+\.static": "vector",
    },
    "token_tables": {
        r"layers\.\d+\.table\.body\.table\.weight": "embedding",
        r"layers\.\d+\.table\.body\.out\.weight": "hidden_matrix",
    },
    "lambdas": {r"residual\.(stream|embedding|skip|backout)": "scalar"},
    "cross": {r"residual\.gates\.\d+\.(static|gate)": "vector"},
    "low_rank": {r"residual\.(down|up)": "hidden_matrix", r"residual\.norms\.\d+\.weight": "vector"},
    "alternating": {r"residual\.prediction": "table", r"residual\.correction": "vector"},
    "siamese": {r"residual\.reads\.\d+\.(post|pre)\.weight": "vector"},
    "layer_scale": {r"residual\.factor": "vector"},
    "variance_keeping": {r"residual\.gate": "vector"},
    "affine": {r"residual\.(stream|output)_scale": "vector", r"residual\.(stream|output)_shift": "bias"},
    "stream_weight": {r"residual\.weight": "vector"},
    "gated_streams": {r"residual\.gain": "vector", r"residual\.(down|up|inject)": "hidden_matrix"},
    "wide": {r"residual\.beta": "vector"},
    "block_attention": {r"residual\.query": "vector"},
    "kronecker_streams": {
        r"residual\.offset": "vector",
        r"residual\.weight": "hidden_matrix",
        r"residual\.factor": "scalar",
    },
    "initial_state": {r"residual\.mixture": "vector"},
    "hyper_connections": {
        r"residual\.(offset|close_offset)": "vector",
        r"residual\.(weight|close_weight)": "hidden_matrix",
        r"residual\.(factor|close_factor)": "scalar",
    },
    "orthogonal_streams": {
        r"residual\.(pre|post|last|angle)": "vector",
        r"residual\.weight": "hidden_matrix",
        r"residual\.factor": "scalar",
    },
    "altup": {
        r"residual\.(entry|exit|router|down|up)": "hidden_matrix",
        r"residual\.(prediction|correction)": "table",
        r"residual\.(router|input|path)_norms\.\d+\.weight": "vector",
    },
    "relative_bank": {r"position\.reads": "hidden_matrix", r"position\.profiles": "table"},
    "query": {r"sink\.weight": "hidden_matrix"},
}
"""And of mechanisms. One that is not written down here still has to keep the laws below."""
WITHOUT_PARAMETERS = {
    "residual": {"add", "scale", "schedule", "depth_scaled", "none"},
    "scores": {"own", "sum", "mean", "root_mean", "accumulated_projections"},
}


def models() -> Iterator[Any]:
    for room, spec in mechanisms():
        yield pytest.param(tiny(room, spec), id=name(room, spec))
        units = {"block": preset("gau_alpha").block, "bias": Biases.all(True), "heads": 1, FIELD[room]: spec}
        refused = getattr(spec, "separate_reads", False) or (room == "values" and not spec.projects(1))
        if not refused and room != "block":  # one matrix makes all of a unit
            yield pytest.param(shrunk(ModelSpec(**units)), id=f"gau-{name(room, spec)}")
    for preset_name in PRESETS:
        yield pytest.param(shrunk(preset(preset_name)), id=f"preset-{preset_name}")


MODELS = list(models())


def written_down(spec: ModelSpec, parameter: str) -> str | None:
    known = EVERYWHERE.copy()
    for field in FIELD.values():
        part: Any = getattr(spec, field)
        known |= OF_MECHANISMS.get(part.kind, {}) if isinstance(part, Spec) else {}
    return next((role for pattern, role in known.items() if re.fullmatch(pattern, parameter)), None)


def decaying(model: nn.Module, kind: str = "adamw") -> set[str]:
    """Names of the parameters that decay under an optimizer's own settings."""
    optimizer: OptimizerSpec = ROOMS["optimizer"].make(kind, weight_decay=0.1)
    decayed = {id(p) for group in optimizer.groups(model) if group["weight_decay"] for p in group["params"]}
    return {name for name, parameter in model.named_parameters() if id(parameter) in decayed}


@pytest.fixture(scope="module", params=MODELS)
def model(request: pytest.FixtureRequest) -> Transformer:
    """Every model of the catalogue, built once for both tests."""
    return request.param.build()


def test_every_parameter_has_its_role(model: Transformer) -> None:
    spec, role_of = model.spec, roles(model)
    assert list(role_of) == [name for name, _ in model.named_parameters()]
    for parameter, role in role_of.items():
        owner = parameter.partition(".")[0]
        kind = getattr(spec, owner).kind if owner in ("residual", "scores", "values", "sink", "position") else None
        if kind is None or kind in OF_MECHANISMS or kind in WITHOUT_PARAMETERS.get(owner, ()):
            assert role == written_down(spec, parameter), parameter
    # What acts on one number at a time has one axis, or says why it has more.
    several_axes = {name for name, p in model.named_parameters() if p.ndim >= 2 and role_of[name] not in MATRICES}
    assert {name for name in several_axes if written_down(spec, name) is None} == set(), "declare parameter_roles"


def test_decay_reaches_matrices_alone(model: Transformer) -> None:
    expected = {name for name, _ in model.named_parameters() if written_down(model.spec, name) in MATRICES}
    assert decaying(model) == expected
    assert all(model.get_parameter(name).ndim >= 2 for name in expected)
    assert expected >= {name for name, module in linear_maps(model)}


def linear_maps(model: Transformer) -> Iterator[tuple[str, nn.Module]]:
    from addnorm.model.linear import Linear

    for path, module in model.named_modules():
        if isinstance(module, Linear) and not (path == "head" and model.spec.tied):
            yield f"{path}.weight", module


@pytest.mark.parametrize("kind", ROOMS["optimizer"].kinds())
@pytest.mark.parametrize(
    ("room", "sibling", "spared"),
    [
        ("residual", "gate", {"residual.bias"}),
        ("position", "t5", {"position.table"}),
        ("position", "gau_additive", {"position.a", "position.b"}),
    ],
)
def test_no_optimizer_decays_biases_and_tables_of_two_axes(
    kind: str, room: str, sibling: str, spared: set[str]
) -> None:
    model = tiny(room, ROOMS[room].make(sibling)).build()
    assert all(model.get_parameter(name).ndim >= 2 for name in spared)
    assert decaying(model, kind) & spared == set()


class VectorPerSite(Residual):
    """A user's residual that declares nothing, with a part of torch's own."""

    def __init__(self) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(6, 32))
        self.mix = nn.Linear(32, 32)
        self.heads = nn.MultiheadAttention(32, 2, add_bias_kv=True)
        self.norm = nn.LayerNorm([4, 8])
        self.alpha = nn.Parameter(torch.ones(()))

    def write(self, state: Any, y: Any, site: Any) -> Any:
        return state + self.gain[site.index] * self.mix(y)


class TestOfAUser:
    def test_what_nobody_declares_is_no_matrix(self) -> None:
        assert roles(VectorPerSite()) == {
            "gain": "table",
            "alpha": "scalar",
            "mix.weight": "hidden_matrix",
            "mix.bias": "bias",
            "heads.in_proj_weight": "hidden_matrix",
            "heads.in_proj_bias": "bias",
            "heads.bias_k": "bias",
            "heads.bias_v": "bias",
            "heads.out_proj.weight": "hidden_matrix",
            "heads.out_proj.bias": "bias",
            "norm.weight": "vector",
            "norm.bias": "bias",
        }
        assert decaying(VectorPerSite()) == {"mix.weight", "heads.in_proj_weight", "heads.out_proj.weight"}

    def test_a_subclass_adds_to_what_its_base_declares_and_a_copy_keeps_it(self) -> None:
        class Declared(VectorPerSite):
            parameter_roles = {"gain": "vector"}

        class More(Declared):
            parameter_roles = {"mix": "head"}

        stated = roles(copy.deepcopy(More()))
        assert (stated["gain"], stated["mix.weight"], stated["mix.bias"]) == ("vector", "head", "head")

    def test_the_outermost_declaration_is_right(self) -> None:
        class Outer(nn.Module):
            parameter_roles = {"inner.mix.weight": "head", "inner": "table"}

            def __init__(self) -> None:
                super().__init__()
                self.inner = VectorPerSite()

        stated = roles(Outer())
        assert stated.pop("inner.mix.weight") == "head"
        assert set(stated.values()) == {"table"}

    def test_a_name_or_a_role_that_does_not_exist_is_refused(self) -> None:
        class Misspelt(VectorPerSite):
            parameter_roles = {"gian": "vector"}

        with pytest.raises(
            InputError, match=r"^Misspelt\.parameter_roles: expected names of .*, got 'gian'\. Did you mean 'gain'\?"
        ):
            roles(Misspelt())

        class Unknown(VectorPerSite):
            parameter_roles = {"gain": "vectr"}  # type: ignore[dict-item]

        with pytest.raises(InputError, match=r"^no parameter role 'vectr'\. Did you mean 'vector'\? Known: bias, "):
            roles(Unknown())

    def test_a_tied_head_is_the_embedding(self) -> None:
        assert [role for role in roles(shrunk(preset("gpt2")).build()).values() if role == "head"] == []
