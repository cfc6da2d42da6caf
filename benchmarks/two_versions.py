"""Time and peak memory of this tree's addnorm against an earlier one, measured in turn in processes of their own.

    git worktree add ../earlier v0.2
    .venv/bin/python benchmarks/two_versions.py ../earlier

Each task is done by both versions in every round. A row gives the median of the rounds' ratios, new over old, of the seconds
that the task itself took (without start-up) and of the largest peak memory of its process and the workers (with libraries).
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

MODELS = r"""
import torch
from torch import nn

class Pitch(nn.Module):
    # The layout of CREPE "tiny": six long convolutions with batch norms, then a classifier of 360 pitches.
    def __init__(self):
        super().__init__()
        sizes = [1, 128, 16, 16, 16, 32, 64]
        self.convs = nn.ModuleList(nn.Conv1d(a, b, 64, 4 if a == 1 else 1, 31) for a, b in zip(sizes, sizes[1:]))
        self.norms = nn.ModuleList(map(nn.BatchNorm1d, sizes[1:]))
        self.head = nn.LazyLinear(360)
    def forward(self, x):
        h = x[:, None]
        for conv, norm in zip(self.convs, self.norms):
            h = nn.functional.max_pool1d(norm(conv(h).relu()), 2)
        return self.head(h.flatten(1)).sigmoid()

def pitch():
    torch.manual_seed(0)
    model, x = Pitch(), torch.randn(4, 1024)
    model(x)  # sets the running statistics and the head's width
    with torch.no_grad():  # a trained model's effects span many orders of magnitude
        for norm in model.norms:
            norm.weight.copy_(torch.logspace(0, -5, len(norm.weight)))
    return model.eval(), x

def of_transformers(name, **fields):
    import transformers
    torch.manual_seed(0)
    config = getattr(transformers, name + "Config")(**fields)
    kind = "Model" if name in ("Bert",) else "ForCausalLM" if name != "GPT2" else "LMHeadModel"
    return getattr(transformers, name + kind)(config).eval(), torch.randint(3, 90, (2, 16))
"""
_SMALL = "hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4, vocab_size=100"
_AUDIT = """
{model}
import addnorm
if {warm}:  # the exporter is loaded once
    addnorm.audit(model, x)
START()
addnorm.audit(model, x)
"""
_COMMAND = """
import addnorm.cli, os, sys
sys.stdout = open(os.devnull, "w")
START()
addnorm.cli.main({arguments})
"""
_OURS = ["--set", "seeds=[0]", "--set", "training.steps=60", "--workers", "2"]


def _audit(model: str, *, warm: bool = True) -> str:
    return _AUDIT.format(model=f"model, x = {model}", warm=warm)


TASKS = {
    "audit, pitch model of convolutions": _audit("pitch()", warm=False),
    "audit, BERT 2 x 64": _audit(f"of_transformers('Bert', {_SMALL})"),
    "audit, Qwen2 2 x 64": _audit(f"of_transformers('Qwen2', {_SMALL}, num_key_value_heads=2)"),
    "audit, GPT-2 2 x 64": _audit("of_transformers('GPT2', n_embd=64, n_layer=2, n_head=4, vocab_size=100)"),
    "plan, demo": _COMMAND.format(arguments=["plan", "demo"]),
    "run, demo, one seed of 60 steps": _COMMAND.format(arguments=["run", "demo", *_OURS]),
}
_RUNNER = """
import json, sys, time
from pathlib import Path
began = None
def START():
    global began
    began = time.perf_counter()
exec(sys.argv[1])
seconds = time.perf_counter() - began
from addnorm.training.use import peak_bytes
of_workers = [json.loads(path.read_text())["peak_bytes"] for path in Path().glob("**/DONE")]
print(json.dumps([seconds, max([peak_bytes(), *of_workers]) / 1024**3]), file=sys.stderr)
"""


def measured(tree: Path, task: str) -> tuple[float, float]:
    """Seconds and peak GB of a task with the addnorm of a tree."""
    environment = {**os.environ, "PYTHONPATH": str(tree / "src"), "JAXTYPING_DISABLE": "1"}
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-c", _RUNNER, MODELS + task]
        done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, check=True)
    seconds, gigabytes = json.loads(done.stderr.splitlines()[-1])
    return seconds, gigabytes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("earlier", type=Path, help="folder of the earlier version's repository")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--task", help="only tasks whose name contains this")
    options = parser.parse_args()
    trees = {"old": options.earlier.resolve(), "new": Path(__file__).resolve().parents[1]}
    print("| task | old, s | new, s | ratio | old, GB | new, GB | ratio |\n|---|---|---|---|---|---|---|")
    for name, task in TASKS.items():
        if options.task and options.task not in name:
            continue
        rounds = [{side: measured(tree, task) for side, tree in trees.items()} for _ in range(options.rounds)]
        cells = []
        for place, digits in ((0, 1), (1, 2)):
            old, new = (statistics.median(each[side][place] for each in rounds) for side in trees)
            ratio = statistics.median(each["new"][place] / each["old"][place] for each in rounds)
            cells += [f"{old:.{digits}f}", f"{new:.{digits}f}", f"{ratio:.2f}"]
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
