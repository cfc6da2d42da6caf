"""The card of an exported model: README.md with what it is, on what it was trained, what it reached, and what is not known."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from addnorm.store import RunFolder
from addnorm.store.events import read_events
from addnorm.store.files import write_atomic
from addnorm.study.definition import RunSpec, Training
from addnorm.study.encoding import encode
from addnorm.version import __version__

CARD = "README.md"
_RESULTS = {"eval.loss": "Loss", "eval.perplexity": "Perplexity", "eval.accuracy": "Accuracy"}


def write_card(run: RunFolder, spec: RunSpec, to: Path, loading: str, library: str) -> None:
    """Write `README.md` beside exported weights.

    Args:
        run: the run that was exported.
        spec: its spec.
        to: the folder of the export.
        loading: Python that loads the model.
        library: name of the library that loads it, as Hugging Face's hub has it.

    Raises:
        JobError: the file cannot be written.
    """
    write_atomic(to / CARD, card(run, spec, loading, library).encode())


def card(run: RunFolder, spec: RunSpec, loading: str, library: str) -> str:
    """The text of the card; its head is the metadata that Hugging Face's hub reads."""
    settings = encode(spec)
    training, corpus = settings["training"], settings["corpus"]
    tokens = spec.training.steps * spec.training.tokens_per_step
    measures = _reached(run)
    results = [f"| {word} | {measures[name]:.5g} |" for name, word in _RESULTS.items() if name in measures]
    # Neither a licence nor a language is known here: a line that is left out is asked for by the hub, a wrong one is not.
    return "\n".join(
        [
            "---",
            f"library_name: {library}",
            "tags: [addnorm]",
            "---",
            f"# {spec.study}: {spec.variant}, seed {spec.seed}",
            "",
            f"Variant `{spec.variant}` of the study `{spec.study}`, trained by addnorm {__version__} from new weights."
            if spec.training.init_from is None
            else f"Variant `{spec.variant}` of the study `{spec.study}`, trained further by addnorm {__version__} from "
            f"`{Path(spec.training.init_from).name}`.",
            "",
            "```python",
            loading,
            "```",
            "",
            "## Results",
            "",
            f"On {_scored(spec.training)} held-out sequences of {spec.training.seq} tokens of the same corpus, at the last "
            "step. One run says nothing of a difference between variants: see the study's ranking."
            if results
            else "No evaluation is on record.",
            "",
            *(["| measure | value |", "|---|---|", *results, ""] if results else []),
            "## Training",
            "",
            "| setting | value |",
            "|---|---|",
            f"| Corpus | {_line(corpus)} |",
            f"| Data hash | `{spec.data_hash}` |",
            f"| Tokenizer | {_line(settings['tokenizer'])} |",
            f"| Steps | {spec.training.steps}, {tokens:,} tokens |",
            *(f"| {name} | {_line(training[name])} |" for name in ("optimizer", "schedule", "precision", "clip")),
            f"| Run | `{run.name}` |",
            "",
            "## Model",
            "",
            "| field | value |",
            "|---|---|",
            *(f"| {name} | {_line(value)} |" for name, value in settings["model"].items()),
            "",
            "## Limits",
            "",
            "Trained for a comparison of architectures, not for use: it was not tuned to follow instructions, and nothing was "
            "done about what its text says. Licence and language follow from the text that it was trained on, and are not "
            "known to the program that wrote this card.",
            "",
        ]
    )


def _reached(run: RunFolder) -> dict[str, Any]:
    """Measures of the last evaluation."""
    evaluations = [event for event in read_events(run.events_path)[0] if event.get("type") == "eval"]
    if not evaluations:
        return {}
    last = evaluations[-1]
    return {
        f"eval.{name}": last[name] for name in ("loss", "perplexity", "accuracy") if isinstance(last.get(name), float)
    }


def _line(value: Any) -> str:
    """A setting in one cell of a table."""
    if isinstance(value, Mapping):
        kind = [str(value["kind"])] if "kind" in value else []
        rest = [f"{name} {_line(entry)}" for name, entry in value.items() if name != "kind" and entry is not None]
        return ", ".join(kind + rest)
    if isinstance(value, str) and "/" in value:
        return Path(value).name  # a path of this machine helps nobody
    return "–" if value is None else str(value).replace("|", "\\|")


def _scored(training: Training) -> str:
    return "all" if training.last_sequences is None else f"at most {training.last_sequences}"
