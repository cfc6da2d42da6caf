"""One pass through each room whose own tests run without the shape checker: its annotations are true of what it computes."""

from pathlib import Path

import pytest
import torch
from torch import nn

import addnorm
from addnorm.catalogue import ROOMS
from addnorm.data import prepare
from addnorm.data.corpora.synthetic import Synthetic
from addnorm.insight.extrapolation.extrapolate import extrapolate
from addnorm.insight.scalars.explain import explain
from addnorm.insight.score_terms.inspect import inspect_terms
from addnorm.statistics import Result, rank
from addnorm.statistics.seeds_in_stages import SeedsInStages
from addnorm.store import StudyFolder
from addnorm.study.loading import load_study
from addnorm.supervision.prepared import prepare_study
from addnorm.training.attempt import Attempt
from addnorm.training.exit_code import ExitCode

STUDY = """
name: shapes
references: [plain]
seeds: [0, 1]
corpus: {kind: synthetic, task: induction, num_documents: 40}
tokenizer: bytes
training: {steps: 3, batch: 2, seq: 16, eval_sequences: 4, eval_every: 2}
model: {preset: base, width: 16, depth: 2, heads: 2, kv_heads: 1, hidden: 16, max_seq: 16, bias: {q: true, k: true}}
variants:
  plain: {}
  masked: {objective: masked, scores: weighted, residual: rezero}
"""


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> StudyFolder:
    """A study that was trained in this process, where the checker is on; workers in their own have none."""
    folder = tmp_path_factory.mktemp("shapes")
    (folder / "study.yaml").write_text(STUDY, encoding="utf-8")
    out = folder / "runs"
    study = StudyFolder.create(out, prepare_study(load_study(folder / "study.yaml"), out).plan)
    for run in study.runs():
        with run.claim() as events:
            assert Attempt(run, events, lambda: False, ()).train() == ExitCode.DONE
    return study


def test_the_checker_is_on() -> None:
    with pytest.raises(TypeError, match=r"(?i)type-?check"):
        rank(3, references=["base"])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "tokenizer", [kind for kind in ROOMS["tokenizer"].kinds() if kind != "pretrained"]
)  # needs a file
def test_data(tokenizer: str, tmp_path: Path) -> None:
    made = ROOMS["tokenizer"].make(tokenizer, **({"vocab": 260} if tokenizer == "bpe" else {}))
    assert prepare(Synthetic(num_documents=20), made, tmp_path / "data").vocab >= 256


@pytest.mark.parametrize("kind", ROOMS["schedule"].kinds())
def test_optimization(kind: str) -> None:
    assert ROOMS["schedule"].make(kind).factors(20).shape == (20,)


def test_training(study: StudyFolder) -> None:
    assert {status.state for status in study.statuses()} == {"finished"}


def test_insight(study: StudyFolder) -> None:
    assert len(addnorm.inspect(study.path)["runs"]) == 4
    assert inspect_terms(study.runs()[0].path)
    assert explain(study.path)["runs"]
    assert extrapolate(study.path, lengths="1x,2x", windows=2, workers=1)["rows"]


def test_redundancy() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 6), nn.LayerNorm(6), nn.Linear(6, 3))
    audit = addnorm.audit(model, torch.randn(5, 4), methods="numeric")
    assert audit.finding("0.bias").redundant_dof == 1


def test_statistics() -> None:
    losses = [("base", 2.0), ("good", 1.9), ("twin", 2.0)]
    results = [
        Result(variant=variant, seed=seed, loss=loss + 0.001 * (seed * at % 5))
        for at, (variant, loss) in enumerate(losses, start=1)
        for seed in range(4)
    ]
    assert rank(results, references=["base"])["good"].tier.label == "above base"
    assert rank(results[1:], references=["base"]).variants
    design = SeedsInStages.planned((0, 1, 2), 6)
    stages = rank(results, references=["base"], design=design).stages
    assert stages is not None
    assert stages.complete == 2
