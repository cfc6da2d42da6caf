"""The folder of a finished run, or of a run that `addnorm export` wrote."""

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from addnorm.model.transformer import Transformer
from addnorm.outside.targets.input_spec import make_inputs
from addnorm.outside.targets.target import Target
from addnorm.store import RunFolder
from addnorm.study.foreign import require_rooms
from addnorm.study.plugins import load_plugins
from addnorm.training.export import SPEC, export_run, load
from addnorm.training.run_spec import run_spec

_BATCH, _SEQ = 4, 12


def run_target(folder: Path, given: Mapping[str, Any] | None, plugins: Sequence[str | Path]) -> Target:
    """Load the model of a run, with random tokens.

    Raises:
        InputError: the run has not finished, or uses plugins that are not given.
        Damaged: its files are damaged.
    """
    if not (folder / SPEC).is_file():
        load_plugins([str(path) for path in plugins], Path.cwd())
        require_rooms(run_spec(RunFolder(folder)).model, "`audit` of a run")
    if (folder / SPEC).is_file():
        model = load(folder, plugins=plugins)
    else:
        with tempfile.TemporaryDirectory() as scratch:
            model = load(export_run(RunFolder(folder), Path(scratch) / "exported"), plugins=plugins)
    if given is not None:
        return Target(name=str(folder), model=model, inputs=make_inputs(given, model), kind="run")
    tokens = random_tokens(model)
    note = f"inputs: {tokens.shape[0]} sequences of {tokens.shape[1]} random tokens, none of them padding"
    return Target(name=str(folder), model=model, inputs=tokens, kind="run", notes=(note,))


def random_tokens(model: Transformer) -> torch.Tensor:
    """Draw random tokens [batch, seq] for a model, from a fixed seed."""
    shape = (_BATCH, min(_SEQ, model.spec.max_seq))
    return torch.randint(0, model.spec.vocab, shape, generator=torch.Generator().manual_seed(0))
