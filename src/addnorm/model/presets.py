"""Named models: those of the textbooks, and every model of Kuang (2025) under its own name."""

import importlib
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from typing import Any, get_args, get_type_hints

from addnorm.bias import Biases
from addnorm.catalogue import MECHANISM_ROOMS, ROOMS, Spec
from addnorm.earlier_fields import as_now
from addnorm.errors import InputError, UnknownName, did_you_mean
from addnorm.model.architecture import Dropout
from addnorm.model.convolution import Convolution
from addnorm.model.forgetting import Forgetting
from addnorm.model.sharing import LayerSharing
from addnorm.model.shipped_presets import SHIPPED_PRESETS
from addnorm.model.spec import ModelSpec
from addnorm.residual import ResidualSpec


def _base_class(room: str) -> type[Spec]:
    """The class of all specs of a room."""
    base: type[Spec] = getattr(importlib.import_module(ROOMS[room].package), ROOMS[room].base)
    return base


_make = {room: ROOMS[room].make for room in MECHANISM_ROOMS}


def _gpt1() -> ModelSpec:
    """Radford et al. 2018: post-norm, learned positions, GELU, biases everywhere, tied."""
    return replace(_gpt2(), placement=_make["placement"]("post"), max_seq=512, vocab=40_478, init_branch="same")


def _gpt2() -> ModelSpec:
    """Radford et al. 2019, 124 M: pre-norm, learned positions, GELU, biases everywhere, tied."""
    return ModelSpec(
        vocab=50_257,
        width=768,
        depth=12,
        heads=12,
        hidden=3072,
        max_seq=1024,
        norm=_make["norm"]("layer"),
        placement=_make["placement"]("pre"),
        position=_make["position"]("learned"),
        bias=Biases.all(True, head=False),
        activation="gelu",
        tied=True,
        dropout=Dropout.all(0.1),
        init_branch="depth",
    )


def _bert() -> ModelSpec:
    """Devlin et al. 2018, base: post-norm with a norm on the embeddings, masked, biases everywhere, tied.

    Differs from the source: no segment embeddings, and the head has no transform layer of its own.
    """
    return replace(
        _gpt2(),
        objective="masked",
        vocab=30_522,
        max_seq=512,
        placement=_make["placement"]("post", embedding=True),
        bias=Biases.all(True),
        init_branch="same",
    )


def _realformer() -> ModelSpec:
    """He et al. 2020 on BERT-base: post-norm and summed scores."""
    return replace(_bert(), scores=_make["scores"]("sum"))


def _llama() -> ModelSpec:
    """Touvron et al. 2023, 7 B: pre-norm RMS, rotary positions, SwiGLU, no biases, untied, no dropout."""
    return ModelSpec(width=4096, depth=32, heads=32, hidden=11_008, max_seq=2048)


def _qwen3() -> ModelSpec:
    """Yang et al. 2025, arXiv:2505.09388, 8 B: pre-norm RMS, a norm on queries and keys, grouped queries, no biases, untied."""
    rms = _make["norm"]("rms", eps=1e-6)
    return ModelSpec(
        vocab=151_936,
        width=4096,
        depth=36,
        heads=32,
        kv_heads=8,
        hidden=12_288,
        max_seq=40_960,
        norm=rms,
        qk_norm=rms,
        position=_make["position"]("rope", theta=1e6),
    )


def _gpt_oss() -> ModelSpec:
    """OpenAI 2025, gpt-oss-20b, arXiv:2508.10925: a learned sink per head, grouped queries, biases, untied.

    Differs from the source: one feed-forward branch instead of experts, every layer sees the whole sequence, heads divide the
    width, positions are plain rotary ones, and SwiGLU is neither clamped nor shifted.
    """
    return ModelSpec(
        vocab=201_088,
        width=2880,
        depth=24,
        heads=45,
        kv_heads=9,
        hidden=2880,
        max_seq=4096,
        sink=_make["sink"]("logit"),
        position=_make["position"]("rope", theta=150_000.0),
        bias=Biases.all(True, norm=False, head=False),
    )


def _gpt_neox() -> ModelSpec:
    """Black et al. 2022, arXiv:2204.06745, 20 B: parallel branches with a norm each, partly rotary positions, untied."""
    return ModelSpec(
        vocab=50_432,
        width=6144,
        depth=44,
        heads=64,
        hidden=24_576,
        block=_make["block"]("parallel", norms="two"),
        norm=_make["norm"]("layer"),
        position=_make["position"]("rope", fraction=0.25),
        bias=Biases.all(True, head=False),
        activation="gelu",
    )


def _gpt_j() -> ModelSpec:
    """Wang and Komatsuzaki 2021, GPT-J 6 B: parallel branches that share a norm, partly rotary positions, untied."""
    return ModelSpec(
        vocab=50_400,
        width=4096,
        depth=28,
        heads=16,
        hidden=16_384,
        block=_make["block"]("parallel", norms="one"),
        norm=_make["norm"]("layer"),
        position=_make["position"]("rope", fraction=0.25),
        bias=Biases(up=True, down=True, head=True, norm=True),
        activation="gelu_tanh",
    )


