"""Held-out loss before and after `addnorm audit --quantise-ready`: on a text of the user, or on a run's own."""

import json
import math
from pathlib import Path

import pytest
import torch
from torch import nn
from transformers import BertConfig, BertForMaskedLM, LlamaConfig, LlamaForCausalLM

import addnorm
from addnorm.cli import main
from addnorm.insight.rounded_loss import HeldOutText, rounded_loss, text_of
from addnorm.outside.hugging_face.tokenizer import _byte_engine
from addnorm.outside.targets import Target
from addnorm.store import StudyFolder
from addnorm.symmetry.bases.quantising import rounded
from addnorm.symmetry.bases.representative import quantise_ready_model

TEXT = "the cat sat on the mat and the dog sat on the log, and so on and on. " * 12
FACTOR = 200.0


def planted() -> nn.Module:
    """A Llama that has learned a text, in which one unit of every hidden layer then is much larger than the others."""
    torch.manual_seed(0)
    sizes = {"vocab_size": 256, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2}
    config = LlamaConfig(**sizes, num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64)
    model = LlamaForCausalLM(config)
    tokens = torch.tensor(list(TEXT.encode()))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(40):
        starts = torch.randint(len(tokens) - 32, (8,))
        batch = torch.stack([tokens[start : start + 32] for start in starts.tolist()])
        loss = model(input_ids=batch, labels=batch).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        for layer in model.model.layers:
            gain = layer.post_attention_layernorm.weight
            gain[::8] *= FACTOR
            for reader in (layer.mlp.gate_proj, layer.mlp.up_proj):
                reader.weight[:, ::8] /= FACTOR
            # Along the columns of the last matrix a row is rounded with one scale: here one channel decides it.
            layer.mlp.up_proj.weight[0] /= FACTOR
            layer.mlp.down_proj.weight[:, 0] *= FACTOR
    return model.eval()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("planted")
    planted().save_pretrained(made)
    _byte_engine(0).save(str(made / "tokenizer.json"))
    (made / "text.txt").write_text(TEXT)
    return made


