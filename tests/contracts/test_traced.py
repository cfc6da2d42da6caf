"""Every sibling in every setting exports and compiles, to the same numbers."""

import copy
from collections.abc import Iterator
from typing import Any, get_args

import pytest
import torch
from siblings import mechanisms
from tracing import compiles, exports

from addnorm import preset
from addnorm.bias import Biases
from addnorm.catalogue import MECHANISM_ROOMS
from addnorm.errors import InputError
from addnorm.kernels.grouped_attention import Normalisation
from addnorm.model.feed_forward import Activation
from addnorm.model.presets import FIELD_OF_ROOM as FIELD
from addnorm.model.spec import ModelSpec
from addnorm.testing.contract import shrunk
from sampled import sampled

pytestmark = pytest.mark.compiled


BODIES: tuple[dict[str, Any], ...] = (
    {"heads": 4, "kv_heads": 2, "activation": "swiglu"},
    {"heads": 1, "kv_heads": None},  # as gated attention units need it
    {"heads": 4, "kv_heads": 4, "activation": "gelu", "tied": True},
    {"heads": 4, "kv_heads": 1, "activation": "relu", "objective": "masked"},
    {"heads": 4, "kv_heads": 2, "activation": "gelu_tanh"},
    {"heads": 4, "kv_heads": 2, "activation": "geglu_tanh", "logit_cap": 5.0},
    {"heads": 4, "kv_heads": 2, "activation": "squared_relu", "normalisation": "softpick", "score_cap": 3.0},
)
"""What a model has besides its mechanisms, taken in turn."""
IN_ONE_PRODUCT = preset("v3m3_2").residual
"""It replays two layers or more in one product."""


def traced() -> list[ModelSpec]:
    """As few models as have every mechanism in every setting: tracing takes seconds, whatever a model is made of."""
    by_room: dict[str, list[Any]] = {room: [spec for _, spec in mechanisms(room)] for room in MECHANISM_ROOMS}
    residuals, waiting = by_room.pop("residual"), {room: [*settings] for room, settings in by_room.items()}
    kinds = {spec.kind: spec for spec in reversed(residuals)}
    residuals = [*kinds.values(), *(spec for spec in residuals if spec not in kinds.values())]
    made = []
    # Gated attention units are the hardest to please, and so they come first.
    by_room = {"block": by_room.pop("block"), **by_room}
    for turn in range(max(len(residuals), *map(len, by_room.values()))):
        parts: dict[str, Any] = {"residual": residuals[turn % len(residuals)], "bias": Biases.all(True)}
        parts["depth"] = 3 if parts["residual"] == IN_ONE_PRODUCT else max(2, getattr(parts["residual"], "block", 2))
        bodies = [BODIES[(turn + shift) % len(BODIES)] for shift in range(len(BODIES))]
        parts |= next(body for body in bodies if _allowed(parts | body))
        for room, settings in by_room.items():
            # A setting that is refused with these waits for the next turn.
            spec = next(spec for spec in waiting[room] + settings if _allowed(parts | {FIELD[room]: spec}))
            parts[FIELD[room]] = spec
            waiting[room] = [other for other in waiting[room] if other != spec]
        made.append(shrunk(ModelSpec(), **parts))
    return made


def _allowed(parts: dict[str, Any]) -> bool:
    try:
        shrunk(ModelSpec(), **parts)
    except InputError:
        return False
    return True


def mechanisms_of(spec: ModelSpec) -> dict[str, Any]:
    return {room: getattr(spec, field) for room, field in FIELD.items()}


def name(spec: ModelSpec) -> str:
    return "-".join(mechanism.kind for mechanism in mechanisms_of(spec).values())


def params() -> Iterator[Any]:
    """Every sibling once; settings of a residual beyond its first, and every other spec, are left to the soak."""
    seen: set[str] = set()
    for at, spec in enumerate(traced()):
        again = spec.residual.kind in seen and spec.residual != IN_ONE_PRODUCT
        seen.add(spec.residual.kind)
        yield pytest.param(spec, id=name(spec), marks=[pytest.mark.soak] if again or at % 2 else [])


