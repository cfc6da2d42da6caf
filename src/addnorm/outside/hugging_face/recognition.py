"""The class of Transformers that a spec is: spec to config.json and back gives the same spec."""

from dataclasses import dataclass
from typing import Any

from addnorm.earlier_fields import as_now
from addnorm.errors import InputError
from addnorm.fields import flat_fields
from addnorm.model.spec import ModelSpec
from addnorm.outside.hugging_face.classes import CLASSES, ForeignClass
from addnorm.outside.hugging_face.conversion import config_of, spec_of
from addnorm.study.encoding import encode

_NOT_THE_MODEL = ("init_std", "init_branch", "position.init_std", "attention")
"""Fields of the start and of the implementation."""
_NOT_COMPARED = ("dropout.", "qk_bias.")
"""Beginnings of fields of training, and of the shape of q/k biases, which are written out whatever it is."""
_SHIFTLESS = ("rms", "none")
"""Norms without a shift, whatever `bias.norm` is."""


@dataclass(frozen=True, kw_only=True)
class Difference:
    """A field of the spec that a class cannot have as it is."""

    path: str
    expected: Any
    """The class's value."""
    got: Any

    def __str__(self) -> str:
        return f"{self.path}: expected {self.expected!r}, got {self.got!r}"


@dataclass(frozen=True, kw_only=True)
class ClassComparison:
    """Comparison of a spec with one class."""

    cls: type[ForeignClass]
    spec: ModelSpec
    """The nearest spec that the class can have."""
    differences: tuple[Difference, ...]
    filled: tuple[str, ...]
    """Parameters that the class has beyond the spec, and that are zeros: biases and token types."""
    dropped: tuple[str, ...]
    """Dropout rates that the class cannot have."""


def compare(cls: type[ForeignClass], spec: ModelSpec) -> ClassComparison:
    """Compare a spec with the nearest one that a class can have."""
    # There and back. Whatever the class cannot say is lost on the way to config.json and comes back as its default, so
    # the difference of the two specs is exactly what the class cannot have.
    nearest = spec_of(cls, config_of(cls, spec), cls.architecture)
    ours, theirs = _fields(spec), _fields(nearest)
    differences, filled = [], []
    for path in sorted(ours.keys() | theirs.keys()):
        got, expected = ours.get(path), theirs.get(path)
        kind = f"{path.rpartition('.')[0]}.kind"
        other_mechanism = not path.endswith(".kind") and ours.get(kind) != theirs.get(kind)
        if got == expected or path in _NOT_THE_MODEL or path.startswith(_NOT_COMPARED) or other_mechanism:
            continue
        if (path.startswith("bias.") and not got) or (path == "token_types" and got is None):
            filled.append(path)
        else:
            differences.append(Difference(path=path.removesuffix(".kind"), expected=expected, got=got))
    dropped = [path for path in ours if path.startswith("dropout.") and ours[path] and ours[path] != theirs[path]]
    return ClassComparison(
        cls=cls, spec=nearest, differences=tuple(differences), filled=tuple(filled), dropped=tuple(dropped)
    )


def comparisons(spec: ModelSpec) -> list[ClassComparison]:
    """Compare a spec with every class, the nearest one first: fewest differences, then fewest filled parameters."""
    compared = []
    for kind in CLASSES.kinds():
        try:
            compared.append(compare(CLASSES.class_of(kind), spec))
        except InputError:  # sizes that the class refuses, such as an odd head width with rotary positions
            continue
    return sorted(compared, key=lambda one: (len(one.differences), len(one.filled)))


def _fields(spec: ModelSpec) -> dict[str, Any]:
    """Every value of a spec by its path, with equal values for equal models."""
    flat = dict(flat_fields(as_now(ModelSpec, encode(spec)))) | {"kv_heads": spec.shape.kv_heads}
    if flat["norm.kind"] in _SHIFTLESS:
        flat["bias.norm"] = False
    return flat
