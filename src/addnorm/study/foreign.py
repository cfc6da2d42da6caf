"""Models that others wrote as variants of a study: the base of every sibling in `addnorm.outside.foreign`.

A `ForeignSpec` stands where a `ModelSpec` does. Its model maps tokens to logits and has mechanisms of this library only where
a patch put them, so that what reads the parts of our models is refused by `require_rooms`.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

from torch import Tensor, nn

from addnorm.catalogue import Spec
from addnorm.data.tokenizers import TokenizerSpec
from addnorm.errors import InputError
from addnorm.model.spec import ModelSpec
from addnorm.roles import ParameterRole


@dataclass(frozen=True, kw_only=True)
class ForeignSpec(Spec, ABC):
    """Base of every spec of a model that others wrote."""

    instead: ClassVar[str] = ""
    """A sentence on what works for it where parts of our models are needed."""

    objective: Literal["causal", "masked"] = "causal"
    """`causal` predicts the next token, `masked` hidden ones."""
    vocab: int = 0
    """Ids of the data, set with them."""
    max_seq: int = 0
    """Tokens of a sequence, set with the training."""

    @abstractmethod
    def located(self, folder: Path, plugins: Sequence[str] = ()) -> tuple["ForeignSpec", tuple[str, ...]]:
        """The spec with absolute paths, and the references of user code that it needs among the study's plugins.

        Args:
            folder: that relative paths are relative to.
            plugins: absolute paths and references of the study's plugins.

        Raises:
            InputError: a file is missing, or the code cannot be loaded.
        """

    @abstractmethod
    def fitted(self, vocab: int, max_seq: int) -> "ForeignSpec":
        """The spec for data of so many ids and sequences of at least so many tokens, with the content of its files."""

    def tokenizer(self) -> TokenizerSpec | None:
        """The tokenizer that the model was trained with; None if it takes any."""
        return None

    def mechanisms(self) -> dict[str, Any]:
        """The mechanisms of this library that a patch puts into the model, by room, every field written out; {} without."""
        return {}

    @abstractmethod
    def build(self, seed: int = 0) -> "ForeignModel":
        """The model at its start, a function of the seed and of the files' content.

        Raises:
            InputError: the files have changed, or the model cannot be built.
        """

    @abstractmethod
    def check(self, tokenizer: TokenizerSpec) -> None:
        """Check the contract of a model that is to be trained: shapes, causality, gradients, the start.

        Raises:
            InputError: it is broken; the message has the law and what to do.
        """

    @abstractmethod
    def write(self, weights: Mapping[str, Tensor], to: Path) -> None:
        """Write trained weights into a folder, in the form of the model's own library.

        Args:
            weights: of a `ForeignModel` of this spec.
            to: an existing, empty folder.

        Raises:
            InputError: the weights do not fit.
        """

    @abstractmethod
    def loading(self, folder: Path) -> str:
        """Python code that loads a folder which `write` wrote."""

    def loaded(self, weights: Mapping[str, Tensor]) -> "ForeignModel":
        """The model with weights of a `ForeignModel` of this spec, in evaluation mode.

        Raises:
            InputError: they do not fit.
        """
        model = self.build()
        try:
            model.load_state_dict(weights)
        except RuntimeError as error:
            raise InputError(f"expected weights of {self.kind} {model.module.__class__.__name__}: {error}") from error
        return model.eval()


class ForeignModel(nn.Module):
    """A model that others wrote, with what the training loop asks of a model.

    Args:
        module: maps tokens to logits, or to an output with `logits`.
        roles: of parameters whose modules do not declare them, by name.
        mechanisms: of this library in it, by room.
    """

    recompute = False

    def __init__(
        self, module: nn.Module, roles: Mapping[str, ParameterRole], mechanisms: Mapping[str, nn.Module]
    ) -> None:
        super().__init__()
        self.module = module
        self.parameter_roles = {f"module.{name}": role for name, role in roles.items()}
        self._mechanisms = dict(mechanisms)  # a dict: they are submodules of the module already

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits [batch, seq, vocab]."""
        return logits_of(self.module, tokens)

    def mechanisms(self) -> dict[str, nn.Module]:
        """The mechanisms of this library, by room."""
        return dict(self._mechanisms)

    @property
    def residual(self) -> Any:
        """The residual, which joins branches and the stream."""
        return self._mechanisms.get("residual", _PLAIN)


class _Plain:
    """In place of a residual: nothing depends on the step."""

    def advance(self, step: int) -> None:
        pass

    def require_steps(self, steps: int) -> None:
        pass


_PLAIN = _Plain()


def logits_of(module: nn.Module, tokens: Tensor) -> Tensor:
    """The logits of a module's output, which is a tensor, or has a field or a key `logits`.

    Raises:
        InputError: it is neither.
    """
    output: Any = module(tokens)
    logits = output.get("logits") if isinstance(output, Mapping) else getattr(output, "logits", output)
    if not isinstance(logits, Tensor):
        raise InputError(
            f"{type(module).__name__}: expected logits [batch, seq, vocab], or an output with `logits`, got "
            f"{type(output).__name__}. Return logits, or take the class with a language modelling head."
        )
    return logits


def require_rooms(model: "ModelSpec | ForeignSpec", what: str) -> ModelSpec:
    """The spec of a model of ours, for what reads its parts.

    Args:
        model: a run's spec.
        what: the part that needs them, as the beginning of a sentence.

    Raises:
        InputError: the model is one of others.
    """
    if isinstance(model, ForeignSpec):
        raise InputError(
            f"{what} reads the parts of a model of addnorm (residual, scores, norms, …), got one of others: {model.kind}."
            f" {model.instead}"
        )
    return model
