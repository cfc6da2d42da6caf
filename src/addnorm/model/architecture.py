"""The architecture of a model: sizes, mechanisms and settings, everything that decides what is built."""

import math
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, Literal

from addnorm.attended import AttendedSpec
from addnorm.attended.plain import Plain
from addnorm.bias import Biases, QKBiasSpec
from addnorm.bias.linear import Linear
from addnorm.block import BlockSpec, SitePlan
from addnorm.block.sequential import Sequential
from addnorm.column import Column, ColumnSpec
from addnorm.column.none import Nothing as NoColumn
from addnorm.errors import InputError
from addnorm.fields import check_fields
from addnorm.kernels.grouped_attention import Normalisation
from addnorm.model.convolution import Convolution, require_convolution
from addnorm.model.feed_forward import Activation, PlainActivation
from addnorm.model.forgetting import Forgetting, require_forgetting
from addnorm.model.forward_context import ACROSS_LAYERS, Implementation
from addnorm.model.gau import require_one_head
from addnorm.model.scaling import Scaling
from addnorm.model.sharing import LayerSharing
from addnorm.norm import NormSpec
from addnorm.norm.rms import RMS
from addnorm.placement import PlacementSpec
from addnorm.placement.pre import Pre
from addnorm.position import Position, PositionSpec
from addnorm.position.rope import Rope
from addnorm.residual import Parts, Residual, ResidualSpec
from addnorm.residual.add import Add
from addnorm.scores import Scores, ScoresSpec
from addnorm.scores.own import Own
from addnorm.shape import Place, Shape
from addnorm.sink import Sinks, SinkSpec
from addnorm.sink.none import Nothing
from addnorm.values import Values, ValuesSpec
from addnorm.values.own import Own as OwnValues

_ADDED_LATER: dict[str, Any] = {"omitted_at_default": True}
"""Of a field that runs of earlier versions do not have: unset, it is left out of a plan, and identities stay."""


@dataclass(frozen=True, kw_only=True)
class Dropout:
    """Dropout rates; active in training only.

    Raises:
        InputError: a rate outside [0, 1).

    Example::

        Dropout(attention=0.1)
        Dropout.all(0.1)
    """

    attention: float = 0.0
    """On the attention probabilities."""
    branch: float = 0.0
    """On a branch's output, before it joins the stream."""
    embedding: float = 0.0
    """On the embeddings."""

    def __post_init__(self) -> None:
        check_fields(self, "dropout")
        for name in ("attention", "branch", "embedding"):
            if not 0 <= getattr(self, name) < 1:
                raise InputError(f"dropout.{name} must lie in [0, 1), got {getattr(self, name)!r}.")

    @classmethod
    def all(cls, rate: float) -> "Dropout":
        """Set the same rate in all three places."""
        return cls(attention=rate, branch=rate, embedding=rate)


