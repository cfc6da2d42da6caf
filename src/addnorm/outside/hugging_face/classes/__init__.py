"""Room of the classes of Transformers that a model can be: one file each, named by its `model_type`, all of it data.

A table is read in both directions: spec to config.json and back, parameters to weights and back. A field of the spec that a
table does not mention is at its default in the class.
"""

from abc import ABC
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from torch import Tensor

from addnorm.catalogue import Siblings
from addnorm.model.architecture import Architecture
from addnorm.outside.hugging_face.forms import SAME, Form

__all__ = [
    "CLASSES",
    "HAS_CLASS",
    "OWN_TOKENIZER",
    "ROPE_TYPE",
    "SIZES",
    "CheckpointTensor",
    "ConfigConstant",
    "ConfigField",
    "ForeignClass",
    "Ignored",
    "lines",
]

HAS_CLASS = "vLLM has this class."
OWN_TOKENIZER = (
    "llama.cpp converts this class, once a BPE tokenizer trained here is added to its convert_hf_to_gguf_update.py."
)


@dataclass(frozen=True, kw_only=True)
class ConfigField:
    """A field of config.json that is a field of the spec."""

    theirs: str
    """Path in config.json."""
    ours: str
    """Path in the spec."""
    default: Any = None
    """The class's own default, or a function of config.json that returns it; None if config.json must have the field."""
    also: tuple[str, ...] = ()
    """Further paths of the same value, of other versions of Transformers; they are read first, and all are written."""
    read: tuple[str, ...] = ()
    """Further paths that the class reads and that are not written."""
    echoes: tuple[str, ...] = ()
    """Paths at which the class writes the value and does not read it."""
    names: Mapping[Any, str] = field(default_factory=dict)
    """Their words, or switches, for ours, where they differ; the first one of several is written."""


SIZES = (
    ConfigField(theirs="vocab_size", ours="vocab"),
    ConfigField(theirs="hidden_size", ours="width"),
    ConfigField(theirs="num_hidden_layers", ours="depth"),
    ConfigField(theirs="num_attention_heads", ours="heads"),
)
"""Sizes that most classes name alike."""


@dataclass(frozen=True, kw_only=True)
class ConfigConstant:
    """A field of config.json with which the class is what our model is."""

    theirs: str
    values: tuple[Any, ...]
    """Accepted values; the first one is written."""
    default: Any
    """The class's own default."""
    meaning: str = ""
    """The problem with other values, in words."""
    read: tuple[str, ...] = ()
    """Further paths of the same value that the class reads; they are not written."""


ROPE_TYPE = ConfigConstant(
    theirs="rope_parameters.rope_type",
    values=("default",),
    default="default",
    meaning="its rotary frequencies are scaled, which no position of addnorm does",
    read=("rope_parameters.type", "rope_scaling.rope_type", "rope_scaling.type"),
)


@dataclass(frozen=True, kw_only=True)
class CheckpointTensor:
    """A tensor of the checkpoint; `{}` in a name is the number of the layer."""

    theirs: str
    ours: tuple[str, ...]
    form: Form = SAME
    if_untied: str = ""
    """Name of the tensor that is used if the output matrix is not the embedding table; `theirs` is written all the same."""

    def names(self, depth: int, tied: bool) -> Iterator[tuple[str, tuple[str, ...]]]:
        """Their name and ours, of every layer."""
        theirs = self.theirs if tied else self.if_untied or self.theirs
        for layer in range(depth if "{}" in theirs else 1):
            yield theirs.format(layer), tuple(name.format(layer) for name in self.ours)


@dataclass(frozen=True, kw_only=True)
class Ignored:
    """A tensor in checkpoints that is no parameter of the language model and that the class does not read."""

    pattern: str
    expected: str = ""
    """The contents with which it says nothing new, in words; empty for parts that the language model does not have."""
    holds: Callable[[Tensor, Architecture], bool] = lambda tensor, spec: True
    """True for these contents."""


class ForeignClass(ABC):
    """Base of the tables."""

    architecture: ClassVar[str]
    """Name of the class in Transformers."""
    also_read: ClassVar[tuple[str, ...]] = ()
    """Further classes whose checkpoints hold the same weights."""
    fixed: ClassVar[Mapping[str, Any]]
    """Paths in the spec with the values that the class always has."""
    fields: ClassVar[tuple[ConfigField, ...]]
    constants: ClassVar[tuple[ConfigConstant, ...]] = ()
    switches: ClassVar[tuple[ConfigConstant, ...]] = ()
    """Fields that other versions or programs write, with the values at which they do not act; not written here."""
    harmless: ClassVar[tuple[str, ...]] = ()
    """Patterns of further fields of config.json that leave the logits of the class as they are, whatever they hold."""
    weights: ClassVar[tuple[CheckpointTensor, ...]]
    optional_prefix: ClassVar[str] = ""
    """Prefix of names that checkpoints of the model without its head lack."""
    ignored: ClassVar[tuple[Ignored, ...]] = ()
    vllm: ClassVar[str]
    """Sentence on the use with vLLM."""
    gguf: ClassVar[str]
    """Sentence on the conversion to GGUF."""


CLASSES = Siblings("class of Transformers", "addnorm.outside.hugging_face.classes", "ForeignClass")


def lines(theirs: str, ours: str, *parts: str, form: Form = SAME) -> tuple[CheckpointTensor, ...]:
    """Make lines for parts (`weight`, `bias`) of one module."""
    return tuple(CheckpointTensor(theirs=f"{theirs}.{part}", ours=(f"{ours}.{part}",), form=form) for part in parts)
