"""The architecture of a model: sizes, mechanisms and settings, everything that decides what is built."""

from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Literal

from addnorm.attended import AttendedSpec
from addnorm.attended.plain import Plain
from addnorm.bias import Biases, QKBiasSpec
from addnorm.bias.linear import Linear
from addnorm.errors import InputError
from addnorm.fields import check_fields
from addnorm.model.feed_forward import Activation, PlainActivation
from addnorm.model.forward_context import Implementation
from addnorm.model.gau import Gau, require_one_head
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
from addnorm.shape import Place, Role, Shape
from addnorm.sink import Sinks, SinkSpec
from addnorm.sink.none import Nothing
from addnorm.values import Values, ValuesSpec
from addnorm.values.own import Own as OwnValues

_ADDED_LATER = {"omitted_at_default": True}
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
    """Width inside the feed-forward branch, or inside a gated attention unit."""
    max_seq: int = 2048
    residual: ResidualSpec = field(default_factory=Add)
    scores: ScoresSpec = field(default_factory=Own)
    values: ValuesSpec = field(default_factory=OwnValues, metadata=_ADDED_LATER)
    sink: SinkSpec = field(default_factory=Nothing, metadata=_ADDED_LATER)
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
    gau: Gau | None = None
    """Settings of gated attention units, two of which replace the branches of every layer; None for the usual branches."""
    attention: Implementation = "auto"
    """Implementation of the attention, which changes rounding, time and memory but not the model: one of `addnorm.attend`; or
    "running", one sum of scores for all layers, which backward undoes, if the scores of all layers share one weight ("carry" is
    its name in version 0.1); or "auto", a running sum where it can be kept in at most 4 GiB, and otherwise the choice of
    `attend`."""
    tied: bool = False
    """True if the output matrix is the embedding table."""
    token_types: int | None = field(default=None, metadata=_ADDED_LATER)
    """Number of token types (BERT's segments), each with an embedding that is added to the token's; None for none."""
    head_transform: PlainActivation | None = field(default=None, metadata=_ADDED_LATER)
    """Activation of BERT's transform before the output matrix, norm(activation(W x + b)); None for no transform."""
    dropout: Dropout = field(default_factory=Dropout)
    init_std: float = 0.02
    """Standard deviation of embeddings and matrices at the start."""
    init_branch: Literal["same", "depth"] = "same"
    """Standard deviation of matrices that write to the stream: the same, or divided by sqrt(2 depth) as in GPT-2."""

    def __post_init__(self) -> None:
        check_fields(self, "model")
        if self.vocab < 1:
            raise InputError(f"vocab: expected a whole number of at least 1, got {self.vocab!r}.")
        if self.token_types is not None and self.token_types < 1:
            raise InputError(f"token_types: expected a whole number of at least 1 or null, got {self.token_types!r}.")
        if self.init_std <= 0:
            raise InputError(f"init_std: expected a positive number, got {self.init_std!r}.")
        if self.gau is not None:
            require_one_head(self.shape, self.bias, self.activation)
        _ = self.attention_shape
        self._require_joinable()
        self._require_attention()

    def _require_joinable(self) -> None:
        """Raises:
        InputError: the residual does not allow a norm where the placement puts it, or reads what the branches cannot.
        """
        if self.gau is not None and self.residual.separate_reads:
            raise InputError(
                f"residual: expected one input for every branch, because one matrix makes all of a gated attention unit, "
                f"got {self.residual.kind!r} with separate reads. Set residual.reads to 'one', or gau to null."
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
        if self.gau is not None and not all(map(self.values.projects, range(len(self.places)))):
            raise InputError(
                f"values: expected values of its own in every layer, because one matrix makes all of a gated attention unit, "
                f"got {self.values.kind!r} without them. Give it other weights, or set gau to null."
            )
        if self.gau is not None and self.gau.normalisation != "softmax" and not isinstance(self.sink, Nothing):
            raise InputError(
                f"sink: expected 'none' with gau.normalisation {self.gau.normalisation!r}, because a sink takes its share from "
                f"the sum of a softmax, got {self.sink.kind!r}. Set sink to 'none', or gau.normalisation to 'softmax'."
            )
        if self.qk_norm is not None and (reason := self.position.refuses_qk_norm) is not None:
            raise InputError(
                f"qk_norm: expected no norm on queries and keys with position {self.position.kind!r}, because {reason}, got "
                f"{self.qk_norm.kind!r}. Set qk_norm to null, or take another position."
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

    @property
    def attention_shape(self) -> Shape:
        """The sizes for scores, positions and q/k biases, which count every gated attention unit as a layer."""
        if self.gau is None:
            return self.shape
        return replace(self.shape, depth=len(self.places), key_dim=self.gau.key_dim)

    @property
    def layer_roles(self) -> tuple[Role, ...]:
        """The branches of every layer, in the order in which they meet the stream."""
        return ("attention", "feedforward")

    @cached_property
    def places(self) -> tuple[Place, ...]:
        """The place of every branch, in order of depth."""
        pairs = ((layer, role) for layer in range(self.depth) for role in self.layer_roles)
        return tuple(Place(index, layer, role) for index, (layer, role) in enumerate(pairs))

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
            values.read = frozenset(source for layer in range(shape.depth) for source in values.sources(layer))
        return values

    def build_sinks(self) -> Sinks | None:
        """Build the sinks, with their initial values; None if there are none.

        Raises:
            InputError: they do not fit these sizes.
        """
        return self.sink.build(self.attention_shape)

    def build_position(self) -> Position:
        """Build the position encoding; its parameters are not filled yet.

        Raises:
            InputError: it does not fit these sizes.
        """
        return self.position.build(self.attention_shape)
