"""Targets of the commands: a function, a run, a Transformers class, or a folder with a checkpoint.

    bert = resolve("transformers:BertModel", config={"num_hidden_layers": 2})
    bert.model(**bert.inputs)

One file per kind of target. Each returns a model with example inputs, which `--inputs` replaces. Only the module of a
function is executed: no code in a folder runs.
"""

import copy
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from addnorm.errors import InputError
from addnorm.outside.targets.target import Target

__all__ = ["Target", "resolve"]


def resolve(
    target: str | Path,
    *,
    config: Mapping[str, Any] | None = None,
    inputs: Mapping[str, Any] | None = None,
    plugins: Sequence[str | Path] = (),
    memory: int | None = None,
) -> Target:
    """Load the model that a target names, with example inputs.

    Args:
        target: `module:function` or `file.py:function` that returns a model, or a model and its inputs; the folder of a
            finished or exported run; `transformers:CLASS`; the folder of a Transformers checkpoint; or a file written by
            `addnorm audit --strip`.
        config: fields of the configuration; only for `transformers:CLASS`.
        inputs: description of the inputs, in place of derived ones; see `addnorm.outside.targets.input_spec`.
        plugins: files with the user's own mechanisms that a run uses.
        memory: memory limit of an audit in bytes. A Transformers model that needs more is replaced by a reduced
            configuration of the same class with random weights (`Target.shrunk`). None for no limit.

    Raises:
        InputError: the target does not exist, is damaged, gives no model, or its inputs cannot be derived.
    """
    kind = _kind(str(target))
    if config is not None and kind != "transformers class":
        raise InputError(
            f"--config: expected a transformers:CLASS, got {target}, a {kind} with a configuration of its own. Leave it out."
        )
    # Modules of the kinds are imported when needed because some import slow libraries.
    match kind:
        case "transformers class":
            from addnorm.outside.targets.transformers_class import class_target

            return class_target(str(target), config or {}, inputs, memory)
        case "checkpoint":
            from addnorm.outside.targets.checkpoint import checkpoint_target

            return checkpoint_target(Path(target), inputs, memory)
        case "run":
            from addnorm.outside.targets.run import run_target

            return run_target(Path(target), inputs, plugins)
        case "stripped file":
            return _stripped_target(
                Path(target), lambda name, fields: resolve(name, config=fields, inputs=inputs, plugins=plugins)
            )
        case _:
            from addnorm.outside.targets.function import function_target

            return function_target(str(target), inputs)


def _kind(target: str) -> str:
    """Determine the kind of target from its name.

    Raises:
        InputError: the name has no known form, or the folder holds no model.
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
            else "A run has a file spec.json, an exported run model.json, a Transformers checkpoint config.json."
        )
        raise InputError(f"expected the folder of a run or of a checkpoint, got {target}. {hint}")
    if path.suffix == ".safetensors" and path.is_file():
        return "stripped file"
    if ":" in target:
        return "function"
    raise InputError(
        f"expected a target, got {target!r}, which is not a folder. Give module:function, file.py:function, the folder of "
        "a run or of a checkpoint, or transformers:CLASS such as transformers:BertModel --config '{\"num_hidden_layers\": 2}'."
    )


def _stripped_target(path: Path, original: Callable[[str, Mapping[str, Any] | None], Target]) -> Target:
    """Load a model that `addnorm audit --strip` wrote, without what the file's metadata name.

    They name the original target and its configuration, which are resolved again; a relative path or a module is found from
    the folder in which the original was.

    Args:
        path: of the file.
        original: resolves a target by its name and configuration, at its full size.

    Raises:
        InputError: the file names no target, its target does not exist, or the weights do not fit it.
    """
    from addnorm.redundancy.rewriting.stripped_file import load_stripped, read_metadata

    metadata = read_metadata(path)
    if not metadata.get("target"):
        raise InputError(
            f"{path}: expected metadata that name the model which was stripped, got none, as in a file of an earlier version "
            "or of `Certificate.save` without `target`. Strip the model again with `addnorm audit --strip`, or save it with "
            "its `target`."
        )
    config = json.loads(metadata["config"]) if metadata.get("config") else None
    target = original(metadata["target"], config)
    model = copy.deepcopy(target.model)  # a function may return one model each time
    load_stripped(model, path)
    notes = (*target.notes, f"weights: {path}, stripped from {metadata['target']}")
    return Target(name=str(path), model=model, inputs=target.inputs, kind="stripped file", notes=notes)
