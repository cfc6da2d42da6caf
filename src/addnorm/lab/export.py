"""A trained run as files that stand alone: the weights as safetensors, the model's spec as JSON."""

import json
from pathlib import Path

from safetensors.torch import load_file

from addnorm.blocks.model import Transformer
from addnorm.blocks.spec import ModelSpec
from addnorm.errors import InputError
from addnorm.lab.codec import decode
from addnorm.lab.encoding import encode
from addnorm.lab.study import RunSpec
from addnorm.store import Run
from addnorm.store.files import make_folder, read_json, write_atomic, write_json

SPEC, WEIGHTS = "model.json", "model.safetensors"


def export_run(run: Run, to: Path) -> Path:
    """Write a finished run's weights and spec into a folder.

    Raises:
        InputError: the run has not finished, or the folder holds files already.
        JobError: the folder cannot be written.
    """
    if not run.final_path.exists():
        state = run.status()["state"]
        raise InputError(f"{run.path} is {state}, only a finished run can be exported. Go on with `addnorm run`.")
    if to.exists() and any(to.iterdir()):
        raise InputError(f"{to} must be an empty or a new folder. Choose another one with --to.")
    spec = decode(RunSpec, run.spec["spec"])
    make_folder(to)
    write_json(to / SPEC, {"format": 1, "run": run.name, "model": encode(spec.model)})
    write_atomic(to / WEIGHTS, run.final_path.read_bytes())
    tokenizer = run.path.parent / "data" / "tokenizer.json"
    if tokenizer.exists():
        write_atomic(to / "tokenizer.json", tokenizer.read_bytes())
    return to


def load(folder: str | Path) -> Transformer:
    """The model that `addnorm export` wrote, in evaluation mode.

    Raises:
        InputError: the folder does not hold an exported model, or its weights do not fit its spec.
    """
    folder = Path(folder)
    spec = load_spec(folder)
    model = spec.build()
    try:
        weights = load_file(folder / WEIGHTS)
        model.load_state_dict(weights)
    except (OSError, RuntimeError, ValueError) as error:
        raise InputError(f"{folder / WEIGHTS} does not hold this model's weights: {error}") from error
    return model.eval()


def load_spec(folder: str | Path) -> ModelSpec:
    """The spec of an exported model.

    Raises:
        InputError: the folder holds none, or one that this version cannot read.
    """
    folder = Path(folder)
    content = read_json(folder / SPEC)
    if not isinstance(content, dict) or "model" not in content:
        raise InputError(f"{folder / SPEC} must hold a table with 'model', got {json.dumps(content)[:80]}.")
    return decode(ModelSpec, content["model"], path=f"{folder / SPEC}: $.model")
