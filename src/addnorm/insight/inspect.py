"""`addnorm.inspect`: gradients, the stream, attention and early exit of trained runs."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from addnorm.insight import flow
from addnorm.study.plugins import load_plugins


def inspect(
    path: str | Path,
    *,
    sequences: int = 16,
    map_sequences: int = 4,
    plugins: Sequence[str] = (),
    say: Callable[[str], None] = lambda text: None,
) -> dict[str, Any]:
    """Measure gradients, the stream, attention and early exit of a run, layer by layer, before and after training.

    The measures are taken on held-out text of the run's own data and written to `insight.json` in the run's folder. Results
    that are there already are not computed again. The command is `addnorm inspect`.

    Args:
        path: folder of a run, or of a study to inspect all of its runs.
        sequences: held-out sequences for gradients, the stream and early exit.
        map_sequences: held-out sequences for attention and scores.
        plugins: files with the user's own mechanisms that the runs use.
        say: receives a line of text before each run that is measured.

    Returns:
        `runs`, each as its `insight.json` (see `addnorm.insight.flow`), and `skipped` runs with the reason.

    Raises:
        InputError: the path is neither a study nor a run, a count is below one, or no run can be inspected.
        Damaged: files of the run are damaged.
        JobError: the disk refused a file.

    Example:
        >>> measured = addnorm.inspect("runs/first", sequences=2, map_sequences=1)
        >>> sorted(measured["runs"][0]["end"]["layers"][0])[:3]
        ['entropy', 'entropy_share', 'exit_loss']
    """
    load_plugins(plugins, Path.cwd())
    return flow.inspect(Path(path), flow.Settings(sequences=sequences, map_sequences=map_sequences), say=say)
