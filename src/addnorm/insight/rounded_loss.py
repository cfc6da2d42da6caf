"""Held-out loss of a model before and after its weights are rewritten, as they are and rounded to 8 and 4 bits.

The text is the user's, in the tokens of the checkpoint or as bytes, or the held-out text of a run's own data.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from addnorm.data import Dataset
from addnorm.data.tokenizers.bytes import ByteTokenizer
from addnorm.errors import InputError
from addnorm.insight.checkpoint_text import LENGTH, HeldText, held_text, text_as_data
from addnorm.insight.flow.runs import Settings, dataset_of, held_windows
from addnorm.model.transformer import Transformer
from addnorm.outside.hugging_face.text import listed_ids, plain_text
from addnorm.outside.targets import Target
from addnorm.redundancy.execution.copies import copy_of
from addnorm.store import RunFolder
from addnorm.symmetry.bases.certificate import BasisCertificate
from addnorm.symmetry.bases.quantising import BITS, round_weights
from addnorm.training.objective import Batch, loss_sums
from addnorm.training.run_weights import newest_weights

_WINDOWS, _BATCH = 16, 4
"""Sequences, evenly spread over the text, and those that are computed at a time."""
_CAUSAL = 1e-3
"""Largest relative change of earlier logits by a later token that counts as rounding."""


@dataclass(frozen=True, kw_only=True)
class RoundedLoss:
    """Cross-entropies in nats per scored token."""

    text: str
    """The file, or the run's own data."""
    tokens: int
    """Scored tokens."""
    before: dict[str, float]
    """Of the original weights: `unquantised`, `int8` and `int4`."""
    after: dict[str, float]
    """Of the rewritten weights."""
    bound: float
    """Largest difference of the unquantised losses that rounding explains."""

    @property
    def passed(self) -> bool:
        """True if the rewrite keeps the unquantised loss."""
        return abs(self.after["unquantised"] - self.before["unquantised"]) <= self.bound

    def to_json(self) -> dict[str, Any]:
        """Return its entry in JSON."""
        return {"passed": self.passed, **asdict(self)}


@dataclass(frozen=True, kw_only=True)
class HeldOutText:
    """A text in the tokens of one model."""

    name: str
    batches: Sequence[Batch]


def text_of(target: Target, file: Path | None) -> HeldOutText | None:
    """Read the text on which a model is measured; None if no file is given and the target has no held-out text of its own.

    Args:
        target: the model.
        file: a UTF-8 text, or a list of token ids in a file that ends in .json.

    Raises:
        InputError: the text cannot be read, has a token that the model has not, or is shorter than two tokens.
    """
    folder = Path(target.name)
    own_run = target.kind == "run" and (folder / "spec.json").is_file()
    if file is None:
        if not own_run:
            return None
        run = RunFolder(folder)
        weights = newest_weights(run)
        windows = held_windows(weights, dataset_of(run, weights), Settings(), torch.device("cpu"))
        return HeldOutText(name="the held-out text of the run's data", batches=windows.batches)
    masked, vocab, longest = _facts(target.model)
    if target.kind == "checkpoint":
        held = held_text(folder, file, vocab=vocab, masked=masked)
    else:
        held = HeldText(dataset=_encoded(target, file, vocab - masked, own_run=own_run), mask=None)
    seq = min(LENGTH, longest, len(held.dataset.held) - 1)
    if seq < 1:
        raise InputError(f"--text: expected at least 2 tokens in {file}, got {len(held.dataset.held)}. Give more text.")
    batches = held.batches("masked" if masked else "causal", _BATCH, seq, _WINDOWS, torch.device("cpu"))
    return HeldOutText(name=str(file), batches=batches)


def rounded_loss(
    original: nn.Module, rewritten: nn.Module, inputs: object, text: HeldOutText, certificate: BasisCertificate
) -> RoundedLoss:
    """Measure both models on a text, each as it is and with weights rounded to 8 and 4 bits, in float32 or float64.

    Args:
        original, rewritten: the models; not changed.
        inputs: example inputs, which say how the models take tokens.
        text: in their tokens.
        certificate: of the rewrite. A loss moves by at most twice the largest change of a logit, which the certificate limits
            relative to the logits' root mean square.

    Raises:
        InputError: a model does not take token ids alone, gives no logits per token, or reads the tokens that it predicts.
    """
    keyword = _keyword(inputs)
    before, size = _losses(original, keyword, text)
    after, _ = _losses(rewritten, keyword, text)
    return RoundedLoss(
        text=text.name,
        tokens=sum(batch.count for batch in text.batches),
        before=before,
        after=after,
        bound=2 * certificate.allowed * size,
    )


def _facts(model: nn.Module) -> tuple[bool, int, int]:
    """Return if a model predicts masked tokens, its number of embeddings, and the length of its sequences."""
    if isinstance(model, Transformer):
        return model.spec.objective == "masked", model.spec.vocab, model.spec.max_seq
    config: Any = getattr(model, "config", None)
    settings = config.get_text_config() if hasattr(config, "get_text_config") else config
    tables = [each.num_embeddings for each in model.modules() if isinstance(each, nn.Embedding)]
    vocab = getattr(settings, "vocab_size", None) or max(tables, default=256)
    longest = getattr(settings, "max_position_embeddings", None) or LENGTH
    return type(model).__name__.endswith("MaskedLM"), int(vocab), int(longest)


