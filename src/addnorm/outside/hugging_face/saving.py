"""`addnorm.save_hf` and `addnorm export --format hf`: a model as a Transformers checkpoint."""

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from addnorm.errors import InputError
from addnorm.model.spec import ModelSpec
from addnorm.model.transformer import Transformer
from addnorm.outside.hugging_face.conversion import config_of, linear_parameters, weights_of
from addnorm.outside.hugging_face.own_class import ARCHITECTURES, AUTO_CLASSES, PREFIX, STUB, STUB_TEXT, config_for
from addnorm.outside.hugging_face.recognition import ClassComparison, comparisons
from addnorm.outside.hugging_face.tokenizer import FILE, tokenizer_files
from addnorm.store import RunFolder
from addnorm.store.files import make_folder, write_atomic, write_json
from addnorm.training.checkpoint import save_final
from addnorm.training.export import export_run, load, require_new_folder
from addnorm.training.model_card import write_card
from addnorm.training.run_spec import run_spec

_MOST_DIFFERENCES = 4


@dataclass(frozen=True, kw_only=True)
class HFExport:
    """The result of writing a model as a Transformers checkpoint."""

    folder: Path
    architecture: str
    """Name of the class that loads it."""
    auto_class: str
    """Name of the class of Transformers that finds it."""
    needs_addnorm: bool
    """True if the class is one of `addnorm.hf`."""
    notes: tuple[str, ...]
    """Sentences: the nearest class and what differs, parameters that were added as zeros, limits of vLLM and GGUF."""


def save_hf(
    model: Transformer, to: str | Path, *, tokenizer: str | Path | None = None, plugins: Sequence[str | Path] = ()
) -> HFExport:
    """Write a model as a Transformers checkpoint: as a class of Transformers if it is one, otherwise as one of `addnorm.hf`.

    Transformers itself is not needed.

    Args:
        model: the model.
        to: an empty or new folder.
        tokenizer: folder with the tokenizer.json of a data set; None for no tokenizer.
        plugins: files with the user's own mechanisms that the model consists of; their names are written.

    Raises:
        InputError: the target is not empty, the tokenizer has more ids than the model, or a tied model has another head.
        JobError: the target cannot be written.

    Example:
        >>> sizes = {"vocab": 64, "width": 32, "depth": 2, "heads": 4, "hidden": 64, "max_seq": 16}
        >>> model = addnorm.preset("llama", **sizes, scores="sum").build(seed=0)
        >>> exported = save_hf(model, "exported/real")
        >>> exported.architecture
        'AddnormForCausalLM'
        >>> exported.notes[0]
        "Nearest class: LlamaForCausalLM, which differs in one thing: scores: expected 'own', got 'sum'."
    """
    to, spec = Path(to), model.spec
    if not isinstance(spec, ModelSpec):
        raise InputError(f"save_hf: expected a model made by a spec's build(), got a {type(model).__name__}.")
    require_new_folder(to)
    if spec.tied and not torch.equal(model.head.weight, model.embedding.weight):
        raise InputError(
            "save_hf: expected head.weight equal to embedding.weight, which the spec ties, got another. Make the model of a "
            "spec with `tied: false`, or call model.tie()."
        )
    files: dict[str, Any] = tokenizer_files(Path(tokenizer), spec) if tokenizer is not None else {}
    nearest = comparisons(spec)
    # A class of Transformers only if nothing at all differs; parameters that it has beyond ours are zeros.
    exact = nearest[0] if nearest and not nearest[0].differences else None
    if exact is not None:
        architecture, notes = exact.cls.architecture, _notes_of_class(exact)
        config = {"architectures": [architecture], "model_type": _model_type(exact), **config_of(exact.cls, exact.spec)}
        weights = weights_of(exact.cls, exact.spec, linear_parameters(model))
    else:
        architecture, notes = ARCHITECTURES[spec.objective], _notes_of_own_class(spec, nearest[0] if nearest else None)
        config = config_for(spec, tuple(str(path) for path in plugins))
        weights = {f"{PREFIX}{name}": value for name, value in model.state_dict().items()}
        if spec.tied:
            del weights[f"{PREFIX}head.weight"]
    separator = {"eos_token_id": 0 if files else None, "bos_token_id": None, "pad_token_id": None}
    config |= separator | {"dtype": str(model.embedding.weight.dtype).removeprefix("torch.")}
    make_folder(to)
    write_json(to / "config.json", config)
    if spec.objective == "causal":
        write_json(to / "generation_config.json", {"_from_model_config": True, **separator})
    if exact is None:
        write_atomic(to / STUB, STUB_TEXT.encode("utf-8"))
    for name, content in files.items():
        write_json(to / name, content)
    save_final(to / "model.safetensors", weights)
    return HFExport(
        folder=to,
        architecture=architecture,
        auto_class=AUTO_CLASSES[spec.objective],
        needs_addnorm=exact is None,
        notes=notes,
    )


def export_hf(run: RunFolder, to: Path, *, plugins: Sequence[str] = ()) -> HFExport:
    """Write a finished run as a Transformers checkpoint, with its tokenizer.

    Args:
        run: the run.
        to: an empty or new folder.
        plugins: files with the user's own mechanisms that the run uses.

    Raises:
        InputError, Damaged, JobError: as `export_run` and `save_hf`.
    """
    with tempfile.TemporaryDirectory() as scratch:
        exported = export_run(run, Path(scratch) / "exported")
        model = load(exported, plugins=plugins)
        saved = save_hf(model, to, tokenizer=exported if (exported / FILE).exists() else None, plugins=plugins)
    needed = ["import addnorm.hf"] if saved.needs_addnorm else []
    loading = [
        *needed,
        f"from transformers import {saved.auto_class}",
        "",
        f"model = {saved.auto_class}.from_pretrained({to.name!r})",
    ]
    write_card(run, run_spec(run), to, "\n".join(loading), "transformers")
    return saved


def _model_type(comparison: ClassComparison) -> str:
    return comparison.cls.__module__.rpartition(".")[2]


def _notes_of_class(exact: ClassComparison) -> tuple[str, ...]:
    notes = list[str]()
    if exact.filled:
        notes.append(
            f"{exact.cls.architecture} has parameters that the model lacks; they are zeros, and further training changes them: "
            f"{', '.join(exact.filled)}."
        )
    if exact.dropped:
        notes.append(f"{exact.cls.architecture} has no such dropout in further training: {', '.join(exact.dropped)}.")
    return (*notes, exact.cls.vllm, exact.cls.gguf)


def _notes_of_own_class(spec: ModelSpec, nearest: ClassComparison | None) -> tuple[str, ...]:
    reason = "its attention is not one of Transformers' attention functions"
    if spec.build_scores().terms(1) > 1:
        reason += ", which cannot express scores of earlier layers"
    limits = (f"vLLM: cannot run it: {reason}.", "GGUF: llama.cpp has no such architecture.")
    if nearest is None:
        return limits
    count, shown = len(nearest.differences), nearest.differences[:_MOST_DIFFERENCES]
    things = "one thing" if count == 1 else f"{count} things"
    more = f"; and {count - len(shown)} more" if count > len(shown) else ""
    listed = "; ".join(map(str, shown))
    return (f"Nearest class: {nearest.cls.architecture}, which differs in {things}: {listed}{more}.", *limits)
