"""The model: embeddings, a stack of branches joined by a residual, and a head."""

import hashlib
from collections.abc import Iterator, Mapping
from functools import partial
from typing import ClassVar, cast

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor, nn

from addnorm.errors import InputError
from addnorm.model.attention import Attention
from addnorm.model.cache import Cache
from addnorm.model.feed_forward import build_feed_forward
from addnorm.model.forward_context import ForwardContext
from addnorm.model.gau import GatedAttentionUnit
from addnorm.model.layer import Body, Branch, Layer, UnitPair
from addnorm.model.linear import Embedding, Linear
from addnorm.model.replay import replay_layers, replay_second
from addnorm.model.spec import ModelSpec
from addnorm.residual import Site, map_stream
from addnorm.roles import ParameterRole


class Transformer(nn.Module):
    """A Transformer whose joints are mechanisms of the catalogue."""

    parameter_roles: ClassVar[Mapping[str, ParameterRole]] = {"head.weight": "head"}

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        self.spec = spec
        shape, sockets, std = spec.shape, spec.placement.sockets(), spec.init_std
        out_std = std / (2 * spec.depth) ** 0.5 if spec.init_branch == "depth" else std

        def norm(*, here: bool) -> nn.Module:
            return spec.norm.build(spec.width, shift=spec.bias.norm) if here else nn.Identity()

        def branch(body: Body) -> Branch:
            return Branch(
                body,
                norm(here=sockets.branch_input),
                norm(here=sockets.branch_output),
                norm(here=sockets.stream),
                spec.dropout.branch,
            )

        self.embedding = Embedding(spec.vocab, spec.width, std=std)
        self.position = spec.build_position()
        self.embedding_norm = norm(here=sockets.embedding)
        self.embedding_dropout = nn.Dropout(spec.dropout.embedding)
        self.residual = spec.build_residual()
        self.scores = spec.build_scores()

        def layer(index: int) -> Layer:
            return Layer(
                branch(Attention(shape, index, spec.bias, spec.qk_bias, std=std, out_std=out_std)),
                branch(build_feed_forward(shape, spec.activation, spec.bias, std=std, out_std=out_std)),
            )

        def pair(index: int) -> UnitPair:
            first, second = (
                branch(GatedAttentionUnit(spec.attention_shape, at, spec.bias, spec.qk_bias, std=std, out_std=out_std))
                for at in (2 * index, 2 * index + 1)
            )
            return UnitPair(first, second)

        if spec.attention == "carry" and self.scores.shared_weight(0) is None:
            raise InputError(
                f"attention: carry keeps one running sum of scores, and scores {spec.scores.kind!r} give no layer the same "
                "weight as the others, or leave some out. Use 'auto' or 'streaming'."
            )
        self.layers = nn.ModuleList((layer if spec.gau is None else pair)(index) for index in range(spec.depth))
        self.final_norm = norm(here=sockets.final)
        self.head = Linear(spec.width, spec.vocab, bias=spec.bias.head, std=std)
        if spec.tied:
            self.head.weight = cast(nn.Parameter, self.embedding.weight)

    def forward(
        self,
        tokens: Int64[Tensor, "batch seq"],
        *,
        padding: Bool[Tensor, "batch seq"] | None = None,
        cache: Cache | None = None,
    ) -> Float[Tensor, "batch seq vocab"]:
        """Logits of the next token (causal) or of each token (masked).

        Args:
            tokens: ids in [0, vocab). Ids are not looked at, which would cost time in every pass: an id outside raises
                torch's IndexError on a CPU and fails a device-side assertion on a GPU.
            padding: True for real tokens, False for padding; None if all are real.
            cache: what earlier calls saw of the same sequences; the tokens follow on from there. Causal models only.

        Raises:
            InputError: tokens of another shape or dtype; more positions than the position encoding knows; a cache with a
            masked model or with padding.
        """
        require_token_shape(tokens)
        causal = self.spec.objective == "causal"
        if cache is not None and (not causal or padding is not None):
            raise InputError("a cache needs a causal model and tokens without padding.")
        start = cache.length if cache is not None else 0
        x = self.position.embed(self.embedding(tokens), start)
        x = self.embedding_dropout(self.embedding_norm(x))
        context = ForwardContext(
            scores=self.scores,
            position=self.position,
            prepared=self.position.prepare(start, tokens.shape[1], x),
            causal=causal,
            padding=padding,
            dropout=self.spec.dropout.attention if self.training else 0.0,
            cache=cache,
            keep_patterns=self.residual.replays,
            normalisation=self.spec.gau.normalisation if self.spec.gau is not None else "softmax",
            impl=self.spec.attention,
        )
        residual = self.residual
        state = residual.open(x)
        for site, branch, side in self.sites(context):
            state = residual.write(state, branch(residual.read(state, site), *side), site)
            state = map_stream(state, branch.stream_norm)
        if cache is not None:
            cache.length += tokens.shape[1]
        return self.head(self.final_norm(residual.close(state)))

    def sites(self, context: ForwardContext) -> Iterator[tuple[Site, Branch, tuple[ForwardContext, ...]]]:
        """Every branch in depth order, with its site and what it reads beside the stream."""
        layers = cast(list[Layer | UnitPair], list(self.layers))
        for index, layer in enumerate(layers):
            earlier = layers[:index]
            replays = (
                partial(replay_layers, earlier, context=context, present=layer),
                partial(replay_second, earlier, context=context, present=layer),
            )
            first, second = layer.branches()
            yield Site(2 * index, index, "attention", *replays), first, (context,) if first.attends else ()
            yield Site(2 * index + 1, index, "feedforward", *replays), second, (context,) if second.attends else ()

    def mechanisms(self) -> dict[str, nn.Module]:
        """The parts that came from mechanism rooms, by their path in the model."""
        found: dict[str, nn.Module] = {"residual": self.residual, "scores": self.scores, "position": self.position}
        for path, module in self.named_modules():
            last = path.rpartition(".")[2]
            if last == "qk_bias" or last.endswith("_norm"):
                found[path] = module
        return found

    def new_cache(self) -> Cache:
        """An empty cache for decoding."""
        return Cache(self.spec.attention_shape.depth)


