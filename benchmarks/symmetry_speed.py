"""Processor seconds and peak memory of `addnorm.symmetries` on reduced classes of Transformers, each in its own process.

    python benchmarks/symmetry_speed.py                          # a two-layer decoder, and every class of the report
    python benchmarks/symmetry_speed.py LlamaForCausalLM BloomForCausalLM

Wanted: at most 10 s for a two-layer decoder, 60 s for the slowest class, and 4 GB. Seconds are those of the processor, with one
thread, so that other programs change them little; the call is that of `addnorm audit --all`, at two generic points.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "docs" / "studies"))

import torch
from symmetries import CLASSES, measured

from addnorm.training.use import peak_bytes

DECODER = "LlamaForCausalLM"
DECODER_SECONDS, SECONDS, GIGABYTES = 10.0, 60.0, 4.0


def main() -> int:
    """Measure the named classes, or all, the decoder first. Returns 1 if one is slower or larger than wanted."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        torch.set_num_threads(1)
        row = measured(given.one, points=2)
        peak = peak_bytes() / 2**30
        print(json.dumps({"seconds": row["processor_s"], "gigabytes": round(peak, 2), "redundant": row["redundant"]}))
        return 0
    worst, decoder = {"seconds": 0.0, "gigabytes": 0.0}, 0.0
    for name in given.names or CLASSES:
        made = subprocess.run([sys.executable, __file__, "--one", name], capture_output=True, text=True, check=True)
        row = json.loads(made.stdout.splitlines()[-1])
        worst = {key: max(worst[key], row[key]) for key in worst}
        decoder = row["seconds"] if name == DECODER else decoder
        print(
            f"{name}: {row['seconds']} s of processor time, {row['gigabytes']} GB, {row['redundant']} directions",
            flush=True,
        )
    print(
        f"{DECODER}: {decoder} s (wanted {DECODER_SECONDS:g}); worst: {worst['seconds']} s (wanted {SECONDS:g}), "
        f"{worst['gigabytes']} GB (wanted {GIGABYTES:g})"
    )
    return int(decoder > DECODER_SECONDS or worst["seconds"] > SECONDS or worst["gigabytes"] > GIGABYTES)


if __name__ == "__main__":
    sys.exit(main())
