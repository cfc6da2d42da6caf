"""A model whose branches are the modules of a class of Transformers, and whose joint is a residual of the catalogue."""

import copy
import inspect
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from operator import attrgetter
from typing import Any, cast

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor, nn

from addnorm.block import BlockSpec, BranchPlan, SitePlan
from addnorm.catalogue import ROOMS
from addnorm.errors import AddnormError, InputError
from addnorm.model.architecture import Architecture
from addnorm.model.cache import Cache
from addnorm.model.forward_context import ForwardContext
from addnorm.model.layer import Branch, ForeignBody, TransformerLayer
from addnorm.model.transformer import Transformer
from addnorm.outside.hugging_face.shipped import LayerInputs, ShippedBranch, ShippedClass, attend, transform
from addnorm.outside.hugging_face.shipped.beside import BESIDE, ResidualBeside
from addnorm.reduction import Reduction
from addnorm.residual import Residual
from addnorm.shape import Shape


@dataclass(frozen=True, kw_only=True)
class ShippedBlock(BlockSpec):
    """The branches of every layer, as the class has them."""

    roles: tuple[tuple[str, ...], ...] = ()
    """The role of every branch of every layer."""

    @classmethod
    def reduces_to(cls) -> tuple[Reduction, ...]:
        return ()

    def attention_shape(self, shape: Shape, attentions: int) -> Shape:
        return shape

    def sites(self, layer: int, depth: int) -> tuple[SitePlan, ...]:
        roles = self.roles[layer] if self.roles else ("attention", "feedforward")
        # No plan attends: scores, values and caches of this library count attentions of its own.
        return tuple(
            SitePlan(role=cast(Any, role), branches=(BranchPlan(name=_name(roles, number), body="feedforward"),))
            for number, role in enumerate(roles)
        )


@dataclass(frozen=True, kw_only=True)
class ShippedArchitecture(Architecture):
    """The joint and the sizes of a model whose branches are modules of a class of Transformers.

    Fields that describe the inside of a branch (`heads`, `activation`, `position`, …) are at values that build nothing.
    """

    shipped: str = ""
    """Name of the class."""
    block: ShippedBlock = field(default_factory=ShippedBlock)

    def build_residual(self) -> Residual:
        joined = tuple(tuple(role for role in layer if role != BESIDE) for layer in self.block.roles)
        if joined == self.block.roles:
            return super().build_residual()
        return ResidualBeside(replace(self, block=ShippedBlock(roles=joined)).build_residual(), self.places)


class ShippedCache(Cache):
    """The cache of a class of Transformers, in the place of this library's."""

    def __init__(self, theirs: Any) -> None:
        super().__init__(0)
        self.theirs = theirs

    def select(self, sequences: Int64[Tensor, " kept"]) -> "ShippedCache":
        theirs = copy.deepcopy(self.theirs)
        theirs.reorder_cache(sequences)
        selected = ShippedCache(theirs)
        selected.length = self.length
        return selected


class LayerProbe(nn.Module):
    """A layer that computes nothing and keeps what it is called with.

    Masks, rotations, tables per layer and shared keys are made by each class's own forward pass in its own way. That pass, run
    on these layers, makes them for ours: there is no second description that could be wrong or old.
    """

    def __init__(self, layer: nn.Module, *, returns_more: bool) -> None:
        super().__init__()
        self.signature = inspect.signature(type(layer).forward)
        # Plain attributes that the class's loop reads off a layer; in a list, so that the layer is no child of the probe.
        self.attributes = {
            name: value for name, value in vars(layer).items() if isinstance(value, bool | int | float | str)
        }
        for name in vars(type(layer)):
            if not name.startswith("_") and isinstance(getattr(layer, name), bool | str):
                self.attributes.setdefault(name, getattr(layer, name))
        self.returns_more = returns_more
        self.hidden: Tensor | None = None
        self.arguments: Mapping[str, Any] = {}

    def __getattr__(self, name: str) -> Any:
        attributes = self.__dict__.get("attributes", {})
        return attributes[name] if name in attributes else super().__getattr__(name)

    def forward(self, hidden_states: Tensor, *positional: Any, **named: Any) -> Any:
        bound = self.signature.bind(None, hidden_states, *positional, **named).arguments
        further = bound.pop("kwargs", {})
        self.hidden = hidden_states
        self.arguments = {
            name: value for name, value in {**bound, **further}.items() if name not in ("self", "hidden_states")
        }
        return (hidden_states, None) if self.returns_more else hidden_states


