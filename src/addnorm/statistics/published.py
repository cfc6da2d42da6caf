"""Results as a JSON file: a table that somebody printed, or runs of another program.

    {"references": ["base"], "assumptions": {"loss_sd": 0.0023}, "runs": [{"variant": "base", "seed": 0, "loss": 2.5297,
     "accuracy_percent": 50.21}, …]}

The fields of a run are those of `Result`, with accuracy in per cent as it is printed. Other top-level fields are notes.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from importlib.resources import files
from pathlib import Path
from typing import Any

from addnorm.errors import InputError, did_you_mean
from addnorm.references import names_printed_results
from addnorm.statistics.procedure import rank
from addnorm.statistics.ranking import Ranking
from addnorm.statistics.result import Result

_RUN_FIELDS = (*(f.name for f in fields(Result) if f.name != "accuracy"), "accuracy_percent", "epochs")


@dataclass(frozen=True, kw_only=True)
class Published:
    """A printed table of results, with its notes."""

    results: tuple[Result, ...]
    references: tuple[str, ...]
    assumed_sd: float | None
    """Standard deviation of one run's loss in nats, from another source."""
    notes: dict[str, Any]
    """All other fields of the file."""


def read_published(path: str | Path) -> Published:
    """Read a results file.

    Raises:
        InputError: no such file, not JSON, or a run with an unknown field.
    """
    path = Path(path)
    try:
        return _parse(json.loads(path.read_text(encoding="utf-8")), str(path))
    except OSError as error:
        raise InputError(f"results file {path}: {error.strerror or error}. Give the path of a JSON file.") from error
    except json.JSONDecodeError as error:
        raise InputError(
            f"results file {path}, line {error.lineno}: expected JSON, got an error: {error.msg}. Name a file with an "
            "object in each line .jsonl."
        ) from error


def kuang_2025() -> Published:
    """The eighteen runs that Kuang (2025) prints, with that document's tiers among the notes."""
    file = files("addnorm") / "studies" / "published" / "kuang_2025" / "results.json"
    return _parse(json.loads(file.read_text(encoding="utf-8")), "kuang_2025/results.json")


def ranking_of_published(path: Path, overrides: Mapping[str, Any] | None = None) -> Ranking:
    """Rank printed results: `kuang-2025`, or those of a JSON file.

    Args:
        path: the name or the file.
        overrides: `references` or `margin` to use instead of the file's references and 0.005 nats per token; `left_out`:
            variants that take no part.

    Raises:
        InputError: the file is missing or of another form.
        UnknownName: a reference that no run belongs to.
    """
    published = kuang_2025() if names_printed_results(path) else read_published(path)
    chosen = {"references": published.references, "margin": 0.005, **(overrides or {})}
    return rank(
        published.results,
        references=tuple(chosen["references"]),
        margin=chosen["margin"],
        left_out=chosen.get("left_out", ()),
        assumed_sd=published.assumed_sd,
    )


def _parse(text: Any, where: str) -> Published:
    if not isinstance(text, dict) or not isinstance(text.get("runs"), list):
        got = f"the fields {', '.join(text)}" if isinstance(text, dict) else type(text).__name__
        advice = (
            "Give the folder that holds the folders of all runs."
            if isinstance(text, dict) and "log_history" in text
            else "For runs of your own, write a list of objects with variant, seed and loss. With pandas: "
            "to_json(orient='records')."
        )
        raise InputError(f"{where}: expected an object with a list 'runs', got {got}. {advice}")
    assumptions = text.get("assumptions", {})
    return Published(
        results=tuple(_run(run, f"{where}: $.runs[{index}]") for index, run in enumerate(text["runs"])),
        references=tuple(text.get("references", ())),
        assumed_sd=assumptions.get("loss_sd"),
        notes={key: value for key, value in text.items() if key not in ("runs", "references")},
    )


def _run(run: Any, where: str) -> Result:
    if not isinstance(run, dict):
        raise InputError(f"{where}: expected an object, got {run!r}.")
    for name in run:
        if name not in _RUN_FIELDS:
            raise InputError(
                f"{where}: expected fields of a run, got {name!r}.{did_you_mean(name, _RUN_FIELDS)} "
                f"Known: {', '.join(_RUN_FIELDS)}."
            )
    for name in ("variant", "seed"):
        if name not in run:
            raise InputError(f"{where}: expected a field {name!r}, got {', '.join(run) or 'none'}.")
    known = {key: value for key, value in run.items() if key not in ("accuracy_percent", "epochs")}
    percent = run.get("accuracy_percent")
    return Result(accuracy=None if percent is None else percent / 100, **known)
