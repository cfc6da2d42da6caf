"""Seconds and peak memory of `addnorm.audit` on BERT: the tiny one, BERT-base's geometry, and a sweep over depth and width.

Weights are random. Every size runs in a process of its own, whose peak memory is then its own; importing torch and
transformers and building the model come before the clock starts.

    python benchmarks/audit_speed.py                  the table
    python benchmarks/audit_speed.py --sizes 2,128 12,768
"""

import argparse
import json
import resource
import subprocess
import sys
import time

SIZES = ("2,128", "12,768", "2,256", "4,256", "8,256", "4,128", "4,512")
"""Depth and width; the first is "tiny", the second BERT-base's geometry."""


def measure(depth: int, width: int) -> dict[str, float]:
    """One audit, in this process."""
    import torch
    from transformers import BertConfig, BertModel

    import addnorm

    sizes = {"num_hidden_layers": depth, "hidden_size": width, "intermediate_size": 4 * width}
    model = BertModel(BertConfig(**sizes, num_attention_heads=width // 64)).eval()
    parameters = sum(parameter.numel() for parameter in model.parameters())
    tokens = torch.randint(1000, (2, 8))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.perf_counter()
    audit = addnorm.audit(model, {"input_ids": tokens})
    seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {
        "parameters": parameters,
        "biases": audit.size,
        "null": audit.joint_null,
        "seconds": seconds,
        "peak_gib": peak / 2**20,
        "above_model_gib": (peak - before) / 2**20,
        "disagreements": len(audit.disagreements),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="+", default=SIZES, help="depth,width")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measure(*map(int, options.one.split(",")))))
        return
    print("| layers | width | parameters | bias scalars | of them redundant together | seconds | peak GiB |")
    print("|---|---|---|---|---|---|---|")
    for size in options.sizes:
        run = subprocess.run([sys.executable, __file__, "--one", size], capture_output=True, text=True, check=True)
        found = json.loads(run.stdout.splitlines()[-1])
        depth, width = size.split(",")
        row = f"| {depth} | {width} | {found['parameters']:,} | {found['biases']:,} | {found['null']:,} "
        print(f"{row}| {found['seconds']:.1f} | {found['peak_gib']:.2f} |", flush=True)


if __name__ == "__main__":
    main()
