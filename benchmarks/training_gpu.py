"""Training steps on a GPU in bfloat16: ours against a GPT written by hand and x-transformers, and joints against plain models.

    python benchmarks/training_gpu.py                 width 2048, 12 layers; then Kuang (2025)'s size and 8 sequences of 4096
    python benchmarks/training_gpu.py --toy           sizes at which it ends at once, to see that it runs

A step is forward, backward and AdamW; the time is the median of `--rounds` on the device, one side after the other. The model
FLOPs utilisation is (6 N + 12 L W T) tokens per second by the FLOP/s of a large bfloat16 product (Chowdhery et al. 2022,
arXiv:2204.02311, appendix B), with N parameters, L layers of width W and T positions; the causal half that is never computed
counts as computed.
"""

import argparse
import importlib.util
import statistics
import sys
from collections.abc import Callable
from dataclasses import dataclass

import torch
from score_residuals_gpu import milliseconds
from torch import nn
from torch.nn import functional as F

import addnorm


@dataclass(frozen=True)
class Sizes:
    """Of a model and its batch."""

    width: int
    depth: int
    heads: int
    kv_heads: int
    hidden: int
    vocab: int
    seq: int
    batch: int

    def of_model(self) -> dict[str, int]:
        """Sizes of a preset."""
        names = ("width", "depth", "heads", "kv_heads", "hidden", "vocab")
        return {name: getattr(self, name) for name in names} | {"max_seq": self.seq}


WIDE = Sizes(width=2048, depth=12, heads=16, kv_heads=16, hidden=8192, vocab=32_000, seq=2048, batch=4)
OF_SOURCE = Sizes(width=512, depth=8, heads=8, kv_heads=4, hidden=1024, vocab=32_000, seq=2048, batch=8)
LONG = Sizes(width=512, depth=8, heads=8, kv_heads=8, hidden=1024, vocab=32_000, seq=4096, batch=8)
TOY = Sizes(width=64, depth=4, heads=2, kv_heads=2, hidden=128, vocab=64, seq=64, batch=2)
OF_SUMS = {"own scores": "own", "sum": "sum", "weight per pair": "weighted"}


class PlainGPT(nn.Module):
    """GPT-2 written down directly: fused q, k, v, one call of scaled_dot_product_attention, no options."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        width, self.heads = sizes.width, sizes.heads
        self.tokens, self.positions = nn.Embedding(sizes.vocab, width), nn.Embedding(sizes.seq, width)
        self.layers = nn.ModuleList(
            nn.ModuleDict(
                {
                    "norm1": nn.LayerNorm(width),
                    "qkv": nn.Linear(width, 3 * width),
                    "out": nn.Linear(width, width),
                    "norm2": nn.LayerNorm(width),
                    "up": nn.Linear(width, sizes.hidden),
                    "down": nn.Linear(sizes.hidden, width),
                }
            )
            for _ in range(sizes.depth)
        )
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, sizes.vocab, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        batch, seq = tokens.shape
        x = self.tokens(tokens) + self.positions.weight[:seq]
        for layer in self.layers:
            q, k, v = layer["qkv"](layer["norm1"](x)).view(batch, seq, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + layer["out"](y.transpose(1, 2).flatten(2))
            x = x + layer["down"](F.gelu(layer["up"](layer["norm2"](x))))
        return self.head(self.norm(x))


def x_transformers(sizes: Sizes) -> nn.Module:
    from x_transformers import Decoder, TransformerWrapper

    layers = Decoder(dim=sizes.width, depth=sizes.depth, heads=sizes.heads, attn_flash=True)
    return TransformerWrapper(num_tokens=sizes.vocab, max_seq_len=sizes.seq, attn_layers=layers)


def gpts(sizes: Sizes) -> dict[str, Callable[[], nn.Module]]:
    """GPT-2 three times; the first is what the others are divided by."""
    made: dict[str, Callable[[], nn.Module]] = {
        "written by hand": lambda: PlainGPT(sizes),
        "addnorm gpt2": lambda: addnorm.preset("gpt2", **sizes.of_model(), dropout=0.0).build(),
    }
    if importlib.util.find_spec("x_transformers") is not None:
        made["x-transformers"] = lambda: x_transformers(sizes)
    return made


def bases(sizes: Sizes, joints: dict[str, dict[str, object]]) -> dict[str, Callable[[], nn.Module]]:
    """`base` with each of some joints."""
    return {
        name: lambda kinds=kinds: addnorm.preset("base", **sizes.of_model(), **kinds).build()
        for name, kinds in joints.items()
    }


def measure(sizes: Sizes, sides: dict[str, Callable[[], nn.Module]], rounds: int, peak: float) -> None:
    """Print a row per side."""
    print(
        f"\n{sizes}\n{'side':24} {'ms per step':>12} {'by the first':>13} {'tokens/s':>10} {'peak GiB':>9} {'utilisation':>12}"
    )
    tokens = torch.randint(sizes.vocab, (sizes.batch, sizes.seq), device="cuda")
    first = None
    for name, build in sides.items():
        torch.cuda.reset_peak_memory_stats()
        try:
            took, parameters = _step(build(), tokens, rounds)
        except torch.cuda.OutOfMemoryError:
            print(f"{name:24} out of memory", flush=True)
            continue
        first = took if first is None else first
        speed = tokens.numel() / took * 1e3
        flops = (6 * parameters + 12 * sizes.depth * sizes.width * sizes.seq) * speed
        memory = torch.cuda.max_memory_allocated() / 2**30
        row = f"{took:12.2f} {took / first:13.2f} {speed:10.0f} {memory:9.2f} {flops / peak / 1e12:12.2f}"
        print(f"{name:24} {row}", flush=True)


def _step(model: nn.Module, tokens: torch.Tensor, rounds: int) -> tuple[float, int]:
    model = model.to("cuda").train()
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)

    def step() -> None:
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = F.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return milliseconds(step, rounds), sum(parameter.numel() for parameter in model.parameters())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--toy", action="store_true")
    parser.add_argument("--only", choices=["gpts", "sums", "joints"])
    options = parser.parse_args()
    if not torch.cuda.is_available():
        print("this benchmark needs a CUDA device", file=sys.stderr)
        return 2
    size = 64 if options.toy else 8192
    a, b = (torch.randn(size, size, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    peak = statistics.median(2 * size**3 / milliseconds(lambda: a @ b, options.rounds) / 1e9 for _ in range(3))
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}: a large product {peak:.0f} TFLOP/s")
    joints = {"plain": {}, "rezero": {"residual": "rezero"}, "cumulative": {"residual": "cumulative"}}
    joints |= {
        "streams": {"residual": "streams"},
        "attention": {"residual": "attention"},
        "dense": {"residual": "dense"},
    }
    if options.only in (None, "sums"):
        sums = {name: {"scores": kind} for name, kind in OF_SUMS.items()}
        measure(TOY if options.toy else LONG, bases(TOY if options.toy else LONG, sums), options.rounds, peak)
    if options.only in (None, "gpts"):
        measure(TOY if options.toy else WIDE, gpts(TOY if options.toy else WIDE), options.rounds, peak)
    if options.only in (None, "joints"):
        measure(
            TOY if options.toy else OF_SOURCE, bases(TOY if options.toy else OF_SOURCE, joints), options.rounds, peak
        )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
