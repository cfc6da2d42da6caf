r"""Layers that share their parameters: some layers have parameters of their own, the others use those of an earlier one.

    layer i uses the parameters of layer  i mod n                          cyclic
                                          (i // (depth / n)) * depth / n   consecutive

Everything inside a layer is shared: matrices, biases, norms, gates. What joins layers (residual, scores, values, sinks) keeps
its numbers per site or layer, and every layer its own keys and values in the cache, and running statistics.

Why: n layers' parameters and the computation of `depth` layers.

Source: Lan et al. 2019, "ALBERT", arXiv:1909.11942 §3.1 (n = 1); Dehghani et al. 2018, "Universal Transformers",
arXiv:1807.03819; Takase and Kiyono 2021, "Lessons on Parameter Sharing across Layers", arXiv:2104.06022 (cycle, sequence).
Differs from the source: a universal Transformer also adds an encoding of the layer, and may stop early by position.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from torch import nn

from addnorm.errors import InputError
from addnorm.fields import check_fields

__all__ = ["LayerSharing", "share_parameters"]


@dataclass(frozen=True, kw_only=True)
class LayerSharing:
    """Number of layers with parameters of their own, and which layers use them.

    Raises:
        InputError: fewer than one layer, or an unknown order.

    Example::

        LayerSharing(layers=1)  # ALBERT
        LayerSharing(layers=6, order="consecutive")
    """

    layers: int = 1
    """Number of layers with parameters of their own."""
    order: Literal["cyclic", "consecutive"] = "cyclic"
    """Layers with the same parameters: those that many layers apart, or neighbours."""

    def __post_init__(self) -> None:
        check_fields(self, "sharing")
        if self.layers < 1:
            raise InputError(f"sharing.layers: expected a whole number of at least 1, got {self.layers}.")

    def require_depth(self, depth: int) -> None:
        """Check that a model of so many layers can be divided.

        Raises:
            InputError: it has fewer layers, or groups of neighbours would differ in size.
        """
        if self.layers > depth:
            raise InputError(f"sharing.layers: expected at most the depth, {depth}, got {self.layers}.")
        if self.order == "consecutive" and depth % self.layers:
            raise InputError(
                f"sharing.layers: expected a divisor of the depth, {depth}, with order 'consecutive', got {self.layers}."
            )

    def source(self, layer: int, depth: int) -> int:
        """The layer whose parameters a layer uses: itself, or an earlier one."""
        if self.order == "cyclic":
            return layer % self.layers
        each = depth // self.layers
        return layer // each * each


def share_parameters(layers: Sequence[nn.Module], sharing: LayerSharing) -> None:
    """Give every layer the parameters of the layer that it shares with.

    Raises:
        InputError: the two layers do not have the same parameters.
    """
    for index, layer in enumerate(layers):
        source = sharing.source(index, len(layers))
        if source == index:
            continue
        own, theirs = dict(layer.named_parameters()), dict(layers[source].named_parameters())
        shapes, expected = ({name: value.shape for name, value in each.items()} for each in (own, theirs))
        if shapes != expected:
            name = min(name for name in {**own, **theirs} if shapes.get(name) != expected.get(name))
            raise InputError(
                f"sharing: expected the same parameters in layers {source} and {index}, which share them, got {name} of shape "
                f"{_words(expected.get(name))} and {_words(shapes.get(name))}. Share other layers, or take mechanisms that "
                "are alike in all layers."
            )
        for name, value in theirs.items():
            path, _, last = name.rpartition(".")
            # The same Parameter object at both places, not equal values: gradients then add up in it, the optimizer
            # updates it once, and `state_dict` has it under both names.
            setattr(layer.get_submodule(path), last, value)


def _words(shape: Sequence[int] | None) -> str:
    return "none" if shape is None else str(list(shape))
