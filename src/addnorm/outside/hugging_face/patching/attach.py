"""`addnorm.patch` and `addnorm.unpatch`."""

import copy
from collections.abc import Mapping, Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from addnorm.catalogue import Spec
from addnorm.errors import InputError
from addnorm.model.initialisation import initialise
from addnorm.model.neutral import Start, neutral_start
from addnorm.model.transformer import Transformer
from addnorm.outside.hugging_face.patching import attention, norms
from addnorm.outside.hugging_face.patching.attention import keep_all_positions
from addnorm.outside.hugging_face.patching.check import cache_gap, measure_start, require_cache, require_start
from addnorm.outside.hugging_face.patching.joints import Decoder, find_decoder, find_layers_of, some_tokens
from addnorm.outside.hugging_face.patching.stream import JoinedStream
from addnorm.residual import Parts, ResidualSpec
from addnorm.scores import ScoresSpec
from addnorm.scores.own import Own as OwnScores
from addnorm.shape import Shape
from addnorm.study.encoding import encode
from addnorm.study.foreign import logits_of
from addnorm.values import ValuesSpec
from addnorm.values.own import Own as OwnValues

ATTRIBUTE = "addnorm_patch"
"""Name of a patch in its model, and first part of the names of its parameters there."""
_STD = 0.02


class Patch(nn.Module):
    """Mechanisms in a model of others. Its parameters are those of the mechanisms, and parameters of the model as well.

    Example::

        patch = addnorm.patch(model, residual="rezero")
        optimizer = torch.optim.AdamW(patch.parameters())  # trains the joints alone
    """

    def __init__(self, specs: Mapping[str, Any]) -> None:
        super().__init__()
        self.specs = dict(specs)
        """The mechanisms with every setting written out, by room."""
        self.stream: JoinedStream | None = None
        self.guards: list[RemovableHandle] = []
        """Hooks before the first layer."""
        self.attending: list[nn.Module] = []
        self.implementation: Any = None
        self.norms: dict[str, nn.Module] = {}
        """The model's own norms, by path, where others stand in their places. A dict, so that they are no submodules."""


def patch(
    model: nn.Module, *, residual: Any = None, scores: Any = None, values: Any = None, norm: Any = None, seed: int = 0
) -> Patch:
    """Change how the layers of a trained decoder are joined, in place, starting where the model is.

    Args:
        model: a language model of Transformers; for `residual` and `norm` any module that maps tokens to logits.
        residual: how branches join the stream: a kind such as "rezero", a mapping `{"kind": …}`, or a spec. Fields that are not
            given are set so that the mechanism begins as the plain one.
        scores: how earlier layers' attention scores join; "signed" can begin as the model is.
        values: how earlier layers' values join.
        norm: a kind that computes what the model's norms compute.
        seed: of parameters that are random at the start, with their names.

    Returns:
        The patch, whose parameters are those of the mechanisms.

    Raises:
        UnknownName: no such mechanism.
        InputError: the mechanism cannot begin where the model is, the model's layers are joined in a way that a patch does
            not know, or logits with its cache differ from those without. The model is then as it was.

    Example:
        >>> from transformers import LlamaConfig, LlamaForCausalLM
        >>> sizes = {"vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
        >>> model = LlamaForCausalLM(LlamaConfig(**sizes, intermediate_size=64, max_position_embeddings=16)).eval()
        >>> made = patch(model, scores="signed", residual="rezero")
        >>> sorted(made.specs)
        ['residual', 'scores']
    """
    _require_patchable(model)
    asked = {"residual": residual, "scores": scores, "values": values}
    starts = {name: neutral_start(name, given) for name, given in asked.items() if given is not None}
    if not starts and norm is None:
        raise InputError("patch: expected at least one of residual, scores, values and norm, got none.")
    _require_supported(starts)
    # Measured before anything is changed, and with the model's own rounding as the allowance: some caches differ from
    # no cache without any patch.
    before, gap = measure_start(model), cache_gap(model)
    made = Patch({name: encode(start.spec) for name, start in starts.items()})
    events, layers = find_layers_of(model)
    decoder = find_decoder(events, layers) if residual is not None or norm is not None else None
    # Before the first hook: `unpatch` finds what it has to undo here, at whichever line an error comes.
    setattr(model, ATTRIBUTE, made)
    try:
        if decoder is not None and norm is not None:
            made.specs["norm"] = encode(norm) if isinstance(norm, Spec) else norm
            made.norms.update(norms.replace_norms(model, decoder.norms, norm))
            decoder = find_decoder(*find_layers_of(model))  # hooks belong on the norms that are there now
        first = layers[0].call.module
        made.guards.append(first.register_forward_pre_hook(_refuse_checkpointing))
        if decoder is not None and "residual" in starts:
            _join_stream(made, starts["residual"], decoder, next(model.parameters()), seed)
        if "scores" in starts or "values" in starts:
            _join_attention(model, made, starts, [layer.call.module for layer in layers], seed)
            made.guards.append(first.register_forward_pre_hook(keep_all_positions, with_kwargs=True))
        require_start(model, before, " and ".join(made.specs))
        if starts:
            require_cache(model, made, gap, " and ".join(starts))
    except BaseException:
        unpatch(model)
        raise
    return made


