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
from addnorm.study.shards import resolve_shards
from addnorm.supervision.budget import budgets, resolve_budgets


def frozen_plan(study: Study, out: Path, design: SeedsInStages | None = None, tell: Tell = silent) -> dict[str, Any]:
    """Prepare the data set in `out` and write out the runs of a study.

    Args:
        study: the study; with a design, its seeds are those of the first stage.
        out: folder of the study.
        design: the seeds and looks of a study that adds seeds in stages.
        tell: called with the progress of preparing the data.

    Returns:
        The content of `study.json`; `plan_hash` covers every other entry except the version.

    Raises:
        InputError: the corpus cannot be read or is too short, or a variant cannot be built.
    """
    dataset = prepare(study.corpus, study.tokenizer, out / "data", tell)
    dataset.require(study.training.seq)
    earlier = StudyFolder(out).plan if (out / "study.json").exists() else None
    study = resolve_shards(fit_models(study, dataset.vocab), earlier)
    validate(study)
    given = budgets(study)
    if given:
        study = resolve_budgets(study, earlier)
        validate(study)
    specs = expand(study, dataset.hash)
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
    if design is not None:
        plan["design"] = design.to_json()
    return {**plan, "plan_hash": digest(plan), "addnorm_version": addnorm.__version__}
