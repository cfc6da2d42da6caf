"""Evaluation of a Transformers checkpoint on longer texts than it was trained on; nothing is written."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from addnorm.insight.checkpoint_text import held_text
from addnorm.insight.extrapolation.extrapolate import WINDOWS, parsed_switches, require_position
from addnorm.insight.extrapolation.lengths import DEFAULT, Lengths, parse_lengths
from addnorm.insight.extrapolation.measure import measure_length
from addnorm.insight.extrapolation.run_record import settings_of
from addnorm.insight.extrapolation.segments import held_out_segments
from addnorm.insight.extrapolation.summary import CONFIDENCE, Scoring, SwitchedVariant, over_segments, row_of
from addnorm.insight.extrapolation.switches import Combination, Reach, name_of, require_all, switched
from addnorm.outside.hugging_face.loading import load_hf
from addnorm.statistics.measure import LOSS
from addnorm.training.numerics import device_here


def extrapolate_checkpoint(
    folder: str | Path,
    text: str | Path | None,
    *,
    trained: int | None = None,
    lengths: str = DEFAULT,
    windows: int = WINDOWS,
    switches: str | Sequence[Combination] = (),
    scoring: Scoring = "window",
) -> dict[str, Any]:
    """Evaluate a checkpoint at several lengths on a text. The command is `addnorm extrapolate CHECKPOINT --text FILE`.

    Args:
        folder: of the checkpoint, of a class that `addnorm.load_hf` takes.
        text: a UTF-8 file.
        trained: the train length in tokens; None for the length in config.json.
        lengths, windows, switches, scoring: as in `addnorm.extrapolate`.

    Returns:
        The result of `addnorm.extrapolate`, with one line per switch and without references. Intervals are over the segments of
        the text: there is one model, so they say nothing about other seeds.

    Raises:
        InputError: as `load_hf`; no text, or one shorter than the longest window; the position is limited to a shorter length;
            or a switch does not apply.
    """
    folder = Path(folder)
    model = load_hf(folder)
    spec = model.spec
    tested = Lengths(trained=spec.max_seq if trained is None else trained, multiples=parse_lengths(lengths))
    combinations = parsed_switches(switches)
    for combination in combinations:
        require_all(combination, spec)
    require_position(spec, tested)
    file = None if text is None else Path(text)
    held = held_text(folder, file, vocab=spec.vocab, masked=spec.objective == "masked")
    segments = held_out_segments(held.dataset, spec.objective, tested, windows)
    segments = replace(segments, inputs=held.with_mask(segments.inputs))
    device = device_here()
    model = model.to(device)
    lines = [
        SwitchedVariant(variant=folder.name, switch=name_of(combination), settings=tuple(settings_of(combination)))
        for combination in combinations
    ]
    confidence = 1 - (1 - CONFIDENCE) / len(tested.tokens)
    rows = []
    for length in tested.tokens:
        reach = Reach(trained=tested.trained, length=length, causal=spec.objective == "causal")
        for line, combination in zip(lines, combinations, strict=True):
            view = switched(model, combination, reach)
            measured = measure_length(view, segments, tested, length, device)
            row = row_of(line, length, tested.trained, [measured.to_json(tested, length)], scoring, confidence)
            row |= over_segments(measured.by_segment[scoring], confidence)
            rows.append({**row, "values": [], "versus": {}})
    return {
        "study": folder.name,
        "metric": LOSS.name,
        "unit": LOSS.unit,
        "trained": tested.trained,
        "lengths": list(tested.tokens),
        "scoring": scoring,
        "ending": tested.ending,
        "data_hash": held.dataset.hash,
        "stretch": tested.segment_tokens,
        "stretches": len(segments.inputs),
        "lines": [{"label": line.label, "variant": line.variant, "switch": line.switch} for line in lines],
        "references": [],
        "margin": None,
        "confidence": CONFIDENCE,
        "intervals_over": "segments",
        "rows": rows,
        "rankings": {},
        "warnings": [],
        "notes": [],
        "problems": {},
    }
