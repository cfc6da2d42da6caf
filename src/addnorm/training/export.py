"""Export of a trained run as self-contained files: the weights as safetensors, the model's spec as JSON."""

import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load as parse
from safetensors.torch import load_file

from addnorm.data.tokenizers import stored_tokenizer
from addnorm.errors import InputError
from addnorm.model.spec import ModelSpec
from addnorm.model.transformer import Transformer
from addnorm.store import Damaged, RunFolder
from addnorm.store.files import make_folder, read_json, write_atomic, write_json
from addnorm.study.decoding import decode
from addnorm.study.encoding import encode
from addnorm.study.foreign import ForeignSpec
from addnorm.study.plugins import load_plugins
from addnorm.training.model_card import write_card
from addnorm.training.run_spec import require_plugins, run_spec

SPEC, WEIGHTS, TOKENIZER = "model.json", "model.safetensors", "tokenizer.json"

FORMAT = 1
"""Format version of the exported files."""


def export_run(run: RunFolder, to: Path) -> Path:
    """Write the weights and the spec of a finished run into a folder; a model that others wrote in their form.

    Args:
        run: the run.
        to: an empty or new folder.

    Returns:
        The folder.

    Raises:
        InputError: the folder is not a run, the run has not finished, or the target is not empty.
        Damaged: the run's spec or weights are damaged.
        JobError: the target cannot be written.
    """
    require_run(run)
    if not run.final_path.exists():
        state = run.status().state
        raise InputError(f"{run.path}: expected a finished run, got one that is {state}. Finish it with `addnorm run`.")
    require_new_folder(to)
    # Parsed before the folder is made, so that damaged weights leave nothing behind that looks like an export.
    spec, weights = run_spec(run), run.final_path.read_bytes()
    try:
        parse(weights)
    except SafetensorError as error:
        raise Damaged(
            f"{run.final_path} is damaged: {error}. Restore it from a copy, or train the run again."
        ) from error
    make_folder(to)
    if isinstance(spec.model, ForeignSpec):
        spec.model.write(parse(weights), to)
        write_card(
            run,
            spec,
            to,
            spec.model.loading(Path(to.name)),
            "transformers" if spec.model.kind == "checkpoint" else "pytorch",
        )
        return to
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
    tokenizer = run.path.parent / "data" / TOKENIZER
    if tokenizer.exists():
        write_atomic(to / TOKENIZER, tokenizer.read_bytes())
    plugins = f", plugins={[Path(plugin).name for plugin in spec.plugins]}" if spec.plugins else ""
    write_card(run, spec, to, f"import addnorm\n\nmodel = addnorm.load({to.name!r}{plugins})", "addnorm")
    return to


def require_run(run: RunFolder) -> None:
    """Raises:
    InputError: the folder is not a run.
    """
    if not (run.path / "spec.json").is_file():
        inside = [path.parent.name for path in sorted(run.path.glob("*/spec.json"))]
        hint = (
            f"It contains runs; give one of them, such as {run.path / inside[0]}." if inside else "Give a run's folder."
        )
        raise InputError(f"{run.path}: expected a run with spec.json, got none. {hint}")


def require_new_folder(to: Path) -> None:
    """Raises:
    InputError: a folder to write into exists and is not empty.
    """
    if to.exists() and not (to.is_dir() and not any(to.iterdir())):
        raise InputError(f"{to}: expected an empty or a new folder, got another. Choose one with --to.")


def load(folder: str | Path, *, plugins: Sequence[str | Path] = ()) -> Transformer:
    """Load a model that `addnorm export` wrote, in evaluation mode.

    Args:
        folder: the exported folder.
        plugins: files with the user's own mechanisms that the model consists of. They are code, which is never taken from the
            folder.

    Returns:
        The model.

    Raises:
        InputError: a plugin is missing or not given; the folder does not hold an exported model, or its weights do not
            fit its spec.

    Example:
        >>> from addnorm.training.export import export_run
        >>> run = addnorm.open_runs("runs/first").runs()[0]
        >>> model = load(export_run(run, Path("exported/loaded")))
        >>> model.training
        False
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
            f"{folder / WEIGHTS}: expected weights of the model in {SPEC}, got others: {error} Export the run again."
        ) from error
    if (folder / TOKENIZER).exists():
        model.read_tokenizer = partial(stored_tokenizer, folder)
    return model.eval()


def load_spec(folder: str | Path) -> ModelSpec:
    """Read the spec of an exported model.

    Args:
        folder: the exported folder.

    Returns:
        The spec; `spec.build()` makes an untrained model.

    Raises:
        InputError: the folder holds none, or one that this version cannot read.

    Example:
        >>> from addnorm.training.export import export_run
        >>> run = addnorm.open_runs("runs/first").runs()[0]
        >>> load_spec(export_run(run, Path("exported/spec"))).depth
        2
    """
    folder = Path(folder)
    if not (folder / SPEC).is_file():
        raise InputError(
            f"{folder}: expected an exported model with {SPEC}, got none. Give a folder made by `addnorm export`."
        )
    content = read_json(folder / SPEC)
    if not isinstance(content, dict) or "model" not in content:
        raise InputError(f"{folder / SPEC}: expected a mapping with 'model', got {json.dumps(content)[:80]}.")
    if content.get("format") != FORMAT:
        raise InputError(
            f"{folder / SPEC}: expected format {FORMAT}, got {content.get('format')}. Load it with the version of addnorm that "
            "exported it, or export the run again."
        )
    require_plugins(content.get("plugins", ()), folder / SPEC, "addnorm.load(…, plugins=[…])")
    return decode(ModelSpec, content["model"], path=f"{folder / SPEC}: $.model")
