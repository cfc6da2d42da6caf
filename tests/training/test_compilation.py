"""Compiled training: used where it can be, and elsewhere a reason in the run's record. The tracer is real; the compiler of its
graphs is torch's own interpreter, but for one thorough case."""

import copy
import io
import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from addnorm import cli, preset
from addnorm.data.corpora.synthetic import Synthetic
from addnorm.study.definition import Study, Training
from addnorm.study.expansion import run_identity
from addnorm.training.loop import compiled
from addnorm.training.run_spec import run_spec
from sampled import sampled
from synthetic_run import synthetic_run
from train_here import train_here

pytestmark = pytest.mark.compiled

SIZES: dict[str, Any] = {"vocab": 32, "width": 16, "depth": 2, "heads": 2, "kv_heads": 1, "hidden": 16, "max_seq": 16}


@pytest.fixture
def interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("addnorm.training.loop.torch.compile", partial(torch.compile, backend="aot_eager"))


def gradients(model: torch.nn.Module, module: torch.nn.Module) -> list[torch.Tensor]:
    tokens = torch.randint(32, (2, 8), generator=torch.Generator().manual_seed(0))
    torch.manual_seed(1)
    module(tokens).square().sum().backward()
    found = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    model.zero_grad(set_to_none=True)
    return found


def loss(module: torch.nn.Module) -> torch.Tensor:
    total: torch.Tensor = module(torch.zeros(2, 8, dtype=torch.int64)).sum()
    return total


@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize("changes", sampled(2, [{"scores": "weighted", "attention": "sdpa"}, {}]), ids=str)
def test_a_compiled_model_has_the_gradients_of_the_model(changes: dict[str, Any]) -> None:
    model = preset("llama", **SIZES, **changes).build(seed=0).train()
    module, reason = compiled(model, loss)
    assert reason is None
    assert module is not model
    assert all(parameter.grad is None for parameter in model.parameters()), "the trial leaves nothing"
    pairs = zip(gradients(model, module), gradients(model, model), strict=True)
    assert all(torch.equal(one, other) for one, other in pairs)


@pytest.mark.thorough
@pytest.mark.usefixtures("interpreted")
def test_stored_products_are_made_again_in_a_compiled_model() -> None:
    model = preset("llama", **SIZES, scores="weighted").build(seed=0).train().double()
    module, reason = compiled(model, loss)
    assert reason is None
    found = gradients(model, module)
    assert model.product_buffers.nbytes == 0
    torch.testing.assert_close(found, gradients(model, model), rtol=1e-9, atol=1e-9)
    assert model.product_buffers.nbytes > 0


@pytest.mark.usefixtures("interpreted")
def test_what_cannot_be_traced_is_not_compiled_and_says_why() -> None:
    model = preset("llama", **SIZES, scores="weighted").build(seed=0).train()
    model.recompute = True  # layers hand scores on from within the checkpointed part
    module, reason = compiled(model, loss)
    assert module is model
    assert reason is not None
    assert reason.startswith("Unsupported: ")
    assert "\n" not in reason


def test_a_batch_that_does_not_fit_is_no_reason_to_train_uncompiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("addnorm.training.loop.torch.compile", lambda model, **settings: model)

    def trial(module: torch.nn.Module) -> torch.Tensor:
        raise torch.OutOfMemoryError("no room")

    with pytest.raises(torch.OutOfMemoryError, match="no room"):
        compiled(preset("llama", **SIZES).build(seed=0), trial)


def study(name: str, **training: Any) -> Study:
    settings = {"steps": 4, "batch": 2, "seq": 16, "eval_sequences": 2, **training}
    return Study(
        name=name,
        seeds=(0,),
        variants={"base": preset("llama", **SIZES)},
        corpus=Synthetic(),
        training=Training(**settings),
    )


def test_a_run_without_a_compiler_says_why_and_trains(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def none(model: torch.nn.Module, **settings: Any) -> torch.nn.Module:
        class Uncompilable(torch.nn.Module):
            def forward(self, tokens: torch.Tensor) -> torch.Tensor:
                raise RuntimeError("InvalidCxxCompiler: no working C++ compiler\nHint: install one")

        return Uncompilable()

    monkeypatch.setattr("addnorm.training.loop.torch.compile", none)
    (run,) = train_here(study("without", compile=True), tmp_path / "without").runs()
    (plain,) = train_here(study("plain"), tmp_path / "plain").runs()
    ending, expected = run.ending(), plain.ending()
    assert ending is not None
    assert expected is not None
    assert ending["content_hash"] == expected["content_hash"]
    why = "RuntimeError: InvalidCxxCompiler: no working C++ compiler"
    recorded = [json.loads(line) for line in run.events_path.read_text().splitlines()]
    assert [(event["type"], event["reason"]) for event in recorded if "compiled" in event["type"]] == [
        ("not_compiled", why)
    ]
    assert (run.env or {})["compile"] == f"no: {why}"
    assert (plain.env or {})["compile"] == "no"
    assert run_identity(run_spec(run)) != run_identity(run_spec(plain)), "compiled training changes the last bits"
    assert [of.status().uncompiled for of in (run, plain)] == [why, None]
    assert [cli.main(["status", str(tmp_path / name)]) for name in ("without", "plain")] == [0, 0]
    assert capsys.readouterr().out.count(f"training.compile: trained uncompiled: {run.name}\n  | {why}\n") == 1


@pytest.mark.soak  # inductor writes and compiles the C++ of three steps, for a minute
@pytest.mark.filterwarnings("default")  # torch's tracer and its compiler warn of their own code
def test_a_compiled_training_resumes_to_the_same_bits(tmp_path: Path) -> None:
    from addnorm.data import prepare
    from addnorm.data.tokenizers.bytes import Bytes
    from addnorm.training.loop import Trainer, content_hash

    dataset = prepare(Synthetic(), Bytes(), tmp_path / "data")
    model = preset("llama", **{**SIZES, "vocab": 257, "depth": 1}, dropout=0.1, scores="weighted")
    spec = synthetic_run(dataset, model, Training(steps=8, batch=2, seq=16, compile=True))
    whole, resumed = (Trainer(spec, dataset, torch.device("cpu")) for _ in range(2))
    assert whole.compile() is None
    for _ in range(2):
        whole.train_step()
    buffer = io.BytesIO()
    torch.save(copy.deepcopy(whole.state()), buffer)
    whole.train_step()
    torch._dynamo.reset()
    buffer.seek(0)
    resumed.load_state(torch.load(buffer, weights_only=True))
    assert resumed.compile() is None
    resumed.train_step()
    assert content_hash(resumed.model.state_dict()) == content_hash(whole.model.state_dict())
