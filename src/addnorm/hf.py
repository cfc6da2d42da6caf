"""Every model of this library in Hugging Face Transformers; importing this module registers its classes there.

    import addnorm.hf
    model = AutoModelForCausalLM.from_pretrained("exported/real")   # a folder that `addnorm export --format hf` wrote
    model.generate(**tokenizer(["Once"], return_tensors="pt"), max_new_tokens=20)

Positions are counted from the first real token of a row, so left padding changes no prediction, with any mechanism.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from addnorm.errors import InputError
from addnorm.model.cache import Cache
from addnorm.model.initialisation import generator_for
from addnorm.model.linear import Embedding
from addnorm.model.spec import ModelSpec
from addnorm.model.transformer import Transformer
from addnorm.outside.hugging_face.own_class import (
    ARCHITECTURES,
    FORMAT,
    MODEL_TYPE,
    PREFIX,
    STUB,
    STUB_TEXT,
    config_for,
    spec_in,
)
from addnorm.outside.hugging_face.unused import require_twin
from addnorm.store.files import write_atomic
from addnorm.study import plugins as study_plugins

try:
    import transformers
    from transformers.modeling_outputs import CausalLMOutputWithPast, MaskedLMOutput
except ImportError as error:
    raise ImportError(
        f"addnorm.hf needs Hugging Face Transformers, which cannot be imported ({error}): pip install 'addnorm[hf]'."
    ) from error

__all__ = ["AddnormCache", "AddnormConfig", "AddnormForCausalLM", "AddnormForMaskedLM", "load_plugins"]

_IGNORED_LABEL = -100
"""Label of a position without loss, as everywhere in Transformers."""


def load_plugins(paths: Sequence[str | Path]) -> None:
    """Load files with the user's own mechanisms, before a model that consists of them.

    Raises:
        InputError: a file is missing, fails to import, or breaks a law of its room.

    Example:
        >>> load_plugins(["my_residual.py"])
        >>> addnorm.preset("base", residual="my_residual").residual.kind
        'my_residual'
    """
    study_plugins.load_plugins([str(path) for path in paths], Path.cwd())


class AddnormConfig(transformers.PretrainedConfig):
    """config.json of a model: its spec, and its sizes under the names of Transformers.

    Example:
        >>> AddnormConfig(spec=addnorm.preset("llama", scores="sum")).model_spec().scores.kind
        'sum'
    """

    model_type = MODEL_TYPE

    def __init__(
        self, spec: ModelSpec | Mapping[str, Any] | None = None, plugins: Sequence[str] = (), **fields: Any
    ) -> None:
        if isinstance(spec, Mapping):
            fields = {"addnorm_format": FORMAT, **fields, "spec": dict(spec), "plugins": [*plugins]}
        else:
            fields = {**config_for(spec or ModelSpec(), tuple(plugins)), **fields}
        fields.pop("model_type", None)
        super().__init__(**fields)

    def model_spec(self) -> ModelSpec:
        """The spec of the model.

        Raises:
            InputError: it cannot be read, or needs a plugin that is not loaded.
        """
        return spec_in(self.to_dict(), str(self.name_or_path or "AddnormConfig"), "addnorm.hf.load_plugins([…])")


@dataclass(frozen=True, kw_only=True)
class _Group:
    """Rows of a batch with the same left padding."""

    rows: Tensor
    padding: int
    cache: Cache
    """State of the rows, in their order."""


class AddnormCache(transformers.Cache):
    """Cache of `generate`: one cache of ours for all rows of the batch that have the same left padding.

    Example:
        >>> spec = addnorm.preset("llama", vocab=64, width=32, depth=2, heads=4, hidden=64, max_seq=16)
        >>> model = AddnormForCausalLM(AddnormConfig(spec=spec)).eval()
        >>> output = model(torch.tensor([[1, 2, 3]]), use_cache=True)
        >>> output.past_key_values.get_seq_length()
        3
        >>> model(torch.tensor([[4]]), past_key_values=output.past_key_values).logits.shape
        torch.Size([1, 1, 64])
    """

    def __init__(self) -> None:
        super().__init__(layers=[])
        self.groups: list[_Group] = []
        self.length = 0
        """Number of positions, padding included."""

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return self.length

    def get_max_length(self, layer_idx: int | None = None) -> int:
        return -1

    def reset(self) -> None:
        self.groups, self.length = [], 0

    def reorder_cache(self, beam_idx: Tensor) -> None:
        self.batch_select_indices(beam_idx)

    def batch_repeat_interleave(self, repeats: int) -> None:
        rows = sum(len(group.rows) for group in self.groups)
        self.batch_select_indices(torch.arange(rows).repeat_interleave(repeats))

    def batch_select_indices(self, indices: Tensor) -> None:
        selected = []
        for group in self.groups:
            # Beams move between rows of the batch. A beam takes along the cache of the row that it comes from, and
            # stays in that row's group, because its padding is the same.
            rows, items = (indices.to(group.rows.device)[:, None] == group.rows).nonzero(as_tuple=True)
            if len(rows):
                selected.append(_Group(rows=rows, padding=group.padding, cache=group.cache.select(items)))
        self.groups = selected

    def crop(self, tokens_to_remove: int) -> None:
        raise InputError("addnorm.hf: expected plain, sampled or beam search, got a search that takes tokens back.")

    @property
    def is_croppable(self) -> bool:
        return False


class AddnormPreTrainedModel(transformers.PreTrainedModel):
    """Base of the classes: a model of this library as `model`."""

    config_class = AddnormConfig
    base_model_prefix = PREFIX.rstrip(".")
    main_input_name = "input_ids"
    _tied_weights_keys = {f"{PREFIX}head.weight": f"{PREFIX}embedding.weight"}

    def __init__(self, config: AddnormConfig) -> None:
        super().__init__(config)
        spec = config.model_spec()
        if ARCHITECTURES[spec.objective] != type(self).__name__:
            raise InputError(
                f"{type(self).__name__}: expected a spec of its objective, got a {spec.objective} one. Use "
                f"{ARCHITECTURES[spec.objective]}."
            )
        self.model = Transformer(spec)
        cast(Any, self).post_init()  # without annotations in Transformers

    @classmethod
    def from_pretrained(
        cls, pretrained_model_name_or_path: Any, *model_args: Any, output_loading_info: bool = False, **kwargs: Any
    ) -> Any:
        """Load a checkpoint, as every class of Transformers does, but refuse one that lacks parameters.

        Raises:
            InputError: parameters are missing, which would be random.
        """
        path = pretrained_model_name_or_path
        loaded: Any = super().from_pretrained(path, *model_args, output_loading_info=True, **kwargs)
        model, info = loaded
        wrong = sorted(info["missing_keys"]) or sorted(info["unexpected_keys"])
        if wrong:
            problem = "got none" if info["missing_keys"] else "got more"
            raise InputError(
                f"{path}: expected the parameters of the spec in config.json, {problem}: {', '.join(wrong[:5])}"
                f"{f' and {len(wrong) - 5} more' if len(wrong) > 5 else ''}. Export the run again."
            )
        return (model, info) if output_loading_info else model

    def save_pretrained(self, save_directory: Any, *arguments: Any, **settings: Any) -> None:
        """Save the model with the stub that imports this package, as every class of Transformers does.

        Of layers that share parameters, every name has a copy of its own in the file.
        """
        if self.model.spec.sharing is not None:
            settings.setdefault("state_dict", {name: value.clone() for name, value in self.state_dict().items()})
        super().save_pretrained(save_directory, *arguments, **settings)
        write_atomic(Path(save_directory) / STUB, STUB_TEXT.encode("utf-8"))

    def get_input_embeddings(self) -> nn.Module:
        return self.model.embedding

    def set_input_embeddings(self, value: nn.Module) -> None:
        self.model.embedding = cast(Embedding, value)

    def get_output_embeddings(self) -> nn.Module:
        return self.model.head

    def tie_weights(self, *args: Any, **settings: Any) -> None:
        """Tie what the spec ties or shares; Transformers calls it after it has replaced parameters.

        Raises:
            InputError: a checkpoint of a tied model holds another head, which Transformers does not tie.
        """
        super().tie_weights(*args, **settings)
        head, embedding = self.model.head.weight, self.model.embedding.weight
        if self.model.spec.tied and head is not embedding and not (head.is_meta or embedding.is_meta):
            name, twin = f"{PREFIX}head.weight", f"{PREFIX}embedding.weight"
            require_twin(head, embedding, name, twin, Path(self.name_or_path), "tied")
        self.model.tie()

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        """Fill a module's random parameters from seed 0 and their names; other ones have their values from the start."""
        if not hasattr(module, "initialise"):
            return
        initialise = cast(Callable[[str, torch.Generator], None], module.initialise)
        # Transformers calls this for modules in an order of its own, and only for those without weights in the file.
        # Values depend on names alone, so they are those of `ModelSpec.build(seed=0)` whatever is left to fill.
        names = {id(parameter): name for name, parameter in self.model.named_parameters()}
        path = next((path for path, other in self.model.named_modules() if other is module), "")
        for name, parameter in module.named_parameters(recurse=False):
            first = names.get(id(parameter)) == f"{path}.{name}"  # a tied parameter is filled under its first name
            if first and not getattr(parameter, "_is_hf_initialized", False):
                initialise(name, generator_for(0, f"{path}.{name}", parameter.device))

    def _logits(self, tokens: Tensor, mask: Tensor | None, types: Tensor | None) -> Tensor:
        """Logits without a cache; rows are rolled so that each begins with its first real token."""
        if mask is None or bool(mask.bool().all()):
            return self.model(tokens, token_types=types)
        mask = mask.bool()
        padded = _left_padding(mask)[:, None]
        place = torch.arange(tokens.shape[1], device=tokens.device)
        # A mechanism may count positions, or keep a state along the sequence. Rolled, every row begins with its first
        # real token at position 0 and ends in padding, which causal attention does not see and the padding mask hides;
        # the logits are rolled back.
        there, back = (place + padded) % len(place), (place - padded) % len(place)
        types = None if types is None else types.gather(1, there)
        logits = self.model(tokens.gather(1, there), padding=mask.gather(1, there), token_types=types)
        return logits.gather(1, back[..., None].expand_as(logits))


