"""Fields and tensors of a checkpoint that no table reads: each says nothing new, is known not to act, or is refused by name."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from addnorm.errors import InputError, did_you_mean
from addnorm.model.architecture import Architecture
from addnorm.outside.hugging_face.classes import ConfigConstant, ForeignClass

_GENERATION = (
    *("assistant_confidence_threshold", "assistant_lookbehind", "bad_words_ids", "begin_suppress_tokens"),
    *("diversity_penalty", "do_sample", "early_stopping", "encoder_no_repeat_ngram_size"),
    *("encoder_repetition_penalty", "epsilon_cutoff", "eta_cutoff", "exponential_decay_length_penalty"),
    *("length_penalty", "max_length", "min_length", "no_repeat_ngram_size", "num_assistant_tokens"),
    *("num_assistant_tokens_schedule", "num_beam_groups", "num_beams", "num_return_sequences", "output_scores"),
    *("remove_invalid_values", "repetition_penalty", "return_dict_in_generate", "suppress_tokens"),
    *("target_lookbehind", "temperature", "top_k", "top_p", "typical_p", "use_cache"),
)
"""Settings of `generate`, which earlier versions of Transformers kept in config.json."""
HARMLESS = (
    *_GENERATION,
    r"\w+_token_ids?",
    # Names and versions.
    *("model_type", "architectures", "_?name_or_path", "_commit_hash", "transformers_version", r"unsloth_\w+"),
    *(r"transformers\.js_config", "tokenizer_class", "finetuning_task", "task_specific_params", "prefix"),
    # How the class computes and what it returns.
    *("dtype", "torch_dtype", "torchscript", "use_bfloat16", "chunk_size_feed_forward", "gradient_checkpointing"),
    *("_?attn_implementation", "_attn_implementation_autoset", "_?experts_implementation", "_flash_attn_2_enabled"),
    *("return_dict", "output_attentions", "output_hidden_states", "output_past", "tie_last_hidden_states"),
    # Classifiers, and roles that the classes do not have.
    *("id2label", "label2id", "_?num_labels", "problem_type", "classifier_dropout"),
    *("is_decoder", "tie_encoder_decoder", "tf_legacy_loss"),
)
"""Patterns of fields that leave the logits of every class as they are. A test compares them with the installed Transformers."""
_SWITCHES = (
    ConfigConstant(theirs="is_encoder_decoder", values=(False,), default=False),
    ConfigConstant(theirs="add_cross_attention", values=(False,), default=False),
    ConfigConstant(theirs="cross_attention_hidden_size", values=(None,), default=None),
    ConfigConstant(
        theirs="is_causal", values=(True,), default=True, meaning="it sees later tokens, or is another class"
    ),
    ConfigConstant(theirs="pruned_heads", values=({},), default={}),
    ConfigConstant(theirs="per_layer_config", values=(None, {}), default=None, meaning="its layers differ"),
    ConfigConstant(
        theirs="auto_map", values=(None,), default=None, meaning="its model is code that addnorm does not execute"
    ),
)
"""Fields of all classes of Transformers, with the values at which they do not act."""
_READ = ("head_dim",)
"""Fields that are read without a table."""


def switches_of(cls: type[ForeignClass]) -> tuple[ConfigConstant, ...]:
    """The fields of other versions or programs, with the values at which they do not act in a class."""
    tables = {constant.theirs for constant in cls.constants}
    return (*cls.switches, *(switch for switch in _SWITCHES if switch.theirs not in tables))


def require_known_fields(cls: type[ForeignClass], config: Mapping[str, Any], where: str) -> None:
    """Require that every field of a config.json is read, or known not to act. Fields that are null count as absent.

    Raises:
        InputError: one is neither, or rotary settings are given twice.
    """
    _require_one_rope(config, where)
    known = {*_READ}
    for field in cls.fields:
        known |= {field.theirs, *field.also, *field.read, *field.echoes}
    for constant in (*cls.constants, *switches_of(cls)):
        known |= {constant.theirs, *constant.read}
    parents = {path.rpartition(".")[0] for path in known} - {""}
    # Refused, not ignored: Transformers keeps unknown fields silently, and a misspelt `sliding_window` would give other
    # logits than those of the model that was trained.
    for path, value in _leaves(config, parents):
        if value is None or path in known or any(re.fullmatch(pattern, path) for pattern in (*HARMLESS, *cls.harmless)):
            continue
        raise InputError(
            f"{where}: $.{path}: expected a field that {cls.architecture} is known to have, got {path} = {str(value)[:60]}, "
            f"which may make it another model.{did_you_mean(path, known)} If the model is the same without it, remove it; "
            "`addnorm audit` and `addnorm inspect --terms` take such a checkpoint as it is."
        )


def _require_one_rope(config: Mapping[str, Any], where: str) -> None:
    """Transformers takes all rotary settings from `rope_scaling`, the older name, if it is not empty."""
    earlier, later = config.get("rope_scaling"), config.get("rope_parameters")
    if not earlier or not later:
        return
    given = [
        {("rope_type" if name == "type" else name): value for name, value in settings.items()}
        if isinstance(settings, Mapping)
        else settings
        for settings in (earlier, later)
    ]
    if given[0] != given[1]:
        raise InputError(
            f"{where}: $.rope_scaling: expected none, or the settings of $.rope_parameters, {later}, got {earlier}. Remove the "
            "one that the model was not trained with."
        )


def _leaves(config: Mapping[str, Any], parents: set[str]) -> Iterator[tuple[str, Any]]:
    """Every field with its path; those of the parents one by one."""
    for name, value in config.items():
        if name in parents and isinstance(value, Mapping):
            yield from ((f"{name}.{inner}", content) for inner, content in value.items())
        elif name not in parents or value:
            yield name, value


def require_redundant(
    cls: type[ForeignClass], spec: Architecture, weights: Mapping[str, Tensor], left: set[str], where: Path
) -> None:
    """Require that tensors which no line of the table takes say nothing new.

    Raises:
        InputError: one is another head or bias than the tied one, a buffer with other contents than the class computes, or
            unknown.
    """
    # Three kinds of tensors are left over: copies of a tied matrix, which must equal it; the names that an untied model
    # writes as well; and buffers, whose contents must be those that the class computes. Anything else means that file
    # and config.json belong to different models.
    twins = dict(_twins(cls, spec))
    unread = set() if spec.tied else {weight.theirs for weight in cls.weights if weight.if_untied}
    ignored = {
        name: next((one for one in cls.ignored if re.fullmatch(one.pattern, name)), None)
        for name in sorted(left - twins.keys() - unread)
    }
    unknown = [name for name, pattern in ignored.items() if pattern is None]
    if unknown:
        raise InputError(
            f"{where}: expected the tensors of {cls.architecture} with the sizes of config.json, got also {unknown[0]}"
            f"{f' and {len(unknown) - 1} more' if len(unknown) > 1 else ''}. config.json and weights must belong to one model."
        )
    for name in sorted(left & twins.keys()):
        require_twin(weights[name], weights[twins[name]], name, twins[name], where)
    for name, pattern in ignored.items():
        if pattern is not None and not pattern.holds(weights[name], spec):
            raise InputError(
                f"{where}: {name}: expected {pattern.expected}, which {cls.architecture} computes from config.json, got other "
                "values. Copy both files from one model."
            )


def require_twin(
    tensor: Tensor, used: Tensor, name: str, twin: str, where: Path, switch: str = "tie_word_embeddings"
) -> None:
    """Require that a tensor which is tied to another one by a switch of config.json equals it.

    Raises:
        InputError: it does not.
    """
    kind = torch.promote_types(tensor.dtype, used.dtype)
    if tensor.shape != used.shape or not torch.equal(tensor.to(kind), used.to(kind)):
        raise InputError(
            f"{where}: {name}: expected the values of {twin}, because config.json ties the two, got others, which some "
            f'programs use and some do not. Write "{switch}": false into config.json to keep both, or remove {name} from the '
            "weights."
        )


def _twins(cls: type[ForeignClass], spec: Architecture) -> Iterator[tuple[str, str]]:
    """Tensors of a tied model that must equal another one, with the name of that one."""
    if spec.tied:
        (embedding,) = (weight.theirs for weight in cls.weights if weight.ours == ("embedding.weight",))
        for weight in cls.weights:
            if weight.ours == ("head.weight",):
                yield weight.theirs, embedding
            if weight.if_untied:
                yield weight.if_untied, weight.theirs
