"""Base of optimizers that are not compiled.

torch.optim excludes the methods below from compilation, and imports Dynamo to do so when they are first called: more than a
second in every process that trains, which is longer than the rest of its start. Uncompiled, the excluded method and the
method itself are the same.
"""

from inspect import unwrap

import torch
from torch.optim import Optimizer


class EagerOptimizer(Optimizer):
    """An optimizer that does not import Dynamo."""

    add_param_group = unwrap(Optimizer.add_param_group)
    load_state_dict = unwrap(Optimizer.load_state_dict)
    state_dict = unwrap(Optimizer.state_dict)
    zero_grad = unwrap(Optimizer.zero_grad)


class EagerAdamW(EagerOptimizer, torch.optim.AdamW):
    """torch's AdamW, without Dynamo. Its updates are not differentiable, which is what torch's wrapper of `step` is for."""

    step = torch.no_grad()(unwrap(torch.optim.AdamW.step))
