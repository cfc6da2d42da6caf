"""The smallest study of two runs: what is done to its files is the subject of its tests."""

from pathlib import Path

from addnorm.cli import main
from train_here import workers_here

SMALL_STUDY = """
name: small
seeds: [0]
corpus: {kind: synthetic, num_documents: 20}
tokenizer: bytes
training: {steps: 6, batch: 1, seq: 8, log_every: 1, eval_every: 3, eval_sequences: 1, checkpoint_every: 2}
model: {preset: base, width: 8, depth: 1, heads: 1, kv_heads: 1, hidden: 8, max_seq: 8}
variants:
  a: {}
  b: {residual: rezero}
"""


def trained_small(folder: Path) -> Path:
    """Folder of the study that nothing disturbed, beside its file `s.yaml`."""
    (folder / "s.yaml").write_text(SMALL_STUDY, encoding="utf-8")
    with workers_here():
        assert main(["run", str(folder / "s.yaml"), "--out", str(folder / "calm")]) == 0
    return folder / "calm"
