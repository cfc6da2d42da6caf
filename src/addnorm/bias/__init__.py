"""Room of the q/k bias shapes, and the switches of all other biases.

A sibling defines the shape of the biases of the query and key projections, which add them. Every projection has a switch of
its own in `Biases`.

Example::

    from addnorm import preset
    spec = preset("llama", bias={"q": True, "k": True}, qk_bias="head_shared")
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from addnorm.catalogue import Spec
from addnorm.fields import check_fields
from addnorm.reduction import Reducible
from addnorm.roles import ParameterRole
from addnorm.shape import Shape

__all__ = ["Biases", "PerHeadBias", "QKBias", "QKBiasSpec", "Vectors"]

Vectors = tuple[Float[Tensor, " q_width"] | None, Float[Tensor, " k_width"] | None]
"""Biases of queries and keys; None where switched off.

Example:
    >>> vectors: Vectors = (torch.zeros(16), None)  # queries have a bias, keys have none
    >>> vectors[1] is None
    True
"""


class QKBias(nn.Module, ABC):
    """The query and key biases of one layer.

    Example:
        >>> class Constant(QKBias):
        ...     def vectors(self):
        ...         return torch.ones(16), None
        >>> queries, keys = Constant().vectors()
        >>> keys is None
        True
    """

    parameter_roles: ClassVar[Mapping[str, ParameterRole]] = {}
    """Role of each parameter, by name; see `addnorm.roles`."""

    @abstractmethod
    def vectors(self) -> Vectors:
        """The biases of the query projection (heads x head_dim entries) and of the key projection (kv_heads x head_dim
        entries); None where switched off."""


@dataclass(frozen=True, kw_only=True)
class QKBiasSpec(Reducible, Spec):
    """Base of every q/k bias shape.

    Example:
        >>> from addnorm.bias.scalar import Scalar
        >>> shape = Shape(width=16, depth=2, heads=2, kv_heads=1, hidden=32, max_seq=8)
        >>> sum(parameter.numel() for parameter in Scalar().build(shape, q=True, k=True).parameters())
        2
    """

    @abstractmethod
    def build(self, shape: Shape, *, q: bool, k: bool) -> QKBias:
        """Build the biases of one layer, all zero at the start.

        Raises:
            InputError: the shape is shared by q and k, and only one of them is switched on.
        """


@dataclass(frozen=True, kw_only=True)
class Biases:
    """The projections that have a bias.

    Raises:
        InputError: a switch that is not true or false.

    Example:
        >>> Biases(q=True, k=True).q
        True
        >>> Biases.all(True, head=False).head
        False
    """

    q: bool = False
    k: bool = False
    v: bool = False
    o: bool = False
    up: bool = False
    """First feed-forward matrix (and the gate's, in gated feed-forwards)."""
    down: bool = False
    """Second feed-forward matrix."""
    head: bool = False
    norm: bool = False
    """The norms' shift, beta."""

    def __post_init__(self) -> None:
        check_fields(self, "bias")

    @classmethod
    def all(cls, on: bool, /, **changes: bool) -> "Biases":
        """Set every switch to `on`, except the named changes: `Biases.all(True, head=False)`."""
        return cls(**({field.name: on for field in fields(cls)} | changes))


class PerHeadBias(QKBias):
    """Base of the shapes in which q and k have parameters of their own, of `q_size` and `k_size` entries.

    Example:
        >>> class OnePerHead(PerHeadBias):
        ...     def spread(self, bias, heads):
        ...         return bias.repeat_interleave(self.head_dim)
        >>> shape = Shape(width=16, depth=2, heads=2, kv_heads=1, hidden=32, max_seq=8)
        >>> queries, keys = OnePerHead(shape, q_size=2, k_size=1).vectors()
        >>> queries.shape, keys.shape
        (torch.Size([16]), torch.Size([8]))
    """

    parameter_roles = {"q": "bias", "k": "bias"}

    def __init__(self, shape: Shape, q_size: int | None, k_size: int | None) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.head_dim = shape.heads, shape.kv_heads, shape.head_dim
        self.q = nn.Parameter(torch.zeros(q_size)) if q_size is not None else None
        self.k = nn.Parameter(torch.zeros(k_size)) if k_size is not None else None

    @abstractmethod
    def spread(self, bias: Tensor, heads: int) -> Float[Tensor, " width"]:
        """Repeat the parameter to one vector for all heads."""

    def vectors(self) -> Vectors:
        return (
            None if self.q is None else self.spread(self.q, self.heads),
            None if self.k is None else self.spread(self.k, self.kv_heads),
        )