def _encoded(target: Target, file: Path, vocab: int, *, own_run: bool) -> Dataset:
    """A text in the tokens of a run, or as bytes."""
    if file.suffix == ".json":
        ids = np.array(listed_ids(file))
    else:
        text = plain_text(file)
        if own_run:
            tokenizer = Dataset.load(Path(target.name).parent / "data").tokenizer()
            ids = tokenizer.encode(text)
        elif isinstance(target.model, Transformer) and target.model.read_tokenizer is not None:
            ids = np.asarray(target.model.read_tokenizer().encode(text))
        else:
            ids = ByteTokenizer().encode(text)
    largest = int(ids.max(initial=0))
    if largest >= vocab:
        raise InputError(
            f"--text: expected token ids below {vocab}, the number of the model's embeddings, got {largest} in {file}. Give a "
            "list of the model's own token ids in a .json file."
        )
    return text_as_data(file, ids.tolist(), vocab=vocab)


def _keyword(inputs: object) -> str | None:
    """The name under which a model takes tokens; None for its first argument."""
    if not isinstance(inputs, Mapping):
        return None
    if "input_ids" not in inputs or "decoder_input_ids" in inputs:
        raise InputError(
            f"--text: expected a model that takes input_ids alone, got one with the inputs {', '.join(inputs)}. Leave --text "
            "out."
        )
    return "input_ids"


def _losses(model: nn.Module, keyword: str | None, text: HeldOutText) -> tuple[dict[str, float], float]:
    """The loss of a model as it is and with rounded weights, and the root mean square of its logits."""
    is_double = any(each.dtype == torch.float64 for each in model.parameters())
    wide = copy_of(model, torch.float64 if is_double else torch.float32).eval()
    if text.batches[0].mask is None:
        _require_causal(wide, keyword, text.batches[0].inputs[:1])
    loss, size = _loss(wide, keyword, text.batches)
    losses = {"unquantised": loss}
    for bits in BITS:
        with _rounded(wide, bits):
            losses[f"int{bits}"] = _loss(wide, keyword, text.batches)[0]
    return losses, size


@contextmanager
def _rounded(model: nn.Module, bits: int) -> Iterator[None]:
    """Round the weights of a model during a block."""
    kept = [each.detach().clone() for each in model.parameters()]
    round_weights(model, bits)
    yield
    with torch.no_grad():
        for each, value in zip(model.parameters(), kept, strict=True):
            each.copy_(value)


@torch.no_grad()
def _loss(model: nn.Module, keyword: str | None, batches: Sequence[Batch]) -> tuple[float, float]:
    """The mean over the scored tokens, summed in float64, and the root mean square of the finite logits."""
    nats, count, square, entries = 0.0, 0, 0.0, 0
    for batch in batches:
        logits = _logits(model, keyword, batch.inputs).double()
        sums = loss_sums(logits, batch)
        finite = logits[torch.isfinite(logits)]
        nats, count = nats + float(sums.nats), count + sums.count
        square, entries = square + float(finite.square().sum()), entries + finite.numel()
    return nats / max(count, 1), (square / max(entries, 1)) ** 0.5


def _logits(model: nn.Module, keyword: str | None, tokens: Tensor) -> Tensor:
    output: Any = model(tokens) if keyword is None else model(**{keyword: tokens})
    logits = output if isinstance(output, Tensor) else getattr(output, "logits", None)
    if not isinstance(logits, Tensor) or logits.dim() != 3 or logits.shape[:2] != tokens.shape:
        got = tuple(logits.shape) if isinstance(logits, Tensor) else type(output).__name__
        raise InputError(
            f"--text: expected logits of the shape {tuple(tokens.shape)} and the vocabulary, got {got}. Leave --text out."
        )
    return logits


@torch.no_grad()
def _require_causal(model: nn.Module, keyword: str | None, tokens: Tensor) -> None:
    """Require that no logit of an earlier position reads the last token."""
    if tokens.shape[1] < 2:
        return
    other = tokens.clone()
    other[:, -1] = torch.where(other[:, -1] == tokens[:, 0], tokens[:, -2], tokens[:, 0])
    if bool((other == tokens).all()):
        other[:, -1] = (tokens[:, -1] + 1) % max(int(tokens.max()), 2)
    one, two = (_logits(model, keyword, each)[:, :-1] for each in (tokens, other))
    finite = torch.isfinite(one)
    if float((one - two)[finite].abs().max()) > _CAUSAL * float(one[finite].square().mean().sqrt()):
        raise InputError(
            "--text: expected a model that predicts each token from those before it, or masked tokens, got one whose earlier "
            "outputs depend on later tokens. Leave --text out."
        )
