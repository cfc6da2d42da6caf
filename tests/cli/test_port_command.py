"""`addnorm port`: what `addnorm.equal_to` finds, for models that are named on the command line."""

import json
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

import addnorm
from addnorm.cli import main
from addnorm.cli.list import schemas
from addnorm.words import phrases

MODELS = """
import torch
from torch import nn

class Block(nn.Module):
    def __init__(self, names, gain):
        super().__init__()
        self.names, self.gain = names, gain
        for name in names:
            setattr(self, name, nn.Linear(6, 6, bias=name != names[-1]))

    def forward(self, x):
        first, second, last = (getattr(self, name) for name in self.names)
        x = x + first(torch.tanh(x))
        x = x + self.gain * second(torch.relu(x))
        return last(x)

def made(names, gain, seed):
    torch.manual_seed(seed)
    return Block(names, gain), torch.linspace(-1, 1, 2 * 5 * 6).sin().reshape(2, 5, 6)

def original():
    return made(["up", "down", "head"], 1.0, 0)

def same():
    return made(["inner", "outer", "out"], 1.0, 1)

def wrong():
    return made(["inner", "outer", "out"], 2.0, 0)

def alone():
    return made(["up", "down", "head"], 1.0, 0)[0]

def wider():
    return nn.Linear(6, 7), torch.zeros(2, 5, 6)
"""


@pytest.fixture
def models(tmp_path: Path) -> str:
    (tmp_path / "port.py").write_text(MODELS, encoding="utf-8")
    return str(tmp_path / "port.py")


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(["port", *arguments])
    return code, *capsys.readouterr()


def test_an_equal_port_is_equal_and_another_one_is_placed(models: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = said(capsys, f"{models}:original", f"{models}:same", "--json")
    answer = json.loads(out)
    assert (code, answer["equal"], answer["first_difference"], answer["copied"]) == (0, True, None, True)
    code, out, _ = said(capsys, f"{models}:original", f"{models}:wrong", "--json")
    answer = json.loads(out)
    Draft202012Validator(schemas()["port"]).validate(answer)
    assert (code, answer["equal"]) == (1, False)
    found = answer["first_difference"]
    # The second sum is the first that differs: what its matrix gives is still the same.
    assert (found["check"], found["theirs"], found["last_equal"]) == ("logits", "out", "output of down")
    code, out, _ = said(capsys, f"{models}:original", f"{models}:wrong")
    assert code == 1
    assert found["text"] in out


def test_the_answer_has_words_in_both_languages(models: str, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = said(capsys, f"{models}:original", f"{models}:wrong", "--lang", "zh")
    assert out.startswith("两个模型不同。logits：最先不同之处是 head 与 out 的输入")
    assert {key for key in phrases("en").words if key.startswith("port.")} == {
        key for key in phrases("zh").words if key.startswith("port.")
    }


def test_a_wrong_pair_is_corrected_by_its_name(models: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = said(capsys, f"{models}:original", f"{models}:same", "--map", "up.bias=outer.bias", "--json")
    pairs = {pair["ours"]: pair["theirs"] for pair in json.loads(out)["pairs"]}
    assert pairs["up.bias"] == "outer.bias"
    assert code == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["{m}:original", "{m}:nothing"], "nothing"),
        (["{m}:original", "{m}:alone"], "expected inputs beside the model, got none"),
        (["{m}:original", "{m}:wider"], "expected"),
        (["{m}:original", "{m}:same", "--map", "up.bias"], "--map: expected two names of parameters as FIRST=SECOND"),
        (["{m}:original", "{m}:same", "--map", "a=b", "--map", "a=c"], "--map: expected one partner of a, got b and c"),
        (["{m}:original", "{m}:same", "--map", "none=inner.bias"], "none"),
        (
            ["{m}:original", "{m}:same", "--config", "{}"],
            "--config: expected a transformers:CLASS among the two models",
        ),
        (["{m}:original", "transformers:LlamaForCausalLM", "--config", "[]"], "--config: expected a JSON object"),
    ],
)
def test_wrong_input_gives_one_message(
    arguments: list[str], message: str, models: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = said(capsys, *(each.replace("{m}", models) for each in arguments))
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1
    assert "Traceback" not in err


def test_the_command_gives_what_the_function_does(models: str, capsys: pytest.CaptureFixture[str]) -> None:
    from addnorm.outside.targets import resolve

    one, other = (resolve(f"{models}:{name}") for name in ("original", "wrong"))
    result = addnorm.equal_to(one.model, other.model, one.inputs)
    _, out, _ = said(capsys, f"{models}:original", f"{models}:wrong")
    assert out == result.text + "\n"
