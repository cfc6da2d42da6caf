"""`transformers:CLASS`: a model class of Hugging Face Transformers with random weights, built from its configuration."""

import contextlib
import importlib
import inspect
import os
import re
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import nn

from addnorm.errors import InputError, did_you_mean
from addnorm.outside.hugging_face.unused import HARMLESS
from addnorm.outside.targets.example_inputs import example_inputs
from addnorm.outside.targets.input_spec import make_inputs
from addnorm.outside.targets.shrinking import num_parameters, shrunk_config
from addnorm.outside.targets.target import Kind, Target
from addnorm.redundancy.execution.memory import needed_bytes

LARGEST = 2 * 10**9
"""Largest number of parameters of a model that is built: 8 GB in float32."""


def class_target(
    name: str, settings: Mapping[str, Any], given: Mapping[str, Any] | None, memory: int | None = None
) -> Target:
    """Build a model of the class with random weights from seed 0 and inputs derived from its configuration.

    Raises:
        InputError: Transformers is not installed or lacks the class, its configuration lacks a field, sizes contradict each
            other, the model is too large to build, or inputs cannot be derived.
    """
    cls = model_class(name.removeprefix("transformers:"))
    with quiet_transformers(), torch.random.fork_rng(devices=[]):
        config = _config(cls, settings)
    return configuration_target(name, "transformers class", cls, config, given, memory)


def configuration_target(
    name: str, kind: Kind, cls: Any, config: Any, given: Mapping[str, Any] | None, memory: int | None
) -> Target:
    """Build a model with random weights, in a reduced configuration if its audit needs more than `memory` bytes.

    Raises:
        InputError: as for `class_target`.
    """
    shrunk, full_size = "", 0
    with quiet_transformers(), torch.random.fork_rng(devices=[]):
        with raised_as_input_error(f"{name} cannot be built"):
            if memory is not None and needed_bytes(num_parameters(cls, config)) > memory:
                full_size = num_parameters(cls, config)
                config, shrunk = shrunk_config(cls, config, memory)
        _require_size(name, cls, config)
        # After the memory and size checks, which build the model on the meta device and may draw random numbers.
        torch.manual_seed(0)
        model = _built(name, cls, config).eval()
    inputs, notes = (make_inputs(given, model), ()) if given is not None else example_inputs(model)
    notes = ("weights: random, from seed 0", *notes)
    return Target(name=name, model=model, inputs=inputs, kind=kind, notes=notes, shrunk=shrunk, whole=full_size)


def model_class(name: str) -> Any:
    """Find a model class of Transformers by its name.

    Raises:
        InputError: Transformers is not installed or lacks the class.
    """
    transformers = import_transformers()
    try:
        candidate: Any = getattr(transformers, name, None) if not name.startswith("_") else None
    except Exception as error:  # a class's module may fail to import with any exception, such as a broken torchvision
        raise InputError(
            f"transformers.{name} cannot be imported: {type(error).__name__}: {' '.join(str(error).split())[:300]} Mend or "
            "remove the package that the message names."
        ) from error
    is_model = isinstance(candidate, type) and issubclass(candidate, transformers.PreTrainedModel)
    if not is_model or getattr(candidate, "config_class", None) is None:
        endings = ("Model", "LM", "Generation", "Classification")
        classes = [each for each in dir(transformers) if each.endswith(endings) and not each.startswith("Auto")]
        problem = "not a single model class" if candidate is not None else "not known"
        raise InputError(
            f"transformers {transformers.__version__}: expected a class with weights such as BertForMaskedLM, got {name!r}, "
            f"which is {problem}.{did_you_mean(name, classes)}"
        )
    return candidate


def import_transformers() -> Any:
    """Import the Transformers library.

    Raises:
        InputError: it is not installed.
    """
    try:
        import transformers
    except Exception as error:  # the library, or what it imports, may fail in any way
        raise InputError(
            f"this target needs Hugging Face Transformers, which cannot be imported ({error}). Install it: "
            "pip install 'addnorm[transformers]'."
        ) from error
    return transformers


