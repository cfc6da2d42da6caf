"""Compiles Triton kernels for GPUs that are not here, in a process without the interpreter; `make gpu-check` for all cards."""

import json
import os
import subprocess
import sys
from pathlib import Path

COMPILING = Path(__file__).parents[1] / "gpu_check"
SCRIPT = """
import json, sys
sys.path.insert(0, sys.argv[1])
import torch
from compiling import CARDS, compiled
from addnorm.kernels.grouped_attention.launches import usual_launch

fits = {}
for kernel in sys.argv[2:]:
    launch = usual_launch(kernel, 64, torch.bfloat16).arguments()
    for capability in (80, 90):
        taken = compiled(kernel, launch, width=64, dtype="bf16", capability=capability, switches={})
        fits[f"{kernel} {capability}"] = taken.shared <= CARDS[capability] and taken.tensor_cores
print(json.dumps(fits))
"""


def assert_compiles(*kernels: str) -> None:
    """Compile kernels for compute capability 8.0 and 9.0 as they are launched; assert that a multiprocessor holds them."""
    environment = {**os.environ, "TRITON_INTERPRET": "0"}
    command = [sys.executable, "-c", SCRIPT, str(COMPILING), *kernels]
    run = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=600)
    assert run.returncode == 0, run.stderr[-2000:]
    fits = json.loads(run.stdout)
    assert len(fits) == 2 * len(kernels)
    assert all(fits.values()), fits
