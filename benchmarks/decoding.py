"""Seconds per generated token after a context of 2048 tokens: every score residual beside `own`.

Each layer hands its rows of raw scores to the next, so a token costs no product more than without the residual.
"""

import argparse

import torch
from interleaved import interleaved

import addnorm

KINDS = ("own", "sum", "mean", "power", "weighted", "weighted_power", "free", "accumulated_projections")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--context", type=int, default=2048)
    parser.add_argument("--tokens", type=int, default=16, help="tokens per measurement")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    prompt = torch.randint(256, (1, options.context))
    sides = {}
    for kind in KINDS:
        model = addnorm.preset(
            "base", vocab=256, width=512, depth=8, heads=8, max_seq=16 * options.context, scores=kind
        ).build()
        cache = model.eval().new_cache()
        with torch.no_grad():
            model(prompt, cache=cache)

        def decode(model: torch.nn.Module = model, cache: object = cache) -> None:
            with torch.no_grad():
                for _ in range(options.tokens):
                    model(prompt[:, :1], cache=cache)

        sides[kind] = decode
    found = interleaved(sides, rounds=options.rounds)
    for kind, seconds in found.items():
        print(f"{kind:26} {seconds / options.tokens * 1e3:7.2f} ms per token   {seconds / found['own']:.3f} x own")


if __name__ == "__main__":
    main()
