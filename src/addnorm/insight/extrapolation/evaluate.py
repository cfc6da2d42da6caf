"""One run at every length, with every switch; what is known already is not computed again."""

from typing import Any

import torch

from addnorm.data import Dataset
from addnorm.errors import InputError
from addnorm.insight.extrapolation.measure import measure_length
from addnorm.insight.extrapolation.recorded import (
    Basis,
    Request,
    digest_of,
    find,
    kept,
    require_finished,
    settings_of,
    write,
)
from addnorm.insight.extrapolation.switches import Combination, Reach, name_of, switched
from addnorm.insight.extrapolation.windows import Stretches, num_stretches, stretches
from addnorm.store import RunFolder
from addnorm.study.definition import RunSpec
from addnorm.training.export import run_spec
from addnorm.training.trained import trained


def basis_of(run: RunFolder, spec: RunSpec, dataset: Dataset, request: Request) -> Basis:
    """What decides the run's numbers.

    Raises:
        InputError: the run has not finished, or the text is too short.
    """
    require_finished(run)
    return Basis(
        weights=digest_of(run.final_path),
        data_hash=dataset.hash,
        objective=spec.model.objective,
        trained=request.lengths.trained,
        stretch=request.lengths.stretch,
        stretches=num_stretches(len(dataset.held), request.lengths, request.windows),
    )


def evaluate_run(run: RunFolder, request: Request) -> int:
    """Evaluate what is missing and keep it in the run's folder.

    Returns:
        How many evaluations (a switch at a length) were computed; 0 if all were there.

    Raises:
        InputError: the run has not finished, its data set is another one, or a switch does not apply to its model.
        Damaged: its files are damaged.
        JobError: the disk refuses.
    """
    spec = run_spec(run)
    dataset = Dataset.load(run.path.parent / "data")
    if dataset.hash != spec.data_hash:
        raise InputError(
            f"{dataset.folder} holds a data set with hash {dataset.hash[:12]}, {run.name} was trained on "
            f"{spec.data_hash[:12]}. Put the old data set back."
        )
    basis = basis_of(run, spec, dataset, request)
    there = kept(run, basis)
    missing = [
        (combination, length)
        for combination in request.switches
        for length in request.lengths.tokens
        if find(there, name_of(combination), settings_of(combination), length) is None
    ]
    if not missing:
        return 0
    text = stretches(dataset, spec.model.objective, request.lengths, request.windows)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = trained(run).model().to(device)
    found = [_evaluated(model, text, request, combination, length, device) for combination, length in missing]
    write(run, basis, [*there, *found])
    return len(found)


def _evaluated(
    model: Any, text: Stretches, request: Request, combination: Combination, length: int, device: torch.device
) -> dict[str, Any]:
    lengths = request.lengths
    causal = model.spec.objective == "causal"
    view = switched(model, combination, Reach(trained=lengths.trained, length=length, causal=causal))
    measured = measure_length(view, text, lengths, length, device)
    return {
        "switch": name_of(combination),
        "settings": settings_of(combination),
        **measured.to_json(lengths, length),
    }