def test_a_planted_imbalance_costs_loss_in_4_bits_and_the_rewrite_wins_it_back(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "ready"
    command = ["audit", str(folder), "--quantise-ready", str(out), "--text", str(folder / "text.txt")]
    assert main([*command, "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    held = content["certificate"]["held_out"]
    before, after = held["before"], held["after"]
    assert content["certificate"]["passed"]
    assert held["passed"]
    assert abs(after["unquantised"] - before["unquantised"]) <= held["bound"] < 1e-2
    assert before["unquantised"] < 2.0 < math.log(256), "it has learned the text"
    assert before["int4"] - before["unquantised"] > 2 * abs(after["int4"] - before["unquantised"])
    assert held["tokens"] == 12 * 64, "windows of the model's 64 positions"
    # The losses of the folder that was written, computed by its own class.
    model = LlamaForCausalLM.from_pretrained(out).eval()
    tokens = torch.tensor(list(TEXT.encode()))
    windows = torch.stack([tokens[at * 64 : at * 64 + 65] for at in range(12)])
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.copy_(rounded(parameter, 4))
        logits = model(input_ids=windows[:, :-1]).logits
    expected = nn.functional.cross_entropy(logits.flatten(0, 1), windows[:, 1:].flatten())
    assert after["int4"] == pytest.approx(float(expected), rel=1e-5)


def test_a_wrong_rewrite_is_caught(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The certificate compares other inputs than the text: a row that these never read is found by the text alone."""
    from addnorm.symmetry.bases import representative

    right = representative.quantise_ready_model

    def wrong(model: nn.Module, inputs: object, **given: object) -> representative.Representative:
        made = right(model, inputs, **given)
        with torch.no_grad():
            made.model.get_input_embeddings().weight[ord("t")] *= -1
        return made

    monkeypatch.setattr(representative, "quantise_ready_model", wrong)
    out = tmp_path / "ready"
    command = ["audit", str(folder), "--quantise-ready", str(out), "--text", str(folder / "text.txt")]
    assert main(command) == 1
    printed = capsys.readouterr().out
    assert "CERTIFICATE FAILED" in printed
    assert "Loss changed: expected the unquantised loss to differ by at most" in printed
    assert not out.exists()


def test_without_a_text_it_says_so(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", str(folder), "--quantise-ready", str(tmp_path / "ready")]) == 0
    printed = capsys.readouterr().out
    assert "No held-out loss was measured, because no text was given (--text FILE)" in printed
    assert "int4: weights" in printed
    assert main(["audit", str(folder), "--quantise-ready", str(tmp_path / "again"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["certificate"]["held_out"] is None


def test_a_run_has_held_out_text_of_its_own(finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = StudyFolder(finished).runs()[0]
    command = ["audit", str(run.path), "--quantise-ready", str(tmp_path / "ready.safetensors")]
    assert main([*command, "--json"]) == 0
    held = json.loads(capsys.readouterr().out)["certificate"]["held_out"]
    assert held["text"] == "the held-out text of the run's data"
    assert held["passed"]
    text = tmp_path / "mine.txt"
    text.write_text(TEXT)
    assert main([*command, "--text", str(text), "--force"]) == 0
    assert f"tokens of {text}, before and after" in capsys.readouterr().out


def test_masked_models_are_scored_at_masked_tokens(tmp_path: Path) -> None:
    sizes = {"vocab_size": 257, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1}
    torch.manual_seed(0)
    model = BertForMaskedLM(BertConfig(**sizes, num_attention_heads=2, max_position_embeddings=32)).eval()
    file = tmp_path / "text.txt"
    file.write_text(TEXT)
    inputs = {"input_ids": torch.arange(9)[None]}
    target = Target(name="mine.py:model", model=model, inputs=inputs, kind="function")
    text = text_of(target, file)
    assert text is not None
    assert all(batch.mask is not None and batch.inputs.max() == 256 for batch in text.batches)
    certificate = quantise_ready_model(model, inputs).certificate
    found = rounded_loss(model, model, inputs, text, certificate)
    assert found.before == found.after
    assert found.tokens == sum(int(batch.mask.sum()) for batch in text.batches if batch.mask is not None)


def test_models_are_left_as_they_are(folder: Path) -> None:
    model = LlamaForCausalLM.from_pretrained(folder).eval()
    before = {name: each.clone() for name, each in model.named_parameters()}
    inputs = {"input_ids": torch.arange(9)[None]}
    text = text_of(Target(name="x", model=model, inputs=inputs, kind="function"), folder / "text.txt")
    assert text is not None
    rounded_loss(model, model, inputs, text, quantise_ready_model(model, inputs).certificate)
    assert all(torch.equal(each, before[name]) for name, each in model.named_parameters())


class Reading(nn.Module):
    """Not a language model: every position reads all tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(256, 8)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        read = self.table(tokens)
        return (read + read.mean(1, keepdim=True)) @ self.table.weight.T


@pytest.mark.parametrize(
    ("model", "content", "expected"),
    [
        (Reading(), TEXT, "earlier outputs depend on later tokens"),
        (nn.Embedding(256, 4), "a", "expected at least 2 tokens"),
        (nn.Embedding(100, 4), TEXT, "expected token ids below 100"),
        (nn.Sequential(nn.Embedding(256, 4), nn.Flatten(1)), TEXT, "expected logits of the shape"),
    ],
    ids=["not causal", "too short", "another vocabulary", "no logits"],
)
def test_bad_texts_and_models(model: nn.Module, content: str, expected: str, tmp_path: Path) -> None:
    file = tmp_path / "text.txt"
    file.write_text(content)
    target = Target(name="mine.py:model", model=model, inputs=torch.arange(9)[None], kind="function")
    certificate = quantise_ready_model(nn.Sequential(nn.Linear(2, 2)), torch.randn(3, 2)).certificate
    with pytest.raises(addnorm.errors.InputError, match=expected):
        rounded_loss(
            model, model, target.inputs, text_of(target, file) or HeldOutText(name="", batches=()), certificate
        )


def test_a_text_alone_is_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", str(folder), "--text", str(folder / "text.txt")]) == 2
    assert "expected --quantise-ready OUT beside --text" in capsys.readouterr().err
    assert main(["audit", str(folder), "--quantise-ready", "out", "--text", "missing.txt"]) == 2
    assert "expected a UTF-8 text in missing.txt" in capsys.readouterr().err
