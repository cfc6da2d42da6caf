"""The class of Transformers whose weights have the names in a checkpoint, for one whose configuration names no class."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from addnorm.outside.targets.transformers_class import import_transformers, quiet_transformers


@dataclass(frozen=True, kw_only=True)
class ClassFit:
    """A class, with the weights that it and the file do not share."""

    name: str
    missing: tuple[str, ...]
    """Weights of the class that the file lacks."""
    ignored: tuple[str, ...]
    """Weights of the file that the class does not read."""

    @property
    def in_words(self) -> str:
        """A clause about the weights that do not fit; empty if all do."""
        missing = f", without {some(self.missing)}, which would be random" if self.missing else ""
        return missing + (f", which ignores {some(self.ignored)}" if self.ignored else "")


def some(names: Sequence[str]) -> str:
    """List the first names, and the number of the others."""
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return f"{len(names)} weights ({', '.join(names[:5])}{more})" if len(names) > 1 else f"the weight {names[0]}"


def best_class(folder: Path, content: Mapping[str, Any], names: set[str]) -> ClassFit | None:
    """Find the class of the configuration's `model_type` with the fewest missing, then the fewest ignored weights.

    Returns:
        None if the type is unknown, or no class shares any weight with the file.
    """
    kind = content.get("model_type")
    if not isinstance(kind, str) or not names:
        return None
    transformers = import_transformers()
    fits = []
    with quiet_transformers(), torch.device("meta"):
        for cls in _classes(transformers, kind):
            try:
                model = cls(cls.config_class.from_json_file(folder / "config.json"))
            except Exception:  # noqa: BLE001 - a class may refuse the configuration with any exception
                continue
            # Names alone, on the meta device: no class is built with weights to see whether it fits.
            fits.append(_fit(cls.__name__, cls.base_model_prefix, set(model.state_dict()), names))
            tied = set(model._tied_weights_keys or ())
            missing = tuple(each for each in fits[-1].missing if each not in tied)
            fits[-1] = ClassFit(name=cls.__name__, missing=missing, ignored=fits[-1].ignored)
    return min(
        (fit for fit in fits if len(fit.ignored) < len(names)),
        key=lambda fit: (len(fit.missing), len(fit.ignored), fit.name),
        default=None,
    )


def _classes(transformers: Any, kind: str) -> Iterable[Any]:
    """The model classes whose configuration has this type, from the module that defines it."""
    config = transformers.AutoConfig.for_model(kind).__class__ if kind in transformers.CONFIG_MAPPING else None
    prefix = config.__name__.removesuffix("Config") if config is not None else ""
    for name in dir(transformers) if prefix else ():
        if name.startswith(prefix) and not name.endswith(("Config", "Tokenizer", "TokenizerFast", "PreTrainedModel")):
            try:
                cls: Any = getattr(transformers, name, None)
            except Exception:  # noqa: BLE001 - a class's module may fail to import with any exception
                continue
            # Only of models: stand-ins for classes whose packages are absent raise when their attributes are read.
            is_model = isinstance(cls, type) and issubclass(cls, transformers.PreTrainedModel)
            if is_model and cls.config_class is config:
                yield cls


def _fit(name: str, prefix: str, own: set[str], given: set[str]) -> ClassFit:
    """Compare names; a prefix of the inner model may be present on either side."""

    def bare(each: str) -> str:
        old = each.replace(".gamma", ".weight").replace(".beta", ".bias") if "LayerNorm" in each else each
        return old.removeprefix(f"{prefix}.") if prefix else old

    # Old files name the gain gamma and the shift beta, and may have or lack the prefix of the inner model.
    ours, theirs = {bare(each): each for each in own}, {bare(each): each for each in given}
    return ClassFit(
        name=name,
        missing=tuple(sorted(ours[each] for each in ours.keys() - theirs.keys())),
        ignored=tuple(sorted(theirs[each] for each in theirs.keys() - ours.keys())),
    )
