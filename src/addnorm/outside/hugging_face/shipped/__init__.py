"""Architectures of Transformers whose residual is unusual: our joint between their own branches.

A table says of one architecture which residual of the catalogue joins its branches, where its numbers stand in the modules of
the class, and which modules of a layer are its branches. `assembly` makes a model of a shipped one by such a table: the stream,
its reads and writes are ours and are `model.residual`; attention, experts, convolutions and norms stay their modules. What a
layer needs besides the stream (masks, rotations, keys of other layers) is made by the forward pass of the class itself, run on
layers that compute nothing; see `assembly.LayerProbe`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from addnorm.residual import Read
from addnorm.shape import Role

__all__ = ["LayerInputs", "ShippedBranch", "ShippedClass", "copy_rows", "first"]


@dataclass(frozen=True, kw_only=True)
class LayerInputs:
    """Arguments of one layer of a class in one pass, by the names of its `forward`, without the stream."""

    arguments: Mapping[str, Any]
    """Masks, rotations, the cache."""
    passed_on: dict[str, Any]
    """Results of earlier layers that later ones take beside the stream; one dict per pass."""

    def without(self, *names: str) -> dict[str, Any]:
        """The arguments but these."""
        return {name: value for name, value in self.arguments.items() if name not in names}


Call = Callable[[Any, Any, LayerInputs], Tensor]
"""Applies a module of the class to what a branch reads."""


def first(output: Any) -> Tensor:
    """The branch's output, of a module that returns more than that."""
    result: Tensor = output[0] if isinstance(output, tuple) else output
    return result


def attend(without: Sequence[str], module: Any, x: Read, given: LayerInputs) -> Tensor:
    """Call an attention that takes the stream and all that its layer takes, but for some arguments."""
    return first(module(hidden_states=x, **given.without(*without)))


def transform(module: Any, x: Read, given: LayerInputs) -> Tensor:
    """Call a module that takes the stream alone, such as a feed-forward branch or experts."""
    return first(module(x))


@dataclass(frozen=True, kw_only=True)
class ShippedBranch:
    """One branch of a layer of theirs."""

    body: nn.Module
    role: Role | Literal["tables"]
    """`tables`: given all streams side by side [batch, seq, streams, width], it returns what each of them gets."""
    call: Call | None = None
    """Applies the body; None for `attend` or `transform`, by the role."""
    input_norm: nn.Module | None = None
    output_norm: nn.Module | None = None


class ShippedClass:
    """Base of the tables.

    A residual of the table is a mapping with its `kind`, as in a study. Methods get the modules of a class of Transformers,
    whose attributes no type knows.
    """

    kind: ClassVar[str]
    """`model_type` of config.json."""
    architecture: ClassVar[str]
    """Name of the class in Transformers."""
    objective: ClassVar[str] = "causal"
    stack: ClassVar[str] = "model"
    """Path from the class to the model that embeds tokens and runs the layers."""
    text_config: ClassVar[str] = ""
    """Path in the configuration to the fields of the language model."""
    withheld: ClassVar[tuple[str, ...]] = ()
    """Arguments of a layer that its attention does not take."""
    returns_more: ClassVar[bool] = False
    """True if a layer returns the stream and something that the next layer takes."""
    placement: ClassVar[str] = "pre"
    """Placement of the class's own norms, which stay theirs."""
    joint: ClassVar[tuple[str, str]]
    """Room and kind of the mechanism that is unusual about the class."""
    theirs: ClassVar[str]
    """Parts that stay modules of the class, in words."""
    note: ClassVar[str] = ""
    """Sentence on what is special about the class's joint."""
    unused_by_text: ClassVar[tuple[str, ...]] = ()
    """Patterns of parameters of parts that a text does not pass through."""
    close: ClassVar[str] = ""
    """Name of the module, or list of modules, that makes one stream of several before the final norm; the residual's close
    stands for it."""
    entered: ClassVar[str] = ""
    """Name of the list of modules that makes further streams of the embeddings; the residual's open stands for it."""

    def norm(self, config: Any) -> Mapping[str, Any]:
        """The norm of the catalogue that branches' inputs have, with its settings; "rms" for norms that stay theirs."""
        return {"kind": "rms"}

    def residual(self, config: Any) -> Mapping[str, Any]:
        """The residual of the catalogue with its settings."""
        room, kind = self.joint
        return {"kind": kind if room == "residual" else "add"}

    def fill(self, residual: Any, stack: Any) -> Sequence[nn.Module | nn.Parameter]:
        """Copy the numbers of the joint from the modules of the class, and return those modules and parameters."""
        return ()

    def entry(self, hidden: Tensor, config: Any) -> Tensor:
        """The stream [batch, seq, width] with which the residual is opened, of what the first layer gets."""
        return hidden

    def branches(self, layer: Any, index: int) -> Sequence[ShippedBranch]:
        """The branches of a layer, in the order in which they read the stream."""
        return (
            ShippedBranch(body=layer.self_attn, role="attention", input_norm=layer.input_layernorm),
            ShippedBranch(body=layer.mlp, role="feedforward", input_norm=layer.post_attention_layernorm),
        )

    def head(self, theirs: Any, stack: Any) -> Any:
        """The module that makes logits of the normed stream."""
        return theirs.get_output_embeddings()

    def final_norm(self, theirs: Any, stack: Any) -> nn.Module:
        """The norm before the head."""
        norm: nn.Module = stack.norm
        return norm

    def logits(self, logits: Tensor, config: Any) -> Tensor:
        """The logits, of the head's output: caps and factors."""
        cap: float | None = getattr(config, "final_logit_softcapping", None)
        return logits if cap is None else torch.tanh(logits / cap) * cap


def copy_rows(ours: Tensor, rows: Sequence[Tensor]) -> None:
    """Fill a parameter with one entry per branch, or per branch and the close."""
    for target, row in zip(ours, rows, strict=True):
        target.copy_(row)
