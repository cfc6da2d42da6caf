"""The four terms of a run or of a Transformers checkpoint, for `addnorm inspect --terms`; a run's are stored as terms.json."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Int64
from torch import Tensor, nn

from addnorm.data import Dataset
from addnorm.errors import InputError
from addnorm.insight.extrapolation.lengths import Lengths
from addnorm.insight.extrapolation.run_record import digest_of, require_finished
from addnorm.insight.extrapolation.segments import held_out_segments, num_segments
from addnorm.insight.score_terms import hugging_face, ours
from addnorm.insight.score_terms.measured import measure
from addnorm.model.transformer import Transformer
from addnorm.store import RunFolder, write_json
from addnorm.study.definition import RunSpec
from addnorm.study.foreign import require_rooms
from addnorm.training.run_spec import run_spec
from addnorm.training.run_weights import newest_weights

NAME = "terms.json"
FORMAT = 1
"""Version of the file."""
SAMPLES = 8
MULTIPLE = 4
"""Default length of a sample over the train length; above 1 it shows extrapolation."""


def inspect_terms(folder: Path, *, multiple: int = MULTIPLE, samples: int = SAMPLES) -> dict[str, Any]:
    """Measure the four terms of a finished run on held-out text of its own data, and write terms.json into its folder.

    Args:
        folder: folder of the run.
        multiple: length of a sample over the train length.
        samples: number of held-out texts; fewer if the data have fewer.

    Raises:
        InputError: no finished run, a position that does not rotate, or a text too short for one sample.
        Damaged: the run's files are damaged.
        JobError: the file cannot be written.
    """
    run, spec, dataset = require_terms(folder, multiple=multiple, samples=samples)
    lengths = Lengths(trained=spec.training.seq, multiples=(multiple,))
    tokens = torch.from_numpy(held_out_segments(dataset, spec.model.objective, lengths, samples).inputs.copy())
    causal = spec.model.objective == "causal"
    bias = require_rooms(spec.model, "`inspect --terms` of a run").bias
    content = _described(
        name=run.name,
        label=f"{spec.variant}-s{spec.seed}",
        trained_at=spec.training.seq,
        tokens=tokens,
        causal=causal,
        biased=(bias.q, bias.k),
        measured=measure(ours.parts_of(newest_weights(run).model(), tokens), causal=causal),
    )
    content |= {"weights": digest_of(run.final_path), "data_hash": dataset.hash}
    write_json(run.path / NAME, content)
    return content


def require_terms(
    folder: Path, *, multiple: int = MULTIPLE, samples: int = SAMPLES
) -> tuple[RunFolder, RunSpec, Dataset]:
    """Return the run, its spec and its data, after checking that it has four terms on samples of that length.

    Raises:
        InputError: as `inspect_terms`.
        Damaged: the run's files are damaged.
    """
    run = RunFolder(folder)
    if not (run.path / "spec.json").is_file():
        raise InputError(
            f"{folder}: expected the folder of a run (spec.json) or of a Transformers checkpoint (config.json), got neither. "
            "Give one of them."
        )
    spec = run_spec(run)
    model = require_rooms(spec.model, "`inspect --terms` of a run")
    ours.require_rotation(model.position.kind, model.position.build(model.attention_shape))
    ours.require_plain_projections(model)
    require_finished(run)
    dataset = Dataset.load(run.path.parent / "data")
    num_segments(len(dataset.held), Lengths(trained=spec.training.seq, multiples=(multiple,)), samples)
    return run, spec, dataset


def terms_of_model(
    model: nn.Module, tokens: Int64[Tensor, "sample seq"], *, label: str, trained_at: int | None = None
) -> dict[str, Any]:
    """Measure the four terms of a model in memory, of Transformers or of this library, on these tokens; nothing is written.

    Args:
        trained_at: the train length, marked in the plot; None if unknown.

    Raises:
        InputError: the model's attention is not supported, or its scores do not consist of the four terms.
    """
    biased: Sequence[bool]
    if isinstance(model, Transformer):
        causal = model.spec.objective == "causal"
        biased, parts = (model.spec.bias.q, model.spec.bias.k), ours.parts_of(model, tokens)
    else:
        modules = hugging_face.attention_modules(model)
        causal = all(getattr(module, "is_causal", True) for module in modules)
        parts = hugging_face.parts_of(model, tokens)
        biased = [any(getattr(module, name).bias is not None for module in modules) for name in ("q_proj", "k_proj")]
    return _described(
        name=label,
        label=label,
        trained_at=trained_at,
        tokens=tokens,
        causal=causal,
        biased=biased,
        measured=measure(parts, causal=causal),
    )


def combined(contents: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Combine the terms of several models for tables and plots: `models` and all their `rows`.

    Rows refer to a model by its label, so a repeated label (the same variant and seed of another study) gets a number:
    `base-s0 (2)`.
    """
    models: list[dict[str, Any]] = []
    rows: list[dict[str, Any]] = []
    labels: Counter[str] = Counter()
    for one in contents:
        labels[one["label"]] += 1
        time = labels[one["label"]]
        label = {"label": one["label"] if time == 1 else f"{one['label']} ({time})"}
        models.append({name: value for name, value in one.items() if name != "rows"} | label)
        rows += [row | label for row in one["rows"]]
    return {"models": models, "rows": rows}


def _described(
    *,
    name: str,
    label: str,
    trained_at: int | None,
    tokens: Tensor,
    causal: bool,
    biased: Sequence[bool],
    measured: dict[str, Any],
) -> dict[str, Any]:
    rows = [{"label": label, "trained": trained_at, **row} for row in measured.pop("rows")]
    return {
        "format": FORMAT,
        "run": name,
        "label": label,
        "trained": trained_at,
        "samples": tokens.shape[0],
        "length": tokens.shape[1],
        "causal": causal,
        "q_bias": biased[0],
        "k_bias": biased[1],
        **measured,
        "rows": rows,
    }
