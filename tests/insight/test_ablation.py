"""`addnorm inspect --ablate`: neutral values make the plain model, all else stays, and intervals are over seeds."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from addnorm import ModelSpec, preset
from addnorm.cli import main
from addnorm.insight import ablation
from addnorm.insight.ablation import ABLATION, ablations, group_of, neutral_values, room_of
from addnorm.store import StudyFolder
from addnorm.testing.laws import some_tokens, subject
from addnorm.training.objective import Batch, loss_sums


def toy(**changes: Any) -> ModelSpec:
    sizes = {"vocab": 11, "width": 16, "depth": 3, "heads": 2, "kv_heads": 1, "hidden": 24, "max_seq": 16}
    norm = {"kind": "rms", "eps": 1e-30}
    return preset("llama", **(sizes | {"init_std": 0.3, "norm": norm} | changes))


def text(spec: ModelSpec) -> list[Batch]:
    tokens = some_tokens(spec)
    return [Batch(inputs=tokens[:, :-1], targets=tokens[:, 1:].contiguous(), mask=None)]


PLAIN = {"residual": "add", "values": "own"}
MADE_PLAIN = [
    ("residual", "rezero"),
    ("residual", {"kind": "lambdas", "skips": True, "backout": True}),
    ("residual", "dense"),
    ("residual", "attention"),
    ("residual", {"kind": "streams", "mixing": "free", "dynamic": False}),
    ("residual", {"kind": "streams", "mixing": "sinkhorn"}),
    ("residual", "cross"),
    ("values", {"kind": "first", "weights": "learned"}),
    ("values", "table"),
]


@pytest.mark.parametrize(("field", "kind"), MADE_PLAIN, ids=str)
def test_with_all_groups_neutral_the_model_is_the_plain_one(
    field: str, kind: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ablation, "gauges", lambda spec, groups: {list(groups)[-1]: ()})  # counted in test_gauges
    model = subject(toy(**{field: kind}))
    assert isinstance(model.spec, ModelSpec)
    batches = text(model.spec)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    found = ablations(model, model.spec.build().double(), batches)
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    plain = toy(**{field: PLAIN[field]}).build().double().eval()
    plain.load_state_dict({name: before[name] for name in plain.state_dict()})
    expected = float(loss_sums(plain(batches[0].inputs), batches[0]).loss.detach())
    *others, whole = found["groups"]
    assert whole["gauge"]
    assert not any(row["gauge"] for row in others)
    assert whole["set_to"] == "neutral"
    assert whole["loss"] == pytest.approx(expected, abs=1e-9)
    assert abs(whole["change"]) > 1e-4
    assert found["loss"] + whole["change"] == whole["loss"]


@pytest.mark.thorough  # seconds; the other tests ablate declared values
def test_numbers_without_a_declared_value_return_to_their_start() -> None:
    model = subject(toy(residual="gate"))
    assert isinstance(model.spec, ModelSpec)
    assert {row["set_to"] for row in ablations(model, model.spec.build().double(), text(model.spec))["groups"]} == {
        "neutral"
    }
    rezero = replace(model.spec, residual=toy(residual="rezero").residual)
    assert {float(value.mean()) for value in neutral_values(rezero).values()} == {1.0}
    assert neutral_values(toy()) == {}


def test_groups_join_layers() -> None:
    assert group_of("scores.log_a.3", "scores") == "scores.log_a"
    assert group_of("values.table.1.weight", "values") == "values.table.weight"
    assert room_of("layers.0.attention.body.attended.weight") == "attended"
    assert group_of("layers.0.attention.body.attended.weight", "attended") == "attended.weight"
    assert room_of("layers.0.attention.body.query.weight") is None


def test_the_command_reports_an_interval_over_seeds(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    study = tmp_path / "runs"
    shutil.copytree(finished, study)
    assert main(["inspect", str(study), "--ablate", "--sequences", "2", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    rows = {(row["variant"], row["group"]): row for row in found["over_seeds"]}
    row = rows["v4m5", "scores.log_a"]
    runs = [run for run in found["runs"] if run["variant"] == "v4m5"]
    assert row["seeds"] == len(runs)
    assert row["mean"] == pytest.approx(sum(run["groups"][0]["change"] for run in runs) / len(runs))
    assert json.loads((StudyFolder(study).runs()[0].path / ABLATION).read_text()) in found["runs"]
    assert main(["inspect", str(study), "--ablate", "--sequences", "2"]) == 0
    shown = capsys.readouterr().out
    assert "Without learned coefficients: base" in shown
    assert max(map(len, shown.splitlines())) <= 100
    assert main(["inspect", str(study), "--ablate", "--terms"]) == 2
    assert "--ablate: expected without --terms" in capsys.readouterr().err