def unpatch(model: nn.Module) -> None:
    """Remove a patch. The model computes what it computed before, bit for bit, apart from what was trained since.

    Raises:
        InputError: the model has no patch.

    Example:
        >>> from transformers import LlamaConfig, LlamaForCausalLM
        >>> sizes = {"vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
        >>> model = LlamaForCausalLM(LlamaConfig(**sizes, intermediate_size=64, max_position_embeddings=16)).eval()
        >>> tokens = torch.arange(8)[None]
        >>> before = model(tokens).logits
        >>> made = patch(model, residual="rezero")
        >>> unpatch(model)
        >>> torch.equal(model(tokens).logits, before)
        True
    """
    made = patch_of(model)
    for guard in made.guards:
        guard.remove()
    if made.stream is not None:
        made.stream.remove()
    for module in made.attending:
        attention.unmark(module)
    if made.implementation is not None:
        _set_implementation(model, made.implementation)
    norms.put(model, made.norms)
    delattr(model, ATTRIBUTE)


def patch_of(model: nn.Module) -> Patch:
    """The patch of a model.

    Raises:
        InputError: it has none.
    """
    made = getattr(model, ATTRIBUTE, None)
    if not isinstance(made, Patch):
        raise InputError(
            f"expected a patched model, got {type(model).__name__} without a patch. Call addnorm.patch first."
        )
    return made


def _require_patchable(model: nn.Module) -> None:
    if hasattr(model, ATTRIBUTE):
        raise InputError("patch: expected a model without a patch, got a patched one. Call addnorm.unpatch first.")
    if any(isinstance(module, Transformer) for module in model.modules()):
        raise InputError(
            "patch: expected a model of others, got one of addnorm. Change its spec, and start it from the old weights with "
            "`init_from`."
        )


def _require_supported(starts: Mapping[str, Start]) -> None:
    residual: Any = starts["residual"].spec if "residual" in starts else None
    if residual is not None and residual.separate_reads:
        raise InputError(
            f"residual: expected one read for queries, keys and values, which a model of others has, got {residual.kind!r} "
            "with separate ones. Take `reads: one`."
        )
    values: Any = starts["values"].spec if "values" in starts else None
    if values is not None and values.reads_tokens:
        raise InputError(
            f"values: expected values that earlier layers computed, got {values.kind!r}, which reads tokens, and an attention "
            "function does not see them. Take 'first'."
        )


def _refuse_checkpointing(layer: nn.Module, args: Any) -> None:
    """Hook before the first layer."""
    if layer.training and getattr(layer, "gradient_checkpointing", False):
        raise InputError(
            "patch: expected a model without gradient checkpointing, whose layers run twice and would join twice. Call "
            "model.activation_checkpointing_disable()."
        )


