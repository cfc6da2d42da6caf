"""Continue a text with a trained run, an exported model or a Transformers checkpoint.

The text is encoded with the tokenizer of the run's data, or the one beside the weights. Decoding is cached and exact for every
mechanism; the same command prints the same text.

For example:
    addnorm generate runs/first/base-s0-1a2b3c4d --prompt "def f("
    addnorm generate exported/base --prompt "def f(" --tokens 200 --temperature 0
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from addnorm.cli._text import PluginOption, print_json
from addnorm.errors import InputError

if TYPE_CHECKING:
    from addnorm.model.transformer import Transformer


_TOKENS = 64


@dataclass(frozen=True)
class Options(PluginOption):
    target: Annotated[Path, tyro.conf.Positional]
    """Folder of a run, such as runs/first/base-s0-1a2b3c4d; of a model that `addnorm export` wrote; or of a checkpoint."""
    prompt: str
    """Text to continue."""
    tokens: int | None = None
    """Number of tokens to add; 64 if not given, or as many as the model's `max_seq` leaves."""
    temperature: float = 0.8
    """0 for the most likely token at each step; 1 to sample from the model's distribution; likely tokens more often below 1."""
    top_k: int | None = None
    """Sample among the k most likely tokens; all if not given."""
    seed: int = 0
    """Seed of the sampling: another one gives another text."""


def command(options: Options) -> int:
    from addnorm.model.generation import generate

    if any("\ud800" <= letter <= "\udfff" for letter in options.prompt):
        raise InputError(
            "--prompt: expected text in the encoding of this terminal's locale, got bytes that are none. Set LANG, for example "
            'to C.UTF-8, or save the text as UTF-8 and give it with --prompt "$(cat FILE)".'
        )
    model, trained = _loaded(options)
    if model.read_tokenizer is None:
        raise InputError(
            f"{options.target}: expected a tokenizer.json beside the weights, which turns --prompt into token ids, got none. "
            "Copy the one that belongs to them (AutoTokenizer.from_pretrained(NAME).save_pretrained(FOLDER) writes it), or "
            "call addnorm.generate with token ids."
        )
    tokens = options.tokens
    if tokens is None:
        # A table of positions ends at max_seq, and every model gets worse beyond the length that it was trained with.
        used = len(model.read_tokenizer().encode(options.prompt))
        tokens = min(_TOKENS, max(model.spec.max_seq - used, 1))
    text = generate(
        model,
        options.prompt,
        new_tokens=tokens,
        temperature=options.temperature,
        top_k=options.top_k,
        seed=options.seed,
    )
    if options.json:
        print_json(
            {
                "target": str(options.target),
                "prompt": options.prompt,
                "text": text,
                "new_tokens": tokens,
                "temperature": options.temperature,
                "top_k": options.top_k,
                "seed": options.seed,
                "step": trained,
            }
        )
    else:
        print(text)
    return 0


def _loaded(options: Options) -> "tuple[Transformer, int | None]":
    """The model, and the steps that it was trained where they are known."""
    import addnorm
    from addnorm.outside.hugging_face.checkpoint import is_checkpoint
    from addnorm.store import RunFolder
    from addnorm.study.foreign import ForeignSpec
    from addnorm.study.plugins import load_plugins
    from addnorm.training.export import SPEC, require_run
    from addnorm.training.run_spec import run_spec
    from addnorm.training.run_weights import newest_weights

    folder = options.target
    if (folder / SPEC).is_file():
        return addnorm.load(folder, plugins=options.plugin), None
    if is_checkpoint(folder):
        return addnorm.load_hf(folder, plugins=options.plugin), None
    load_plugins(options.plugin, Path.cwd())
    run = RunFolder(folder)
    require_run(run)
    if isinstance(run_spec(run).model, ForeignSpec):
        raise InputError(
            f"{folder}: expected a model of addnorm, got one of others. Write it in its own form with `addnorm export`, and "
            "generate with its own library."
        )
    weights = newest_weights(run)
    return weights.model(), weights.step
