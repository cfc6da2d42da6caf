"""Seconds and peak memory of `addnorm.audit`: BERT from the tiny one to BERT-base's geometry, ViT-S/16, and others.

Weights are random. Every model runs in a process of its own, whose peak memory is then its own. Importing torch and
transformers, an audit of two small layers (column "loading": torch loads its exporter with the first) and building the model
come before the clock starts. Memory is in GB of 10^9 bytes: the peak of the whole process, libraries included; what the audit
was predicted to take, the model included; and the peak without what libraries held before it, over that prediction.

    python benchmarks/audit_speed.py                                        the table, and docs/images/audit-speed.svg
    python benchmarks/audit_speed.py --models 2,128 vit-s --plot "" --threads 1
    python benchmarks/audit_speed.py --models timm:deit3_small_patch16_224 --plot ""     where timm is installed
"""

import argparse
import json
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

WANTED = ("2,128", "12,768", "vit-s")
"""Depth and width of "tiny", BERT-base's geometry, and ViT-S/16 on two images of 224 x 224."""
DEPTHS = (1, 2, 4, 8, 16)
"""At width 256."""
WIDTHS = (128, 256, 384, 512, 768)
"""At depth 4."""
OTHERS = ("4,256,8,512", "vit-ti", "gpt2", "qwen2", "bart", "resnet")
"""Models for the prediction of memory: long inputs, small images, decoders, an encoder-decoder, convolutions."""
SIZES = tuple(
    dict.fromkeys([*WANTED, *(f"{depth},256" for depth in DEPTHS), *(f"4,{width}" for width in WIDTHS), *OTHERS])
)


