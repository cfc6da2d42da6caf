"""What one training step asks of a GPU on every path of attention: launches, products by type, kernels, peak memory.

    python tests/gpu_check/run.py --write      writes the table paths.json anew; its difference is to be read before it is kept

The numbers are those of torch's CUDA build and of the kernels' grids. They say nothing of time.
"""

import json
import re
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent / "paper"))

import counters
import torch

from addnorm import ModelSpec
from addnorm.model.architecture import Dropout
from addnorm.model.presets import preset

TABLE = Path(__file__).parent / "paths.json"
BATCH, SEQ = 2, 1024
SIZES = {"vocab": 512, "width": 512, "depth": 4, "heads": 8, "kv_heads": 8, "hidden": 1024, "max_seq": SEQ}


def models() -> dict[str, tuple[ModelSpec, str]]:
    """A model for every path, and its implementation of attention."""
    base = preset("base", **SIZES)
    summed, weighed = replace_kind(base, scores="sum"), replace_kind(base, scores="weighted")
    return {
        "own scores": (base, "auto"),
        "dropout": (replace(base, dropout=Dropout.all(0.1)), "auto"),
        "alibi": (replace_kind(base, position="alibi"), "auto"),
        "t5": (replace_kind(base, position="t5"), "auto"),
        "kerple": (replace_kind(base, position="kerple"), "auto"),
        "window": (replace(base, windows=(128,)), "auto"),
        "cap": (replace(base, score_cap=50.0), "auto"),
        "sum, depth 4": (summed, "auto"),
        "sum, depth 3": (replace(summed, depth=3), "auto"),
        "sum by terms": (summed, "triton"),
        "sum by torch": (summed, "sdpa"),
        "weight per pair": (weighed, "auto"),
        "sum by tiles": (summed, "streaming"),
    }


def replace_kind(spec: ModelSpec, **kinds: str) -> ModelSpec:
    return preset("base", **SIZES, **kinds)


def step(spec: ModelSpec, impl: str) -> dict[str, Any]:
    """Counts of the second training step's forward and backward pass, in bfloat16."""
    model = replace(spec, attention=impl).build().to("cuda")
    tokens = torch.zeros(BATCH, SEQ, dtype=torch.int64, device="cuda")
    for _ in range(2):
        torch.cuda.reset_peak_memory_stats()
        with counters.counted() as counts, torch.autocast("cuda", dtype=torch.bfloat16):
            loss = model(tokens).float().logsumexp(-1).sum()
            loss.backward()
        model.zero_grad(set_to_none=True)
    return {
        "launches": counts["launch"],
        "products": {name.split()[1]: counts[name] for name in sorted(counts) if name.startswith("product ")},
        "attention": _attention(counts),
        "peak MiB": round(torch.cuda.max_memory_allocated() / 2**20),
    }


def _attention(counts: Counter[str]) -> dict[str, int]:
    """Launches of kernels of attention: Flash, memory-efficient, this library's."""
    families = {
        "flash_fwd": "flash",
        "flash_bwd": "flash backward",
        "fmha_cutlassF": "efficient",
        "fmha_cutlassB": "efficient backward",
    }
    own = r"^kernel ((?:attend|differentiate|sum)_\w*?(?:rows|keys|sum|terms))$"
    found: Counter[str] = Counter()
    for name, count in counts.items():
        if matched := re.match(own, name):
            found[matched[1]] += count
        for part, family in families.items():
            if name.startswith("kernel ") and part in name:
                found[family] += count
    return dict(sorted(found.items()))


def table() -> dict[str, Any]:
    """The counts of every path."""
    return {name: step(spec, impl) for name, (spec, impl) in models().items()}


if __name__ == "__main__":
    TABLE.write_text(json.dumps(table(), indent=1) + "\n")