class PassThrough(nn.Module):
    """Stands for a part of the class's loop whose result nothing reads."""

    def forward(self, *inputs: Any) -> Any:
        return inputs[-1]


class ShippedModel(Transformer):
    """A model of this library whose joint is a residual of the catalogue and whose branches are modules of a class.

    Args:
        table: says what the joint and the branches of the class are.
        theirs: a model of the class; its modules are moved, so that it cannot be used on.

    Raises:
        InputError: a parameter of the model has no place: the configuration has a part that the table does not know.
    """

    def __init__(self, table: ShippedClass, theirs: Any) -> None:
        config = attrgetter(table.text_config)(theirs.config) if table.text_config else theirs.config
        stack = attrgetter(table.stack)(theirs)
        everything = {id(parameter): name for name, parameter in theirs.named_parameters()}
        parts = _parts(table, stack)
        spec = _spec(table, config, parts)
        with torch.device("meta"):
            super().__init__(spec)
        self.table, self.config = table, config
        weight = stack.get_input_embeddings().weight
        self.residual = spec.build_residual().to(weight.device, weight.dtype)
        with torch.no_grad():
            joint = fill_joint(table, self.residual, stack)
        self.layers = nn.ModuleList(_layer(table, spec, layer, index) for index, layer in enumerate(parts))
        # `PreTrainedModel` finds layers by this name; the probes take their places, so that nothing is in the model twice.
        stack.layers = nn.ModuleList(LayerProbe(layer, returns_more=table.returns_more) for layer in stack.layers)
        for name in filter(None, (table.entered, table.close)):
            replaced = getattr(stack, name)
            of_list = nn.ModuleList(PassThrough() for _ in replaced) if isinstance(replaced, nn.ModuleList) else None
            setattr(stack, name, of_list or PassThrough())
        self.stack = stack
        self.embedding = stack.get_input_embeddings()
        self.final_norm = table.final_norm(theirs, stack)
        self.head = table.head(theirs, stack)
        self._require_all(everything, joint)

    def _require_all(self, everything: Mapping[int, str], joint: Any) -> None:
        placed = {id(parameter) for parameter in self.parameters()}
        for part in joint:
            placed |= {id(part)} if isinstance(part, nn.Parameter) else {id(own) for own in part.parameters()}
        left = [
            name
            for known, name in everything.items()
            if known not in placed and not any(re.fullmatch(pattern, name) for pattern in self.table.unused_by_text)
        ]
        if left:
            raise InputError(
                f"{self.table.architecture}: expected every parameter in a branch or the joint, got {left[0]}"
                f"{f' and {len(left) - 1} more' if len(left) > 1 else ''}, of a part that load_hf does not know."
            )
        if any(parameter.is_meta for parameter in self.parameters()):
            raise AddnormError(f"{self.table.architecture}: expected every parameter filled, got one that is not.")

    def enter(
        self,
        tokens: Int64[Tensor, "batch seq"],
        *,
        padding: Bool[Tensor, "batch seq"] | None,
        token_types: Int64[Tensor, "batch seq"] | None,
        cache: Cache | None,
        tracing: bool,
    ) -> tuple[Float[Tensor, "batch seq width"], ForwardContext]:
        """Make the stream and, by the class's own forward pass, what every layer takes beside it.

        Raises:
            InputError: token types, or a cache of another model.
        """
        if token_types is not None:
            raise InputError(f"token_types: expected none with {self.table.architecture}, got a tensor.")
        if cache is not None and not isinstance(cache, ShippedCache):
            raise InputError("cache: expected one of the model's new_cache(), got another model's.")
        named: dict[str, Any] = {} if padding is None else {"attention_mask": padding.long()}
        if self.spec.objective == "causal":
            named |= {"use_cache": cache is not None, "past_key_values": None if cache is None else cache.theirs}
        self.stack(input_ids=tokens, **named)
        probes = cast(list[LayerProbe], list(self.stack.layers))
        hidden = probes[0].hidden
        passed_on: dict[str, Any] = {}
        assert hidden is not None  # kept by the pass
        given = [LayerInputs(arguments=probe.arguments, passed_on=passed_on) for probe in probes]
        for probe in probes:
            probe.hidden, probe.arguments = None, {}
        if self.recompute and self.table.returns_more:
            raise InputError(
                f"recompute: expected False with {self.table.architecture}, whose layers pass results on: one that runs again "
                "would take those of a later layer, got True."
            )
        x = self.table.entry(hidden, self.config)
        context = ForwardContext(
            scores=self.scores,
            depth=self.spec.attention_shape.depth,
            position=self.position,
            prepared=None,
            causal=self.spec.objective == "causal",
            padding=padding,
            dropout=0.0,
            cache=cache,
            replays=False,
            tokens=tokens,
            buffers=self.score_buffers,
            products=self.product_buffers,
            foreign=given,
            tracing=tracing,
        )
        return x, context

    def read_out(self, x: Float[Tensor, "batch seq width"]) -> Float[Tensor, "batch seq vocab"]:
        """Compute logits from a closed stream, as the class does."""
        logits: Tensor = self.head(self.final_norm(x).to(self.head.weight.dtype))
        return self.table.logits(logits, self.config)

    def new_cache(self) -> ShippedCache:
        """Make an empty cache for decoding."""
        from transformers import DynamicCache

        return ShippedCache(DynamicCache(config=self.config))

    def tie(self) -> None:
        """The class has tied its own matrices."""