def _gemma2() -> ModelSpec:
    """Gemma Team 2024, Gemma 2, arXiv:2408.00118, 2 B: sandwich norms, GEGLU, grouped queries, capped scores and logits, tied.

    Every second layer sees 4096 positions. Differs from the source: heads divide the width; a norm's gain starts at one and
    decays towards zero, where the source writes one plus a number.
    """
    return ModelSpec(
        vocab=256_128,
        width=2304,
        depth=26,
        heads=8,
        kv_heads=4,
        hidden=9216,
        max_seq=8192,
        norm=_make["norm"]("rms", eps=1e-6),
        placement=_make["placement"]("sandwich"),
        activation="geglu_tanh",
        tied=True,
        score_cap=50.0,
        windows=(4096, None),
        embedding_factor="root_width",
        logit_cap=30.0,
    )


def _nanochat() -> ModelSpec:
    """Karpathy 2025, nanochat, 20 layers: weights of stream and embeddings, value embeddings, squared ReLU, capped logits.

    Differs from the source: norms have gains, and the embeddings no norm; every layer sees the whole sequence; initial values
    and the optimizer are this library's. Queries and keys have a norm, as in the source.
    """
    return ModelSpec(
        vocab=65_536,
        width=1280,
        depth=20,
        heads=10,
        hidden=5120,
        residual=_make["residual"](
            "lambdas", stream_start=(1.15, 1.05), embedding_start=(0.2, 0.05), backout=True, backout_start=0.2
        ),
        values=_make["values"]("table"),
        qk_norm=_make["norm"]("rms"),
        activation="squared_relu",
        logit_cap=15.0,
    )


def _deepseek_mhc() -> ModelSpec:
    """Xie et al. 2025, mHC, arXiv:2512.24880: four streams whose mixing is made doubly stochastic, pre-norm RMS, untied.

    Differs from the source: plain attention and one feed-forward branch instead of latent attention and experts; of the sizes,
    only the number of streams is the source's.
    """
    return ModelSpec(
        vocab=129_280,
        width=2560,
        depth=24,
        heads=20,
        hidden=6912,
        max_seq=4096,
        residual=_make["residual"]("streams", streams=4, mixing="sinkhorn", rounds=20),
        norm=_make["norm"]("rms", eps=1e-6),
    )


def _gau_alpha() -> ModelSpec:
    """Su 2022, GAU-α base, as Su (2023) trains it: causal, post-norm RMS, rotary, 24 units in 12 pairs, no biases, tied.

    Differs from the source: the norms have a gain, attention is the plain softmax (there its temperature depends on the
    length), matrices start normal as in all presets; the rate of dropout is not known and none here.
    """
    return ModelSpec(
        vocab=12_000,
        width=768,
        depth=12,
        heads=1,
        hidden=1536,
        max_seq=512,
        block=_make["block"]("gau"),
        placement=_make["placement"]("post"),
        tied=True,
    )


def _base() -> ModelSpec:
    """Kuang's (2025) baseline: Llama-type, 51.7 M parameters, grouped queries."""
    return ModelSpec(width=512, depth=8, heads=8, kv_heads=4, hidden=1024, max_seq=2048)


def _of_kuang_2025(about: str, residual: ResidualSpec | None = None, scores: str = "own") -> Callable[[], ModelSpec]:
    def build() -> ModelSpec:
        join = residual or _make["residual"]("add")
        return replace(_base(), residual=join, scores=_make["scores"](scores))

    build.__doc__ = about
    return build


PRESETS: dict[str, Callable[[], ModelSpec]] = {
    "gpt1": _gpt1,
    "gpt2": _gpt2,
    "bert": _bert,
    "llama": _llama,
    "realformer": _realformer,
    "gau_alpha": _gau_alpha,
    "qwen3": _qwen3,
    "gpt_oss": _gpt_oss,
    "gpt_neox": _gpt_neox,
    "gpt_j": _gpt_j,
    "gemma2": _gemma2,
    "nanochat": _nanochat,
    "deepseek_mhc": _deepseek_mhc,
    **SHIPPED_PRESETS,
    "base": _base,
    "v2m1": _of_kuang_2025(
        "Kuang (2025) V2M1: `base` with the mean of all feed-forward outputs so far.",
        residual=_make["residual"]("cumulative", weights="mean"),
    ),
    "v2m3": _of_kuang_2025(
        "Kuang (2025) V2M3: `base` with a learned mean of all feed-forward outputs so far.",
        residual=_make["residual"]("cumulative", weights="softmax"),
    ),
    "v3m1": _of_kuang_2025(
        "Kuang (2025) V3M1: `base` whose earlier layers run again on the present input, summed.",
        residual=_make["residual"]("replay", weights="sum"),
    ),
    "v3m3_1": _of_kuang_2025(
        "Kuang (2025) V3M3.1: `base` whose earlier layers run again on the present input, averaged.",
        residual=_make["residual"]("replay", weights="mean"),
    ),
    "v3m3_2": _of_kuang_2025(
        "Kuang (2025) V3M3.2: `base` whose earlier layers run again on the present input, with learned weights.",
        residual=_make["residual"]("replay", weights="softmax"),
    ),
    "v4m1": _of_kuang_2025(
        "Kuang (2025) V4M1: `base` with the sum of all layers' scores, as in RealFormer.", scores="sum"
    ),
    "v4m2": _of_kuang_2025(
        "Kuang (2025) V4M2: `base` with the sum of all layers' scores over the root of their number.",
        scores="root_mean",
    ),
    "v4m3": _of_kuang_2025("Kuang (2025) V4M3: `base` with the mean of all layers' scores.", scores="mean"),
    "v4m4": _of_kuang_2025(
        "Kuang (2025) V4M4: `base` with summed scores and learned powers of head width and depth.", scores="power"
    ),
    "v4m5": _of_kuang_2025(
        "Kuang (2025) V4M5: `base` with summed scores and a learned divisor for each pair of layers.", scores="weighted"
    ),
    "v4m6": _of_kuang_2025(
        "Kuang (2025) V4M6: `base` with summed scores, a learned divisor and a learned power for each pair of layers.",
        scores="weighted_power",
    ),
    "v4m7": _of_kuang_2025(
        "Kuang (2025) V4M7: `v4m5` without the division by the root of the head width.", scores="free"
    ),
}

