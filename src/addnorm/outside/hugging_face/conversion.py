"""Specs as config.json and back, parameters as weights and back, by the table of one class."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from addnorm.earlier_fields import as_now
from addnorm.errors import AddnormError, InputError, did_you_mean
from addnorm.model.architecture import Architecture
from addnorm.model.spec import ModelSpec
from addnorm.model.transformer import Transformer
from addnorm.outside.hugging_face.checkpoint import advice_on_missing
from addnorm.outside.hugging_face.classes import CheckpointTensor, ConfigConstant, ConfigField, ForeignClass
from addnorm.outside.hugging_face.unused import require_known_fields, require_redundant, switches_of
from addnorm.study.decoding import decode
from addnorm.study.encoding import encode

_MISSING: Any = object()


def config_of(cls: type[ForeignClass], spec: ModelSpec) -> dict[str, Any]:
    """Make the fields of config.json of a spec; what the class cannot say is left out."""
    plain = as_now(ModelSpec, encode(spec)) | {"kv_heads": spec.shape.kv_heads}
    config: dict[str, Any] = {}
    for field in cls.fields:
        value = _written(field, _get(plain, field.ours), config)
        for path in (field.theirs, *field.also, *field.echoes):
            earlier = _get(config, path)
            # A switch of several biases is on if one of them is.
            _set(config, path, value or earlier if isinstance(value, bool) and earlier is not _MISSING else value)
    for constant in cls.constants:
        _set(config, constant.theirs, constant.values[0])
    return config


def spec_of(cls: type[ForeignClass], config: Mapping[str, Any], where: str) -> ModelSpec:
    """Make the spec of a config.json.

    Raises:
        InputError: the class is not what our model is, or fields are missing, contradict each other or are unknown.
    """
    # From the outside in. The table is right only for a class with these constants, and only if no field that nobody
    # reads makes it another model; values are read after both.
    for constant in (*cls.constants, *switches_of(cls)):
        _require_constant(constant, config, where)
    require_known_fields(cls, config, where)
    plain: dict[str, Any] = {}
    for path, value in cls.fixed.items():
        _set(plain, path, value)
    for field in cls.fields:
        _set(plain, field.ours, _read(field, config, where))
    spec = decode(ModelSpec, plain, path=f"{where} as a spec: $")
    if config.get("head_dim") not in (None, spec.shape.head_dim):
        raise InputError(
            f"{where}: $.head_dim: expected hidden_size / num_attention_heads = {spec.width} / {spec.heads}, got "
            f"{config['head_dim']}. No model of addnorm has heads of another width."
        )
    return spec


def weights_of(cls: type[ForeignClass], spec: ModelSpec, parameters: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Make the checkpoint's tensors from our parameters.

    Args:
        cls: the class.
        spec: as the class has it, with all of its biases; see `recognition`.
        parameters: of the model. Parameters that the class has beyond these are zeros.
    """
    reference = _shapes(spec)
    dtype = next(iter(parameters.values())).dtype
    weights, used = {}, set[str]()
    for weight, theirs, ours in _present(cls, spec, reference):
        parts = [
            parameters[name] if name in parameters else torch.zeros(reference[name].shape, dtype=dtype) for name in ours
        ]
        used.update(ours)
        weights[theirs] = weight.form.join(parts, spec).contiguous()
        if theirs == weight.if_untied:
            weights[weight.theirs] = weights[theirs].clone()
    # A parameter without a line would be lost without a word, and the written model would compute something else.
    left = set(parameters) - used - ({"head.weight"} if spec.tied else set())
    if left:
        raise AddnormError(f"{cls.__name__}: expected a line for every parameter, got none for {sorted(left)}.")
    return weights


def parameters_of(
    cls: type[ForeignClass], spec: ModelSpec, weights: Mapping[str, Tensor], where: Path
) -> dict[str, Tensor]:
    """Make our parameters from a checkpoint's tensors.

    Raises:
        InputError: a tensor is missing, superfluous, of another shape, or another one than config.json says.
    """
    given, weights = weights, _prefixed(cls, weights)
    reference = _shapes(spec)
    parameters, used = dict[str, Tensor](), set[str]()
    for weight, theirs, ours in _present(cls, spec, reference):
        # The shape that the file must have, by the same rule that writes it, on tensors without memory: there is no
        # second description of shapes that could disagree.
        expected = weight.form.join([reference[name] for name in ours], spec).shape
        if theirs not in weights:
            head = (
                ours == ("head.weight",)
                and ' If it is the embedding, write "tie_word_embeddings": true into config.json.'
            )
            raise InputError(
                f"{where}: expected a tensor {theirs} of shape {list(expected)}, got none."
                f"{advice_on_missing([theirs], given) or head or did_you_mean(theirs, weights)} "
                f"config.json and weights must belong to one {cls.architecture}."
            )
        tensor = weights[theirs]
        if tensor.shape != expected:
            raise InputError(
                f"{where}: {theirs}: expected shape {list(expected)} by config.json, got {list(tensor.shape)}. Copy both "
                "files from one model."
            )
        used.add(theirs)
        parameters |= zip(ours, (part.contiguous() for part in weight.form.split(tensor, spec)), strict=True)
    require_redundant(cls, spec, weights, set(weights) - used, where)
    if spec.tied:
        parameters["head.weight"] = parameters["embedding.weight"]
    return parameters


