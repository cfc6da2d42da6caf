"""What a command can be pointed at: a function, a run, a Transformers class, a folder with a checkpoint.

    bert = resolve("transformers:BertModel", config={"num_hidden_layers": 2})
    bert.model(**bert.inputs)

One file per kind of target. Each gives a model and example inputs for it; where inputs are given (`--inputs`), they
stand in for the derived ones. Only a function's own module is ever executed: a folder is data.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from addnorm.errors import InputError
from addnorm.targets.target import Target

__all__ = ["Target", "resolve"]


def resolve(
    target: str | Path,
    *,
    config: Mapping[str, Any] | None = None,
    inputs: Mapping[str, Any] | None = None,
    plugins: Sequence[str | Path] = (),
    memory: int | None = None,
) -> Target:
    """The model that a target names, with example inputs.

    Args:
        target: `module:function` or `file.py:function` returning a model, or a model and its inputs; a folder of a finished
            run of ours, or of one that was exported; `transformers:CLASS`; or a folder with a Transformers checkpoint.
        config: fields of the class's configuration, for `transformers:CLASS` alone.
        inputs: in place of the derived inputs, see `addnorm.targets.input_spec`.
        plugins: files of the user's own mechanisms that a run's model is made of.
        memory: bytes that an audit may take. A Transformers model that needs more comes as a smaller configuration of the
            same class, with random weights, and says so. None: whatever is asked for is built.

    Raises:
        InputError: there is no such target, it is damaged, it gives no model, or its inputs cannot be derived.
    """
    kind = _kind(str(target))
    if config is not None and kind != "transformers class":
        raise InputError(
            f"--config sets up a transformers:CLASS; {target} is a {kind}, which has its own. Leave it out."
        )
    # Each kind brings its own imports, some of them slow.
    match kind:
        case "transformers class":
            from addnorm.targets.transformers_class import of_class

            return of_class(str(target), config or {}, inputs, memory)
        case "checkpoint":
            from addnorm.targets.checkpoint import of_checkpoint

            return of_checkpoint(Path(target), inputs, memory)
        case "run":
            from addnorm.targets.run import of_run

            return of_run(Path(target), inputs, plugins)
        case _:
            from addnorm.targets.function import of_function

            return of_function(str(target), inputs)


def _kind(target: str) -> str:
    """Which kind of target a name means.

    Raises:
        InputError: none.
    """
    if target.startswith("transformers:"):
        return "transformers class"
    path = Path(target)
    if path.is_dir():
        if (path / "spec.json").is_file() or (path / "model.json").is_file():
            return "run"
        if (path / "config.json").is_file():
            return "checkpoint"
        inside = sorted(child.parent.name for child in path.glob("*/spec.json"))
        hint = (
            f"It holds runs; give one of them, such as {path / inside[0]}."
            if inside
            else "A run of ours has spec.json, an exported one model.json, a Transformers checkpoint config.json."
        )
        raise InputError(f"{target} holds no model. {hint}")
    if ":" in target:
        return "function"
    raise InputError(
        f"{target!r} is no target: there is no such folder. Give module:function, file.py:function, a folder of a run or of a "
        "checkpoint, or transformers:CLASS such as transformers:BertModel --config '{\"num_hidden_layers\": 2}'."
    )
