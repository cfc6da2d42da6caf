"""Gradient norms: for the parameters of modules, and for the stream."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from addnorm.insight.flow.stream import Squares
from addnorm.training.objective import LossSums


class ParameterGradients:
    """Gradients of a loss with respect to a model's parameters, summed over batches; the model's own `.grad` is not changed."""

    def __init__(self, model: nn.Module) -> None:
        self.parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self.sums: dict[int, Tensor] = {}
        """By the id of the parameter."""
        self.count = 0
        """Scored tokens."""

    def add(self, sums: LossSums, others: Sequence[Tensor] = ()) -> Sequence[Tensor | None]:
        """Add a batch.

        Returns:
            The gradients with respect to `others`; None for those on which the loss does not depend.
        """
        # Not `backward`, which would add to the `.grad` of the caller's parameters. Parameters and streams in one call:
        # two calls would need the graph twice.
        both = torch.autograd.grad(sums.nats, [*self.parameters, *others], allow_unused=True)
        for parameter, gradient in zip(self.parameters, both, strict=False):
            if gradient is not None:
                before = self.sums.get(id(parameter))
                self.sums[id(parameter)] = gradient if before is None else before + gradient
        self.count += sums.count
        return both[len(self.parameters) :]

    def norm(self, *modules: nn.Module) -> float:
        """The norm of the gradient of the mean loss per scored token with respect to the parameters of modules."""
        squares = Squares()
        for parameter in (parameter for module in modules for parameter in module.parameters()):
            if id(parameter) in self.sums:
                squares.add(self.sums[id(parameter)])
        return squares.norm / self.count


@contextmanager
def as_in_training(model: nn.Module) -> Iterator[bool]:
    """Let batch norm use the statistics of the batch, as in training, and restore its running statistics afterwards.

    Yields:
        True if the model has batch norms, so that a pass differs from one in evaluation mode.
    """
    norms = [module for module in model.modules() if isinstance(module, nn.modules.batchnorm._BatchNorm)]
    kept = [{name: buffer.clone() for name, buffer in norm.named_buffers()} for norm in norms]
    modes = [norm.training for norm in norms]
    for norm in norms:
        norm.train()
    try:
        yield bool(norms)
    finally:
        for norm, buffers, mode in zip(norms, kept, modes, strict=True):
            norm.train(mode)
            for name, buffer in norm.named_buffers():
                buffer.copy_(buffers[name])
