"""The frozen plan of a study, `study.json`: everything that is decided before the first training step, with its hash."""

from pathlib import Path
from typing import Any

import addnorm
from addnorm.data import prepare
from addnorm.data.token_files import Tell, silent
from addnorm.statistics.seeds_in_stages import SeedsInStages
from addnorm.store import StudyFolder
from addnorm.study.definition import Study
from addnorm.study.encoding import digest, encode
from addnorm.study.expansion import expand, fit_models, run_name, validate
from addnorm.study.points import points
from addnorm.study.shards import resolve_shards
from addnorm.supervision.budget import budgets, resolve_budgets


def frozen_plan(study: Study, out: Path, design: SeedsInStages | None = None, tell: Tell = silent) -> dict[str, Any]:
    """Prepare the data set in `out` and write out the runs of a study; of one with `tune`, those of tuning.

    Args:
        study: the study; with a design, its seeds are those of the first stage.
        out: folder of the study.
        design: the seeds and looks of a study that adds seeds in stages.
        tell: called with the progress of preparing the data.

    Returns:
        The content of `study.json`; `plan_hash` covers every other entry except the version.

    Raises:
        InputError: the corpus cannot be read or is too short, a variant cannot be built, or the axes of `tune` are wrong.
    """
    dataset = prepare(study.corpus, study.tokenizer, out / "data", tell)
    dataset.require(study.training.seq)
    tuned = None if study.tune is None else points(study)
    earlier = StudyFolder(out).plan if (out / "study.json").exists() else None
    first = resolve_shards(fit_models(study if tuned is None else tuned.study, dataset.vocab), earlier)
    validate(first)
    given = budgets(first)
    if given:
        first = resolve_budgets(first, earlier)
        validate(first)
    specs = expand(first, dataset.hash)
    plan: dict[str, Any] = {
        "study": study.name,
        "about": study.about,
        "references": list(study.references),
        "margin": study.margin,
        "seeds": list(study.seeds),
        "variants": list(study.variants),
        "data_hash": dataset.hash,
        "tokenizer_hash": dataset.tokenizer_hash,
        "runs": [
            {
                "run": run_name(spec),
                "variant": spec.variant,
                "seed": spec.seed,
                "steps": spec.training.steps,
                "spec": encode(spec),
            }
            for spec in specs
        ],
    }
    if given:
        plan["budgets"] = given
    if study.titles:
        plan["titles"] = dict(study.titles)
    if tuned is not None:
        plan["tune"] = {"seeds": list(tuned.study.seeds), "over": encode(tuned.over), "points": tuned.values}
    if design is not None:
        plan["design"] = design.to_json()
    return {**plan, "plan_hash": digest(plan), "addnorm_version": addnorm.__version__}
