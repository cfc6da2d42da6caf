"""Room of the q/k bias shapes, and the switches of all the other biases.

A sibling says what shape the biases of the query and key projections have; the projections add them. Every projection has
its own switch in `Biases`.
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
from addnorm.roles import ParameterRole
from addnorm.shape import Shape

__all__ = ["Biases", "PerHeadBias", "QKBias", "QKBiasSpec", "Vectors"]

Vectors = tuple[Float[Tensor, " q_width"] | None, Float[Tensor, " k_width"] | None]


class QKBias(nn.Module, ABC):
    """The query and key biases of one layer."""

    parameter_roles: ClassVar[Mapping[str, ParameterRole]] = {}
    """What its parameters are, by name; see `addnorm.roles`."""

    @abstractmethod
    def vectors(self) -> Vectors:
        """What the query projection adds (heads x head_dim entries) and what the key projection adds (kv_heads x
        head_dim entries); None where switched off."""


@dataclass(frozen=True, kw_only=True)
class QKBiasSpec(Spec):
    """Base of every q/k bias shape."""

    @abstractmethod
    def build(self, shape: Shape, *, q: bool, k: bool) -> QKBias:
        """The biases of one layer, all zero at the start.

        Raises:
            InputError: the shape is shared by q and k, and only one of them is switched on.
        """


@dataclass(frozen=True, kw_only=True)
class Biases:
    """Which projections have a bias.

    Raises:
        InputError: a switch that is not true or false.
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
        """Every switch the same, but for the named changes: `Biases.all(True, head=False)`."""
        return cls(**({field.name: on for field in fields(cls)} | changes))


class PerHeadBias(QKBias):
    """A base for shapes in which q and k have parameters of their own; `size` entries before spreading to all heads."""

    parameter_roles = {"q": "bias", "k": "bias"}

    def __init__(self, shape: Shape, q_size: int | None, k_size: int | None) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.head_dim = shape.heads, shape.kv_heads, shape.head_dim
        self.q = nn.Parameter(torch.zeros(q_size)) if q_size is not None else None
        self.k = nn.Parameter(torch.zeros(k_size)) if k_size is not None else None

    @abstractmethod
    def spread(self, bias: Tensor, heads: int) -> Float[Tensor, " width"]:
        """The parameter as one vector for all heads."""

    def vectors(self) -> Vectors:
        return (
            None if self.q is None else self.spread(self.q, self.heads),
            None if self.k is None else self.spread(self.k, self.kv_heads),
        )
