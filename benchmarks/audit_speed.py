"""Seconds and peak memory of `addnorm.audit` on BERT: the tiny one, BERT-base's geometry, and a sweep over depth and width.

Weights are random. Every size runs in a process of its own, whose peak memory is then its own; importing torch and
transformers and building the model come before the clock starts. Peaks are those of the whole process, libraries and the model
included, in GB of 10^9 bytes.

    python benchmarks/audit_speed.py                                the table, and docs/images/audit-speed.svg
    python benchmarks/audit_speed.py --sizes 2,128 12,768 --plot "" the table alone
"""

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

WANTED = ("2,128", "12,768")
"""Depth and width of "tiny", and BERT-base's geometry."""
DEPTHS = (1, 2, 4, 8, 16)
"""At width 256."""
WIDTHS = (128, 256, 384, 512, 768)
"""At depth 4."""
SIZES = tuple(dict.fromkeys([*WANTED, *(f"{depth},256" for depth in DEPTHS), *(f"4,{width}" for width in WIDTHS)]))


def measure(depth: int, width: int) -> dict[str, float]:
    """One audit, in this process."""
    import torch
    from transformers import BertConfig, BertModel

    import addnorm
    from addnorm.training.peak_memory import peak_bytes

    sizes = {"num_hidden_layers": depth, "hidden_size": width, "intermediate_size": 4 * width}
    model = BertModel(BertConfig(**sizes, num_attention_heads=width // 64)).eval()
    parameters = sum(parameter.numel() for parameter in model.parameters())
    tokens = torch.randint(1000, (2, 8))
    before = peak_bytes()
    start, busy = time.perf_counter(), time.process_time()
    audit = addnorm.audit(model, {"input_ids": tokens})
    seconds, busy = time.perf_counter() - start, time.process_time() - busy
    peak = peak_bytes()
    return {
        "depth": depth,
        "width": width,
        "parameters": parameters,
        "biases": audit.size,
        "null": audit.joint_null,
        "seconds": seconds,
        "cpu_seconds": busy,
        "peak_gb": peak / 1e9,
        "above_model_gb": (peak - before) / 1e9,
        "disagreements": len(audit.disagreements),
    }


def plot(found: list[dict[str, float]], path: Path) -> None:
    """Seconds against depth at width 256, and against width at depth 4, with their peaks."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 2, figsize=(8, 3.2), layout="constrained")
    for axis, name, other, fixed in ((axes[0], "depth", "width", 256), (axes[1], "width", "depth", 4)):
        rows = sorted((row for row in found if row[other] == fixed), key=lambda row: row[name])
        axis.plot([row[name] for row in rows], [row["seconds"] for row in rows], "o-", label="seconds")
        memory = axis.twinx()
        memory.plot([row[name] for row in rows], [row["peak_gb"] for row in rows], "s--", color="C1", label="peak GB")
        axis.set(xlabel=f"{name} at {other} {fixed}", ylabel="seconds", ylim=(0, None))
        memory.set(ylabel="peak GB", ylim=(0, None))
        lines = [*axis.get_lines(), *memory.get_lines()]
        axis.legend(lines, [line.get_label() for line in lines], frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="+", default=SIZES, help="depth,width")
    home = Path(__file__).parents[1]
    parser.add_argument("--plot", default=str(home / "docs" / "images" / "audit-speed.svg"), help="a file; empty: none")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measure(*map(int, options.one.split(",")))))
        return
    print(
        "| layers | width | parameters | bias scalars | of them redundant together | seconds | CPU seconds | peak GB |"
    )
    print("|---|---|---|---|---|---|---|---|")
    every = []
    for size in options.sizes:
        run = subprocess.run([sys.executable, __file__, "--one", size], capture_output=True, text=True, check=True)
        found = json.loads(run.stdout.splitlines()[-1])
        every.append(found)
        row = f"| {found['depth']} | {found['width']} | {found['parameters']:,} | {found['biases']:,} | {found['null']:,} "
        print(f"{row}| {found['seconds']:.1f} | {found['cpu_seconds']:.1f} | {found['peak_gb']:.2f} |", flush=True)
    if options.plot:
        plot(every, Path(options.plot))
        print(f"\nWrote {options.plot}.", file=sys.stderr)


if __name__ == "__main__":
    main()