def fill_joint(table: ShippedClass, residual: Residual, stack: Any) -> Sequence[nn.Module | nn.Parameter]:
    """Copy the numbers of a class's joint, and return the modules and parameters that they were in."""
    return table.fill(residual.residual if isinstance(residual, ResidualBeside) else residual, stack)


def _parts(table: ShippedClass, stack: Any) -> list[Sequence[ShippedBranch]]:
    return [table.branches(layer, index) for index, layer in enumerate(stack.layers)]


def _spec(table: ShippedClass, config: Any, parts: Sequence[Sequence[ShippedBranch]]) -> ShippedArchitecture:
    residual, norm = dict(table.residual(config)), dict(table.norm(config))
    return ShippedArchitecture(
        objective=cast(Any, table.objective),
        vocab=config.vocab_size,
        width=config.hidden_size,
        depth=config.num_hidden_layers,
        heads=1,
        hidden=1,
        max_seq=1,
        residual=ROOMS["residual"].make(residual.pop("kind"), **residual),
        norm=ROOMS["norm"].make(norm.pop("kind"), **norm),
        placement=ROOMS["placement"].make(table.placement),
        position=ROOMS["position"].make("none"),
        activation="relu",
        block=ShippedBlock(roles=tuple(tuple(part.role for part in layer) for layer in parts)),
        shipped=table.architecture,
    )


def _layer(table: ShippedClass, spec: Architecture, parts: Any, index: int) -> TransformerLayer:
    roles = [part.role for part in parts]
    branches = {_name(roles, number): _branch(table, part, index) for number, part in enumerate(parts)}
    return TransformerLayer(spec.block.sites(index, spec.depth), branches)


def _branch(table: ShippedClass, part: ShippedBranch, index: int) -> Branch:
    call = part.call or (partial(attend, table.withheld) if part.role == "attention" else transform)
    return Branch(
        ForeignBody(part.body, call, index),
        input_norm=part.input_norm or nn.Identity(),
        output_norm=part.output_norm or nn.Identity(),
        stream_norm=nn.Identity(),
        input_factor=1.0,
        stream_factor=1.0,
        factor=1.0,
        dropout=0.0,
    )


def _name(roles: Any, number: int) -> str:
    """The branch's name in its layer: its role, with a number from the second one on."""
    before = list(roles[:number]).count(roles[number])
    return f"{roles[number]}_{before + 1}" if before else str(roles[number])
