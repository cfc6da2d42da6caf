"""Expansion of a study into its runs: sizes and shards that follow from the data, checks, and the names of folders."""

import re
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from addnorm.data.tokenizers import TokenizerSpec
from addnorm.errors import InputError
from addnorm.model.transformer import Transformer
from addnorm.study.definition import AnyModel, RunSpec, Study, Training
from addnorm.study.encoding import digest
from addnorm.study.foreign import ForeignSpec
from addnorm.study.initial_weights import require_start, weights_hash
from addnorm.study.plugins import plugin_hash, plugins_in
from addnorm.study.problems import Problems

_NO_FILE_NAME = re.compile(r"[^A-Za-z0-9._-]+")
"""Characters of a variant's name that stay out of its runs' folders."""
_LONGEST_NAME = 100
"""Characters of a variant's name in the names of its runs' folders; the identity tells the runs apart."""
_MOST_SHARDS = 8
"""Largest number of shards that is chosen for a study."""


Key = TypeVar("Key")
Made = TypeVar("Made")


def once_for_equal(keys: Mapping[str, Key], make: Callable[[Key], Made]) -> dict[str, Made]:
    """Make something for every variant, and once for those with equal keys, such as their models.

    The points of a grid or of `tune` that differ in training alone have one model, and an audit of it takes seconds.
    """
    made: dict[Key, Made] = {}
    results = {}
    for name, key in keys.items():
        try:
            hash(key)
        except TypeError:  # a plugin's specification has a field such as a list
            results[name] = make(key)
            continue
        if key not in made:
            made[key] = make(key)
        results[name] = made[key]
    return results


def fit_models(study: Study, vocab: int) -> Study:
    """Adapt the sizes of every model to the data: `vocab` ids (one more for masked models, the id that hides tokens) or the
    variant's own larger table, and a `max_seq` of at least the training sequence.

    Raises:
        InputError: a variant's own `vocab` is smaller.
    """
    problems = Problems(f"study '{study.name}'")

    def fit(name: str, model: AnyModel) -> AnyModel:
        ids = vocab + (model.objective == "masked")
        if isinstance(model, ForeignSpec):
            return model.fitted(ids, study.training.seq)
        rows = model.vocab if name in study.own_vocab else ids
        if rows < ids:
            masked = " and the mask" if ids > vocab else ""
            problems.add(
                f"$.variants.{name}.vocab",
                f"expected at least {ids}, the ids of tokenizer '{study.tokenizer.kind}'{masked}, got {rows}. Leave vocab out "
                "(there or in $.model) for a table of that size, or give a larger one.",
            )
        return replace(model, vocab=rows, max_seq=max(model.max_seq, study.training.seq))

    fitted = {name: fit(name, model) for name, model in study.variants.items()}
    problems.raise_any()
    return replace(study, variants=fitted)


def validate(study: Study) -> None:
    """Build every variant on the meta device, so that errors appear before the training starts.

    Raises:
        InputError: variants that cannot be built, each with its path.
    """
    problems = Problems(f"study '{study.name}'")
    for name, model in study.variants.items():
        try:
            training = study.training_of(name)
            if isinstance(model, ForeignSpec):
                _require_trainable(model, training, study.tokenizer)
                continue
            with torch.device("meta"):
                built = model.build()
            if training.init_from is not None:
                require_start(built, training.init_from)
            if not training.budget:  # its steps are not known yet
                built.residual.require_steps(training.steps)
            if training.exits is not None and model.depth < 2:
                raise InputError(
                    f"training.exits: expected a model of two layers or more, got {model.depth}. Set it to null."
                )
            if training.devices > 1 or (training.shards or 1) > 1:
                _require_separable(built)
            if training.parallel == "sharded":
                _require_shareable(built)
        except InputError as error:
            problems.add(f"$.variants.{name}", str(error))
        except Exception as error:  # a user's plugin may raise anything; without one it is a bug here
            if not any(plugins_in(model)):
                raise
            problems.add(f"$.variants.{name}", f"cannot be built: {type(error).__name__}: {error}")
    problems.raise_any()


def _require_trainable(model: ForeignSpec, training: Training, tokenizer: TokenizerSpec) -> None:
    """Check a model of others, and that its training asks for nothing that only ours can do."""
    if training.init_from is not None:
        raise InputError(
            "training.init_from: expected null, got a folder. The model begins where its checkpoint or its code says."
        )
    if training.recompute:
        raise InputError(
            "training.recompute: expected false, got true. Branches of models of others are not known; set it for the variants "
            "of addnorm, or lower the memory with training.shards."
        )
    if training.exits is not None:
        raise InputError("training.exits: expected null, got a weight. Layers of models of others are not known.")
    if training.parallel != "replicated":
        raise InputError(
            f"training.parallel: expected replicated, got {training.parallel}. Branches of models of others are not known, so "
            "their weights cannot be gathered one branch at a time."
        )
    model.check(tokenizer)
    if training.devices > 1 or (training.shards or 1) > 1:
        _require_separable(model.build())


