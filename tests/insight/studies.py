"""Studies whose runs look finished although nothing was trained: the weights are those of the start."""

from pathlib import Path

from addnorm.store import RunFolder, StudyFolder
from addnorm.study.decoding import decode
from addnorm.study.definition import RunSpec
from addnorm.study.loading import load_study
from addnorm.supervision.prepared import prepare_study
from addnorm.training.checkpoint import save_final

TEXT = """
name: untrained
references: [plain]
seeds: [0, 1, 2]
corpus: {kind: synthetic, task: induction, num_documents: 40}
tokenizer: bytes
training: {steps: 2, batch: 2, seq: 16, eval_sequences: 4}
model: {preset: base, width: 16, depth: 2, heads: 2, kv_heads: 1, hidden: 16, max_seq: 16, init_std: 0.3}
variants:
  plain: {}
"""


def untrained(folder: Path, variants: str = "", **changes: str) -> StudyFolder:
    """A study's folder with every run finished.

    Args:
        variants: lines of YAML below `plain`.
        changes: a top-level field's new text, by its name.
    """
    lines = [
        f"{line.partition(':')[0]}: {changes[line.partition(':')[0]]}" if line.partition(":")[0] in changes else line
        for line in TEXT.strip().splitlines()
    ]
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "study.yaml"
    file.write_text("\n".join(lines) + "\n" + variants, encoding="utf-8")
    study = load_study(file)
    found = StudyFolder.create(folder / "runs", prepare_study(study, folder / "runs").plan)
    for run in found.runs():
        finish(run)
    return found


def finish(run: RunFolder) -> None:
    """Give the run the weights that it would have started with."""
    spec = decode(RunSpec, run.spec["spec"])
    model = spec.model.build(spec.seed)
    for name, parameter in model.named_parameters():
        if name.endswith(("qk_bias.q", "qk_bias.k", "qk_bias.qk")):
            # Biases start at zero: move them, each by its own amount.
            parameter.data.copy_(
                0.5 + 0.1 * parameter.data.new_tensor(range(parameter.numel())).view_as(parameter).sin()
            )
    with run.claim() as events:
        save_final(run.final_path, model.state_dict())
        events.write("eval", step=2, loss=5.0, accuracy=0.1, perplexity=148.0, final=True)
        run.mark("finished", step=2, content_hash=run.name)
