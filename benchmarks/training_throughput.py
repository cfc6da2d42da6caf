"""Training step of preset `gpt2` against a hand-written plain PyTorch GPT and x-transformers' Decoder of the same sizes.

The mechanisms must cost nothing when they are not used.
"""

import argparse

import torch
from interleaved import interleaved
from torch import Tensor, nn
from torch.nn import functional as F
from x_transformers import Decoder, TransformerWrapper

import addnorm

VOCAB = 256


class PlainGPT(nn.Module):
    """GPT-2 written down directly: fused q, k, v, one call of scaled_dot_product_attention, no options."""

    def __init__(self, width: int, depth: int, heads: int, seq: int) -> None:
        super().__init__()
        self.heads = heads
        self.tokens, self.positions = nn.Embedding(VOCAB, width), nn.Embedding(seq, width)
        self.layers = nn.ModuleList(
            nn.ModuleDict(
                {
                    "norm1": nn.LayerNorm(width),
                    "qkv": nn.Linear(width, 3 * width),
                    "out": nn.Linear(width, width),
                    "norm2": nn.LayerNorm(width),
                    "up": nn.Linear(width, 4 * width),
                    "down": nn.Linear(4 * width, width),
                }
            )
            for _ in range(depth)
        )
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, VOCAB, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, tokens: Tensor) -> Tensor:
        batch, seq = tokens.shape
        x = self.tokens(tokens) + self.positions.weight[:seq]
        for layer in self.layers:
            q, k, v = layer["qkv"](layer["norm1"](x)).view(batch, seq, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + layer["out"](y.transpose(1, 2).flatten(2))
            x = x + layer["down"](F.gelu(layer["up"](layer["norm2"](x))))
        return self.head(self.norm(x))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    width, depth, heads, seq = 256, 6, 8, 256
    models: dict[str, nn.Module] = {
        "addnorm gpt2": addnorm.preset(
            "gpt2", vocab=VOCAB, width=width, depth=depth, heads=heads, hidden=4 * width, max_seq=seq, dropout=0.0
        ).build(),
        "plain PyTorch": PlainGPT(width, depth, heads, seq),
        "x-transformers": TransformerWrapper(
            num_tokens=VOCAB,
            max_seq_len=seq,
            tie_embedding=True,
            attn_layers=Decoder(dim=width, depth=depth, heads=heads, attn_dim_head=width // heads, attn_flash=True),
        ),
    }
    tokens = torch.randint(VOCAB, (options.batch, seq + 1))

    def step(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten()).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    sides = {}
    for name, model in models.items():
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
        sides[name] = lambda model=model, optimizer=optimizer: step(model, optimizer)
    seconds = interleaved(sides, rounds=options.rounds)
    per_step = options.batch * seq
    print(f"width {width}, {depth} layers, length {seq}, batch {options.batch}, {options.threads} threads, float32\n")
    print("| model | parameters | tokens/s | addnorm / this |\n|---|---|---|---|")
    for name, model in models.items():
        count = sum(p.numel() for p in model.parameters())
        ratio = seconds[name] / seconds["addnorm gpt2"]
        print(f"| {name} | {count:,} | {per_step / seconds[name]:,.0f} | {ratio:.3f} |")


if __name__ == "__main__":
    main()
