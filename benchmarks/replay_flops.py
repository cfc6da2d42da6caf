"""Training step of `replay` (v3m1) against what its own FLOP count predicts from the baseline's speed."""

import argparse

import torch
from interleaved import interleaved
from torch.nn import functional as F

import addnorm
from addnorm.study.definition import Training
from addnorm.supervision.step_cost import step_cost

SIZES = {
    "quick": {"vocab": 256, "width": 64, "heads": 4, "kv_heads": 2, "hidden": 128, "batch": 8, "seq": 128},
    "width 256": {"vocab": 256, "width": 256, "heads": 8, "kv_heads": 4, "hidden": 512, "batch": 4, "seq": 256},
    "paper": {"vocab": 32_000, "width": 512, "heads": 8, "kv_heads": 4, "hidden": 1024, "batch": 1, "seq": 512},
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    print(f"8 layers, {options.threads} threads, float32, forward and backward\n")
    print("| sizes | variant | FLOPs / base | time / base | time / predicted |\n|---|---|---|---|---|")
    for label, sizes in SIZES.items():
        batch, seq = sizes["batch"], sizes["seq"]
        fields = {name: value for name, value in sizes.items() if name not in ("batch", "seq")}
        specs = {name: addnorm.preset(name, max_seq=seq, **fields) for name in ("base", "v3m1", "v3m3_2", "v2m3")}
        training = Training(batch=batch, seq=seq)
        flops = {name: step_cost(spec, training).flops for name, spec in specs.items()}
        models = {name: spec.build().train() for name, spec in specs.items()}
        tokens = torch.randint(sizes["vocab"], (batch, seq + 1))

        def step(model: torch.nn.Module, tokens: torch.Tensor = tokens) -> None:
            F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten()).backward()
            model.zero_grad(set_to_none=True)

        sides = {name: (lambda model=model: step(model)) for name, model in models.items()}
        seconds = interleaved(sides, rounds=options.rounds)
        for name in specs:
            work, took = flops[name] / flops["base"], seconds[name] / seconds["base"]
            print(f"| {label} | {name} | {work:.2f} | {took:.2f} | {took / work:.2f} |")


if __name__ == "__main__":
    main()
