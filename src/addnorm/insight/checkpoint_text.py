"""A text as the held-out data of a checkpoint, which has no data set of its own."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Int64

from addnorm.data import Dataset, held_batches
from addnorm.errors import InputError
from addnorm.outside.hugging_face.text import mask_id, require_vocab, text_ids
from addnorm.training.objective import Batch, make_batch

LENGTH = 512
"""Default number of tokens of a sequence, or the model's `max_seq` if that is less."""


@dataclass(frozen=True, kw_only=True)
class HeldText:
    """The ids of a text as a data set whose held-out side is all of it."""

    dataset: Dataset
    mask: int | None
    """Id of the mask token of a masked model."""

    def with_mask(self, inputs: Int64[np.ndarray, "*batch seq"]) -> Int64[np.ndarray, "*batch seq"]:
        """Put the model's own mask token where the data set's, the id after its vocabulary, stands."""
        return inputs if self.mask is None else np.where(inputs == self.dataset.mask_id, self.mask, inputs)

    def batches(self, objective: str, size: int, seq: int, sequences: int, device: torch.device) -> tuple[Batch, ...]:
        """Inputs and targets of the first sequences, with the model's own mask token, a batch of them at a time."""
        batches = []
        for step, windows in enumerate(held_batches(self.dataset, size, seq, sequences)):
            made = make_batch(objective, windows, self.dataset, seed=0, step=step, device=torch.device("cpu"))
            inputs = torch.from_numpy(np.ascontiguousarray(self.with_mask(made.inputs.numpy())))
            mask = None if made.mask is None else made.mask.to(device)
            batches.append(Batch(inputs=inputs.to(device), targets=made.targets.to(device), mask=mask))
        return tuple(batches)


def held_text(folder: Path, file: Path | None, *, vocab: int, masked: bool) -> HeldText:
    """Encode a text with a checkpoint's tokenizer.

    Args:
        folder: of the checkpoint.
        file: a UTF-8 text, or a list of token ids in a file that ends in .json.
        vocab: number of the model's embeddings.
        masked: True for a model that predicts masked tokens.

    Raises:
        InputError: no text is given, or as `text_ids`, `require_vocab` and `mask_id`.
    """
    if file is None:
        raise InputError(f"{folder} is a checkpoint, which has no text of its own: expected --text FILE.")
    token_ids = text_ids(folder, file)
    require_vocab(folder, token_ids, vocab)
    dataset = text_as_data(file, token_ids, vocab=vocab, folder=folder)
    return HeldText(dataset=dataset, mask=mask_id(folder) if masked else None)


def text_as_data(file: Path, token_ids: Sequence[int], *, vocab: int, folder: Path = Path()) -> Dataset:
    """A data set whose held-out side is all of a text.

    Args:
        file: the text.
        token_ids: of the text.
        vocab: number of ids.
        folder: of the model.
    """
    ids = np.array(token_ids, dtype=np.uint32)
    return Dataset(
        folder=folder,
        hash=hashlib.sha256(ids.tobytes()).hexdigest(),
        tokenizer_hash="",
        vocab=vocab,
        train=ids,
        held=ids,
        train_bytes=file.stat().st_size,
        held_bytes=file.stat().st_size,
        corpus={"kind": "text", "path": str(file)},
        tokenizer_spec={},
    )


def require_no_text(path: Path, **given: object) -> None:
    """Require that options of checkpoints are not given for runs.

    Raises:
        InputError: one is given, or there is no such folder.
    """
    if not path.is_dir():
        raise InputError(
            f"{path}: expected the folder of a run, of a study or of a checkpoint, got no such folder. Check the path."
        )
    for name, value in given.items():
        if value is not None:
            raise InputError(
                f"--{name}: expected a checkpoint as target, got {path}. Runs have their own: leave --{name} out."
            )