class AddnormForCausalLM(AddnormPreTrainedModel, transformers.GenerationMixin):
    """Causal language model.

    Example:
        >>> spec = addnorm.preset("llama", vocab=64, width=32, depth=2, heads=4, hidden=64, max_seq=16)
        >>> model = AddnormForCausalLM(AddnormConfig(spec=spec)).eval()
        >>> model.generate(torch.tensor([[1, 2, 3]]), max_new_tokens=5, do_sample=False).shape
        torch.Size([1, 8])
    """

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        past_key_values: AddnormCache | None = None,
        labels: Tensor | None = None,
        use_cache: bool = False,
        logits_to_keep: int = 0,
        return_dict: bool | None = None,
    ) -> Any:
        """Compute logits, and the loss of the next tokens if there are labels.

        Args:
            input_ids: tokens [batch, seq]; with a cache, those after the cached ones.
            attention_mask: 1 for real tokens, 0 for padding; with a cache, of all tokens so far.
            past_key_values: cache that an earlier call returned.
            labels: tokens [batch, seq], which are shifted here; -100 for a position without loss.
            use_cache: True to return a cache.
            logits_to_keep: number of last positions whose logits are returned; 0 for all.
            return_dict: False for a tuple.

        Raises:
            InputError: a cache of another class, or padding elsewhere than on the left together with a cache.
        """
        if past_key_values is None and not use_cache:
            cache, logits = None, self._logits(input_ids, attention_mask, None)
        else:
            cache = AddnormCache() if past_key_values is None else past_key_values
            logits = self._cached_logits(input_ids, attention_mask, cache)
        loss = None
        if labels is not None:
            loss = _cross_entropy(logits[:, :-1], labels[:, 1:])
        output = CausalLMOutputWithPast(loss=loss, logits=logits[:, -logits_to_keep:], past_key_values=cache)
        return output.to_tuple() if return_dict is False else output

    def _cached_logits(self, tokens: Tensor, mask: Tensor | None, cache: AddnormCache) -> Tensor:
        if not isinstance(cache, AddnormCache):
            raise InputError(
                f"past_key_values: expected an AddnormCache or None, got a {type(cache).__name__}. Leave it out."
            )
        first = not cache.groups
        if first:
            cache.groups = self._groups(tokens, mask)
        elif mask is not None and not bool(mask[:, -tokens.shape[1] :].bool().all()):
            raise InputError("attention_mask: expected no padding after cached tokens, got some. Pad on the left.")
        cache.length += tokens.shape[1]
        # One call per group of equal padding: rows of one call share their positions, and a cache of ours has no place
        # for padding.
        parts = []
        for group in cache.groups:
            # The cache of a group lacks its padding, which only the first call has.
            skipped = group.padding if first else 0
            parts.append(F.pad(self.model(tokens[group.rows, skipped:], cache=group.cache), (0, 0, skipped, 0)))
        return torch.cat(parts)[torch.cat([group.rows for group in cache.groups]).argsort()]

    def _groups(self, tokens: Tensor, mask: Tensor | None) -> list[_Group]:
        """Group the rows of a batch by their left padding.

        Raises:
            InputError: there is other padding.
        """
        real = torch.ones_like(tokens, dtype=torch.bool) if mask is None else mask.bool()
        padding = _left_padding(real)
        place = torch.arange(tokens.shape[1], device=tokens.device)
        if real.shape != tokens.shape or not torch.equal(real, place >= padding[:, None]):
            raise InputError(
                "attention_mask: expected [batch, seq] with zeros on the left alone, because tokens are cached, got others. "
                "Pad on the left, or pass use_cache=False."
            )
        if bool((padding == len(place)).any()):
            raise InputError("attention_mask: expected at least one real token in every row, got none in one.")
        return [
            _Group(rows=(padding == count).nonzero()[:, 0], padding=int(count), cache=self.model.new_cache())
            for count in padding.unique()
        ]

    @classmethod
    def _supports_default_dynamic_cache(cls) -> bool:
        return False  # the first call makes an AddnormCache


