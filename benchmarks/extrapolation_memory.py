"""Peak memory of an evaluation against the length, for every position kind: is it linear?

    .venv/bin/python benchmarks/extrapolation_memory.py
    .venv/bin/python benchmarks/extrapolation_memory.py --kinds rope alibi --switch local_window --multiples 2 4 8 16

One process per measurement: it builds the model, evaluates a short window, notes its peak, evaluates one window of the length
in question, and notes its peak again. The exponent x is that of length^x fitted to the growth: 1 is linear, 2 a matrix of
scores. The last row is a check of the measure: the same model with an attention that holds the matrix. Exit code 1 if a
kind's exponent is not below 1.25, or that of the matrix not above it.

A learned position has a table of embeddings and cannot exceed it: its row is for a model whose table has the test length.
"""

import argparse
import multiprocessing
import sys
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import numpy as np

WARM = 64
"""Tokens of the window that is evaluated first."""


def main() -> int:
    """Print one Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trained", type=int, default=512, help="train length, tokens")
    parser.add_argument("--multiples", type=int, nargs="+", default=[1, 2, 4, 8], help="at least two")
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--depth", type=int, default=4)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--vocab", type=int, default=256)
    parser.add_argument("--switch", default=None, help="also with these switches on, such as local_window")
    parser.add_argument("--kinds", nargs="*", default=None, help="position kinds; all if not given")
    options = parser.parse_args()
    lengths = [options.trained * multiple for multiple in options.multiples]
    print(f"| position | {' | '.join(f'{length} tokens, MB' for length in lengths)} | exponent |")
    print("|---" + "|---:" * (len(lengths) + 1) + "|")
    rows = [(kind, "auto") for kind in options.kinds or position_kinds()]
    fine = True
    # One task per process: a process's peak never comes down again.
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn"), max_tasks_per_child=1) as pool:
        for kind, attention in [*rows, (rows[0][0], "reference")]:
            found = [pool.submit(growth_bytes, kind, attention, length, vars(options)).result() for length in lengths]
            exponent = float(np.polyfit(np.log(lengths), np.log(np.maximum(found, 1)), 1)[0])
            fine &= (exponent < 1.25) is (attention == "auto")
            named = kind if attention == "auto" else f"{kind}, matrix held"
            print(f"| {named} | {' | '.join(f'{one / 1e6:.1f}' for one in found)} | {exponent:.2f} |", flush=True)
    return 0 if fine else 1


def position_kinds() -> tuple[str, ...]:
    """Every position of the catalogue."""
    from addnorm.catalogue import room

    return room("position").kinds()


def growth_bytes(kind: str, attention: str, length: int, options: dict[str, Any]) -> int:
    """By how much the process's peak rises when a window of that length is evaluated after a short one."""
    import torch

    import addnorm
    from addnorm.insight.extrapolation.lengths import Lengths
    from addnorm.insight.extrapolation.measure import measure_length
    from addnorm.insight.extrapolation.segments import Segments
    from addnorm.insight.extrapolation.switches import Reach, parse_switches, switched
    from addnorm.training.use import peak_bytes

    torch.set_num_threads(1)
    sizes = {name: options[name] for name in ("width", "depth", "heads", "vocab")} | {"hidden": 2 * options["width"]}
    fields = sizes | {"kv_heads": None, "max_seq": length, "position": kind, "attention": attention}
    built = addnorm.preset("base", **fields).build().eval()
    combination = parse_switches(options["switch"])[0] if options["switch"] else ()

    def evaluate(trained: int, window: int) -> int:
        tokens = np.arange(window)[None] % sizes["vocab"]
        text = Segments(inputs=tokens, targets=tokens, scored=np.ones(tokens.shape, dtype=bool))
        view = switched(built, combination, Reach(trained=trained, length=window, causal=True))
        lengths = Lengths(trained=trained, multiples=(window // trained,))
        measure_length(view, text, lengths, window, torch.device("cpu"))
        return peak_bytes()

    before = evaluate(WARM, WARM)
    return evaluate(options["trained"], length) - before


if __name__ == "__main__":
    sys.exit(main())
