"""A trained run as files that stand alone: the weights as safetensors, the model's spec as JSON."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load as parse
from safetensors.torch import load_file

from addnorm.catalogue import ROOMS
from addnorm.errors import InputError
from addnorm.model.spec import ModelSpec
from addnorm.model.transformer import Transformer
from addnorm.store import Damaged, RunFolder
from addnorm.store.files import make_folder, read_json, write_atomic, write_json
from addnorm.study.decoding import decode
from addnorm.study.definition import RunSpec
from addnorm.study.encoding import encode
from addnorm.study.plugins import load_plugins
from addnorm.words import listed, say

SPEC, WEIGHTS = "model.json", "model.safetensors"

FORMAT = 1
"""Version of the exported files."""


def export_run(run: RunFolder, to: Path) -> Path:
    """Write a finished run's weights and spec into a folder.

    Raises:
        InputError: the folder is no run, the run has not finished, or the target holds files already.
        Damaged: the run's spec or weights are damaged.
        JobError: the folder cannot be written.
    """
    if not (run.path / "spec.json").is_file():
        inside = [path.parent.name for path in sorted(run.path.glob("*/spec.json"))]
        hint = (
            f"It holds runs; give one of them, such as {run.path / inside[0]}." if inside else "Give one run's folder."
        )
        raise InputError(f"{run.path} is no run: there is no spec.json. {hint}")
    if not run.final_path.exists():
        state = run.status().state
        raise InputError(f"{run.path} is {state}, only a finished run can be exported. Go on with `addnorm run`.")
    if to.exists() and not (to.is_dir() and not any(to.iterdir())):
        raise InputError(f"{to} must be an empty or a new folder. Choose another one with --to.")
    spec, weights = run_spec(run), run.final_path.read_bytes()
    try:
        parse(weights)
    except SafetensorError as error:
        raise Damaged(
            f"{run.final_path} is damaged: {error}. Restore it from a copy, or train the run anew."
        ) from error
    make_folder(to)
    write_json(
        to / SPEC,
        {
            "format": FORMAT,
            "run": run.name,
            "plugins": [Path(plugin).name for plugin in spec.plugins],
            "model": encode(spec.model),
        },
    )
    write_atomic(to / WEIGHTS, weights)
    tokenizer = run.path.parent / "data" / "tokenizer.json"
    if tokenizer.exists():
        write_atomic(to / "tokenizer.json", tokenizer.read_bytes())
    return to


def load(folder: str | Path, *, plugins: Sequence[str | Path] = ()) -> Transformer:
    """The model that `addnorm export` wrote, in evaluation mode.

    Args:
        folder: what `addnorm export` wrote.
        plugins: files of the user's own mechanisms that the model is made of. They are code and get run, so they are
            never taken from the folder.

    Raises:
        InputError: a plugin is missing or not given; the folder does not hold an exported model, or its weights do not
            fit its spec.
    """
    folder = Path(folder)
    load_plugins([str(path) for path in plugins], Path.cwd())
    spec = load_spec(folder)
    model = spec.build()
    try:
        weights = load_file(folder / WEIGHTS)
        model.load_state_dict(weights)
    except (OSError, RuntimeError, ValueError, SafetensorError) as error:
        raise InputError(
            f"{folder / WEIGHTS} does not hold the weights of the model in {SPEC}: {error} Export the run again."
        ) from error
    return model.eval()


def load_spec(folder: str | Path) -> ModelSpec:
    """The spec of an exported model.

    Raises:
        InputError: the folder holds none, or one that this version cannot read.
    """
    folder = Path(folder)
    if not (folder / SPEC).is_file():
        raise InputError(
            f"{folder} holds no exported model: there is no {SPEC}. Give a folder made by `addnorm export`."
        )
    content = read_json(folder / SPEC)
    if not isinstance(content, dict) or "model" not in content:
        raise InputError(f"{folder / SPEC} must hold a table with 'model', got {json.dumps(content)[:80]}.")
    if content.get("format") != FORMAT:
        raise InputError(
            f"{folder / SPEC} has format {content.get('format')}; this addnorm reads format {FORMAT}. Load it with the "
            "addnorm that exported it, or export the run again."
        )
    require_plugins(content.get("plugins", ()), folder / SPEC, "addnorm.load(…, plugins=[…])")
    return decode(ModelSpec, content["model"], path=f"{folder / SPEC}: $.model")


def run_spec(run: RunFolder) -> RunSpec:
    """What a run trains.

    Raises:
        InputError: the folder is no run, or the run was made with a plugin that is not loaded.
        Damaged: its spec is damaged.
    """
    content, path = run.spec, run.path / "spec.json"
    if "spec" not in content:
        raise Damaged(f"{path} is damaged: it holds no spec. Restore it from a copy.")
    if isinstance(content["spec"], dict):
        require_plugins(content["spec"].get("plugins", ()), path, "--plugin")
    return decode(RunSpec, content["spec"], path=f"{path}: $.spec")


def require_plugins(paths: Any, where: Path, way: str) -> None:
    """Make sure that the mechanisms of a user's own files have joined.

    Raises:
        InputError: a file that the spec's mechanisms come from has not joined in this process.
    """
    if not isinstance(paths, list | tuple):
        raise Damaged(f"{where} is damaged: 'plugins' is no list. Restore it from a copy.")
    loaded = {kind for room in ROOMS.values() for kind in room.plugins}
    missing = [str(path) for path in paths if Path(str(path)).stem not in loaded]
    if missing:
        raise InputError(say("plugins_not_given", where=str(where), names=listed("comma", missing), way=way))
