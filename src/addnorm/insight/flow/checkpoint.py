"""Flow of a Transformers checkpoint, measured on a text; nothing is written, and there is no start to compare with."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from addnorm.insight.checkpoint_text import LENGTH, held_text
from addnorm.insight.flow.measure import Windows, flow
from addnorm.insight.flow.runs import FORMAT, Settings
from addnorm.outside.hugging_face.loading import load_hf
from addnorm.training.numerics import device_here
from addnorm.version import __version__

_BATCH = 4
"""Sequences of a forward pass."""


def inspect_checkpoint(folder: Path, text: Path | None, length: int | None, settings: Settings) -> dict[str, Any]:
    """Measure a checkpoint that loads as a model of this library; arguments, result and errors are those of `inspect_text`.

    Raises:
        InputError: as `load_hf`.
    """
    model = load_hf(folder)
    return inspect_text(
        folder,
        text,
        length,
        settings,
        vocab=model.spec.vocab,
        longest=model.spec.max_seq,
        objective=model.spec.objective,
        measure=lambda windows: {"end": flow(model.to(device_here()), windows)},
    )


def inspect_text(
    folder: Path,
    text: Path | None,
    length: int | None,
    settings: Settings,
    *,
    vocab: int,
    longest: int | None,
    objective: str,
    measure: Callable[[Windows], dict[str, Any]],
) -> dict[str, Any]:
    """Measure a model on a text.

    Args:
        folder: of the checkpoint.
        text: a UTF-8 file, or token ids in a .json file.
        length: tokens of a sequence; None for 512, or `longest` if that is less.
        settings: amount of text.
        vocab: number of the model's embeddings.
        longest: the model's own length; None if it has none.
        objective: `causal` or `masked`.
        measure: returns `end`, and what else belongs into the result.

    Returns:
        As `inspect_run`, without `start`, and with the weights' folder in place of a file and a step.

    Raises:
        InputError: no text, or one shorter than a sequence.
    """
    held = held_text(folder, text, vocab=vocab, masked=objective == "masked")
    seq = min(LENGTH, longest or LENGTH) if length is None else length
    device = device_here()

    windows = Windows(
        batches=held.batches(objective, _BATCH, seq, settings.sequences, device),
        maps=held.batches(objective, 1, seq, settings.map_sequences, device),
    )
    return measured_windows(folder, windows, text=str(text), digest=held.dataset.hash) | measure(windows)


def measured_windows(model: Path, windows: Windows, *, text: str, digest: str) -> dict[str, Any]:
    """Head of a file of measures: the checkpoint or `file.py:function`, the text and its hash."""
    return {
        "format": FORMAT,
        "run": model.name,
        "addnorm": __version__,
        "weights": {"folder": str(model)},
        "data": {
            "hash": digest,
            "text": text,
            "seq": windows.batches[0].inputs.shape[1],
            "sequences": sum(len(batch.inputs) for batch in windows.batches),
            "map_sequences": len(windows.maps),
        },
    }