def bert(depth: int, width: int, batch: int = 2, length: int = 8) -> tuple[Any, Any]:
    """BERT with random tokens."""
    import torch
    from transformers import BertConfig, BertModel

    sizes = {"num_hidden_layers": depth, "hidden_size": width, "intermediate_size": 4 * width}
    model = BertModel(BertConfig(**sizes, num_attention_heads=width // 64))
    return model, {"input_ids": torch.randint(1000, (batch, length))}


def vit(width: int) -> tuple[Any, Any]:
    """A vision transformer of 12 layers with patches of 16 x 16, and two images of 224 x 224."""
    import torch
    from transformers import ViTConfig, ViTForImageClassification

    config = ViTConfig(hidden_size=width, intermediate_size=4 * width, num_attention_heads=width // 64, num_labels=1000)
    return ViTForImageClassification(config), {"pixel_values": torch.randn(2, 3, 224, 224)}


def gpt2() -> tuple[Any, Any]:
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(n_layer=6, n_embd=384, n_head=6, use_cache=False)
    return GPT2LMHeadModel(config), {"input_ids": torch.randint(1000, (2, 64))}


def qwen2() -> tuple[Any, Any]:
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    sizes = {"hidden_size": 512, "intermediate_size": 1536, "num_hidden_layers": 8, "num_attention_heads": 8}
    model = Qwen2ForCausalLM(Qwen2Config(**sizes, num_key_value_heads=2, vocab_size=32000, use_cache=False))
    return model, {"input_ids": torch.randint(1000, (2, 16))}


def bart() -> tuple[Any, Any]:
    import torch
    from transformers import BartConfig, BartForConditionalGeneration

    sizes = {"d_model": 256, "encoder_ffn_dim": 1024, "decoder_ffn_dim": 1024, "encoder_layers": 3, "decoder_layers": 3}
    config = BartConfig(
        **sizes, encoder_attention_heads=4, decoder_attention_heads=4, vocab_size=20000, use_cache=False
    )
    ids = torch.randint(5, 1000, (2, 12))
    return BartForConditionalGeneration(config), {"input_ids": ids, "decoder_input_ids": ids}


def resnet() -> tuple[Any, Any]:
    import torch
    from transformers import ResNetConfig, ResNetForImageClassification

    config = ResNetConfig(hidden_sizes=[64, 128, 256, 512], depths=[2, 2, 2, 2], layer_type="basic", num_labels=100)
    return ResNetForImageClassification(config), {"pixel_values": torch.randn(2, 3, 64, 64)}


def built(name: str) -> tuple[Any, Any]:
    """A model by its name, with inputs."""
    import torch

    if name.startswith("timm:"):
        import timm

        return timm.create_model(name.removeprefix("timm:")), torch.randn(2, 3, 224, 224)
    named = {"vit-s": lambda: vit(384), "vit-ti": lambda: vit(192), "gpt2": gpt2, "qwen2": qwen2, "bart": bart}
    named["resnet"] = resnet
    return named[name]() if name in named else bert(*map(int, name.split(",")))


def resident_bytes() -> int:
    """Memory of this process now."""
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * resource.getpagesize()


def measure(name: str, threads: int | None) -> dict[str, Any]:
    """One audit, in this process."""
    import torch
    import transformers  # noqa: F401 - before the clock starts

    import addnorm
    from addnorm.redundancy.execution.cost import audit_cost, number_of_biases
    from addnorm.training.use import peak_bytes

    if threads:
        torch.set_num_threads(threads)
    start = time.perf_counter()
    small = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.LayerNorm(3), torch.nn.Linear(3, 2))
    addnorm.audit(small, torch.randn(2, 3))
    loading = time.perf_counter() - start
    model, inputs = built(name)
    model.eval()
    weights = sum(each.numel() * each.element_size() for each in model.parameters())
    libraries = resident_bytes() - weights
    predicted = audit_cost(model, inputs, biases=number_of_biases(model))
    start, busy = time.perf_counter(), time.process_time()
    audit = addnorm.audit(model, inputs)
    seconds, busy = time.perf_counter() - start, time.process_time() - busy
    peak = peak_bytes()
    return {
        "model": name,
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "biases": audit.size,
        "null": audit.joint_null,
        "loading": loading,
        "seconds": seconds,
        "cpu_seconds": busy,
        "peak_gb": peak / 1e9,
        "predicted_gb": predicted.bytes / 1e9 if predicted else float("nan"),
        "ratio": (peak - libraries) / predicted.bytes if predicted else float("nan"),
        "disagreements": len(audit.disagreements),
    }


def plot(found: list[dict[str, Any]], path: Path) -> None:
    """Seconds against depth at width 256, and against width at depth 4, with their peaks."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 2, figsize=(8, 3.2), layout="constrained")
    sizes = [(*map(int, row["model"].split(",")), row) for row in found if row["model"].count(",") == 1]
    every = [{**row, "depth": depth, "width": width} for depth, width, row in sizes]
    for axis, name, other, fixed in ((axes[0], "depth", "width", 256), (axes[1], "width", "depth", 4)):
        rows = sorted((row for row in every if row[other] == fixed), key=lambda row: row[name])
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
    parser.add_argument("--models", nargs="+", default=SIZES, help="depth,width[,batch,length] of BERT, or a name")
    parser.add_argument("--threads", type=int, help="default: torch's own choice")
    home = Path(__file__).parents[1]
    parser.add_argument("--plot", default=str(home / "docs" / "images" / "audit-speed.svg"), help="a file; empty: none")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measure(options.one, options.threads)))
        return
    print(
        "| model | parameters | bias scalars | of them redundant together | loading | seconds | CPU seconds | peak GB | "
        "predicted GB | measured / predicted |"
    )
    print("|---" * 10 + "|")
    every = []
    for name in options.models:
        command = [sys.executable, __file__, "--one", name]
        command += ["--threads", str(options.threads)] if options.threads else []
        run = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        found = json.loads(run.stdout.splitlines()[-1])
        every.append(found)
        row = f"| {name} | {found['parameters']:,} | {found['biases']:,} | {found['null']:,} | {found['loading']:.1f} "
        row += f"| {found['seconds']:.1f} | {found['cpu_seconds']:.1f} | {found['peak_gb']:.2f} "
        print(f"{row}| {found['predicted_gb']:.2f} | {found['ratio']:.2f} |", flush=True)
    if options.plot:
        plot(every, Path(options.plot))
        print(f"\nWrote {options.plot}.", file=sys.stderr)


if __name__ == "__main__":
    main()
