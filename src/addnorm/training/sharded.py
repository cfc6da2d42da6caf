"""Weights that do not fit one device: a rank keeps a share of every matrix, of its gradient and of its optimizer's state.

FSDP2 (`torch.distributed.fsdp.fully_shard`) gathers the matrices of a branch when it is computed, and frees them after. Its own
reduction adds gradients in the order of a ring, which depends on the number of ranks. Three changes make the bits those of one
rank:

- Gradients are added by recursive halving: in round k, ranks r and r xor 2^k exchange the halves that the other one keeps, so
  that every entry is summed in the order of the binary tree. It sends as much as a ring does.
- Rank r of W computes the shards r, r + W, r + 2W, … . After each, the ranks hold the sum of W neighbouring shards, which is a
  node of the tree; `TreeSum` adds these nodes.
- The norm of a matrix's gradient is computed on one rank, from the whole gradient.

What is small, recorded as a learned scalar, or cannot be cut at a vector's end stays whole on all ranks. Optimizers get plain
tensors, the rank's rows.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch import distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor

from addnorm.errors import AddnormError
from addnorm.model.forward_context import ForwardContext
from addnorm.model.transformer import Transformer
from addnorm.optimization.optimizers import Group
from addnorm.training.parallel import Parallelism
from addnorm.training.ranks import RankGroup, lost
from addnorm.training.tree_sum import ShardTerms

_RECORDER = 0
_VECTOR_BYTES = 64


class Sharded(Parallelism):
    """A share of every matrix on each rank.

    Args:
        model: the model, on the CPU.
        ranks: the ranks of the run, at least two.
        device: the rank's device.
    """

    kind, together = "sharded", True

    def __init__(self, model: Transformer, ranks: RankGroup, device: torch.device) -> None:
        super().__init__(model, ranks)
        self._group = ranks
        # `fully_shard` puts DTensors in the places of the parameters. The optimizer's groups were made from the
        # parameters before that, by the roles of whole matrices, so names are kept by which one is translated into the
        # other.
        name_of = {id(parameter): name for name, parameter in model.named_parameters()}
        _shard(model, ranks, device)
        self._names = {name: id(p) for name, p in model.named_parameters(remove_duplicate=False)}
        trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
        # An optimizer that got DTensors would compute with collectives of its own, in another order. It gets plain
        # tensors that share the memory of FSDP's rows: what it writes is what the next forward pass gathers.
        self._own = {
            id(p): nn.Parameter(cast(DTensor, p.detach()).to_local()) for p in trained if isinstance(p, DTensor)
        }
        """The rank's rows of each matrix, in the memory that FSDP gathers from."""
        self._trained = trained
        self._whole = [parameter for parameter in trained if id(parameter) not in self._own]
        self._cut = [parameter for parameter in trained if id(parameter) in self._own]
        new = dict(model.named_parameters())
        self._updated = {old: self._own.get(id(new[name]), new[name]) for old, name in name_of.items()}
        """The tensor that the optimizer updates for each of the model's parameters before, which FSDP has replaced."""

    def groups(self, groups: Iterable[Group]) -> list[Group]:
        return [Group(**{**group, "params": [self._updated[id(p)] for p in group["params"]]}) for group in groups]

    def shards(self, count: int) -> Sequence[int]:
        # Interleaved, where `Replicated` takes neighbours. FSDP reduces after every backward pass, so the shards that
        # the ranks compute at the same time must be neighbours in the batch: their sum is then a node of the tree.
        return range(self.ranks.rank, count, self.ranks.size)

    def take(self, loss: Tensor) -> ShardTerms:
        # FSDP has reduced the cut matrices' gradients during the backward pass, in the tree's order. What is whole on all
        # ranks it does not know of, so it is summed here, by the same tree, or the ranks' copies would drift apart.
        whole = self.ranks.sum([loss, *(p.grad for p in self._whole)], [loss, *self._whole])
        cut: ShardTerms = [None if p.grad is None else cast(DTensor, p.grad).to_local() for p in self._cut]
        for parameter in self._trained:
            parameter.grad = None
        return [*whole, *cut]

    def set_gradients(self, total: ShardTerms) -> Tensor:
        loss, *gradients = total
        for parameter, gradient in zip([*self._whole, *self._cut], gradients, strict=True):
            # The sum over this rank's shards has the rank's rows of every cut matrix; it needs no further exchange.
            self._own.get(id(parameter), parameter).grad = gradient
        return cast(Tensor, loss)

    def clip(self, limit: float) -> Tensor:
        tensors = [self._own.get(id(parameter), parameter) for parameter in self._trained]
        norms = []
        for number, (parameter, own) in enumerate(zip(self._trained, tensors, strict=True)):
            if own.grad is None:
                continue
            # A norm of rows, squared and added over ranks, would round in another order for every number of ranks. So one rank
            # gets the whole gradient of a matrix, the ranks taking turns, and computes what one device alone computes.
            gradient: Tensor | None = own.grad
            if id(parameter) in self._own:
                gradient = self._gather(own.grad, parameter.shape, to=number % self.ranks.size)
            elif self.ranks.rank != 0:
                gradient = None
            norms.append(own.grad.new_zeros(()) if gradient is None else torch._foreach_norm([gradient], 2)[0])
        table = torch.stack(norms)
        with lost():
            dist.all_reduce(table)  # each norm is zero on all ranks but one: exact in any order
        # As `clip_grad_norm_` on one device: a norm for each parameter, in the model's order, and the norm of these.
        norm = torch.linalg.vector_norm(table, 2)
        nn.utils.clip_grads_with_norm_(tensors, limit, norm)
        return norm

    def model_state(self) -> dict[str, Any]:
        gathered: dict[int, Tensor | None] = {}
        state: dict[str, Any] = {}
        for name, value in self.model.state_dict().items():
            if isinstance(value, DTensor):
                key = self._names[name]
                # All ranks walk the state in one order and gather each matrix once; a rank that skipped one would
                # answer the next request with the wrong matrix.
                if key not in gathered:  # tied weights are gathered once
                    whole = self._gather(value.to_local(), value.shape, to=_RECORDER)
                    gathered[key] = None if whole is None else whole.cpu()
                value = gathered[key]
            state[name] = value
        return state

    @torch.no_grad()
    def load_model_state(self, state: Mapping[str, Any]) -> None:
        for name, value in self.model.state_dict().items():
            if isinstance(value, DTensor):
                value.to_local().copy_(self._rows(state[name]))
            else:
                value.copy_(state[name])

    def optimizer_state(self, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
        state = optimizer.state_dict()
        whole = {
            number: dict(values) for number, values in state["state"].items()
        }  # the optimizer's own are in `state`
        for number, shape in self._shapes(optimizer).items():
            for name, value in whole.get(number, {}).items():
                if isinstance(value, Tensor) and value.ndim > 0:
                    gathered = self._gather(value, shape, to=_RECORDER)
                    whole[number][name] = None if gathered is None else gathered.cpu()
        return {**state, "state": whole}

    def load_optimizer_state(self, optimizer: torch.optim.Optimizer, state: Mapping[str, Any]) -> None:
        shapes, kept = self._shapes(optimizer), dict(state["state"])
        for number in shapes.keys() & kept.keys():
            kept[number] = {
                name: self._rows(value) if isinstance(value, Tensor) and value.ndim > 0 else value
                for name, value in kept[number].items()
            }
        optimizer.load_state_dict({**state, "state": kept})

    def common_state(self) -> dict[str, Tensor]:
        return {name: value for name, value in self.model.state_dict().items() if not isinstance(value, DTensor)}

    def _shapes(self, optimizer: torch.optim.Optimizer) -> dict[int, torch.Size]:
        """The whole shape of every matrix that the ranks share out, by its number in the optimizer."""
        shape_of = {id(self._own[id(parameter)]): parameter.shape for parameter in self._cut}
        numbered = enumerate(p for group in optimizer.param_groups for p in group["params"])
        return {number: shape_of[id(p)] for number, p in numbered if id(p) in shape_of}

    def _rows(self, whole: Tensor) -> Tensor:
        """This rank's rows of a whole tensor, possibly none."""
        # FSDP cuts into chunks of equal length, rounded up: the last rank may have fewer rows, or none.
        most = -(-len(whole) // self.ranks.size)
        return whole[self.ranks.rank * most : (self.ranks.rank + 1) * most]

    def _gather(self, own: Tensor, shape: torch.Size, *, to: int) -> Tensor | None:
        """The whole tensor of which each rank has rows, on one rank; None on the others."""
        if own.shape[1:] != shape[1:]:
            raise AddnormError(
                f"training.parallel: sharded: expected an optimizer's state in the shape of its matrix, {list(shape)}, got "
                f"rows of {list(own.shape[1:])}."
            )
        # `gather` takes equal lengths, and the last ranks may have fewer rows, or none.
        padded = own.new_zeros(-(-shape[0] // self.ranks.size), *shape[1:])
        padded[: len(own)] = own
        parts = [torch.empty_like(padded) for _ in range(self.ranks.size)] if self.ranks.rank == to else None
        with lost():
            dist.gather(padded, parts, dst=to)
        return None if parts is None else torch.cat(parts)[: shape[0]]


def _kept_whole(model: Transformer, ranks: int) -> set[nn.Parameter]:
    """Parameters that every rank has whole: all but matrices; those of mechanisms, which are recorded; and matrices whose
    shares would begin within a vector of the processor, because single entries are computed by other instructions."""
    recorded = {p for mechanism in model.mechanisms().values() for p in mechanism.parameters()}
    return {
        p
        for p in model.parameters()
        if p.ndim < 2 or p in recorded or -(-len(p) // ranks) * p[0].numel() * p.element_size() % _VECTOR_BYTES
    }


def _shard(model: Transformer, ranks: RankGroup, device: torch.device) -> None:
    plain = _kept_whole(model, ranks.size)
    for parameter in plain:
        parameter.data = parameter.data.to(device)
    mesh = init_device_mesh(device.type, (ranks.size,))
    # FSDP's defaults divide gradients by the number of ranks and reduce them with its own collective. Both change bits: the
    # division is left out (the training loop weighs the shards), and the reduction is `TreeReduceScatter`.
    #
    # The root too gives its matrices back after a forward pass: an evaluation has no backward pass that would do so.
    # Branches first, the root last: FSDP gives a matrix to the innermost unit that has it, so the root gets what no
    # branch has, the embeddings and the head.
    units: list[nn.Module] = [*(branch.body for branch in model.branches()), model]
    for module in units:
        fully_shard(module, mesh=mesh, reshard_after_forward=True, ignored_params=plain)
        if module is not model:
            # FSDP copies every dataclass among the inputs, but layers share one context. Its hook runs between these two.
            module.register_forward_pre_hook(_hide_context, prepend=True)
            module.register_forward_pre_hook(_show_context)
    for part in model.modules():
        if isinstance(part, FSDPModule):
            part.set_gradient_divide_factor(1.0)
            part.set_force_sum_reduction_for_comms(True)
            part.set_custom_reduce_scatter(cast(Any, TreeReduceScatter(ranks)))  # its base class is not public


class _Hidden:
    """A context that FSDP passes on as it is."""

    def __init__(self, context: ForwardContext) -> None:
        self.context = context


def _hide_context(module: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(_Hidden(each) if isinstance(each, ForwardContext) else each for each in inputs)


def _show_context(module: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(each.context if isinstance(each, _Hidden) else each for each in inputs)


class TreeReduceScatter:
    """FSDP's reduction of gradients by recursive halving, in the order of a binary tree.

    Args:
        ranks: the ranks of the run.
    """

    def __init__(self, ranks: RankGroup) -> None:
        self._ranks = ranks

    def allocate(self, size: Sequence[int], *, dtype: torch.dtype, device: torch.device) -> Tensor:
        """Memory for a message."""
        return torch.empty(*size, dtype=dtype, device=device)

    def __call__(
        self, output_tensor: Tensor, input_tensor: Tensor, group: dist.ProcessGroup, op: Any, async_op: bool = False
    ) -> None:
        """Write the sum over ranks of this rank's part into `output_tensor`.

        Args:
            output_tensor: one part.
            input_tensor: one part for each rank.
            group: the ranks.
            op: always a sum, see `set_force_sum_reduction_for_comms`.
            async_op: False.
        """
        # Part p of the input belongs to rank p. In the round for bit k, a rank sends the parts whose owners differ from
        # it in bit k and adds what it receives to those that it keeps. Low bits come first: part p is summed as ((0 +
        # 1) + (2 + 3)) + …, which is the tree of `TreeSum`. A ring would start each part at another rank.
        held, distance = input_tensor.view(self._ranks.size, -1), 1
        while distance < self._ranks.size:
            # `held` are the parts of the ranks that agree with this one in the lower bits; half of them in this bit too.
            pairs = held.unflatten(0, (-1, 2))
            bit = 1 if self._ranks.rank & distance else 0
            received = self._ranks.exchange(pairs[:, 1 - bit].contiguous(), self._ranks.rank ^ distance)
            held = received.add_(pairs[:, bit])
            distance *= 2
        output_tensor.copy_(held[0])
