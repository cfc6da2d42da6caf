"""lm-evaluation-harness's `hf` model on an exported run, with a task made on the spot.

Needs the extra `harness`, which is too large for every clone: `make harness` installs it and runs this file.
"""

import json
from pathlib import Path

import pytest
import torch
import transformers

import addnorm
import addnorm.hf
from addnorm.cli import main
from addnorm.store import StudyFolder

pytest.importorskip("lm_eval")
pytest.importorskip("accelerate")  # of lm_eval[hf]

pytestmark = pytest.mark.filterwarnings("default")  # those of the harness and its data sets are its own

QUESTIONS = [("The cat", [" sat", " flew"]), ("One two", [" three", " blue", " x"]), ("A", ["b", "c"])]
TASK = """
task: made_here
dataset_path: json
dataset_kwargs: {{data_files: {{test: {file}}}}}
test_split: test
output_type: multiple_choice
doc_to_text: "{{{{question}}}}"
doc_to_choice: "{{{{choices}}}}"
doc_to_target: 0
target_delimiter: ""
metric_list: [{{metric: acc, aggregation: mean, higher_is_better: true}}]
"""


def log_likelihood(model: torch.nn.Module, question: str, answer: str) -> float:
    """Of the answer's bytes after the question's, by our own model."""
    before, after = list(question.encode()), list(answer.encode())
    with torch.no_grad():
        scores = model(torch.tensor([before + after]))[0].log_softmax(-1)
    return float(sum(scores[len(before) + place - 1, token] for place, token in enumerate(after)))


@pytest.mark.parametrize("variant", ["base", "v4m5"])
def test_the_harness_finds_our_likelihoods(variant: str, finished: Path, tmp_path: Path, monkeypatch) -> None:
    from lm_eval import simple_evaluate
    from lm_eval.models.huggingface import HFLM
    from lm_eval.tasks import TaskManager

    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    run = next(run.path for run in StudyFolder(finished).runs() if run.spec["variant"] == variant)
    folder = tmp_path / "exported"
    assert main(["export", str(run), "--format", "hf", "--to", str(folder)]) == 0
    rows = [json.dumps({"question": question, "choices": choices}) for question, choices in QUESTIONS]
    (tmp_path / "rows.json").write_text("\n".join(rows))
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks" / "made_here.yaml").write_text(TASK.format(file=tmp_path / "rows.json"))
    found = simple_evaluate(
        model=HFLM(
            pretrained=transformers.AutoModelForCausalLM.from_pretrained(folder),
            tokenizer=transformers.AutoTokenizer.from_pretrained(folder),
            device="cpu",
            max_length=16,
        ),
        tasks=["made_here"],
        task_manager=TaskManager(include_path=str(tmp_path / "tasks"), include_defaults=False),
        bootstrap_iters=0,
    )
    ours = addnorm.load_hf(folder)
    for sample, (question, choices) in zip(found["samples"]["made_here"], QUESTIONS, strict=True):
        expected = [log_likelihood(ours, question, choice) for choice in choices]
        assert [response[0] for response in sample["filtered_resps"]] == pytest.approx(expected, abs=1e-4)
    assert 0 <= found["results"]["made_here"]["acc,none"] <= 1
