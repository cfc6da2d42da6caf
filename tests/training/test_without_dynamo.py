"""Training and decoding do not import Dynamo, torch's compiler, which takes longer than the rest of a worker's start."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

DRIVER = """
import json, sys

loaded = {}


def look(after):
    loaded[after] = "torch._dynamo" in sys.modules


import torch
look("import torch")
import addnorm.model
import addnorm.model.generation
import addnorm.model.presets
import addnorm.training.worker
import addnorm.training.attempt
look("import addnorm")

from addnorm.catalogue import ROOMS
from addnorm.testing.contract import shrunk

spec = shrunk(addnorm.preset("llama", scores="sum"))
tokens = torch.zeros(1, 4, dtype=torch.int64)
addnorm.generate(spec.build(), tokens, new_tokens=2)
look("generate")
for kind in ROOMS["optimizer"].kinds():
    model, rule = spec.build(), ROOMS["optimizer"].make(kind)
    optimizer = rule.build(rule.groups(model))
    model(tokens).square().sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    optimizer.load_state_dict(optimizer.state_dict())
    look(kind)
from addnorm.study.definition import Training
from addnorm.training.numerics import set_numerics

set_numerics(Training(), torch.device("cpu"))
look("set_numerics")
import torch._dynamo
look("import torch._dynamo")
json.dump(loaded, sys.stdout)
"""


@pytest.mark.thorough
def test_neither_importing_nor_decoding_nor_training_imports_dynamo() -> None:
    source = str(Path(__file__).parents[2] / "src")
    environment = {**os.environ, "PYTHONPATH": source}
    done = subprocess.run(
        [sys.executable, "-c", DRIVER], env=environment, capture_output=True, check=True, text=True, timeout=120
    )
    loaded = json.loads(done.stdout)
    assert loaded.pop("import torch._dynamo"), "it would have been seen"
    assert "adamw" in loaded
    assert [after for after, seen in loaded.items() if seen] == []
