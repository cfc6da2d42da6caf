"""The model: embeddings, a stack of branches joined by a residual, and a head."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import ClassVar, Protocol, cast

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, Int64, Integer
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from addnorm.errors import InputError
from addnorm.kernels.grouped_attention import ProductBuffers, ScoreBuffers
from addnorm.model.architecture import Architecture
from addnorm.model.assembly import build_head_transform, build_layer, build_norm
from addnorm.model.cache import Cache
from addnorm.model.forward_context import ACROSS_LAYERS, RUNNING, ForwardContext, sums_all_layers
from addnorm.model.layer import Branch, SiteBranches, TransformerLayer
from addnorm.model.linear import Embedding, Linear
from addnorm.model.replay import replay_last_sites, replay_layers
from addnorm.model.sharing import share_parameters
from addnorm.model.trace import SiteTrace, Trace
from addnorm.residual import Read, Site
from addnorm.roles import ParameterRole


class TextTokenizer(Protocol):
    """Turns a text into ids and back, as the tokenizers of `addnorm.data` do."""

    def encode(self, text: str) -> Int[np.ndarray, " tokens"]: ...

    def decode(self, tokens: Integer[np.ndarray, " tokens"]) -> str: ...


class Transformer(nn.Module):
    """A Transformer whose joints are mechanisms of the catalogue; `ModelSpec.build` makes it and fills its parameters.

    Args:
        spec: everything that decides what is built.

    Raises:
        InputError: a mechanism does not fit the sizes, or cannot be computed as `spec.attention` asks.
    """

    parameter_roles: ClassVar[Mapping[str, ParameterRole]] = {"head.weight": "head"}

    read_tokenizer: Callable[[], TextTokenizer] | None = None
    """Reads the tokenizer of a model that was loaded from files, for `addnorm.generate` of a text."""

    def __init__(self, spec: Architecture) -> None:
        super().__init__()
        self.spec = spec
        self.embedding = Embedding(spec.vocab, spec.width, std=spec.init_std)
        if spec.token_types is not None:
            self.token_types = Embedding(spec.token_types, spec.width, std=spec.init_std)
        self.position = spec.build_position()
        self.embedding_norm = build_norm(spec, "embedding")
        self.embedding_dropout = nn.Dropout(spec.dropout.embedding) if spec.dropout.embedding else nn.Identity()
        self.residual = spec.build_residual()
        self.scores = spec.build_scores()
        self.values = spec.build_values()
        self.sink = spec.build_sinks()
        self.column = spec.build_column()
        if spec.attention in ACROSS_LAYERS and self.sink is not None:
            raise InputError(
                f"attention: {spec.attention}: expected sink 'none', because scores that are kept for later layers have no "
                f"place for one, got {spec.sink.kind!r}. Use 'auto' or 'streaming'."
            )
        self.score_buffers, self.product_buffers = ScoreBuffers(), ProductBuffers()
        self.recompute = False
        """True for branches that keep their input alone for the backward pass, which computes them again."""
        if spec.attention in RUNNING and self.scores.shared_weight(0) is None:
            raise InputError(
                f"attention: {spec.attention} keeps one running sum of scores: expected scores with one weight for all layers, "
                f"got {spec.scores.kind!r}. Use 'auto' or 'streaming'."
            )
        if spec.attention == "stored" and not sums_all_layers(self.scores, spec.attention_shape.depth):
            raise InputError(
                f"attention: stored keeps the products of all layers: expected scores that every layer sums over all earlier "
                f"ones, got {spec.scores.kind!r}, and {spec.attention_shape.depth} layer(s). Use 'auto' or 'streaming'."
            )
        self.layers = nn.ModuleList(build_layer(spec, index) for index in range(spec.depth))
        self.final_norm = build_norm(spec, "final")
        self.head_transform = build_head_transform(spec)
        self.head = Linear(spec.width, spec.vocab, bias=spec.bias.head, std=spec.init_std)
        self.tie()

    def tie(self) -> None:
        """Make one parameter of what the spec ties or shares; needed again after parameters were replaced, not filled."""
        if self.spec.tied:
            self.head.weight = cast(nn.Parameter, self.embedding.weight)
        if self.spec.sharing is not None:
            share_parameters(list(self.layers), self.spec.sharing)

    def forward(
        self,
        tokens: Int64[Tensor, "batch seq"],
        *,
        padding: Bool[Tensor, "batch seq"] | None = None,
        token_types: Int64[Tensor, "batch seq"] | None = None,
        cache: Cache | None = None,
        trace: Trace | None = None,
        exits: list[Tensor] | None = None,
    ) -> Float[Tensor, "batch seq vocab"]:
        """Compute the logits of the next token (causal) or of each token (masked).

        Args:
            tokens: ids in [0, vocab). They are not checked, which would cost time in every pass: an id outside raises torch's
                IndexError on a CPU and fails a device-side assertion on a GPU.
            padding: True for real tokens, False for padding; None if all are real.
            token_types: type of each token, of a model with `spec.token_types`; None if all are of type 0.
            cache: state of earlier calls on the same sequences, which these tokens continue. Causal models only.
            trace: records what every site of this pass reads and writes; see `addnorm.model.trace.Trace`.
            exits: receives the logits that the final norm and the head read from the stream after every layer but the last.

        Raises:
            InputError: tokens of another shape or dtype; more positions than the position encoding covers; a cache with a
                masked model or with padding.
        """
        require_token_shape(tokens)
        causal = self.spec.objective == "causal"
        if cache is not None and (not causal or padding is not None):
            raise InputError(
                f"cache: expected a causal model and no padding, got a {self.spec.objective} model"
                f"{' and padding' if padding is not None else ''}."
            )
        x, context = self.enter(
            tokens, padding=padding, token_types=token_types, cache=cache, tracing=trace is not None
        )
        state = self.residual.open(x)
        if trace is not None:
            trace.embeddings, trace.entry, trace.sites = x, self.residual.view(state), []
        # All of depth. Only the residual knows what its state is: one stream, several, or a history. Branches get what
        # it reads and return what it writes. `addnorm.insight.depth.residual` repeats these lines without the branches,
        # so a change of the order here belongs there too.
        layer = 0
        for site, branches in self.sites(context):
            if exits is not None and site.layer != layer:
                layer = site.layer
                exits.append(self.read_out(self.residual.view(state)))
            read, state = self.residual.read(state, site)
            output, joined = self._run(branches, read, context), branches.on_stream
            before = state
            if joined.stream_factor != 1:
                state = self.residual.map_stream(state, joined.scaled, site)
            written = state = self.residual.write(state, output, site)
            if not isinstance(joined.stream_norm, nn.Identity):
                state = self.residual.map_stream(state, joined.stream_norm, site)
            if trace is not None:
                trace.sites.append(
                    SiteTrace(
                        site=site,
                        before=self.residual.view(before),
                        read=read,
                        output=output,
                        written=self.residual.view(written),
                        after=self.residual.view(state),
                        state=state,
                        attention=None if branches.attending is None else context.traced,
                    )
                )
        if cache is not None:
            cache.length += tokens.shape[1]
        return self.read_out(self.residual.close(state))

    def enter(
        self,
        tokens: Int64[Tensor, "batch seq"],
        *,
        padding: Bool[Tensor, "batch seq"] | None,
        token_types: Int64[Tensor, "batch seq"] | None,
        cache: Cache | None,
        tracing: bool,
    ) -> tuple[Float[Tensor, "batch seq width"], ForwardContext]:
        """Make the stream that the residual is opened with, and the side inputs of the pass; arguments as of `forward`.

        Raises:
            InputError: more positions than the position encoding covers, or token types for a model without them.
        """
        start = cache.length if cache is not None else 0
        x = self.position.embed(self.embed(tokens, token_types), start)
        x = self.embedding_dropout(self.embedding_norm(x))
        context = ForwardContext(
            scores=self.scores,
            depth=self.spec.attention_shape.depth,
            position=self.position,
            prepared=self.position.prepare(start, tokens.shape[1], x),
            causal=self.spec.objective == "causal",
            padding=padding,
            dropout=self.spec.dropout.attention if self.training else 0.0,
            cache=cache,
            replays=self.spec.residual.replays,
            tokens=tokens,
            values=self.values,
            sinks=self.sink,
            column=self.column,
            normalisation=self.spec.normalises_by,
            cap=self.spec.score_cap,
            windows=self.spec.windows,
            impl=self.spec.attention,
            buffers=self.score_buffers,
            products=self.product_buffers,
            tracing=tracing,
        )
        return x, context

    def _run(self, branches: SiteBranches, read: Read, context: ForwardContext) -> Tensor:
        if self.recompute and torch.is_grad_enabled():
            # Queries and keys that later layers sum are kept by the context, and not replaced when they are computed again.
            output: Tensor = checkpoint(branches.output, read, context, use_reentrant=False)
            return output
        return branches.output(read, context)

    def embed(
        self, tokens: Int64[Tensor, "batch seq"], token_types: Int64[Tensor, "batch seq"] | None = None
    ) -> Float[Tensor, "batch seq width"]:
        """Embed tokens, times the factor, and their types if the model has types.

        Raises:
            InputError: types for a model without them.
        """
        x: Tensor = self.embedding(tokens)
        if self.spec.embedding_factor == "root_width":
            x = x * self.spec.width**0.5
        if self.spec.token_types is None:
            if token_types is not None:
                raise InputError(
                    "token_types: expected none, because the model's spec has no token_types, got a tensor."
                )
            return x
        return x + self.token_types(torch.zeros_like(tokens) if token_types is None else token_types)

    def read_out(self, x: Float[Tensor, "batch seq width"]) -> Float[Tensor, "batch seq vocab"]:
        """Compute logits from a closed stream: final norm, transform, output matrix, cap."""
        logits = self.head(self.head_transform(self.final_norm(x)))
        if self.spec.scaling is not None:
            logits = logits * self.spec.scaling.logit_factor(self.spec.width)
        cap = self.spec.logit_cap
        return logits if cap is None else cap * torch.tanh(logits / cap)

    def sites(self, context: ForwardContext) -> Iterator[tuple[Site, SiteBranches]]:
        """Every site in order of depth, with its branches."""
        layers = cast(list[TransformerLayer], list(self.layers))
        index = 0
        for number, layer in enumerate(layers):
            runs = (replay_layers, replay_last_sites) if self.spec.residual.replays else ()
            replays = [partial(run, layers[:number], context=context, present=layer) for run in runs]
            for branches in layer.sites():
                yield Site(index, number, branches.role, *replays), branches
                index += 1

    def site_branches(self) -> list[SiteBranches]:
        """The branches of every site, in order of depth."""
        return [branches for layer in self.layers for branches in cast(TransformerLayer, layer).sites()]

    def branches(self) -> list[Branch]:
        """Every branch in order of depth; a site may have several."""
        return [branch for branches in self.site_branches() for branch in branches.branches]

    def mechanisms(self) -> dict[str, nn.Module]:
        """The modules that mechanisms built, by their path in the model; those of shared layers once."""
        parts: dict[str, nn.Module] = {"residual": self.residual, "scores": self.scores, "position": self.position}
        further = {"values": self.values, "sink": self.sink, "column": self.column}
        parts |= {name: part for name, part in further.items() if part is not None}
        known: set[int] = set()
        for path, module in self.named_modules():
            last = path.rpartition(".")[2]
            # A module of a shared layer stands at several paths with the same parameters; recorded twice, its numbers
            # would count twice. Modules without parameters are mechanisms all the same.
            own = {id(parameter) for parameter in module.parameters()}
            named = last in ("qk_bias", "attended", "forgetting", "convolution") or last.endswith("_norm")
            if named and not (own and own <= known):
                parts[path] = module
                known |= own
        return parts

    def new_cache(self) -> Cache:
        """Make an empty cache for decoding."""
        return Cache(self.spec.attention_shape.depth)


def require_token_shape(tokens: Tensor) -> None:
    """Raises:
    InputError: anything but a tensor of whole numbers with two axes.
    """
    if not isinstance(tokens, Tensor):
        raise InputError(
            f"tokens: expected a tensor [batch, seq] of ids, got a {type(tokens).__name__}. Use torch.tensor."
        )
    if tokens.dtype not in (torch.int64, torch.int32):
        raise InputError(f"tokens: expected whole numbers (int64), got {tokens.dtype}. Pass tokens.long().")
    if tokens.dim() != 2:
        raise InputError(
            f"tokens must have shape [batch, seq], got {list(tokens.shape)}. For one sequence pass tokens.unsqueeze(0)."
        )
