"""The frozen plan of a study, `study.json`: everything that is decided before the first training step, with its hash."""

from pathlib import Path
from typing import Any

import addnorm
from addnorm.data import prepare
from addnorm.data.preparation import prepared
from addnorm.data.token_files import Tell, silent
from addnorm.statistics.seeds_in_stages import SeedsInStages
from addnorm.store import StudyFolder
from addnorm.study.definition import Study
from addnorm.study.encoding import digest, encode
from addnorm.study.expansion import expand, run_name
from addnorm.study.points import points
from addnorm.supervision.fitted_study import fitted_study


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
    tuned = None if study.tune is None else points(study)
    of_runs = study if tuned is None else tuned.study
    earlier = StudyFolder(out).plan if (out / "study.json").exists() else None
    existing = prepared(study.corpus, study.tokenizer, out / "data")
    # Before the data: what a worker would refuse is refused while nothing has been written.
    fitted = fitted_study(of_runs, study.tokenizer.size if existing is None else existing.vocab, earlier)
    dataset = prepare(study.corpus, study.tokenizer, out / "data", tell)
    dataset.require(study.training.seq)
    if dataset.vocab != fitted.vocab:  # of a user's tokenizer whose size is known only when it is trained
        fitted = fitted_study(of_runs, dataset.vocab, earlier)
    specs = expand(fitted.study, dataset.hash)
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
    if fitted.budgets:
        plan["budgets"] = fitted.budgets
    if study.titles:
        plan["titles"] = dict(study.titles)
    if tuned is not None:
        plan["tune"] = {"seeds": list(tuned.study.seeds), "over": encode(tuned.over), "points": tuned.values}
    if design is not None:
        plan["design"] = design.to_json()
    return {**plan, "plan_hash": digest(plan), "addnorm_version": addnorm.__version__}
