"""Memory of a training step: the plan's number against the peak of a process, for every joint.

    python benchmarks/plan_memory.py
    python benchmarks/plan_memory.py --rooms residual --kinds streams attention --settings

One process per row, forked after torch was imported. It runs a step of a tiny model and a large matrix product, so that what
torch's kernels set aside at their first use does not count, builds the model, resets the kernel's record of its peak, and runs
one forward and backward pass; the number is that peak above what the process held before. The plan's number is `addnorm plan`'s
without weights and optimizer state, which the process holds before, or not yet. Exit code 1 if a plan is further off than
--allowed.

The C library's heap keeps freed tensors for later ones of other sizes, which no plan can know: by default every tensor above 64
KiB gets memory of its own (MALLOC_MMAP_THRESHOLD_), which is returned when it is freed. With --heap the library decides.
"""

import argparse
import gc
import json
import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
from torch.nn import functional as F

import addnorm
from addnorm.catalogue import ROOMS
from addnorm.model.spec import ModelSpec
from addnorm.study.definition import Training
from addnorm.supervision.step_cost import step_cost

VOCAB = 256
SIZES = {"width 256, length 256": (256, 6, 256, 8), "width 128, length 512": (128, 8, 512, 4)}
"""Width, depth, length, batch."""
_THRESHOLD = "MALLOC_MMAP_THRESHOLD_"
SETTINGS: dict[str, list[dict[str, Any]]] = {
    "streams": [{"mixing": mixing} for mixing in ("sinkhorn", "permutations", "identity")],
    "attention": [{"block": 4}],
    "dynamic_dense": [{"reads": "one"}],
    "cross": [{"reads": "one"}],
    "lambdas": [{"skips": True, "backout": True}],
    "hyper_connections": [{"mixing": "identity"}],
}
"""Further settings of residuals that change what a step holds."""
FIELDS: dict[str, dict[str, Any]] = {
    "norm gated": {"norm": "gated"},
    "qk_norm clip": {"qk_norm": "clip"},
    "sink query": {"sink": "query"},
    "attended hybrid_gate": {"attended": "hybrid_gate"},
    "position relative_bank": {"position": "relative_bank"},
    "convolution": {"convolution": {"positions": 4}},
    "position interleaved_rope": {"position": "interleaved_rope"},
    "block token_tables": {"block": "token_tables"},
}
"""Joints of other rooms, and fields of the model."""


def model_of(fields: dict[str, Any], size: tuple[int, int, int, int]) -> ModelSpec:
    width, depth, length, _ = size
    sizes = {"vocab": VOCAB, "width": width, "depth": depth, "heads": 4, "hidden": 4 * width, "max_seq": length}
    return addnorm.preset("llama", **sizes, **fields)


def rows(rooms: list[str], kinds: list[str] | None, *, settings: bool) -> Iterator[tuple[str, dict[str, Any]]]:
    """Names and fields of the models."""
    for room in rooms:
        if room == "fields":
            yield from ((name, fields) for name, fields in FIELDS.items() if kinds is None or name in kinds)
            continue
        for kind in ROOMS[room].kinds():
            if kinds is not None and kind not in kinds:
                continue
            more = SETTINGS.get(kind, []) if settings and room == "residual" else []
            for own in [{}, *more]:
                name = ", ".join([f"{room} {kind}", *(f"{key} {value}" for key, value in own.items())])
                yield name, {room: {"kind": kind, **own}}


def train(model: Any, length: int, batch: int) -> None:
    """One forward and backward pass."""
    tokens = torch.randint(VOCAB, (batch, length + 1))
    F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten()).backward()
    model.zero_grad(set_to_none=True)


def resident(field: str) -> int:
    """Bytes of this process: `VmRSS`, or `VmHWM` for the peak."""
    with open("/proc/self/status", encoding="ascii") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith(field))


def measured(spec: ModelSpec, length: int, batch: int) -> int:
    """The peak of one step above what was held before; run in a process of its own."""
    train(replace(spec, width=32, hidden=32, max_seq=8).build().train(), 8, 1)
    torch.randn(1024, 1024) @ torch.randn(1024, 1024)
    model = spec.build().train()
    gc.collect()
    with open("/proc/self/clear_refs", "w", encoding="ascii") as record:
        record.write("5")
    before = resident("VmRSS")
    train(model, length, batch)
    return resident("VmHWM") - before


def in_a_process(spec: ModelSpec, length: int, batch: int) -> int:
    """The same from a fork, whose answer comes through a pipe."""
    read, write = os.pipe()
    child = os.fork()
    if not child:
        os.write(write, json.dumps(measured(spec, length, batch)).encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as answer:
        found = answer.read()
    if os.waitpid(child, 0)[1] or not found:
        raise SystemExit(f"the process of {spec.residual} failed")
    return int(json.loads(found))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rooms", nargs="+", default=["residual", "values", "scores", "column", "fields"])
    parser.add_argument("--kinds", nargs="+", default=None, help="all of the rooms if not given")
    parser.add_argument(
        "--settings", action="store_true", help="also the settings of residuals that change what is held"
    )
    parser.add_argument("--heap", action="store_true", help="leave it to the C library what returns to the system")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--allowed", type=float, default=0.1)
    options = parser.parse_args()
    if not options.heap and _THRESHOLD not in os.environ:  # the library reads it when a program starts
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, _THRESHOLD: "65536"})
    torch.set_num_threads(options.threads)
    print(f"| mechanism | {' | '.join(f'{size}: plan, MB | measured, MB | plan / measured' for size in SIZES)} |")
    print("|---" + "|---:" * (3 * len(SIZES)) + "|")
    off = []
    for name, fields in rows(options.rooms, options.kinds, settings=options.settings):
        cells = []
        for size in SIZES.values():
            _, _, length, batch = size
            spec = model_of(fields, size)
            step = step_cost(spec, Training(batch=batch, seq=length))
            planned = step.peak_bytes - step.weight_bytes - step.state_bytes
            found = in_a_process(spec, length, batch)
            cells += [f"{planned / 1e6:.0f}", f"{found / 1e6:.0f}", f"{planned / found:.2f}"]
            if abs(planned / found - 1) > options.allowed:
                off.append(f"{name}: {planned / found:.2f}")
        print(f"| {name} | {' | '.join(cells)} |", flush=True)
    print(f"further off than {options.allowed:.0%}: {'; '.join(off) or 'none'}")
    return 1 if off else 0


if __name__ == "__main__":
    sys.exit(main())