@pytest.mark.parametrize("spec", sampled(60, params()))
@pytest.mark.parametrize("law", [exports, compiles], ids=lambda law: law.__name__)
def test_mechanisms_are_traced(spec: ModelSpec, law: Any) -> None:
    law(spec)


def test_every_setting_is_traced() -> None:
    specs = traced()
    assert {item for spec in specs for item in mechanisms_of(spec).items()} == set(mechanisms())
    assert {spec.activation for spec in specs} == set(get_args(Activation))
    assert {spec.normalises_by for spec in specs} == {*get_args(Normalisation)}
    assert {spec.objective for spec in specs} == {"causal", "masked"}
    assert any(spec.tied for spec in specs)
    assert any(spec.residual == IN_ONE_PRODUCT and spec.depth > 2 for spec in specs)


FAMILIES: dict[str, dict[str, Any]] = {
    "one stream, tables": {
        "residual": "variance_keeping",
        "block": "token_tables",
        "values": "depth_attention",
        "qk_norm": "clip",
    },
    "streams with gates, sinks": {"residual": "gated_streams", "norm": "gated", "sink": "query", "values": "normed"},
    "balanced streams, bank": {
        "residual": {"kind": "hyper_connections", "streams": 2},
        "position": "relative_bank",
        "attended": "hybrid_gate",
    },
    "attention over depth, convolutions": {
        "residual": "block_attention",
        "convolution": {"positions": 3},
        "position": {"kind": "interleaved_rope", "every": 2},
    },
    "alternating updates": {"residual": {"kind": "altup", "streams": 2, "rank": 2}},
}
"""Joints of shipped architectures, of each family at least one."""


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch itself, when its compiler is imported
@pytest.mark.thorough  # inductor writes and compiles C++ for half a minute; the other families take a minute each
@pytest.mark.parametrize(
    "fields",
    [
        pytest.param(each, id=name, marks=[] if name == "attention over depth, convolutions" else pytest.mark.soak)
        for name, each in FAMILIES.items()
    ],
)
def test_inductor_has_the_logits_and_gradients_of_each_family(fields: dict[str, Any]) -> None:
    """Training through inductor is no further from float64 than four times the model as it is."""
    spec = preset("llama", vocab=23, width=16, depth=2, heads=2, hidden=12, max_seq=16, **fields)
    tokens = torch.randint(23, (2, 9), generator=torch.Generator().manual_seed(0))
    model = spec.build(seed=0)
    results = {}
    for name, each in (("exact", copy.deepcopy(model).double()), ("eager", model), ("inductor", copy.deepcopy(model))):
        torch._dynamo.reset()
        run = torch.compile(each, fullgraph=True) if name == "inductor" else each
        logits = run(tokens)
        logits.square().mean().backward()
        gradients = {key: value.grad for key, value in each.named_parameters() if value.grad is not None}
        results[name] = gradients | {"logits": logits.detach()}
    assert results["inductor"].keys() == results["exact"].keys()
    for key, exact in results["exact"].items():
        own = float((results["eager"][key] - exact).abs().max())
        # A sum in another order may round where the model's own happens to be exact.
        bound = 4 * own + 32 * torch.finfo(torch.float32).eps * float(exact.abs().max())
        assert float((results["inductor"][key] - exact).abs().max()) <= bound, key


@pytest.mark.soak  # each part of a preset is traced above
@pytest.mark.parametrize("preset_name", ["gpt2", "bert", "realformer", "v3m3_2", "gau_alpha"])
def test_preset_exports_and_compiles(preset_name: str) -> None:
    spec = shrunk(preset(preset_name), depth=3)
    exports(spec)
    compiles(spec, "aot_eager")
