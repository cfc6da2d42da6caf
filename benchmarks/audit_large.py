"""An audit by transfer of a decoder with 10^9 parameters in bfloat16: seconds, and peak memory beside its weights.

The geometry is that of a public model of 10^9 parameters (Pythia 1B: GPT-NeoX, 16 layers of width 2048, 8 heads); weights are
random, so that nothing is downloaded, and all biases are drawn too, which a new model has at zero. The analysis runs on a
reduced configuration of the class. Its rewrite is evaluated with the full weights and certified on them, on inputs of one row,
because that work grows with the number of tokens.

    python benchmarks/audit_large.py
    python benchmarks/audit_large.py --layers 2 --width 256       a quick try
"""

import argparse
import time

import torch

from addnorm.training.use import peak_bytes


def peak_gb() -> float:
    """Largest resident set of this process so far, in 10^9 bytes."""
    return peak_bytes() / 1e9


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=16)
    parser.add_argument("--width", type=int, default=2048)
    parser.add_argument("--threads", type=int, help="default: torch's own choice")
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    from transformers import GPTNeoXConfig, GPTNeoXForCausalLM

    import addnorm
    from addnorm.outside.targets.transformers_class import configuration_target
    from addnorm.redundancy.execution.memory import needed_bytes

    fields = {"vocab_size": 50304, "max_position_embeddings": 2048, "use_cache": False, "tie_word_embeddings": False}
    config = GPTNeoXConfig(
        hidden_size=options.width,
        num_hidden_layers=options.layers,
        num_attention_heads=8,
        intermediate_size=4 * options.width,
        **fields,
    )
    torch.manual_seed(0)
    model = GPTNeoXForCausalLM._from_config(config, dtype=torch.bfloat16).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.add_(torch.randn_like(parameter) / 20)
    count = sum(each.numel() for each in model.parameters())
    weights = sum(each.numel() * each.element_size() for each in model.parameters()) / 1e9
    built = peak_gb()
    print(f"{count / 1e9:.2f} G parameters, {weights:.2f} GB of weights, process at {built:.2f} GB", flush=True)

    marks = [("start", time.perf_counter(), time.process_time(), built)]

    def mark(stage: str) -> None:
        marks.append((stage, time.perf_counter(), time.process_time(), peak_gb()))
        before, now = marks[-2:]
        print(
            f"{stage}: {now[1] - before[1]:.1f} s, {now[2] - before[2]:.1f} CPU s, peak {now[3]:.2f} GB, "
            f"{now[3] - weights:.2f} beside the weights",
            flush=True,
        )

    limit = needed_bytes(count, 2) - 1
    target = configuration_target("decoder", "transformers class", GPTNeoXForCausalLM, config, None, min(limit, 10**9))
    mark(f"reduced configuration of {target.shrunk}")
    audit = addnorm.audit(target.model, target.inputs)
    mark(f"audit of it, {audit.size} scalars, {audit.joint_null} redundant")
    _, certificate = audit.transfer(model, {name: each[:1] for name, each in target.inputs.items()})
    mark(f"transfer, {certificate.scalars} scalars removed")
    for row in certificate.compared:
        print(f"  {row}")
    first, last = marks[0], marks[-1]
    print(
        f"\n| parameters | seconds | CPU seconds | peak GB beside the weights | certificate |\n|---|---|---|---|---|\n"
        f"| {count / 1e9:.2f} G | {last[1] - first[1]:.0f} | {last[2] - first[2]:.0f} | {last[3] - weights:.2f} | "
        f"{'passed' if certificate.passed else 'failed'} |"
    )
    return 0 if certificate.passed and audit.agreed else 1


if __name__ == "__main__":
    raise SystemExit(main())
