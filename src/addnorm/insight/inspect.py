"""`addnorm.inspect`: gradients, the stream, attention, early exit and depth matrices of trained runs."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from addnorm.errors import InputError
from addnorm.insight import flow
from addnorm.insight.checkpoint_text import require_no_text
from addnorm.insight.flow.checkpoint import inspect_checkpoint
from addnorm.insight.probe import probe_weights
from addnorm.insight.probe.checkpoint import is_function, probe_checkpoint, probe_function
from addnorm.outside.hugging_face.checkpoint import is_checkpoint
from addnorm.outside.hugging_face.loading import can_load
from addnorm.statistics.over_seeds import depth_over_seeds
from addnorm.store import RunFolder
from addnorm.store.measured import SKIPPED, measured_folder, write_measured
from addnorm.study.foreign import ForeignSpec
from addnorm.study.plugins import load_plugins
from addnorm.training.run_spec import run_spec


def inspect(
    path: str | Path,
    *,
    sequences: int = 16,
    map_sequences: int = 4,
    text: str | Path | None = None,
    length: int | None = None,
    to: str | Path | None = None,
    name: str | None = None,
    plugins: Sequence[str] = (),
    say: Callable[[str], None] = lambda text: None,
) -> dict[str, Any]:
    """Measure gradients, the stream, attention, early exit and depth matrices of a run or a checkpoint, layer by layer.

    A run is measured before and after training, on held-out text of its own data, and the measures are written to
    `insight.json` in its folder. Results that are there already are not computed again. A Transformers checkpoint, a
    decoder or encoder with logits, is measured as it is on a given text, and a causal model that a function returns on the
    tokens beside it; the measures are written only if `to` is given. The command is `addnorm inspect`.

    Args:
        path: folder of a run, of a study to inspect all of its runs, or of a Transformers checkpoint; or `file.py:function`
            or `module:function` that returns a model and its tokens [batch, seq].
        sequences: held-out sequences for gradients, the stream and early exit.
        map_sequences: held-out sequences for attention and scores.
        text: a UTF-8 file, or token ids in a .json file, for a checkpoint only.
        length: tokens of a sequence, for a checkpoint only; None for 512, or the model's own length if that is less.
        to: for a checkpoint only: folder of a study, or any other, that receives the measures as `measured/NAME/insight.json`.
            `addnorm watch` and `addnorm report` show all checkpoints of such a folder side by side.
        name: for a checkpoint with `to` only: its NAME; None for that of its folder.
        plugins: files with the user's own mechanisms that the runs use.
        say: receives a line of text before each run that is measured.

    Returns:
        `runs`, each as its `insight.json` (see `addnorm.insight.flow`; a checkpoint has no `start`; `missing` names parts that
        were not found in it); `depth`, the depth matrices of each variant over its seeds: `weights`, `shares` and `relative`
        (see `addnorm.depth_matrix`) at the `start`, at the `end`, their `difference` and its `sd` over seeds; and `skipped`
        runs with the reason.

    Raises:
        InputError: the path is neither a study, a run, a checkpoint nor a function, or its model cannot be loaded; a count is
            below one; no run can be inspected; a text is missing, too short, or given for a run; or `to` holds another
            checkpoint of that name, or is given for a run.
        Damaged: files of the run are damaged.
        JobError: the disk refused a file.

    Example:
        >>> measured = addnorm.inspect("runs/first", sequences=2, map_sequences=1)
        >>> sorted(measured["runs"][0]["end"]["layers"][0])[:3]
        ['cosine', 'entropy', 'entropy_share']
    """
    load_plugins(plugins, Path.cwd())
    path, settings = Path(path), flow.Settings(sequences=sequences, map_sequences=map_sequences)
    if is_checkpoint(path) or is_function(path):
        file = None if text is None else Path(text)
        place = measured_place(path, to, name)
        measure = probe_function if is_function(path) else inspect_checkpoint if can_load(path) else probe_checkpoint
        run = measure(path, file, length, settings)
        if place is not None:
            run |= {"run": place.name}
            write_measured(place, path, flow.INSIGHT, run)
        measured: dict[str, Any] = {"runs": [run], "skipped": {}}
    else:
        require_no_text(path, text=text, length=length, to=to, name=name)

        def inspected(run: RunFolder) -> dict[str, Any]:
            measure = probe_weights if isinstance(run_spec(run).model, ForeignSpec) else None
            return flow.inspect_run(run, settings, say=say, measure=measure)

        measured = flow.over_runs(path, inspected, reasons=path / SKIPPED)
    return measured | {"depth": _depth(measured["runs"])}


def _depth(runs: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The depth matrices of every variant over its seeds."""
    by_variant: dict[str, list[Mapping[str, Any]]] = {}
    for run in runs:
        by_variant.setdefault(run.get("variant", run["run"]), []).append(run)
    return [{"variant": variant} | room.plain() for variant, of in by_variant.items() for room in depth_over_seeds(of)]


def measured_place(checkpoint: Path, to: str | Path | None, name: str | None) -> Path | None:
    """Folder for the measures of a checkpoint; None if they are not written.

    Args:
        checkpoint: its folder.
        to: folder of a study, or any other; None to write nothing.
        name: of the checkpoint in that folder; None for that of its own folder.

    Raises:
        InputError: a name without a folder; or as `measured_folder`.
    """
    if to is None:
        if name is not None:
            raise InputError("--name: expected together with --to. Add --to DIR, or leave --name out.")
        return None
    return measured_folder(Path(to), name, checkpoint)
