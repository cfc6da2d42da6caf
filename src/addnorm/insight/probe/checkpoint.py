"""Models of others, measured on a text: checkpoints of any class of Transformers, and what a user's function returns."""

import hashlib
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from addnorm.errors import InputError
from addnorm.insight.checkpoint_text import held_text
from addnorm.insight.flow.checkpoint import inspect_text, measured_windows
from addnorm.insight.flow.measure import Windows
from addnorm.insight.flow.runs import Settings
from addnorm.insight.probe import notes_of, probe
from addnorm.outside.hugging_face.checkpoint import read_config
from addnorm.outside.targets.checkpoint import load_checkpoint, unread_note
from addnorm.outside.targets.function import function_target
from addnorm.training.numerics import device_here
from addnorm.training.objective import Batch
from addnorm.words import Sentence, say


def probe_checkpoint(folder: Path, text: Path | None, length: int | None, settings: Settings) -> dict[str, Any]:
    """Measure a checkpoint of any class; arguments and errors are those of `inspect_text`.

    Returns:
        As `inspect_text`, with the keys of `addnorm.insight.probe`.

    Raises:
        InputError: the checkpoint cannot be loaded, reads no tokens or has no layers.
    """
    if text is None:
        held_text(folder, text, vocab=0, masked=False)  # says so, before the model is loaded
    whole = load_checkpoint(folder)
    model, absent = _reader(whole)
    absent += unread_note(type(whole), read_config(folder))
    _require_tokens(folder, model)
    vocab = _vocab(model)
    longest = getattr(getattr(model, "config", None), "max_position_embeddings", None)
    return inspect_text(
        folder,
        text,
        length,
        settings,
        vocab=vocab,
        longest=longest if isinstance(longest, int) and longest > 0 else None,
        objective="causal" if _is_causal(model, vocab) else "masked",
        measure=lambda windows: _measured(model, windows, absent),
    )


def is_function(path: Path) -> bool:
    """True for `file.py:function` and `module:function`."""
    return ":" in path.name and not path.exists()


def probe_function(path: Path, text: Path | None, length: int | None, settings: Settings) -> dict[str, Any]:
    """Measure the causal model that a user's function returns, on the tokens that it returns beside it.

    Raises:
        InputError: as `function_target`; a text or a length is given, there are no tokens, or the model is not causal.
    """
    for option in [name for name, value in (("text", text), ("length", length)) if value is not None]:
        raise InputError(
            f"--{option}: expected a checkpoint as target, got a function, which returns tokens. Leave it out."
        )
    target = function_target(str(path), None)
    model, tokens = target.model.eval(), target.inputs
    if not isinstance(tokens, Tensor) or tokens.is_floating_point() or tokens.ndim != 2 or tokens.shape[1] < 3:
        got = f"{tokens.dtype} {[*tokens.shape]}" if isinstance(tokens, Tensor) else type(tokens).__name__
        raise InputError(
            f"{path}: expected token ids [batch, seq] beside the model, got {got}. Return (model, tokens)."
        )
    if not _is_causal(model, _vocab(model)):
        raise InputError(
            f"{path}: expected a causal model, got one whose logits depend on later tokens, of which no loss is known. "
            "addnorm.depth_matrix(model, tokens) and addnorm.identities take it."
        )
    rows = [
        Batch(inputs=row[:, :-1], targets=row[:, 1:], mask=None) for row in tokens.to(device_here()).long().split(1)
    ]
    windows = Windows(batches=(*rows[: settings.sequences],), maps=(*rows[: settings.map_sequences],))
    digest = hashlib.sha256(tokens.cpu().numpy().tobytes()).hexdigest()
    return measured_windows(path, windows, text="tokens of the function", digest=digest) | _measured(model, windows, [])


def _measured(model: nn.Module, windows: Windows, absent: list[Sentence]) -> dict[str, Any]:
    end = probe(model.to(device_here()), windows.batches, windows.maps, _logits)
    return notes_of([*absent, *end.pop("missing")]) | {"end": end}


def _reader(model: nn.Module) -> tuple[nn.Module, list[Sentence]]:
    """The model, or of one with an encoder and a decoder the part that reads a text, and what is left out."""
    config: Any = getattr(model, "config", None)
    if not getattr(config, "is_encoder_decoder", False) or not hasattr(model, "get_encoder"):
        return model, []
    whole: Any = model
    return whole.get_encoder(), [say("no_decoder", name=type(model).__name__)]


def _require_tokens(folder: Path, model: nn.Module) -> None:
    read = getattr(model, "main_input_name", "input_ids")
    if read != "input_ids":
        raise InputError(
            f"{folder}: expected a model that embeds tokens, got {type(model).__name__}, which reads {read!r}. `addnorm audit` "
            "takes it."
        )


def _logits(model: nn.Module, tokens: Tensor) -> Tensor | None:
    """The logits [batch, seq, vocab] of an output; None if it has others, or none."""
    try:
        output: Any = model(tokens)
    except (TypeError, ValueError, IndexError, RuntimeError) as error:
        raise InputError(
            f"{type(model).__name__}: expected a model that reads {tokens.shape[1]} tokens, got an error: {error}. If the "
            "model takes fewer tokens, give --length."
        ) from error
    logits = getattr(output, "logits", output)
    has_logits = isinstance(logits, Tensor) and logits.shape[:-1] == tokens.shape and logits.shape[-1] >= _vocab(model)
    return logits if has_logits else None


def _vocab(model: nn.Module) -> int:
    embedding = next((module for module in model.modules() if isinstance(module, nn.Embedding)), None)
    if embedding is None:
        raise InputError(f"{type(model).__name__}: expected a model that embeds tokens, got one without an embedding.")
    return embedding.num_embeddings


@torch.no_grad()
def _is_causal(model: nn.Module, vocab: int) -> bool:
    """True if another last token leaves earlier logits as they are, or if there are no logits to be compared."""
    tokens = torch.randint(vocab, (1, 5), generator=torch.Generator().manual_seed(0))
    other = tokens.clone()
    other[0, -1] = (other[0, -1] + 1) % vocab
    one, two = _logits(model, tokens), _logits(model, other)
    if one is None or two is None:
        return True
    return torch.allclose(one[:, :-1], two[:, :-1], rtol=1e-4, atol=1e-5)
