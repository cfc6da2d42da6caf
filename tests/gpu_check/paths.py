"""What one training step asks of a GPU on every path of attention: launches, products by type, kernels, peak memory.

    python tests/gpu_check/run.py --write      writes the table paths.json anew; its difference is to be read before it is kept
    python paths.py FILE                       on paper: writes it elsewhere

The numbers are those of torch's CUDA build and of the kernels' grids. They say nothing of time.
"""

import json
import os
import re
import sys
from collections import Counter
from dataclasses import dataclass, replace
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
LARGE = {**SIZES, "vocab": 32_000, "depth": 8, "max_seq": 4096}
"""Kuang (2025)'s vocabulary, width and depth, at twice its length."""
LARGE_BATCH = 8


@dataclass(frozen=True)
class Case:
    """A model, and how its attention is asked for."""

    model: ModelSpec
    impl: str = "auto"
    batch: int = BATCH


def cases() -> dict[str, Case]:
    """A model for every path; at 8 sequences of 4096 positions, as one would train it, the most important ones."""
    base = preset("base", **SIZES)
    summed, weighed = replace_kind(base, scores="sum"), replace_kind(base, scores="weighted")
    large = preset("base", **LARGE)
    return {
        "own scores": Case(base),
        "dropout": Case(replace(base, dropout=Dropout.all(0.1))),
        "alibi": Case(replace_kind(base, position="alibi")),
        "t5": Case(replace_kind(base, position="t5")),
        "kerple": Case(replace_kind(base, position="kerple")),
        "window": Case(replace(base, windows=(128,))),
        "cap": Case(replace(base, score_cap=50.0)),
        "sum, depth 4": Case(summed),
        "sum, depth 3": Case(replace(summed, depth=3)),
        "sum by terms": Case(summed, "triton"),
        "sum by torch": Case(summed, "sdpa"),
        "weight per pair": Case(weighed),
        "sum by tiles": Case(summed, "streaming"),
        "balanced streams": Case(replace_kind(base, residual="hyper_connections")),
        "large, own scores": Case(large, batch=LARGE_BATCH),
        "large, sum": Case(replace_kind(large, scores="sum"), batch=LARGE_BATCH),
        "large, weight per pair": Case(replace_kind(large, scores="weighted"), batch=LARGE_BATCH),
    }


def replace_kind(spec: ModelSpec, **kinds: str) -> ModelSpec:
    return preset("base", **{size: getattr(spec, size) for size in SIZES}, **kinds)


def step(case: Case) -> dict[str, Any]:
    """Counts of the second training step's forward and backward pass, in bfloat16."""
    model = replace(case.model, attention=case.impl).build().to("cuda")
    tokens = torch.zeros(case.batch, case.model.max_seq, dtype=torch.int64, device="cuda")
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
        "programs": _programs(counts),
        "peak MiB": round(torch.cuda.max_memory_allocated() / 2**20),
    }


def _programs(counts: Counter[str]) -> dict[str, str]:
    """Warps and shared memory of this library's kernels, as they were launched."""
    programs = {}
    for name in sorted(counts):
        if name.startswith("program "):
            kernel, threads, shared = name.split()[1:]
            size = f"{int(threads) // 32} warps, {int(shared)} bytes"
            programs[kernel] = f"{programs[kernel]}; {size}" if kernel in programs else size
    return programs


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
    return {name: step(case) for name, case in cases().items()}


if __name__ == "__main__":
    written = json.dumps(table(), indent=1) + "\n"
    (Path(sys.argv[1]) if len(sys.argv) > 1 else TABLE).write_text(written)
    os._exit(0)  # as the tests do: see run.py
