"""Memory of an audit and a rewrite: the peaks of one process, fitted against the number of parameters."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from addnorm.redundancy.execution.memory import needed_bytes

pytestmark = pytest.mark.compiled

SOURCE = Path(__file__).parents[2] / "src"
PEAKS = """
import json, torch
from torch import nn
import addnorm
from addnorm.training.use import peak_bytes

def peak(vocab):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(vocab, 256), nn.Linear(256, 8), nn.LayerNorm(8), nn.Linear(8, 4)).eval()
    audit = addnorm.audit(model, torch.randint(vocab, (2, 6)))
    audited = peak_bytes()
    assert audit.strip()[1].passed
    stripped = peak_bytes()
    return sum(each.numel() for each in model.parameters()), audited, stripped

print(json.dumps([peak(5000), peak(15_000)]))
"""


@pytest.mark.thorough
def test_peaks_grow_no_faster_than_the_estimate() -> None:
    """Two models that differ only in the length of a table. Beside the model there is one copy in float64, and while it is
    made or read what one table takes; one more copy in float64 fails."""
    run = subprocess.run(
        [sys.executable, "-c", PEAKS],
        capture_output=True,
        text=True,
        check=True,
        # Blocks that are freed go back to the system at once, so that peaks are those of what is in use.
        env={"PYTHONPATH": str(SOURCE), "OMP_NUM_THREADS": "1", "MALLOC_MMAP_THRESHOLD_": "1000000"},
    )
    small, large = json.loads(run.stdout.splitlines()[-1])
    numbers = large[0] - small[0]
    assert large[1] - small[1] <= needed_bytes(numbers)
    assert large[2] - small[1] <= needed_bytes(numbers)
