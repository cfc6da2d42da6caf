"""`addnorm run` on two GPUs, on one with little memory, and on cards that cannot train: each failure is one sentence, once."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

STUDY = """
name: on-paper
about: A short study on the GPU of paper.
seeds: [0, 1]
references: [base]
margin: 0.01
corpus: {kind: synthetic}
tokenizer: bytes
model: {preset: base, width: 64, depth: 2, heads: 2, kv_heads: 2, hidden: 64}
variants: {base: {}}
training: {steps: 2, batch: 2, seq: 32, precision: bfloat16, eval_every: 2, eval_sequences: 2, checkpoint_every: 2}
"""


def started(folder: Path, *settings: str, seconds: float = 300, **paper: str) -> subprocess.CompletedProcess[str]:
    """Run the study to its end on a card."""
    (folder / "study.yaml").write_text(STUDY)
    options = [part for setting in settings for part in ("--set", setting)]
    command = [sys.executable, "-m", "addnorm", "run", folder / "study.yaml", "--out", folder / "runs", *options]
    environment = {**os.environ, **paper}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=seconds, check=False)


def endings(folder: Path) -> list[dict]:
    """How every run ended."""
    marks = [path for name in ("DONE", "FAILED", "BLOCKED") for path in sorted((folder / "runs").glob(f"*/{name}"))]
    return [json.loads(path.read_text()) for path in marks]


def test_two_cards_train_a_run_each_and_say_which_way_attention_took(tmp_path: Path) -> None:
    made = started(tmp_path, PAPER_DEVICES="2")
    assert made.returncode == 0, made.stdout + made.stderr
    assert [ending["state"] for ending in endings(tmp_path)] == ["finished", "finished"]
    known = [json.loads(path.read_text()) for path in (tmp_path / "runs").glob("base*/env.json")]
    assert {env["device"] for env in known} == {"Paper GPU (sm_90)"}
    assert {env["attention"] for env in known} == {"sdpa: one layer's scores: torch's Flash kernel"}
    status = subprocess.run(
        [sys.executable, "-m", "addnorm", "status", tmp_path / "runs"], capture_output=True, text=True, check=True
    )
    assert "attention of base: sdpa: one layer's scores" in status.stdout


def test_little_memory_ends_a_run_once_with_a_sentence(tmp_path: Path) -> None:
    made = started(tmp_path, "training.batch=512", "training.seq=1024", "seeds=[0]", PAPER_GIB="1")
    assert made.returncode == 1
    (ending,) = endings(tmp_path)
    assert ending["state"] == "failed"
    assert ending["reason"].startswith("out of memory: CUDA out of memory.")
    assert ending.get("attempts", 1) == 1
    assert "Traceback" not in made.stdout + made.stderr


def test_a_kernel_that_does_not_fit_ends_a_run_once_with_a_sentence(tmp_path: Path) -> None:
    made = started(tmp_path, "model.position=alibi", "seeds=[0]", PAPER_KIB="8")
    assert made.returncode == 1
    (ending,) = endings(tmp_path)
    assert ending["reason"].startswith(
        "a kernel cannot run on this GPU; set attention to 'sdpa' or 'streaming': out of resource"
    )
    assert ending.get("attempts", 1) == 1


@pytest.mark.thorough
def test_a_small_card_trains_with_kernels(tmp_path: Path) -> None:
    made = started(tmp_path, "model.position=alibi", "model.scores=sum", "model.depth=4", "seeds=[0]", PAPER_CC="89")
    assert made.returncode == 0, made.stdout + made.stderr


@pytest.mark.parametrize(
    ("settings", "paper", "sentence"),
    [
        ((), {"PAPER_CC": "75"}, "Paper GPU (sm_75): expected a GPU of compute capability 8.0 or later, got 7.5."),
        pytest.param(
            ("model.position=alibi",),
            {"PATH": "/nowhere"},
            "attention takes 'triton', which Triton compiles: expected a C compiler, got none. Install gcc or name one in CC",
            marks=pytest.mark.thorough,
        ),
        pytest.param(
            ("model.attention=triton", "model.width=640", "model.heads=2"),
            {},
            "impl='triton' takes head_dim and value_dim up to 256, got 320 and 320.",
            marks=pytest.mark.thorough,
        ),
    ],
)
def test_what_cannot_be_trained_is_one_message_before_training(tmp_path: Path, settings, paper, sentence) -> None:
    made = started(tmp_path, *settings, **paper)
    assert made.returncode == 2, made.stdout + made.stderr
    assert made.stderr.count(sentence) == 1
    assert "Traceback" not in made.stderr
    assert not list((tmp_path / "runs").glob("base*"))
