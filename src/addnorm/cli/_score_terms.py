"""`addnorm inspect --terms`: the four terms of a run, or of a Transformers checkpoint."""

import re
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import tyro

from addnorm.cli._figure_file import require_figure_file, write_figure
from addnorm.cli._text import print_json
from addnorm.errors import InputError

CHECKPOINT_LENGTH = 512
"""Tokens of a sample of a checkpoint, unless asked otherwise."""


@dataclass(frozen=True)
class Terms:
    terms: bool = False
    """Show the four terms of the scores instead: qᵀRk, aᵀRk, qᵀRb, aᵀRb against the distance."""
    beside: Annotated[tuple[Path, ...], tyro.conf.UseAppendAction] = ()
    """With --terms: other runs to show next to it, such as the same variant without biases. May be given more than once."""
    length: str | None = None
    """With --terms: tokens of a sample: `4x` the train length of a run (the default), or a number for a checkpoint (512)."""
    samples: int = 8
    """With --terms: texts."""
    text: Path | None = None
    """With --terms: a text file for a checkpoint, which has no data of its own."""
    plot: Path | None = None
    """With --terms: also draw a figure into this file (.svg, .pdf, .png)."""


def show_terms(target: Path, options: Terms, *, json: bool) -> int:
    """Print the terms of the target and of those beside it.

    Raises:
        InputError: a target that has no four terms, or an option that no target has a use for.
    """
    from addnorm.insight.score_terms.inspect import beside
    from addnorm.reporting.sections import terms as tables

    require_figure_file(options.plot)
    if options.text is not None and not any(map(_is_checkpoint, (target, *options.beside))):
        raise InputError(
            f"--text is for a checkpoint, {target} is none: a run is measured on its own data. Leave it out."
        )
    wanted = [_wanted(path, options) for path in (target, *options.beside)]
    found = beside([look() for look in wanted])
    if options.plot is not None:
        from addnorm.reporting.sections.terms import figure

        write_figure(figure(found["rows"]), options.plot)
    if json:
        print_json(found)
    else:
        print(tables.text(found), end="")
        if options.plot is not None:
            print(f"\nDrawn: {options.plot}")
    return 0


def require_unused(options: Terms) -> None:
    """Raises:
    InputError: an option of the terms was given without `--terms`.
    """
    given = [option.name for option in fields(options) if getattr(options, option.name) != option.default]
    if given:
        raise InputError(f"--{given[0]} belongs to --terms: give --terms too, or leave --{given[0]} out.")


def _is_checkpoint(target: Path) -> bool:
    return (target / "config.json").is_file()


def _wanted(target: Path, options: Terms) -> Callable[[], dict[str, Any]]:
    """What will measure one target, once all of them are known to have four terms."""
    from addnorm.insight.score_terms.inspect import MULTIPLE, inspect_terms, require_terms

    if options.samples < 1:
        raise InputError(f"--samples must be at least 1, got {options.samples}.")
    if not target.is_dir():
        raise InputError(f"{target} is no folder. Give a run's, or that of a Transformers checkpoint.")
    if _is_checkpoint(target):
        return partial(_of_checkpoint, target, options)
    multiple = re.fullmatch(r"([1-9]\d*)x", options.length or f"{MULTIPLE}x")
    if multiple is None:
        raise InputError(f"--length of a run is a multiple of its train length, such as 4x; got {options.length!r}.")
    settings = {"multiple": int(multiple[1]), "samples": options.samples}
    require_terms(target, **settings)
    return partial(inspect_terms, target, **settings)


def _of_checkpoint(folder: Path, options: Terms) -> dict[str, Any]:
    from addnorm.insight.score_terms.inspect import terms_of_model
    from addnorm.targets import resolve

    length = options.length or str(CHECKPOINT_LENGTH)
    if not length.isdecimal() or int(length) < 2:
        raise InputError(f"--length for a checkpoint is a number of tokens, such as 512; got {length!r}.")
    if options.text is None:
        raise InputError(f"{folder} is a checkpoint, which has no text of its own: give some with --text FILE.")
    tokens = _tokens(folder, options.text, options.samples, int(length))
    model: Any = resolve(str(folder)).model
    embeddings = len(model.get_input_embeddings().weight)
    if int(tokens.max()) >= embeddings:
        raise InputError(
            f"{folder / 'tokenizer.json'} gives token {int(tokens.max())}, the model knows {embeddings}: it is another "
            "model's. Copy the one that belongs to the weights."
        )
    known = getattr(getattr(model, "config", None), "max_position_embeddings", None)
    return terms_of_model(
        model, tokens, label=folder.name, trained_at=known if known is not None and known < int(length) else None
    )


def _tokens(folder: Path, file: Path, samples: int, length: int) -> Any:
    """Samples of a text by the checkpoint's own tokenizer, evenly spread: int64 [sample, seq]."""
    import torch
    from tokenizers import Tokenizer

    path = folder / "tokenizer.json"
    if not path.is_file():
        raise InputError(f"{folder} has no tokenizer.json to read the text with. Copy it next to config.json.")
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises a bare Exception for a damaged file
        raise InputError(f"{path} is no tokenizer: {error}. Copy it again.") from error
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{file} cannot be read as a UTF-8 text: {error}.") from error
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    fit = len(ids) // length
    if fit < 1:
        raise InputError(
            f"{file} is too short: {len(ids)} tokens, one sample needs {length}. Give more text or --length."
        )
    count = min(samples, fit)
    starts = [index * fit // count * length for index in range(count)]
    return torch.tensor([ids[start : start + length] for start in starts])
