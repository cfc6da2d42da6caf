"""Peak memory of an evaluation against the length, for every position kind: one process per measurement, a slope per kind.

    .venv/bin/python benchmarks/extrapolation_memory.py
    .venv/bin/python benchmarks/extrapolation_memory.py --trained 64 --multiples 1 2 4 8 --switch local_window

A process builds the model, evaluates one window of the train length, notes its peak, evaluates one window of the length in
question, and notes its peak again. The exponent is that of length^x fitted to the growth: 1 is linear, 2 a score matrix.
"""

import argparse
import math
import multiprocessing
import resource
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import numpy as np


def main() -> None:
    """Print one Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trained", type=int, default=512, help="train length, tokens")
    parser.add_argument("--multiples", type=int, nargs="+", default=[4, 8, 16, 32])
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--depth", type=int, default=4)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--vocab", type=int, default=1024)
    parser.add_argument("--switch", default=None, help="also with these switches on, such as local_window")
    parser.add_argument("--kinds", nargs="*", default=None, help="position kinds; all if not given")
    options = parser.parse_args()
    lengths = [options.trained * multiple for multiple in options.multiples]
    print(f"| position | {' | '.join(f'{length} tokens, MB' for length in lengths)} | exponent |")
    print("|" + "---|" * (len(lengths) + 2))
    # One task per process: a process's peak never comes down again.
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn"), max_tasks_per_child=1) as pool:
        for kind in options.kinds or position_kinds():
            grown = [pool.submit(growth_bytes, kind, length, vars(options)).result() for length in lengths]
            exponent = np.polyfit(np.log(lengths), np.log(np.maximum(grown, 1)), 1)[0] if len(lengths) > 1 else math.nan
            print(f"| {kind} | {' | '.join(f'{bytes_ / 1e6:.1f}' for bytes_ in grown)} | {exponent:.2f} |", flush=True)


def position_kinds() -> tuple[str, ...]:
    """Every position of the catalogue."""
    from addnorm.catalogue import room

    return room("position").kinds()


def growth_bytes(kind: str, length: int, options: dict[str, Any]) -> int:
    """By how much the process's peak rises when a window of that length is evaluated after one of the train length."""
    import torch

    import addnorm
    from addnorm.insight.extrapolation.lengths import Lengths
    from addnorm.insight.extrapolation.measure import measure_length
    from addnorm.insight.extrapolation.switches import Reach, parse_switches, switched
    from addnorm.insight.extrapolation.windows import Stretches

    torch.set_num_threads(1)
    trained, sizes = options["trained"], {name: options[name] for name in ("width", "depth", "heads", "vocab")}
    model = addnorm.preset("base", **sizes, kv_heads=None, hidden=2 * sizes["width"], max_seq=length, position=kind)
    built = model.build().eval()
    combination = parse_switches(options["switch"])[0] if options["switch"] else ()

    def evaluate(window: int) -> int:
        tokens = np.arange(window)[None] % sizes["vocab"]
        text = Stretches(inputs=tokens, targets=tokens, scored=np.ones(tokens.shape, dtype=bool))
        view = switched(built, combination, Reach(trained=trained, length=window, causal=True))
        lengths = Lengths(trained=trained, multiples=(window // trained,))
        measure_length(view, text, lengths, window, torch.device("cpu"))
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

    before = evaluate(trained)
    return evaluate(length) - before


if __name__ == "__main__":
    main()