def _present(
    cls: type[ForeignClass], spec: ModelSpec, reference: Mapping[str, Tensor]
) -> Iterator[tuple[CheckpointTensor, str, tuple[str, ...]]]:
    """The lines of the table that a model with these parameters has, with their name and ours."""
    for weight in cls.weights:
        for theirs, ours in weight.names(spec.depth, spec.tied):
            if ours == ("head.weight",) and spec.tied:
                continue
            if all(name in reference for name in ours):
                yield weight, theirs, ours


def _prefixed(cls: type[ForeignClass], weights: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    prefix = cls.optional_prefix
    if not prefix or any(name.startswith(prefix) for name in weights):
        return weights
    return {prefix + name: tensor for name, tensor in weights.items()}


def meta_model(spec: Architecture) -> Transformer:
    """Build a model without memory for its parameters."""
    with torch.device("meta"):
        return Transformer(spec)


def linear_parameters(model: nn.Module) -> dict[str, Tensor]:
    """The parameters of a model, with q/k biases of any shape written out as those of a linear layer."""
    parameters = {name: value.detach() for name, value in model.state_dict().items()}
    for path, module in model.named_modules():
        if path.endswith(".qk_bias"):
            for name in [name for name in parameters if name.startswith(f"{path}.")]:
                del parameters[name]
            vectors: Any = module
            for name, vector in zip("qk", vectors.vectors(), strict=True):
                if vector is not None:
                    parameters[f"{path}.{name}"] = vector.detach()
    return parameters


def _shapes(spec: Architecture) -> dict[str, Tensor]:
    return dict(meta_model(spec).state_dict())


def _written(field: ConfigField, value: Any, config: Mapping[str, Any]) -> Any:
    default = field.default(config) if callable(field.default) else field.default
    if value is _MISSING or value is None:
        return default
    if field.names:
        return next((theirs for theirs, ours in field.names.items() if ours == value), default)
    return value


def _read(field: ConfigField, config: Mapping[str, Any], where: str) -> Any:
    paths = (*field.also, *field.read, field.theirs)
    path, value = next(iter(_given(config, paths)), (field.theirs, None))
    if value is None:
        if field.default is None:
            raise InputError(f"{where}: $: expected a field {field.theirs!r}, got none. Copy the whole config.json.")
        value = field.default(config) if callable(field.default) else field.default
    # Versions of Transformers, and other programs, read one or another of these fields. Where they contradict each
    # other, each program would build another model, and none of them is the right one.
    for other, contents in _given(config, (*paths, *field.echoes)):
        if contents != value:
            raise InputError(
                f"{where}: $.{other}: expected {value!r} as in $.{path}, got {contents!r}, of which a program may take either. "
                "Remove the one that the model was not trained with."
            )
    if field.names:
        if value not in [*field.names]:  # lists are not hashable
            raise InputError(
                f"{where}: $.{path}: expected one of {', '.join(map(repr, field.names))}, got {value!r}, which no model of "
                "addnorm has."
            )
        return field.names[value]
    return value


def _given(config: Mapping[str, Any], paths: tuple[str, ...]) -> list[tuple[str, Any]]:
    """The paths that hold a value, with it."""
    return [(path, value) for path in paths if (value := _get(config, path)) not in (_MISSING, None)]


def _require_constant(constant: ConfigConstant, config: Mapping[str, Any], where: str) -> None:
    for path in (constant.theirs, *constant.read):
        value = _get(config, path)
        # A field that is absent has the class's default, which may be the wrong value just as well.
        value = constant.default if value is _MISSING else value
        entries = value if isinstance(value, list) else [value]
        if any(entry not in constant.values for entry in entries):
            because = f": {constant.meaning}" if constant.meaning else ""
            raise InputError(
                f"{where}: $.{path}: expected {constant.values[0]!r}, got {value!r}{because}. `addnorm audit` and "
                "`addnorm inspect --terms` take such a checkpoint as it is."
            )


def _get(plain: Mapping[str, Any], path: str) -> Any:
    """The value at a path, or `_MISSING`."""
    value: Any = plain
    for name in path.split("."):
        if not isinstance(value, Mapping) or name not in value:
            return _MISSING
        value = value[name]
    return value


def _set(plain: dict[str, Any], path: str, value: Any) -> None:
    *parents, last = path.split(".")
    for name in parents:
        plain = plain.setdefault(name, {})
    plain[last] = value