def require_token_shape(tokens: Tensor) -> None:
    """Raises:
    InputError: anything but a tensor of whole numbers with two axes.
    """
    if not isinstance(tokens, Tensor):
        raise InputError(
            f"tokens must be a tensor [batch, seq] of ids, got a {type(tokens).__name__}. Use torch.tensor."
        )
    if tokens.dtype not in (torch.int64, torch.int32):
        raise InputError(f"tokens must be whole numbers (int64), got {tokens.dtype}. Pass tokens.long().")
    if tokens.dim() != 2:
        raise InputError(
            f"tokens must have shape [batch, seq], got {list(tokens.shape)}. For one sequence pass tokens.unsqueeze(0)."
        )


def initialise(model: nn.Module, seed: int) -> None:
    """Fill every random parameter from hash(seed, its full name), whatever other parameters there are."""
    done: set[int] = set()  # a tied parameter is filled once, under its first name
    with torch.no_grad():
        for path, module in model.named_modules():
            for name, parameter in module.named_parameters(recurse=False):
                if hasattr(module, "initialise") and not parameter.is_meta and id(parameter) not in done:
                    module.initialise(name, generator_for(seed, f"{path}.{name}", parameter.device))
                done.add(id(parameter))


def generator_for(seed: int, name: str, device: torch.device | str = "cpu") -> torch.Generator:
    """A generator that depends on the seed and the name alone."""
    digest = hashlib.blake2b(f"{seed}:{name}".encode(), digest_size=8).digest()
    return torch.Generator(device).manual_seed(int.from_bytes(digest, "little") >> 1)