@dataclass(frozen=True, kw_only=True)
class Architecture:
    """The fields of a causal or masked language model.

    Raises:
        InputError: a value of the wrong type, an unknown choice, sizes that do not fit together.
    """

    objective: Literal["causal", "masked"] = "causal"
    """Tokens that a position sees: its own and earlier ones (causal), or all (masked)."""
    vocab: int = 32_000
    width: int = 512
    depth: int = 8
    heads: int = 8
    kv_heads: int | None = None
    """Key and value heads; None for the number of heads."""
    hidden: int = 1024
    """Width inside a feed-forward branch, or inside a gated attention unit."""
    max_seq: int = 2048
    residual: ResidualSpec = field(default_factory=Add)
    scores: ScoresSpec = field(default_factory=Own)
    values: ValuesSpec = field(default_factory=OwnValues, metadata=_ADDED_LATER)
    sink: SinkSpec = field(default_factory=Nothing, metadata=_ADDED_LATER)
    column: ColumnSpec = field(default_factory=NoColumn, metadata=_ADDED_LATER)
    attended: AttendedSpec = field(default_factory=Plain, metadata=_ADDED_LATER)
    norm: NormSpec = field(default_factory=RMS)
    qk_norm: NormSpec | None = field(default=None, metadata=_ADDED_LATER)
    """Norm on every head's queries and on its keys, after their biases and before rotation; None for no such norm."""
    placement: PlacementSpec = field(default_factory=Pre)
    position: PositionSpec = field(default_factory=Rope)
    bias: Biases = field(default_factory=Biases)
    qk_bias: QKBiasSpec = field(default_factory=Linear)
    """Shape of the query and key biases where `bias.q` or `bias.k` is on."""
    activation: Activation = "swiglu"
    block: BlockSpec = field(default_factory=Sequential, metadata=_ADDED_LATER | {"earlier_field": "gau"})
    forgetting: Forgetting | None = field(default=None, metadata=_ADDED_LATER)
    """Gates of every position that lower the scores of earlier keys; None for none. Causal models only."""
    convolution: Convolution | None = field(default=None, metadata=_ADDED_LATER)
    """Convolution of a few positions on what attention reads or projects; None for none."""
    sharing: LayerSharing | None = field(default=None, metadata=_ADDED_LATER)
    """Layers that use the parameters of earlier ones; None if every layer has its own."""
    normalisation: Normalisation = field(default="softmax", metadata=_ADDED_LATER)
    """Function from scores to attention; see `addnorm.attend`. Gated attention units have a setting of their own."""
    score_cap: float | None = field(default=None, metadata=_ADDED_LATER)
    """Bound of the scores' size, c tanh(score / c), applied once to the summed scores, before biases and masks; None for
    none."""
    windows: tuple[int | None, ...] = field(default=(None,), metadata=_ADDED_LATER)
    """Largest number of keys that a row sees, its own position the last of them, of each attention in turn, repeated over the
    depth; null for all keys. Causal models only."""
    embedding_factor: Literal["one", "root_width"] = field(default="one", metadata=_ADDED_LATER)
    """Factor of the embeddings: none, or the root of the width."""
    attention: Implementation = "auto"
    """Implementation of the attention, which changes rounding, time and memory but not the model: one of `addnorm.attend`; or
    "running", one sum of scores for all layers, which backward undoes, if the scores of all layers share one weight ("carry" is
    its name in version 0.1); or "stored", the products of all layers in memory, if every layer sums those of all earlier ones;
    or "auto", on a CPU a running sum or stored products where they can be kept in at most 4 GiB, and otherwise the choice of
    `attend`."""
    tied: bool = False
    """True if the output matrix is the embedding table."""
    token_types: int | None = field(default=None, metadata=_ADDED_LATER)
    """Number of token types (BERT's segments), each with an embedding that is added to the token's; None for none."""
    head_transform: PlainActivation | None = field(default=None, metadata=_ADDED_LATER)
    """Activation of BERT's transform before the output matrix, norm(activation(W x + b)); None for no transform."""
    logit_cap: float | None = field(default=None, metadata=_ADDED_LATER)
    """Bound of the logits' size, c tanh(logit / c); None for none."""
    dropout: Dropout = field(default_factory=Dropout)
    init_std: float = 0.02
    """Standard deviation of embeddings and matrices at the start."""
    init_branch: Literal["same", "depth"] = "same"
    """Standard deviation of matrices that write to the stream: the same, or divided by sqrt(2 depth) as in GPT-2."""
    scaling: Scaling | None = field(default=None, metadata=_ADDED_LATER)
    """Width and depth from which rates and initial values carry over (muP); null for the standard parametrisation."""

    def __post_init__(self) -> None:
        check_fields(self, "model")
        if self.vocab < 1:
            raise InputError(f"vocab: expected a whole number of at least 1, got {self.vocab!r}.")
        if self.token_types is not None and self.token_types < 1:
            raise InputError(f"token_types: expected a whole number of at least 1 or null, got {self.token_types!r}.")
        if self.logit_cap is not None and self.logit_cap <= 0:
            raise InputError(f"logit_cap: expected a positive number or null, got {self.logit_cap!r}.")
        if self.score_cap is not None and not 0 < self.score_cap < math.inf:
            raise InputError(f"score_cap: expected a positive number or null, got {self.score_cap!r}.")
        if self.init_std <= 0:
            raise InputError(f"init_std: expected a positive number, got {self.init_std!r}.")
        if "gated_attention_unit" in (branch.body for plan in self.site_plans for branch in plan.branches):
            require_one_head(self.shape, self.bias, self.activation)
        _ = self.attention_shape
        if self.sharing is not None:
            self.sharing.require_depth(self.depth)
        self._require_branches()
        self._require_joinable()
        self._require_attention()
        self._require_column()
        self._require_windows()
        if self.forgetting is not None:
            require_forgetting(self.objective, self.attention, ACROSS_LAYERS)
        if self.convolution is not None:
            require_convolution(self.convolution, self.residual, self.block.kind, self.site_plans)

    def _require_branches(self) -> None:
        """Raises:
        InputError: the block gives a layer no site, two branches one name, or a site two that attend.
        """
        for layer in range(self.depth):
            plans = self.block.sites(layer, self.depth)
            names = [branch.name for plan in plans for branch in plan.branches]
            if not names or len(set(names)) < len(names):
                raise InputError(
                    f"block: expected branches with different names in layer {layer} of block {self.block.kind!r}, got {names}."
                )
            if any(sum(branch.attends for branch in plan.branches) > 1 for plan in plans):
                raise InputError(
                    f"block: expected at most one branch that attends per site, got two in layer {layer} of block "
                    f"{self.block.kind!r}."
                )

    def _require_joinable(self) -> None:
        """Raises:
        InputError: the residual does not allow a norm where the placement puts it, or reads what the branches cannot.
        """
        if self.residual.separate_reads and (reason := self.block.refuses_separate_reads()) is not None:
            raise InputError(
                f"residual: expected one input for queries, keys and values with block {self.block.kind!r}, because {reason}, "
                f"got {self.residual.kind!r} with separate reads. Set residual.reads to 'one', or block to 'sequential'."
            )
        if self.residual.replays and not isinstance(self.values, OwnValues):
            raise InputError(
                f"values: expected 'own' with residual {self.residual.kind!r}, because an earlier layer that runs again has "
                f"another input, and which values join those of that input is not defined, got {self.values.kind!r}. "
                "Set values to 'own', or take another residual."
            )
        if self.residual.replays and len({self.block.sites(layer, self.depth) for layer in range(self.depth)}) > 1:
            raise InputError(
                f"block: expected the same branches in every layer with residual {self.residual.kind!r}, which runs earlier "
                f"layers again, got {self.block.kind!r}. Set block to 'sequential', or take another residual."
            )
        tables = "token_table" in (branch.body for plan in self.site_plans for branch in plan.branches)
        if self.residual.replays and tables:
            raise InputError(
                f"block: expected branches that read the stream alone with residual {self.residual.kind!r}, which runs earlier "
                f"layers again, got {self.block.kind!r}. Set block to 'sequential', or take another residual."
            )
        sockets = self.placement.sockets()
        for socket, reason in self.residual.refused_sockets().items():
            if getattr(sockets, socket):
                raise InputError(
                    f"placement: expected no norm in the socket {socket!r} with residual {self.residual.kind!r}, because "
                    f"{reason}, got {self.placement.kind!r}. Use placement 'pre'."
                )

    def _require_attention(self) -> None:
        """Raises:
        InputError: what is to happen inside attention does not fit the units or the position.
        """
        attending = [branch for plan in self.site_plans for branch in plan.branches if branch.attends]
        for number, branch in enumerate(attending):
            if branch.body == "gated_attention_unit" and not self.values.projects(number):
                raise InputError(
                    "values: expected values of its own in every layer, because one matrix makes all of a gated attention "
                    f"unit, got {self.values.kind!r} without them. Give it other weights, or set block to 'sequential'."
                )
        own = self.block.normalises_by()
        if own is not None and self.normalisation not in ("softmax", own):
            raise InputError(
                f"normalisation: expected 'softmax', its default, with block {self.block.kind!r}, which has a setting of its "
                f"own, got {self.normalisation!r}. Set block.normalisation to {self.normalisation!r} instead."
            )
        field = "normalisation" if own is None else "block.normalisation"
        if self.normalises_by != "softmax" and not isinstance(self.sink, Nothing):
            raise InputError(
                f"sink: expected 'none' with {field} {self.normalises_by!r}, because a sink takes its share from "
                f"the sum of a softmax, got {self.sink.kind!r}. Set sink to 'none', or {field} to 'softmax'."
            )
        unusual = {field: self.normalises_by, "score_cap": self.score_cap}
        for name, value in unusual.items():
            if value not in ("softmax", None):
                self._require_torch(name, value)
        if self.qk_norm is not None and (reason := self.position.refuses_qk_norm) is not None:
            raise InputError(
                f"qk_norm: expected no norm on queries and keys with position {self.position.kind!r}, because {reason}, got "
                f"{self.qk_norm.kind!r}. Set qk_norm to null, or take another position."
            )

    def _require_column(self) -> None:
        """Raises:
        InputError: a column beside scores or replays for which it is defined nowhere, or an implementation without one.
        """
        if isinstance(self.column, NoColumn):
            return
        without = "Set column to 'none'"
        if not isinstance(self.scores, Own):
            raise InputError(
                f"column: expected 'none' with scores {self.scores.kind!r}, because which products of earlier layers the "
                f"score of a column's key adds up is defined nowhere, got {self.column.kind!r}. {without}, or scores to 'own'."
            )
        if self.residual.replays:
            raise InputError(
                f"column: expected 'none' with residual {self.residual.kind!r}, because an earlier layer that runs "
                f"again has another input, and whose keys and values stand beside it is not defined, got {self.column.kind!r}. "
                f"{without}, or take another residual."
            )
        self._require_torch("column", self.column.kind)

    def _require_torch(self, name: str, value: object) -> None:
        """Raises: InputError: an implementation of attention other than those of torch operations."""
        if self.attention not in ("auto", "reference", "streaming"):
            raise InputError(
                f"attention: expected 'auto', 'reference' or 'streaming' with {name} {value!r}, which no other "
                f"implementation computes, got {self.attention!r}. Set attention to 'auto'."
            )

    @property
    def shape(self) -> Shape:
        """The sizes for which mechanisms are built."""
        return Shape(
            width=self.width,
            depth=self.depth,
            heads=self.heads,
            kv_heads=self.heads if self.kv_heads is None else self.kv_heads,
            hidden=self.hidden,
            max_seq=self.max_seq,
        )

    def _require_windows(self) -> None:
        """Raises:
        InputError: no windows, one without keys, one in a masked model, or different ones for one sum of scores.
        """
        if not self.windows or any(window is not None and window < 1 for window in self.windows):
            raise InputError(
                f"windows: expected whole numbers of at least 1, or null, one at least, got {list(self.windows)}."
            )
        if self.objective != "causal" and self.windows != (None,):
            raise InputError(
                f"windows: expected [null] with objective {self.objective!r}, because a window holds the last keys up to a "
                f"position, got {list(self.windows)}. Set windows to [null], or objective to 'causal'."
            )
        if len(set(self.windows)) > 1 and self.attention in ACROSS_LAYERS:
            raise InputError(
                f"attention: {self.attention}: expected one window for all layers, because one layer's scores are kept for the "
                f"next, got windows {list(self.windows)}. Use 'auto' or 'streaming'."
            )

    @property
    def normalises_by(self) -> Normalisation:
        """Function from scores to attention: the block's own, or the model's."""
        return self.block.normalises_by() or self.normalisation

    @cached_property
    def attention_shape(self) -> Shape:
        """The sizes for scores, positions and q/k biases, which count every attention as a layer."""
        return self.block.attention_shape(self.shape, sum(plan.attends for plan in self.site_plans))

    @cached_property
    def places(self) -> tuple[Place, ...]:
        """The place of every site, in order of depth."""
        pairs = [(layer, plan) for layer in range(self.depth) for plan in self.block.sites(layer, self.depth)]
        return tuple(Place(index, layer, plan.role) for index, (layer, plan) in enumerate(pairs))

    @cached_property
    def site_plans(self) -> tuple[SitePlan, ...]:
        """The branches of every site, in order of depth."""
        return tuple(plan for layer in range(self.depth) for plan in self.block.sites(layer, self.depth))

    def build_residual(self) -> Residual:
        """Build the residual of the hidden stream, with its initial values.

        Raises:
            InputError: it does not fit these sizes.
        """
        norm = partial(self.norm.build, shift=self.bias.norm)
        residual = self.residual.build(self.shape, Parts(sites=self.places, norm=norm, std=self.init_std))
        residual.sites = self.places
        return residual

    def build_scores(self) -> Scores:
        """Build the score residual, with its initial values.

        Raises:
            InputError: it does not fit these sizes.
        """
        return self.scores.build(self.attention_shape)

    def build_values(self) -> Values | None:
        """Build the value residual; its tables are not filled yet. None if every layer has its own values alone.

        Raises:
            InputError: it does not fit these sizes.
        """
        shape = self.attention_shape
        values = self.values.build(shape, vocab=self.vocab, std=self.init_std)
        if values is not None:
            # Known before the first pass, so that layers which nobody reads keep nothing.
            values.read = frozenset(source for layer in range(shape.depth) for source in values.sources(layer))
        return values

    def build_sinks(self) -> Sinks | None:
        """Build the sinks, with their initial values; None if there are none.

        Raises:
            InputError: they do not fit these sizes.
        """
        return self.sink.build(self.attention_shape)

    def build_column(self) -> Column | None:
        """Build the columns of keys and values of earlier layers; None if there are none.

        Raises:
            InputError: they do not fit these sizes.
        """
        shape = self.attention_shape
        column = self.column.build(shape)
        if column is not None:
            column.read = frozenset(source for layer in range(shape.depth) for source in column.sources(layer))
        return column

    def build_position(self) -> Position:
        """Build the position encoding; its parameters are not filled yet.

        Raises:
            InputError: it does not fit these sizes.
        """
        return self.position.build(self.attention_shape)
