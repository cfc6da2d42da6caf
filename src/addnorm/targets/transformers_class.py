"""`transformers:CLASS`: a model class of Hugging Face's Transformers with random weights, from its configuration alone."""

import contextlib
import importlib
import os
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import nn

from addnorm.errors import InputError, did_you_mean
from addnorm.redundancy.execution.memory import needed_bytes
from addnorm.targets.example_inputs import example_inputs
from addnorm.targets.input_spec import make_inputs
from addnorm.targets.shrinking import shrunk_config
from addnorm.targets.target import Kind, Target

LARGEST = 2 * 10**9
"""Parameters of a model that is still built: 8 GB in float32."""


def of_class(
    name: str, settings: Mapping[str, Any], given: Mapping[str, Any] | None, memory: int | None = None
) -> Target:
    """A model of the class, its random weights drawn from seed 0, with inputs derived from its configuration.

    Raises:
        InputError: Transformers is not installed, no such class, a field that its configuration does not have, sizes that do
            not fit together, a model too large to build, or inputs that cannot be derived.
    """
    cls = model_class(name.removeprefix("transformers:"))
    with silent(), torch.random.fork_rng(devices=[]):
        config = _config(cls, settings)
    return of_config(name, "transformers class", cls, config, given, memory)


def of_config(
    name: str, kind: Kind, cls: Any, config: Any, given: Mapping[str, Any] | None, memory: int | None
) -> Target:
    """A model with random weights, or a smaller one if its audit needs more than `memory` bytes.

    Raises:
        InputError: as for `of_class`.
    """
    told, whole = "", 0
    with silent(), torch.random.fork_rng(devices=[]):
        with refusing(f"{name} cannot be built"):
            if memory is not None and needed_bytes(parameters_of(cls, config)) > memory:
                whole = parameters_of(cls, config)
                config, told = shrunk_config(cls, config, memory)
        _require_size(name, cls, config)
        torch.manual_seed(0)
        model = _built(name, cls, config).eval()
    inputs, notes = (make_inputs(given), ()) if given is not None else example_inputs(model)
    notes = ("weights: random, from seed 0", *notes)
    return Target(name=name, model=model, inputs=inputs, kind=kind, notes=notes, shrunk=told, whole=whole)


def parameters_of(cls: Any, config: Any) -> int:
    """How many numbers a configuration's model has; nothing is allocated."""
    with torch.device("meta"):
        return sum(parameter.numel() for parameter in cls(config).parameters())


def model_class(name: str) -> Any:
    """A concrete model class of Transformers by its name.

    Raises:
        InputError: Transformers is not installed, or has no such model class.
    """
    transformers = installed()
    found: Any = getattr(transformers, name, None) if not name.startswith("_") else None
    whole = isinstance(found, type) and issubclass(found, transformers.PreTrainedModel)
    if not whole or getattr(found, "config_class", None) is None:
        endings = ("Model", "LM", "Generation", "Classification")
        near = [known for known in dir(transformers) if known.endswith(endings) and not known.startswith("Auto")]
        what = "is no single model class" if found is not None else "is not there"
        raise InputError(
            f"transformers {transformers.__version__}: {name!r} {what}.{did_you_mean(name, near)} Give the name of a class "
            "with weights, such as BertForMaskedLM."
        )
    return found


def installed() -> Any:
    """The Transformers library.

    Raises:
        InputError: it is not installed.
    """
    try:
        import transformers
    except ImportError as error:
        raise InputError(
            f"this target needs Hugging Face's Transformers, which cannot be imported ({error}). "
            "pip install 'addnorm[transformers]'."
        ) from error
    return transformers


@contextlib.contextmanager
def silent() -> Iterator[None]:
    """Transformers without its progress bars and advice, which would go between our lines."""
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
    """The class's configuration; Transformers itself takes any field without a word."""
    config_class = cls.config_class
    known = {*config_class().to_dict(), *config_class.attribute_map}
    for field in settings:
        if field not in known:
            raise InputError(
                f"--config: {config_class.__name__} has no field {field!r}.{did_you_mean(field, known)} "
                f"Known: {', '.join(sorted(known))}."
            )
    with refusing(f"--config does not fit {config_class.__name__}"):
        config = config_class(**settings)
    if getattr(config, "use_cache", None):
        config.use_cache = False  # a cache of keys is no output that counts, and nothing is decoded here
    return config


def _require_size(name: str, cls: Any, config: Any) -> None:
    with refusing(f"{name} cannot be built"):
        count = parameters_of(cls, config)
    if count > LARGEST:
        raise InputError(
            f"{name} has {count / 1e9:.1f} G parameters with this configuration, more than the {LARGEST / 1e9:.0f} G that are "
            "built here. Give a smaller one, such as --config '{\"num_hidden_layers\": 2}'."
        )


def _built(name: str, cls: Any, config: Any) -> nn.Module:
    with refusing(f"{name} cannot be built"):
        model: nn.Module = cls(config)
    return model


@contextlib.contextmanager
def refusing(what: str) -> Iterator[None]:
    """Turns whatever Transformers says of a configuration or a checkpoint into one message.

    Raises:
        InputError: something was raised inside.
    """
    try:
        yield
    except InputError:
        raise
    except Exception as error:  # a configuration may be refused anywhere in a class's code, with any exception
        told = " ".join(str(error).split()).replace(os.linesep, " ")
        raise InputError(f"{what}: {type(error).__name__}: {told[:600]}") from error
