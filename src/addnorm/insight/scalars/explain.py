"""The learned scalars of all runs of a study, of one run, or of published values, as one JSON value."""

import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from addnorm.errors import InputError, JobError, warn
from addnorm.insight.scalars.explanation import Explanation
from addnorm.insight.scalars.over_seeds import over_seeds
from addnorm.insight.scalars.published import explain_published, judge_conclusions, read_published_scalars
from addnorm.insight.scalars.run_record import explain_run
from addnorm.references import names_printed_results
from addnorm.store import RunFolder, StudyFolder, write_json
from addnorm.study.definition import RunSpec
from addnorm.study.loading import load_study
from addnorm.study.plugins import load_plugins

NAME = "explain.json"
KUANG_2025 = Path(__file__).parents[2] / "studies" / "published" / "kuang_2025" / "scalars.json"


def explain(
    path: str | Path, *, norms: bool = False, plugins: Sequence[str] = (), say: Callable[[str], None] = warn
) -> dict[str, Any]:
    """Split the move of every learned scalar into the gradient's part and weight decay's part, with a verdict each.

    The result of a whole study is also written to `explain.json` in its folder, from which the page shows it. The command
    is `addnorm explain`.

    Args:
        path: folder of a study or of a run, or `kuang-2025` for the values that Kuang (2025) prints.
        norms: include the gains and shifts of norms. Such a result is not written to the folder.
        plugins: files with the user's own mechanisms that the runs use.
        say: receives a message if `explain.json` cannot be written; by default a Python warning.

    Returns:
        `families`: per variant and parameter, how many numbers depart over seeds from what weight decay alone would have
        left, and their redundant directions; `spread`: per variant and scalar, mean, deviation and verdict over seeds;
        `runs` (see `Explanation.to_json`), `skipped` runs with the reason, and for published values their `conclusions`
        with a verdict each.

    Raises:
        InputError: the path is neither a study nor a run, or none of its runs has a record of its scalars.

    Example:
        >>> explained = addnorm.explain("runs/first")
        >>> rezero = next(run for run in explained["runs"] if run["variant"] == "rezero")
        >>> rezero["scalars"][0]["verdict"]
        'learned'
    """
    if names_printed_results(path):
        return explain_kuang_2025()
    folder = Path(path)
    load_plugins(plugins, Path.cwd())
    is_study = (folder / "study.json").exists()
    if is_study:
        runs = StudyFolder(folder).runs()
    elif (folder / "spec.json").exists():
        runs = [RunFolder(folder)]
    else:
        raise InputError(
            f"expected the folder of a study or of a run, got {folder}, which holds neither study.json nor spec.json. Give a "
            "folder made by `addnorm run`, or kuang-2025."
        )
    explanations: list[Explanation] = []
    skipped: dict[str, str] = {}
    for run in runs:
        try:
            explanations.append(explain_run(run, norms=norms))
        # A run without a record, or of an earlier version, does not hide the others; the reason is in the result.
        except InputError as error:
            skipped[run.name] = str(error)
    if not explanations:
        raise InputError(f"no run in {folder} can be explained: {next(iter(skipped.values()))}")
    result = {
        "runs": [explanation.to_json() for explanation in explanations],
        **_over_seeds(explanations),
        "skipped": skipped,
    }
    if is_study and not norms:
        try:
            write_json(folder / NAME, {"time": time.time(), **result})
        except JobError as error:  # a read-only folder can still be explained
            say(f"the page will not show these verdicts: {error}")
    return result


def explain_kuang_2025() -> dict[str, Any]:
    """Explain the scalars that Kuang (2025) prints, from these values and the training settings alone."""
    content = read_published_scalars(KUANG_2025)
    study = load_study("residual-scores", profile="paper")
    explanations = {}
    for variant in content["variants"]:
        spec = RunSpec(
            study=study.name,
            variant=variant,
            seed=0,
            model=study.variants[variant],
            training=study.training_of(variant),
            corpus=study.corpus,
            tokenizer=study.tokenizer,
            data_hash="",
        )
        explanations[variant] = explain_published(content, spec, variant)
    return {
        "runs": [explanation.to_json() for explanation in explanations.values()],
        **_over_seeds(list(explanations.values())),
        "skipped": {},
        "conclusions": judge_conclusions(content, explanations),
    }


def _over_seeds(explanations: Sequence[Explanation]) -> dict[str, list[dict[str, Any]]]:
    """`families` and `spread` of all variants."""
    by_variant: dict[str, list[Explanation]] = defaultdict(list)
    for explanation in explanations:
        by_variant[explanation.variant].append(explanation)
    summaries = [over_seeds(runs) for runs in by_variant.values()]
    return {
        "families": [row for _, families in summaries for row in families],
        "spread": [row for spread, _ in summaries for row in spread],
    }
