r"""A module of the user's own: a function of a Python file builds it.

    model: {python: my_model.py:build, options: {depth: 4}}

    logits[batch, seq, vocab] = build(vocab=…, max_seq=…, depth=4)(tokens[batch, seq])

Why: whatever maps tokens to logits can be trained, ranked and shown beside the models of this library, on the same data.

Source: none; an interface of this library.
Differs from the source: nothing.
"""

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import ClassVar

import torch
from safetensors.torch import save
from torch import Tensor, nn

from addnorm.data.tokenizers import TokenizerSpec
from addnorm.errors import InputError
from addnorm.model.initialisation import generator_for
from addnorm.outside.foreign._contract import check_model, check_start, some_tokens
from addnorm.outside.foreign._use import roles_by_use
from addnorm.store.files import write_atomic
from addnorm.study.encoding import digest
from addnorm.study.foreign import ForeignModel, ForeignSpec
from addnorm.study.plugins import add_builder, builder, plugin_hash
from addnorm.user_code import call

WEIGHTS = "model.safetensors"
_CHECKED: set[str] = set()
"""Digests of models that keep the contract, so that each is checked once per process."""


@dataclass(frozen=True, kw_only=True)
class Python(ForeignSpec):
    """A function that builds a `torch.nn.Module` of tokens to logits."""

    instead: ClassVar[str] = "Training, `rank`, `inspect`, `report`, `watch` and `export` take it."

    python: str
    """`FILE.py:FUNCTION`; the path is relative to the study file. The function is called with `vocab`, `max_seq` and the
    options, under torch's random numbers of the run's seed. The content of this file is part of a run's identity."""
    options: Mapping[str, int | float | str | bool | None] = field(default_factory=dict)
    """Further arguments of the function."""

    def located(self, folder: Path, plugins: Sequence[str] = ()) -> tuple["ForeignSpec", tuple[str, ...]]:
        # A spec that is written out has the file's name alone; its place is among the plugins.
        given = next((reference for reference in plugins if Path(reference).name == self.python), None)
        reference = add_builder(self.python, folder) if given is None else given
        return replace(self, python=Path(reference).name), (reference,)

    def fitted(self, vocab: int, max_seq: int) -> "ForeignSpec":
        return replace(self, vocab=vocab, max_seq=max(self.max_seq, max_seq))

    def build(self, seed: int = 0) -> ForeignModel:
        module = self._module(seed)
        with torch.random.fork_rng(devices=[]):
            roles = {} if _is_meta(module) else roles_by_use(module, some_tokens(self))
        return ForeignModel(module, roles, {})

    def check(self, tokenizer: TokenizerSpec) -> None:
        reference, _, module = builder(self.python)
        key = digest({"spec": self, "file": plugin_hash(reference)})
        if key in _CHECKED:
            return

        def checked() -> None:
            check_model(ForeignModel(self._module(0), {}, {}), self)
            check_start(lambda seed: ForeignModel(self._module(seed), {}, {}), self)

        call(checked, f"python: {reference}", module)
        _CHECKED.add(key)

    def write(self, weights: Mapping[str, Tensor], to: Path) -> None:
        own = {name.removeprefix("module."): value for name, value in weights.items()}
        self.loaded(weights)
        write_atomic(to / WEIGHTS, save({name: value.cpu().contiguous() for name, value in own.items()}))

    def loading(self, folder: Path) -> str:
        home, _, function = self.python.rpartition(":")
        arguments = {"vocab": self.vocab, "max_seq": self.max_seq, **self.options}
        given = ", ".join(f"{name}={value!r}" for name, value in arguments.items())
        return (
            f"from safetensors.torch import load_file\nfrom {Path(home).stem} import {function}\nmodel = {function}({given})\n"
            f"model.load_state_dict(load_file({str(folder / WEIGHTS)!r}))"
        )

    def _module(self, seed: int) -> nn.Module:
        reference, function, module = builder(self.python)
        arguments = {"vocab": self.vocab, "max_seq": self.max_seq, **self.options}
        try:
            inspect.signature(function).bind(**arguments)
        except TypeError as error:
            raise InputError(
                f"python: {reference}: expected a function that takes {', '.join(arguments)}, got an error: {error}. Write "
                "def build(vocab, max_seq, **options), and give options that it has."
            ) from error
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(generator_for(seed, "build").initial_seed())
            built = call(partial(function, **arguments), f"python: {reference}", module)
        if not isinstance(built, nn.Module):
            raise InputError(f"python: {reference}: expected a torch.nn.Module, got {type(built).__name__}.")
        return built


def _is_meta(module: nn.Module) -> bool:
    return any(parameter.is_meta for parameter in module.parameters())