def _join_stream(made: Patch, start: Start, decoder: Decoder, like: Tensor, seed: int) -> None:
    shape = Shape(width=decoder.width, depth=len(decoder.layers), heads=1, kv_heads=1, hidden=decoder.width, max_seq=1)
    spec = cast(ResidualSpec, start.spec)
    residual = spec.build(shape, Parts(sites=decoder.places, norm=nn.RMSNorm, std=_STD))
    residual.sites = decoder.places
    _add(made, "residual", residual, start, like, seed)
    # After the parameters are filled: its hooks act from here on.
    made.stream = JoinedStream(residual, decoder)


def _join_attention(
    model: nn.Module, made: Patch, starts: Mapping[str, Start], layers: Sequence[nn.Module], seed: int
) -> None:
    sizes = _note_attention(model, made, layers)
    shape = Shape(
        width=sizes.heads * sizes.head_dim,
        depth=len(layers),
        heads=sizes.heads,
        kv_heads=sizes.kv_heads,
        hidden=1,
        max_seq=1,
    )
    own: dict[str, Spec] = {"scores": OwnScores(), "values": OwnValues()}
    of = {name: starts.get(name, Start(spec=spec, parameters="start")) for name, spec in own.items()}
    scores = cast(ScoresSpec, of["scores"].spec).build(shape)
    values = cast(ValuesSpec, of["values"].spec).build(shape, vocab=1, std=_STD)
    like = next(model.parameters())
    for name, mechanism in (("scores", scores), ("values", values)):
        if mechanism is not None:
            _add(made, name, mechanism, of[name], like, seed)
    joined = attention.JoinedAttention(scores, values, len(layers))
    for layer, module in enumerate(made.attending):
        attention.mark(module, joined, layer)


def _add(made: Patch, name: str, mechanism: nn.Module, start: Start, like: Tensor, seed: int) -> None:
    """Add a mechanism, filled with its neutral start, on the device and in the dtype of the model."""
    alone = nn.Module()  # those that were added before have their start already
    alone.add_module(name, mechanism)
    initialise(alone, seed)
    start.fill(mechanism)
    made.add_module(name, mechanism.to(device=like.device, dtype=like.dtype))


def _note_attention(model: nn.Module, made: Patch, layers: Sequence[nn.Module]) -> attention.Sizes:
    """Switch the model to our attention function, and find the modules that call it.

    Raises:
        InputError: not every layer calls the registry once, or layers differ in size.
    """
    own: Any = getattr(getattr(model, "config", None), "_attn_implementation", None)
    if own is None or not hasattr(model, "set_attn_implementation"):
        raise InputError(
            f"patch: scores and values expect a model of Transformers, whose attention can be replaced, got "
            f"{type(model).__name__}. Patch `residual` alone."
        )
    attention.register()
    made.implementation = own
    _set_implementation(model, attention.IMPLEMENTATION)
    noted = attention.NotedAttention()
    # Modules that attend have no common class or name. All are marked, one pass is run, and those that called the
    # attention function are the ones.
    inside = [module for layer in layers for module in layer.modules()]
    for module in inside:
        attention.mark(module, noted, 0)
    try:
        with torch.no_grad():
            logits_of(model, some_tokens(model))
    finally:
        for module in inside:
            attention.unmark(module)
    per_layer = [[module for module in noted.modules if module in set(layer.modules())] for layer in layers]
    if any(len(attending) != 1 for attending in per_layer) or len(set(noted.sizes)) != 1:
        counts = ", ".join(map(str, sorted({len(attending) for attending in per_layer})))
        raise InputError(
            f"patch: scores and values expect one attention per layer, of one size, through Transformers' registry of "
            f"attention functions, got {counts} per layer and {len(set(noted.sizes))} sizes in {type(model).__name__}. Patch "
            "`residual` alone."
        )
    made.attending = [module for (module,) in per_layer]
    return noted.sizes[0]


def _set_implementation(model: Any, name: Any) -> None:
    from transformers import PreTrainedConfig

    # In configurations of its own, each copied once for all modules: models made from the same one would get the function too.
    copied: dict[int, Any] = {}
    for module in model.modules():
        configs = {name: value for name, value in vars(module).items() if isinstance(value, PreTrainedConfig)}
        vars(module).update(copy.deepcopy(configs, copied))
    model.set_attn_implementation(name)
