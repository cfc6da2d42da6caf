"""`addnorm explain`: every run of a study, one run, or printed values, as one JSON value."""

import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

import addnorm
from addnorm.errors import InputError
from addnorm.insight.explained import Explained
from addnorm.insight.printed import explain_printed, judge_conclusions, read_printed
from addnorm.insight.recorded import explain_run
from addnorm.references import names_printed_results
from addnorm.store import RunFolder, StudyFolder, write_json
from addnorm.study.definition import RunSpec
from addnorm.study.loading import load_study

NAME = "explain.json"
KUANG_2025 = Path(addnorm.__file__).parent / "studies" / "published" / "kuang_2025" / "scalars.json"


def explain(target: Path, *, norms: bool = False) -> dict[str, Any]:
    """What the learned scalars of a study's runs show.

    Args:
        target: a study's folder, a run's folder, or `kuang-2025` for the values that Kuang (2025) prints.
        norms: also the norms' gains and shifts.

    Returns:
        `runs` (see `Explained.to_json`), `spread` over seeds per variant and entry, `skipped` runs with the reason, and for
        printed values the document's `conclusions` with a verdict each.

    Raises:
        InputError: the folder holds neither a study nor a run, or nothing in it can be explained.
    """
    if names_printed_results(target):
        return explain_kuang_2025()
    if (target / "study.json").exists():
        runs = StudyFolder(target).runs()
    elif (target / "spec.json").exists():
        runs = [RunFolder(target)]
    else:
        raise InputError(
            f"{target} holds neither a study nor a run. Give a folder made by `addnorm run`, or kuang-2025."
        )
    found: list[Explained] = []
    skipped: dict[str, str] = {}
    for run in runs:
        try:
            found.append(explain_run(run, norms=norms))
        except InputError as error:
            skipped[run.name] = str(error)
    if not found:
        raise InputError(f"nothing in {target} can be explained: {next(iter(skipped.values()))}")
    return {"runs": [run.to_json() for run in found], "spread": spread(found), "skipped": skipped}


def keep_explained(folder: Path, found: dict[str, Any]) -> None:
    """Write what was found of a study's runs into its folder as explain.json, with the time, for its page.

    Raises:
        DiskFull, JobError: it cannot be written.
    """
    write_json(folder / NAME, {"time": time.time(), **found})


def explain_kuang_2025() -> dict[str, Any]:
    """Kuang's (2025) printed values, explained from them and its training set-up alone."""
    content = read_printed(KUANG_2025)
    study = load_study("residual-scores", profile="paper")
    found = {}
    for variant in content["variants"]:
        spec = RunSpec(
            study=study.name,
            variant=variant,
            seed=0,
            model=study.variants[variant],
            training=study.training,
            corpus=study.corpus,
            tokenizer=study.tokenizer,
            data_hash="",
        )
        found[variant] = explain_printed(content, spec, variant)
    return {
        "runs": [run.to_json() for run in found.values()],
        "spread": [],
        "skipped": {},
        "conclusions": judge_conclusions(content, found),
    }


def spread(found: list[Explained]) -> list[dict[str, Any]]:
    """Mean and standard deviation over seeds of every entry's end value and effective coefficient."""
    by_variant: dict[str, list[Explained]] = defaultdict(list)
    for run in found:
        by_variant[run.variant].append(run)
    return [
        {
            "variant": variant,
            "entry": runs[0].name(place),
            "seeds": len(runs),
            **_moments("final", [run.entries[place].final for run in runs]),
            **_moments("effective", [run.entries[place].effective for run in runs]),
        }
        for variant, runs in by_variant.items()
        for place in range(len(runs[0].entries))
    ]


def _moments(name: str, values: list[float]) -> dict[str, float | None]:
    sd = float(np.std(values, ddof=1)) if len(values) > 1 else None
    return {f"{name}_mean": float(np.mean(values)), f"{name}_sd": sd}
