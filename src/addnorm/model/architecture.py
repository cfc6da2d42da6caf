"""The architecture of a model: sizes, mechanisms and settings, everything that decides what is built."""

from dataclasses import dataclass, field, replace
from typing import Literal

from addnorm.bias import Biases, QKBiasSpec
from addnorm.bias.linear import Linear
from addnorm.errors import InputError
from addnorm.fields import check_fields
from addnorm.model.feed_forward import Activation
from addnorm.model.forward_context import Implementation
from addnorm.model.gau import Gau, require_one_head
from addnorm.norm import NormSpec
from addnorm.norm.rms import RMS
from addnorm.placement import PlacementSpec
from addnorm.placement.pre import Pre
from addnorm.position import Position, PositionSpec
from addnorm.position.rope import Rope
from addnorm.residual import Residual, ResidualSpec
from addnorm.residual.add import Add
from addnorm.scores import Scores, ScoresSpec
from addnorm.scores.own import Own
from addnorm.shape import Shape


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
    norm: NormSpec = field(default_factory=RMS)
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
    dropout: Dropout = field(default_factory=Dropout)
    init_std: float = 0.02
    """Standard deviation of embeddings and matrices at the start."""
    init_branch: Literal["same", "depth"] = "same"
    """Standard deviation of matrices that write to the stream: the same, or divided by sqrt(2 depth) as in GPT-2."""

    def __post_init__(self) -> None:
        check_fields(self, "model")
        if self.vocab < 1:
            raise InputError(f"vocab: expected a whole number of at least 1, got {self.vocab!r}.")
        if self.init_std <= 0:
            raise InputError(f"init_std: expected a positive number, got {self.init_std!r}.")
        if self.gau is not None:
            require_one_head(self.shape, self.bias, self.activation)
        _ = self.attention_shape

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
        return replace(self.shape, depth=2 * self.depth, key_dim=self.gau.key_dim)

    def build_residual(self) -> Residual:
        """Build the residual of the hidden stream, with its initial values.

        Raises:
            InputError: it does not fit these sizes.
        """
        return self.residual.build(self.shape)

    def build_scores(self) -> Scores:
        """Build the score residual, with its initial values.

        Raises:
            InputError: it does not fit these sizes.
        """
        return self.scores.build(self.attention_shape)

    def build_position(self) -> Position:
        """Build the position encoding; its parameters are not filled yet.

        Raises:
            InputError: it does not fit these sizes.
        """
        return self.position.build(self.attention_shape)
