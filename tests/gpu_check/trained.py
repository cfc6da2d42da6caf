"""Models of every kind, and trainers of them on the GPU of paper or on the CPU."""

import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

sys.path.append(str(Path(__file__).parents[1] / "contracts"))

import counters
from siblings import mechanisms, name

from addnorm.catalogue import ROOMS
from addnorm.data import Dataset
from addnorm.errors import InputError
from addnorm.model.presets import PRESETS, preset
from addnorm.study.definition import Training
from addnorm.testing.contract import tiny
from addnorm.training.loop import Trainer
from synthetic_run import synthetic_run

VOCAB = 257
"""Bytes and the mask."""


@dataclass(frozen=True)
class Kind:
    """A model, and how it is trained."""

    name: str
    model: Any
    optimizer: Any = None


def kinds() -> Iterator[Kind]:
    """A model of every kind in every setting, causal and masked, every preset, and every optimizer."""
    for room, spec in mechanisms():
        for objective in ("causal", "masked"):
            try:
                # Sums of more than FEW_TERMS layers take another path than those of fewer.
                model = tiny(room, spec, depth=5 if room == "scores" else 3, objective=objective, vocab=VOCAB)
            except InputError:  # a kind for causal models alone
                continue
            yield Kind(f"{name(room, spec)} {objective}", model)
    sizes = {"vocab": VOCAB, "width": 32, "depth": 3, "heads": 4, "kv_heads": 2, "hidden": 32, "max_seq": 32}
    for preset_name in PRESETS:
        try:
            yield Kind(f"preset {preset_name}", preset(preset_name, **sizes))
        except InputError:  # a gated attention unit has one head
            yield Kind(f"preset {preset_name}", preset(preset_name, **sizes | {"heads": 1, "kv_heads": 1}))
    for kind in ROOMS["optimizer"].kinds():
        yield Kind(f"optimizer {kind}", preset("base", **sizes), ROOMS["optimizer"].spec_class(kind)())


def trainer(kind: Kind, dataset: Dataset, device: str, **settings: Any) -> Trainer:
    """A trainer of a model of two short sequences."""
    seq = min(16, kind.model.max_seq)
    optimizer = {} if kind.optimizer is None else {"optimizer": kind.optimizer}
    training = Training(steps=8, batch=2, seq=seq, eval_sequences=2, **{"precision": "bfloat16"} | optimizer | settings)
    spec = synthetic_run(dataset, kind.model, training)
    return Trainer(spec, dataset, torch.device(device))


def waits_of_a_step(kind: Kind, dataset: Dataset) -> Counter[tuple[str, str]]:
    """Train two steps and evaluate. Returns where the host waited for the device within the second step.

    Raises:
        RuntimeError: an operation has tensors on the CPU and on the GPU.
    """
    made = trainer(kind, dataset, "cuda")
    made.train_step()  # the first step makes what outlives it: buffers, states, tables
    with counters.waits() as waits:
        made.train_step()
    made.evaluate()
    return waits