@contextlib.contextmanager
def quiet_transformers() -> Iterator[None]:
    """Suppress the progress bars and messages of Transformers."""
    logging: Any = importlib.import_module("transformers.utils.logging")
    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()


def _config(cls: Any, settings: Mapping[str, Any]) -> Any:
    """Build the class's configuration. Unknown fields are refused here because Transformers accepts any."""
    config_class = cls.config_class
    known = {*config_class().to_dict(), *config_class.attribute_map}
    for field in settings:
        if field not in known and not _reads(cls, field):
            raise InputError(
                f"--config: {config_class.__name__} has no field {field!r}.{did_you_mean(field, known)} "
                f"Known: {', '.join(sorted(known))}."
            )
    with raised_as_input_error(f"--config is refused by {config_class.__name__}"):
        config = config_class(**settings)
    if getattr(config, "use_cache", None):
        config.use_cache = False  # cached keys and values are not an output to audit
    return config


def _reads(cls: Any, field: str) -> bool:
    """True if the class's module reads a field that its configuration does not declare, as DeBERTa's reads
    `position_buckets`."""
    try:
        # Configurations accept any field, so a misspelt one would have no effect at all. Fields that only the code
        # reads are known from its text.
        source = inspect.getsource(sys.modules[cls.__module__])
    except (OSError, TypeError):
        return False
    return field.isidentifier() and re.search(rf"config\.{field}\b|config, ['\"]{field}['\"]", source) is not None


def unread_fields(cls: Any, content: Mapping[str, Any], part: Any = None) -> list[str]:
    """Paths of the fields of a config.json that neither the class's configuration nor its code reads, such as a misspelt one.

    Args:
        cls: the class of the model.
        content: of config.json, or of one of its parts.
        part: the configuration of that part; None for that of the class.
    """
    config_class = part or cls.config_class
    known = {*config_class().to_dict(), *config_class.attribute_map}
    unread = []
    for field, value in content.items():
        inner = config_class.sub_configs.get(field)
        if isinstance(value, Mapping) and bool(getattr(inner, "model_type", "")):
            unread += [f"{field}.{each}" for each in unread_fields(cls, value, inner)]
        elif not (
            value is None or field in known or any(re.fullmatch(each, field) for each in HARMLESS) or _reads(cls, field)
        ):
            # Names of earlier versions are read into others. A field that is kept and nothing else is read by nobody.
            with_it, without = (
                config_class.from_dict({name: each for name, each in content.items() if name != left}).to_dict()
                for left in (None, field)
            )
            unread += [field] if with_it | {field: None} == without | {field: None} else []
    return unread


def _require_size(name: str, cls: Any, config: Any) -> None:
    with raised_as_input_error(f"{name} cannot be built"):
        count = num_parameters(cls, config)
    if count > LARGEST:
        raise InputError(
            f"{name} is too large to build: expected at most {LARGEST / 1e9:.0f} G parameters, got {count / 1e9:.1f} G. Give "
            "a smaller configuration, such as --config '{\"num_hidden_layers\": 2}'."
        )


def _built(name: str, cls: Any, config: Any) -> nn.Module:
    with raised_as_input_error(f"{name} cannot be built"):
        model: nn.Module = cls(config)
    return model


@contextlib.contextmanager
def raised_as_input_error(problem: str) -> Iterator[None]:
    """Convert any exception of Transformers to an InputError that begins with `problem`.

    Raises:
        InputError: an exception was raised inside.
    """
    try:
        yield
    except InputError:
        raise
    except Exception as error:  # a class may refuse a configuration with any exception
        message = " ".join(str(error).split()).replace(os.linesep, " ")
        raise InputError(f"{problem}: {type(error).__name__}: {message[:600]}") from error