_HINTS = get_type_hints(ModelSpec)
ROOM_OF_FIELD = {
    field: room
    for field, hint in _HINTS.items()
    for room in MECHANISM_ROOMS
    if _base_class(room) in (hint, *get_args(hint))
}
"""The room of each field of `ModelSpec` that holds a mechanism or may hold one, from the field's annotation."""
FIELD_OF_ROOM = {room: field for field, room in ROOM_OF_FIELD.items() if _HINTS[field] is _base_class(room)}
"""The field of `ModelSpec` that always holds a mechanism of the room."""


def belongs(parameter: str, room: str) -> bool:
    """True for the name of a parameter of a mechanism of the room: a norm's module is an `input_norm`, …, a bias's one of a
    branch's body."""
    field = FIELD_OF_ROOM[room]
    return f".{field}." in f".{parameter}" or f"_{field}." in parameter


def preset(name: str, **overrides: Any) -> ModelSpec:
    """Make the spec of a named model, with any of its fields changed.

    Args:
        name: see `PRESETS`; `addnorm list preset` prints them.
        overrides: fields of `ModelSpec`. A mechanism is given as a spec (`Scale(alpha=0.3)`), as its kind (`"rezero"`), or as a
            mapping (`{"kind": "scale", "alpha": 0.3}`); `dropout` also as one rate, `bias` also as one switch for all or
            as a mapping of switches to change.

    Raises:
        UnknownName: no such preset or kind.
        InputError: no such field, or sizes that do not fit together.

    Example:
        >>> spec = preset("llama", vocab=64, width=32, depth=2, heads=4, hidden=64, max_seq=16, residual="rezero")
        >>> spec.residual.kind, spec.placement.kind
        ('rezero', 'pre')
    """
    if name not in PRESETS:
        raise UnknownName("preset", name, PRESETS)
    spec = PRESETS[name]()
    known = [field.name for field in fields(ModelSpec)]
    changes = {}
    for key, value in as_now(ModelSpec, overrides).items():
        if key not in known:
            raise InputError(f"a model has no field {key!r}.{did_you_mean(key, known)} Known: {', '.join(known)}.")
        changes[key] = _as_field(key, value, spec)
    return replace(spec, **changes)


def _as_field(key: str, value: Any, spec: ModelSpec) -> Any:
    if key in ROOM_OF_FIELD:
        room = ROOMS[ROOM_OF_FIELD[key]]
        if isinstance(value, str):
            return room.make(value)
        if isinstance(value, Mapping):
            if "kind" not in value:
                raise InputError(f"{key} as a mapping needs a 'kind'. Known: {', '.join(room.kinds())}.")
            return room.make(value["kind"], **{k: v for k, v in value.items() if k != "kind"})
    if key == "dropout" and isinstance(value, int | float):
        return Dropout.all(float(value))
    if key == "forgetting" and isinstance(value, Mapping):
        return Forgetting(**_known(value, Forgetting, "forgetting has no field"))
    if key == "convolution" and isinstance(value, Mapping):
        made = {k: tuple(v) if isinstance(v, list) else v for k, v in value.items()}
        return Convolution(**_known(made, Convolution, "convolution has no field"))
    if key == "sharing" and isinstance(value, Mapping):
        return LayerSharing(**_known(value, LayerSharing, "sharing has no field"))
    if key == "bias":
        if isinstance(value, bool):
            return Biases.all(value)
        if isinstance(value, Mapping):  # switches to change
            return replace(spec.bias, **_known(value, Biases, "bias has no switch"))
    return tuple(value) if key == "windows" and isinstance(value, list) else value


def _known(changes: Mapping[str, Any], cls: type[Any], complaint: str) -> Mapping[str, Any]:
    known = [field.name for field in fields(cls)]
    for name in changes:
        if name not in known:
            raise InputError(f"{complaint} {name!r}.{did_you_mean(name, known)} Known: {', '.join(known)}.")
    return changes
