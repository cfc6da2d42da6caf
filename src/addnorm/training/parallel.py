"""Weights of a run on its ranks: all of them on every rank, or on each rank a share (`sharded`).

Both compute the same bits. The loop asks for the shards of a rank, hands over the gradients of each, and gets the summed
gradient; checkpoints hold whole tensors.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, cast

import torch
from torch import Tensor, nn

from addnorm.optimization.optimizers import Group
from addnorm.training.ranks import Ranks
from addnorm.training.tree_sum import ShardTerms


class Parallelism(ABC):
    """The weights of one rank.

    Args:
        model: the model, whose weights are on the rank's device after this.
        ranks: the ranks of the run.
    """

    kind: ClassVar[str]
    """Its name in `training.parallel`."""
    together: ClassVar[bool]
    """True if a rank can apply the model only when all others do."""

    def __init__(self, model: nn.Module, ranks: Ranks) -> None:
        self.model, self.ranks = model, ranks

    @abstractmethod
    def groups(self, groups: Iterable[Group]) -> list[Group]:
        """Groups of an optimizer, with the tensors that it updates on this rank.

        Args:
            groups: groups of the parameters that the model had when it was given.
        """

    @abstractmethod
    def shards(self, count: int) -> Sequence[int]:
        """Numbers of the batch's shards that this rank computes, in order."""

    @abstractmethod
    def take(self, loss: Tensor) -> ShardTerms:
        """Terms of the sum over shards, after a backward pass: the loss and the gradients, which are removed from the model."""

    @abstractmethod
    def set_gradients(self, total: ShardTerms) -> Tensor:
        """Give the parameters the summed gradient of this rank's shards, and of all other ranks'. Returns the loss."""

    @abstractmethod
    def clip(self, limit: float) -> Tensor:
        """Scale the gradient down to a norm of at most `limit`. Returns the norm before."""

    @abstractmethod
    def model_state(self) -> dict[str, Any]:
        """The model's `state_dict` with whole tensors. All ranks call it; those that do not record may get less."""

    @abstractmethod
    def load_model_state(self, state: Mapping[str, Any]) -> None:
        """Load a `state_dict` with whole tensors."""

    @abstractmethod
    def optimizer_state(self, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
        """The optimizer's `state_dict` with whole tensors. All ranks call it; those that do not record may get less."""

    @abstractmethod
    def load_optimizer_state(self, optimizer: torch.optim.Optimizer, state: Mapping[str, Any]) -> None:
        """Load a `state_dict` with whole tensors."""

    @abstractmethod
    def common_state(self) -> dict[str, Tensor]:
        """The part of the model's state that all ranks must have alike."""


class Replicated(Parallelism):
    """All weights on every rank. A rank computes neighbouring shards, and the ranks exchange the sum."""

    kind, together = "replicated", False

    def __init__(self, model: nn.Module, ranks: Ranks, device: torch.device) -> None:
        super().__init__(model.to(device), ranks)
        self._parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]

    def groups(self, groups: Iterable[Group]) -> list[Group]:
        return list(groups)

    def shards(self, count: int) -> Sequence[int]:
        # Neighbouring shards: their sum is one node of the tree, and one exchange of gradients per step joins the nodes
        # of all ranks.
        own = count // self.ranks.size
        return range(self.ranks.rank * own, (self.ranks.rank + 1) * own)

    def take(self, loss: Tensor) -> ShardTerms:
        terms: ShardTerms = [loss, *(parameter.grad for parameter in self._parameters)]
        for parameter in self._parameters:
            parameter.grad = None
        return terms

    def set_gradients(self, total: ShardTerms) -> Tensor:
        loss, *gradients = self.ranks.sum(total, [cast(Tensor, total[0]), *self._parameters])
        for parameter, gradient in zip(self._parameters, gradients, strict=True):
            parameter.grad = gradient
        return cast(Tensor, loss)

    def clip(self, limit: float) -> Tensor:
        norm: Tensor = nn.utils.clip_grad_norm_(self._parameters, limit)
        return norm

    def model_state(self) -> dict[str, Any]:
        return self.model.state_dict()

    def load_model_state(self, state: Mapping[str, Any]) -> None:
        self.model.load_state_dict(state)

    def optimizer_state(self, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
        return optimizer.state_dict()

    def load_optimizer_state(self, optimizer: torch.optim.Optimizer, state: Mapping[str, Any]) -> None:
        optimizer.load_state_dict(dict(state))

    def common_state(self) -> dict[str, Tensor]:
        return self.model.state_dict()
