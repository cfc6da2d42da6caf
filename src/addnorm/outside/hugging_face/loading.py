"""`addnorm.load_hf`: a Transformers checkpoint as a model of this library."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from addnorm.data.tokenizers import stored_tokenizer
from addnorm.errors import InputError, did_you_mean
from addnorm.model.spec import ModelSpec
from addnorm.model.transformer import Transformer
from addnorm.outside.hugging_face.checkpoint import CONFIG, read_config, read_weights, require_finite
from addnorm.outside.hugging_face.classes import CLASSES, ForeignClass
from addnorm.outside.hugging_face.conversion import meta_model, parameters_of, spec_of
from addnorm.outside.hugging_face.missing import missing_parts
from addnorm.outside.hugging_face.own_class import ARCHITECTURES, MODEL_TYPE, PREFIX, spec_in
from addnorm.outside.hugging_face.shipped.reading import TABLES, load_shipped
from addnorm.outside.hugging_face.tokenizer import FILE as TOKENIZER
from addnorm.outside.hugging_face.unused import require_twin
from addnorm.study.plugins import load_plugins


def load_hf(folder: str | Path, *, plugins: Sequence[str | Path] = ()) -> Transformer:
    """Load a Transformers checkpoint as a model of this library with equal logits, in evaluation mode.

    No code in the folder is executed. Transformers is needed for the classes of docs/shipped-residuals.md alone, whose branches
    are its modules behind our joint.

    Args:
        folder: a checkpoint of a Llama, Qwen2, GPT-2, BERT or GPT-NeoX, of a class of docs/shipped-residuals.md, or
            one that `addnorm export --format hf` wrote.
        plugins: files with the user's own mechanisms that an exported model consists of.

    Returns:
        The model; its parameters have the type of the checkpoint, or float32 if that type is narrower.

    Raises:
        InputError: another architecture, a setting that no model here has, missing or other weights, NaN or infinity in them,
            a field or a tensor that may make it another model, or a plugin of the spec that is not loaded.

    Example:
        >>> model = addnorm.preset("llama", vocab=64, width=32, depth=2, heads=4, hidden=64, max_seq=16).build(seed=0)
        >>> again = addnorm.load_hf(addnorm.save_hf(model, "exported/llama").folder)
        >>> tokens = torch.tensor([[1, 2, 3]])
        >>> torch.equal(model(tokens), again(tokens))
        True
    """
    folder = Path(folder)
    load_plugins([str(path) for path in plugins], Path.cwd())
    config = read_config(folder)
    if config.get("model_type") in TABLES:
        model: Transformer = load_shipped(folder, config)
    else:
        spec, cls = hf_spec(folder)
        weights, where = read_weights(folder)
        require_finite(weights.items(), where)
        model = _model(spec, _parameters(cls, spec, weights, where), where)
    if (folder / TOKENIZER).exists():
        model.read_tokenizer = partial(stored_tokenizer, folder)
    return model


def can_load(folder: Path) -> bool:
    """True if `load_hf` takes checkpoints of this class with these settings.

    Raises:
        InputError: config.json is damaged, or its weights are quantised.
    """
    config = read_config(folder)
    if config.get("model_type") not in (*CLASSES.kinds(), MODEL_TYPE):
        return False
    try:
        hf_spec(folder)
    except InputError:
        return config.get("model_type") == MODEL_TYPE  # its own message is the right one
    return True


def hf_spec(folder: Path) -> tuple[ModelSpec, type[ForeignClass] | None]:
    """Read the spec of a checkpoint and the class that it belongs to; None for a class of this library.

    Raises:
        InputError: as `load_hf`.
    """
    config = read_config(folder)
    where = f"{folder / CONFIG}"
    if config.get("model_type") == MODEL_TYPE:
        return spec_in(config, where, "addnorm.load_hf(…, plugins=[…])"), None
    cls = _class_of(config, where)
    return spec_of(cls, config, where), cls


def _class_of(config: Mapping[str, Any], where: str) -> type[ForeignClass]:
    kind, names = config.get("model_type"), config.get("architectures") or []
    kinds = CLASSES.kinds()
    readable = ", ".join(CLASSES.class_of(known).architecture for known in kinds)
    if kind not in kinds:
        known = (*kinds, *TABLES)
        raise InputError(
            f"{where}: $.model_type: expected one of {', '.join(known)} or {MODEL_TYPE}, got {kind!r}."
            f"{did_you_mean(str(kind), known)} {_why_not(config)} `addnorm audit` and `inspect` take it as it is, with depth "
            "matrices of a recorded pass; addnorm.joint puts a joint into its layers."
        )
    cls: type[ForeignClass] = CLASSES.class_of(kind)
    if names and not {cls.architecture, *cls.also_read} & set(names):
        raise InputError(
            f"{where}: $.architectures: expected {cls.architecture}, got {', '.join(map(str, names))}. Only language models "
            f"can be loaded: {readable}. Save the checkpoint with that class."
        )
    return cls


def _why_not(config: Mapping[str, Any]) -> str:
    """A sentence on what a specification lacks of a class of Transformers."""
    try:
        parts = "; ".join(missing_parts(config))
    except LookupError:
        return "Which part is missing cannot be told: the installed Transformers does not build it."
    nothing = "No part of its layers is known to be missing: what lacks is a table that reads its weights."
    return f"No specification has {parts}." if parts else nothing


def _parameters(
    cls: type[ForeignClass] | None, spec: ModelSpec, weights: Mapping[str, Tensor], where: Path
) -> dict[str, Tensor]:
    if cls is not None:
        return parameters_of(cls, spec, weights, where)
    parameters = {name.removeprefix(PREFIX): tensor for name, tensor in weights.items()}
    if len(parameters) < len(weights):
        twice = next(name for name in sorted(weights) if PREFIX + name in weights)
        raise InputError(
            f"{where}: expected {twice} once, got it with and without {PREFIX!r} before it. Export the run again."
        )
    if spec.tied and "embedding.weight" in parameters:
        head = f"{PREFIX}head.weight"
        if "head.weight" in parameters:
            twin = f"{PREFIX}embedding.weight"
            require_twin(parameters["head.weight"], parameters["embedding.weight"], head, twin, where, "tied")
        parameters["head.weight"] = parameters["embedding.weight"]
    return parameters


def _model(spec: ModelSpec, parameters: dict[str, Tensor], where: Path) -> Transformer:
    model = meta_model(spec)
    for name, expected in model.state_dict().items():
        kind = parameters[name].dtype if name in parameters else expected.dtype
        if expected.is_floating_point() and not (kind.is_floating_point and kind.itemsize >= 2):
            raise InputError(
                f"{where}: expected numbers of 16 bits or more, got {str(kind).removeprefix('torch.')}: quantised weights. "
                "Give the checkpoint that they were made of."
            )
    # One type for all, wide enough for each: some checkpoints keep norms in float32 and matrices in bfloat16, and mixed
    # types would fail in the first product.
    kinds = {tensor.dtype for tensor in parameters.values() if tensor.is_floating_point()}
    dtype = torch.float32
    for kind in kinds:
        dtype = torch.promote_types(dtype, kind)
    parameters = {
        name: tensor.to(dtype) if tensor.is_floating_point() else tensor for name, tensor in parameters.items()
    }
    try:
        # Assigned, not copied: the model has no memory of its own, so a checkpoint is in memory once. Ties are lost on
        # the way and made again.
        model.load_state_dict(parameters, assign=True)
    except RuntimeError as error:
        raise InputError(
            f"{where}: expected the weights of the spec in {CONFIG} ({', '.join(ARCHITECTURES.values())}), got others: {error} "
            "Export the run again."
        ) from error
    model.tie()
    return model.eval()