class AddnormForMaskedLM(AddnormPreTrainedModel):
    """Masked language model.

    Example:
        >>> spec = addnorm.preset("realformer", vocab=64, width=32, depth=2, heads=4, hidden=64, max_seq=16)
        >>> model = AddnormForMaskedLM(AddnormConfig(spec=spec)).eval()
        >>> model(torch.tensor([[1, 2, 3]])).logits.shape
        torch.Size([1, 3, 64])
    """

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        labels: Tensor | None = None,
        return_dict: bool | None = None,
    ) -> Any:
        """Compute logits, and the loss of the labelled tokens if there are labels.

        Args:
            input_ids: tokens [batch, seq].
            attention_mask: 1 for real tokens, 0 for padding.
            token_type_ids: type of each token, of a model with token types.
            labels: tokens [batch, seq]; -100 for a position without loss.
            return_dict: False for a tuple.
        """
        logits = self._logits(input_ids, attention_mask, token_type_ids)
        loss = None if labels is None else _cross_entropy(logits, labels)
        output = MaskedLMOutput(loss=loss, logits=logits)
        return output.to_tuple() if return_dict is False else output


def _left_padding(mask: Tensor) -> Tensor:
    """Count the zeros before the first one of each row."""
    return (mask.long().cumsum(1) == 0).sum(1)


def _cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    wide = torch.promote_types(logits.dtype, torch.float32)
    return F.cross_entropy(logits.to(wide).flatten(0, 1), labels.flatten(), ignore_index=_IGNORED_LABEL)


transformers.AutoConfig.register(MODEL_TYPE, AddnormConfig, exist_ok=True)
transformers.AutoModelForCausalLM.register(AddnormConfig, AddnormForCausalLM, exist_ok=True)
transformers.AutoModelForMaskedLM.register(AddnormConfig, AddnormForMaskedLM, exist_ok=True)