def expand(study: Study, data_hash: str) -> tuple[RunSpec, ...]:
    """The runs in the order in which they start: all variants of a seed before the next seed, so that a study in progress
    already compares its variants.

    Args:
        study: the study; its models have the sizes of the data, see `fit_models`.
        data_hash: hash of the prepared data set.
    """
    shared = [path for spec in (study.corpus, study.tokenizer) for path in plugins_in(spec)]
    return tuple(
        RunSpec(
            study=study.name,
            variant=name,
            seed=seed,
            model=model,
            training=_identified(study.training_of(name)),
            corpus=study.corpus,
            tokenizer=study.tokenizer,
            data_hash=data_hash,
            plugins=tuple(sorted({*shared, *plugins_in(study.training_of(name)), *plugins_in(model)})),
        )
        for seed in study.seeds
        for name, model in study.variants.items()
    )


def _identified(training: Training) -> Training:
    """A training without what no result depends on."""
    # Sums are added in the order of the shards, whatever computes them, so devices and their way of sharing change no
    # bit. One shard and no shards are one and the same; written apart, they would be two identities.
    return replace(training, devices=1, parallel="replicated", shards=None if training.shards == 1 else training.shards)


def _require_separable(model: nn.Module) -> None:
    """Refuse a model that looks across the batch, whose outputs would depend on how it is split.

    A module does so if it is one of torch's batch norms, or has a true attribute `across_batch`.

    Raises:
        InputError: it has such a module.
    """
    for path, module in model.named_modules():
        if isinstance(module, _BatchNorm) or getattr(module, "across_batch", False):
            raise InputError(
                f"expected modules that treat each sequence alone, because training.shards splits the batch, got "
                f"{type(module).__name__} at {path}, whose statistics are those of the batch. Set training.shards and "
                "training.devices to 1 for this variant, or take another norm."
            )


def _require_shareable(model: Transformer) -> None:
    """Refuse a model whose matrices are used outside of their branch, where they are shared out among the ranks.

    Raises:
        InputError: its residual replays earlier layers.
    """
    if model.spec.residual.replays:
        raise InputError(
            f"training.parallel: sharded: expected a residual that does not compute earlier layers again, got "
            f"{model.spec.residual.kind!r}: it needs the weights of all earlier layers at once. Set training.parallel to "
            "replicated."
        )


def run_identity(run: RunSpec) -> str:
    """Hash of everything that determines a run's result, as 64 hex digits: the specs, the seed, the data, and the content of
    the plugins that the specs come from. The names of study and variant are excluded.

    Raises:
        InputError: a plugin's file, or the weights at the start, cannot be read.
    """
    # Names stay out, so that a renamed variant keeps its runs. Plugins go in by their content and by a name without
    # folder: the code decides the result, the place where it lies does not. Weights at the start likewise.
    inputs = {field.name: getattr(run, field.name) for field in fields(run) if field.name not in ("study", "variant")}
    if run.training.init_from is not None:
        inputs["init"] = weights_hash(run.training.init_from)
    return digest({**inputs, "plugins": {_plugin_name(path): plugin_hash(path) for path in run.plugins}})


def _plugin_name(path: str) -> str:
    return Path(path).name if ":" in Path(path).name else Path(path).stem


def run_name(run: RunSpec) -> str:
    """Name of the run's folder: variant, seed, and the start of its identity.

    Raises:
        InputError: a plugin's file cannot be read.
    """
    variant = _NO_FILE_NAME.sub("-", run.variant)[:_LONGEST_NAME]
    return f"{variant}-s{run.seed}-{run_identity(run)[:8]}"


def resolve_shards(study: Study, plan: Mapping[str, Any] | None = None) -> Study:
    """Set the shards of every variant that leaves them open.

    Args:
        study: the study.
        plan: the frozen plan of the study's folder, if there is one; its shards are kept, so that a study may go on with
            another number of devices.

    Raises:
        InputError: the plan's shards are fewer than the devices.
    """
    frozen = {run["variant"]: run["spec"]["training"].get("shards") for run in (plan or {}).get("runs", ())}
    trainings = {}
    for name in study.variants:
        own = study.training_of(name)
        if own.shards is None:
            # The number of shards decides the order of sums, that is the last bits. A study that goes on with another
            # number of devices must keep the one it began with, or its runs would be those of two studies.
            shards = frozen[name] if name in frozen else _chosen_shards(own)
            if own.devices > (shards or 1):
                raise InputError(
                    f"study '{study.name}': $.training.devices: expected at most the shards of the study's plan, "
                    f"{shards or 1}, got {own.devices}. Set training.devices to that, or train in another folder with more "
                    "shards."
                )
            own = replace(own, shards=shards)
        trainings[name] = own
    if all(own == study.training_of(name) for name, own in trainings.items()):
        return study
    shared = trainings[next(iter(trainings))] if study.training.shards is None else study.training
    return replace(
        study, training=shared, variant_training={name: own for name, own in trainings.items() if own != shared}
    )


def _chosen_shards(training: Training) -> int | None:
    """The largest power of two up to 8 that divides the batch; None, which is one shard, on one device."""
    if training.devices == 1:
        return None
    return min(
        training.batch & -training.batch, _MOST_SHARDS
    )  # its lowest bit is the largest power of two that divides it
