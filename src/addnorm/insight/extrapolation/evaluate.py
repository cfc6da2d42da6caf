"""The evaluation of one run at every length with every switch; recorded evaluations are not computed again."""

from typing import Any

import torch

from addnorm.data import Dataset
from addnorm.errors import InputError
from addnorm.insight.extrapolation.measure import measure_length
from addnorm.insight.extrapolation.run_record import (
    Basis,
    EvaluationRequest,
    digest_of,
    find_evaluation,
    recorded_evaluations,
    require_finished,
    settings_of,
    write_record,
)
from addnorm.insight.extrapolation.segments import Segments, held_out_segments, num_segments
from addnorm.insight.extrapolation.switches import Combination, Reach, name_of, switched
from addnorm.store import RunFolder
from addnorm.study.definition import RunSpec
from addnorm.training.numerics import device_here
from addnorm.training.run_spec import run_spec
from addnorm.training.run_weights import newest_weights


def basis_of(run: RunFolder, spec: RunSpec, dataset: Dataset, request: EvaluationRequest) -> Basis:
    """Describe everything that determines the run's numbers.

    Raises:
        InputError: the run has not finished, or the text is too short.
    """
    require_finished(run)
    return Basis(
        weights=digest_of(run.final_path),
        data_hash=dataset.hash,
        objective=spec.model.objective,
        trained=request.lengths.trained,
        segment_tokens=request.lengths.segment_tokens,
        num_segments=num_segments(len(dataset.held), request.lengths, request.windows),
    )


def evaluate_run(run: RunFolder, request: EvaluationRequest) -> int:
    """Compute the missing evaluations of a run and write them into its folder.

    Returns:
        How many evaluations (a switch at a length) were computed; 0 if all were recorded.

    Raises:
        InputError: the run has not finished, its data set is another one, or a switch does not apply to its model.
        Damaged: its files are damaged.
        JobError: the disk refused a file.
    """
    spec = run_spec(run)
    dataset = Dataset.load(run.path.parent / "data")
    if dataset.hash != spec.data_hash:
        raise InputError(
            f"{dataset.folder}: expected the data set with hash {spec.data_hash[:12]} that {run.name} was trained on, got "
            f"{dataset.hash[:12]}. Put the old data set back."
        )
    # A recorded number is used again only for the same weights, text and cut; with any other, the record begins anew.
    basis = basis_of(run, spec, dataset, request)
    recorded = recorded_evaluations(run, basis)
    missing = [
        (combination, length)
        for combination in request.switches
        for length in request.lengths.tokens
        if find_evaluation(recorded, name_of(combination), settings_of(combination), length) is None
    ]
    if not missing:
        return 0
    text = held_out_segments(dataset, spec.model.objective, request.lengths, request.windows)
    device = device_here()
    model = newest_weights(run).model().to(device)
    computed = [_evaluation(model, text, request, combination, length, device) for combination, length in missing]
    write_record(run, basis, [*recorded, *computed])
    return len(computed)


def _evaluation(
    model: Any, text: Segments, request: EvaluationRequest, combination: Combination, length: int, device: torch.device
) -> dict[str, Any]:
    lengths = request.lengths
    causal = model.spec.objective == "causal"
    # A view with other positions or scores on the same parameters: no switch changes the model itself.
    view = switched(model, combination, Reach(trained=lengths.trained, length=length, causal=causal))
    return {
        "switch": name_of(combination),
        "settings": settings_of(combination),
        **measure_length(view, text, lengths, length, device).to_json(lengths, length),
    }
