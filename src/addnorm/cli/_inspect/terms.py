"""`addnorm inspect --terms`: the four terms of the scores of a run or of a Transformers checkpoint."""

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import tyro

from addnorm.cli._text import page_width, print_json, require_figure_file, write_figure
from addnorm.errors import InputError
from addnorm.words import spoken

CHECKPOINT_LENGTH = 512
"""Default number of tokens of a sample for a checkpoint."""


@dataclass(frozen=True)
class FourTerms:
    terms: bool = False
    """Measure the four terms of the scores instead: qᵀRk, aᵀRk, qᵀRb, aᵀRb against the distance."""
    beside: Annotated[tuple[Path, ...], tyro.conf.UseAppendAction] = ()
    """With --terms: other runs for comparison, such as the variant without biases. May be given more than once."""
    length: str | None = None
    """Tokens of a sample: with --terms `4x` the train length of a run (the default); a number for a checkpoint (512)."""
    samples: int = 8
    """With --terms: number of texts."""
    text: Path | None = None
    """A UTF-8 text file, or a JSON list of token ids in a .json file; needed for a checkpoint."""
    plot: Path | None = None
    """With --terms: also draw a figure into this file (.svg, .pdf, .png)."""


def show_terms(target: Path, options: FourTerms, *, to: Path | None = None, name: str | None = None, json: bool) -> int:
    """Print the four terms of the target and of the runs beside it.

    Args:
        target: a run or a checkpoint.
        options: as given.
        to: folder that receives the terms of checkpoints; None to write nothing.
        name: of the target in that folder; None for that of its own folder.
        json: True to print JSON.

    Raises:
        InputError: a target has no four terms, or an option applies to none of the targets.
    """
    from addnorm.insight.inspect import measured_place
    from addnorm.insight.score_terms.inspect import combined
    from addnorm.outside.hugging_face.checkpoint import is_checkpoint
    from addnorm.reporting.sections import terms as tables

    require_figure_file(options.plot)
    if options.text is not None and not any(map(is_checkpoint, (target, *options.beside))):
        raise InputError(
            f"--text: expected a checkpoint as target, got {target}. Runs are measured on their own data: leave --text out."
        )
    if to is not None and not is_checkpoint(target):
        raise InputError(
            f"--to: expected a checkpoint as target, got {target}. The terms of a run are written to its folder."
        )
    places = {
        path: measured_place(path, to, name if path == target else None)
        for path in (target, *options.beside)
        if is_checkpoint(path)
    }
    measurements = [_measurement(path, options, places.get(path)) for path in (target, *options.beside)]
    measured = combined([measure() for measure in measurements])
    if options.plot is not None:
        from addnorm.reporting.sections.terms import figure

        write_figure(figure(measured["rows"]), options.plot)
    if json:
        print_json(measured)
    else:
        print(tables.text(measured, page_width()), end="")
        if options.plot is not None:
            print("\n" + spoken()("printed.drawn", path=options.plot))
    return 0


def require_unused(options: FourTerms, *, besides: Collection[str] = ()) -> None:
    """Require that options of the terms are given with `--terms` only.

    Args:
        options: as given.
        besides: names of options that mean something without `--terms` too.

    Raises:
        InputError: one is given without.
    """
    given = [option.name for option in fields(options) if getattr(options, option.name) != option.default]
    given = [name for name in given if name not in besides]
    if given:
        raise InputError(f"--{given[0]}: expected together with --terms. Add --terms, or leave --{given[0]} out.")


def checkpoint_length(given: str | None) -> int | None:
    """The number of tokens that `--length` asks for; None if it is not given.

    Raises:
        InputError: it is not a number of at least 2.
    """
    if given is not None and (not given.isdecimal() or int(given) < 2):
        raise InputError(f"--length of a checkpoint: expected a number of tokens such as 512, got {given!r}.")
    return None if given is None else int(given)


def _measurement(target: Path, options: FourTerms, place: Path | None) -> Callable[[], dict[str, Any]]:
    """Check one target, and return the function that measures it, so that all are checked before the first measurement."""
    from addnorm.insight.score_terms.inspect import MULTIPLE, inspect_terms, require_terms
    from addnorm.outside.hugging_face.checkpoint import is_checkpoint

    if options.samples < 1:
        raise InputError(f"--samples: expected at least 1, got {options.samples}.")
    if not target.is_dir():
        raise InputError(f"expected the folder of a run or of a Transformers checkpoint, got {target}.")
    if is_checkpoint(target):
        return partial(_of_checkpoint, target, options, place)
    multiple = re.fullmatch(r"([1-9]\d*)x", options.length or f"{MULTIPLE}x")
    if multiple is None:
        raise InputError(
            f"--length of a run: expected a multiple of its train length such as 4x, got {options.length!r}."
        )
    settings = {"multiple": int(multiple[1]), "samples": options.samples}
    require_terms(target, **settings)
    return partial(inspect_terms, target, **settings)


def _of_checkpoint(folder: Path, options: FourTerms, place: Path | None) -> dict[str, Any]:
    from addnorm.insight.score_terms.inspect import NAME, terms_of_model
    from addnorm.model.transformer import Transformer
    from addnorm.outside.hugging_face.text import require_vocab
    from addnorm.outside.targets import resolve
    from addnorm.store.measured import write_measured

    length = checkpoint_length(options.length) or CHECKPOINT_LENGTH
    if options.text is None:
        raise InputError(f"{folder} is a checkpoint, which has no text of its own: expected --text FILE.")
    tokens = _tokens(folder, options.text, options.samples, length)
    model: Any = resolve(str(folder)).model
    if isinstance(model, Transformer):
        embeddings: int = model.spec.vocab
        longest: int | None = model.spec.max_seq
    else:
        embeddings = len(model.get_input_embeddings().weight)
        longest = getattr(getattr(model, "config", None), "max_position_embeddings", None)
    require_vocab(folder, [int(tokens.max())], embeddings)
    label = folder.name if place is None else place.name
    trained_at = longest if longest is not None and longest < length else None
    measured = terms_of_model(model, tokens, label=label, trained_at=trained_at)
    if place is not None:
        write_measured(place, folder, NAME, measured)
    return measured


def _tokens(folder: Path, file: Path, samples: int, length: int) -> Any:
    """Take samples of a text at equal distances, with the checkpoint's own tokenizer: int64 [sample, seq]."""
    import torch

    from addnorm.outside.hugging_face.text import text_ids

    ids = text_ids(folder, file)
    available = len(ids) // length
    if available < 1:
        raise InputError(
            f"--text: expected at least {length} tokens, got {len(ids)} in {file}. Give more text or a smaller --length."
        )
    count = min(samples, available)
    starts = [index * available // count * length for index in range(count)]
    return torch.tensor([ids[start : start + length] for start in starts])
