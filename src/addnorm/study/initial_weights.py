"""Weights of an exported model as the start of a training: `training.init_from`.

Parameters that the export lacks must belong to a mechanism that joins layers, at its neutral start, so that the model computes
at first what it would compute without the mechanism.
"""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from addnorm.catalogue import Spec
from addnorm.errors import InputError
from addnorm.model.neutral import PATCHABLE, Start, every_field, neutral_start
from addnorm.model.presets import FIELD_OF_ROOM
from addnorm.model.transformer import Transformer
from addnorm.study.definition import RunSpec
from addnorm.study.foreign import ForeignModel

_WEIGHTS, _OF_A_RUN = "model.safetensors", "final.safetensors"


def weights_hash(folder: str) -> str:
    """SHA-256 of the weights in an exported model's folder, as hex digits, which a run's identity contains.

    Raises:
        InputError: they cannot be read.
    """
    path = _weights(folder)
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise InputError(
            f"training.init_from: {path}: cannot be read: {error.strerror}. Give a finished run, or a folder made by `addnorm "
            "export RUN`."
        ) from error


def initial_model(spec: RunSpec) -> Transformer | ForeignModel:
    """The model of a run before the first step: from the seed, and from the weights that its training starts from.

    Raises:
        InputError: those weights are missing, or belong to another model.
    """
    model = spec.model.build(spec.seed)
    if isinstance(model, Transformer) and spec.training.init_from is not None:
        start_from(model, spec.training.init_from)
    return model


def require_start(model: Transformer, folder: str) -> None:
    """Check that a model, possibly on the meta device, can start from these weights.

    Raises:
        InputError: as `start_from`.
    """
    with _opened(folder) as file:
        shapes = {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118  not a mapping
    _starts(model, shapes, folder)


@torch.no_grad()
def start_from(model: Transformer, folder: str) -> None:
    """Give a model the weights of an export, and mechanisms that the exported model lacks their neutral start.

    Raises:
        InputError: the file is missing, or belongs to another model; or a mechanism does not begin as the plain one.
    """
    with _opened(folder) as file:
        weights: dict[str, Tensor] = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  not a mapping
    # Everything is checked before the first number is copied: a model that is half the export and half new would train
    # without an error.
    starts = _starts(model, {name: tuple(tensor.shape) for name, tensor in weights.items()}, folder)
    for name, value in model.state_dict().items():
        if name in weights:
            value.copy_(weights[name])
    for field, start in starts.items():
        mechanism: nn.Module = getattr(model, field)
        start.fill(mechanism)


def _weights(folder: str) -> Path:
    """The weights of an exported model, or of a finished run."""
    run = Path(folder) / _OF_A_RUN
    return run if run.is_file() else Path(folder) / _WEIGHTS


def _opened(folder: str) -> Any:
    path = _weights(folder)
    try:
        return safe_open(path, framework="pt")
    except (OSError, SafetensorError) as error:
        raise InputError(
            f"training.init_from: {path}: expected weights, got an error: {error}. Give a finished run, or a folder made by "
            "`addnorm export RUN`."
        ) from error


def _starts(model: Transformer, shapes: Mapping[str, tuple[int, ...]], folder: str) -> dict[str, Start]:
    """The neutral starts of the mechanisms that the weights lack, by field."""
    own = {name: tuple(value.shape) for name, value in model.state_dict().items()}
    different = next((name for name in own if name in shapes and own[name] != shapes[name]), None)
    if different is not None:
        raise InputError(
            f"training.init_from: {folder}: {different}: expected shape {list(own[different])}, got {list(shapes[different])}. "
            "Take the sizes, the tokenizer and max_seq of the exported model."
        )
    superfluous = sorted(set(shapes) - set(own))
    lacking = sorted(set(own) - set(shapes))
    room_of = {FIELD_OF_ROOM[room]: room for room in PATCHABLE}
    foreign = [name for name in lacking if name.partition(".")[0] not in room_of]
    if superfluous or foreign:
        wrong = f"also {superfluous[0]}" if superfluous else f"no {foreign[0]}"
        raise InputError(
            f"training.init_from: {folder}: expected the parameters of this variant, got {wrong}. Only "
            f"{', '.join(PATCHABLE)} may differ from the exported model."
        )
    return {
        field: _start(field, room_of[field], model)
        for field in dict.fromkeys(name.partition(".")[0] for name in lacking)
    }


def _start(field: str, room: str, model: Transformer) -> Start:
    spec: Spec = getattr(model.spec, field)
    advised = neutral_start(room, spec)
    try:
        return neutral_start(room, every_field(spec))
    except InputError as error:
        raise InputError(
            f"training.init_from: {field}: expected a mechanism that begins as the plain one, because the weights lack it, got "
            f"{spec}. Set it to {advised.spec}."
        ) from error
