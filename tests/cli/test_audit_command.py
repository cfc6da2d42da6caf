"""`addnorm audit` as a user gives it: what it prints and writes, its exit codes, what it says of mistakes."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from addnorm.cli import main
from addnorm.redundancy.algebra.linear_map import identity
from addnorm.redundancy.graph import static_analysis as static
from addnorm.redundancy.graph.null_space import NullSpace

pytestmark = pytest.mark.compiled

MODELS = """
import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(0)


class Attention(nn.Module):
    def __init__(self, bias=True):
        super().__init__()
        self.norm = nn.LayerNorm(4)
        self.query, self.value, self.out = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4)
        self.key = nn.Linear(4, 4, bias=bias)

    def forward(self, x):
        n = self.norm(x)
        heads = [part(n).unflatten(-1, (2, 2)).transpose(1, 2) for part in (self.query, self.key, self.value)]
        return self.out(F.scaled_dot_product_attention(*heads).transpose(1, 2).flatten(2))


def model():
    return Attention(), torch.randn(3, 5, 4)


def moved():
    made = Attention()
    made.load_state_dict(FIRST.state_dict())
    with torch.no_grad():
        made.key.bias += 3
    return made, torch.randn(3, 5, 4)


def other():
    made = Attention()
    made.load_state_dict(FIRST.state_dict())
    with torch.no_grad():
        made.out.bias += 0.1
    return made, torch.randn(3, 5, 4)


def first():
    return FIRST, torch.randn(3, 5, 4)


def bare():
    return nn.Linear(4, 4, bias=False), torch.randn(2, 4)


def lost():
    made = nn.Linear(4, 4)
    with torch.no_grad():
        made.bias[0] = float("nan")
    return made, torch.randn(2, 4)


def narrow():
    return Attention(), torch.randn(3, 5, 3)


def scattered():
    made = Attention()
    made.key.to("meta")
    return made, torch.randn(3, 5, 4)


class Branching(nn.Module):
    # A branch on the data, which torch.export cannot follow, and rows that no input reads.

    def __init__(self):
        super().__init__()
        self.table, self.out = nn.Parameter(torch.randn(40, 4)), nn.Linear(4, 2)

    def forward(self, x):
        if float(x.sum()) > 1e9:
            return self.out(x)
        return self.out(x + self.table[:3].sum(0) + self.table[3:].sum(0) * (x.abs().max() > 1e9))


def branching():
    return Branching(), torch.randn(3, 5, 4)


FIRST = Attention()
"""


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    Path("attention_models.py").write_text(MODELS, encoding="utf-8")
    yield
    sys.modules.pop("attention_models", None)


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(["audit", *arguments])
    out, err = capsys.readouterr()
    return code, out, err


def test_json_has_the_documented_keys(capsys):
    """Of norm, q, k, v, o (5 x 4): q's 4 conditions and o's 4 hold: 4 with q, 4 of k, 4 of v with o are left."""
    code, out, _ = said(capsys, "attention_models:model", "--json")
    found = json.loads(out)
    assert code == 0
    assert {"model", "joint_null", "size", "assumptions", "findings", "certificate", "target"} <= set(found)
    assert (found["model"], found["size"], found["joint_null"]) == ("Attention", 20, 12)
    keys = {"parameter", "verdict", "size", "redundant_dof", "absorbable_dof", "directions", "fold_into", "blocked_by"}
    assert all(keys <= set(finding) for finding in found["findings"])
    verdicts = {finding["parameter"]: finding["verdict"] for finding in found["findings"]}
    assert verdicts == {
        "norm.bias": "foldable",
        "query.bias": "foldable",
        "key.bias": "redundant",
        "value.bias": "foldable",
        "out.bias": "foldable",
    }
    assert found["target"] == {"name": "attention_models:model", "kind": "function", "shrunk": "", "notes": []}
    assert found["notes"][0].startswith("analysed at full size, within about ")


def test_the_table_and_the_files(capsys):
    code, out, _ = said(
        capsys, "attention_models:model", "--strip", "s.safetensors", "--sarif", "a.sarif", "--html", "a.html"
    )
    assert code == 0, out
    assert "Attention: of 20 bias scalars, 12 (60 %) can be given up together" in out
    assert "Certificate PASSED" in out
    results = json.loads(Path("a.sarif").read_text(encoding="utf-8"))["runs"][0]["results"]
    assert [result["ruleId"] for result in results].count("redundant") == 1
    assert "Audit of Attention" in Path("a.html").read_text(encoding="utf-8")
    from safetensors import safe_open

    with safe_open("s.safetensors", "pt") as file:
        names, told = set(file.keys()), file.metadata()
        state = {name: file.get_tensor(name) for name in names}
    removed, zeroed = json.loads(told["removed"]), json.loads(told["zeroed"])
    assert "key.bias" in {*removed, *zeroed}
    assert not names & set(removed)
    assert all(not state[name].any() for name in zeroed)


def test_what_is_written_computes_the_same(capsys):
    code, _, _ = said(capsys, "attention_models:first", "--strip", "s.safetensors")
    assert code == 0
    module = sys.modules["attention_models"]
    from safetensors.torch import load_file

    smaller = module.Attention()
    state = load_file("s.safetensors")
    missing = smaller.load_state_dict(state, strict=False).missing_keys
    assert missing
    with torch.no_grad():
        for name in missing:
            smaller.get_parameter(name).zero_()
    x = torch.randn(2, 7, 4)
    torch.testing.assert_close(smaller(x), module.FIRST(x))


@pytest.mark.parametrize(
    ("second", "code", "told"),
    [
        ("moved", 0, "differ only where it cannot matter"),
        ("first", 0, "are the same in every parameter"),
        ("other", 1, "are different models: out.bias is"),
    ],
)
def test_diff(capsys, second, code, told):
    found, out, _ = said(capsys, "--diff", "attention_models:first", f"attention_models:{second}")
    assert found == code
    assert told in out


def test_diff_as_json(capsys):
    code, out, _ = said(capsys, "--diff", "attention_models:first", "attention_models:moved", "--json")
    found = json.loads(out)
    assert code == 0
    assert found["equivalent"] is True
    assert found["moved"] == pytest.approx(3)
    assert found["difference"] < found["bound"]
    assert found["a"]["name"] == "attention_models:first"


def test_exit_1_when_the_methods_disagree(capsys, monkeypatch):
    """A static method that claims everything is refuted by moving along the claim."""
    honest = static.analyse

    def boastful(*arguments, **options):
        found = honest(*arguments, **options)
        everything = NullSpace(
            found.space.tracked,
            {each.name: {at: identity(each.size)} for at, each in enumerate(found.space.tracked.entries)},
        )
        return replace(found, space=everything)

    monkeypatch.setattr(static, "analyse", boastful)
    code, out, _ = said(capsys, "attention_models:model")
    assert code == 1
    assert "! The methods disagree" in out


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "expected one TARGET, or two with --diff"),
        (["a:b", "--diff", "a:b", "a:c"], "expected one TARGET, or two with --diff"),
        (["nowhere"], "expected a target, got 'nowhere'"),
        (["attention_models:nope"], "no function 'nope'"),
        (["transformers:BertModel", "--config", "{"], "--config: expected a JSON object"),
        (["transformers:BertModel", "--config", "3"], "--config: expected a JSON object"),
        (["attention_models:model", "--config", "{}"], "--config: expected a transformers:CLASS"),
        (["attention_models:model", "--inputs", "no.json"], "--inputs no.json cannot be read"),
        (["attention_models:model", "--track", "("], "regular expression"),
        (
            ["attention_models:model", "--strip", "no/folder.safetensors"],
            "expected a file in an existing folder, got no/folder.safetensors",
        ),
        (["attention_models:model", "--html", "."], "expected a file in an existing folder"),
        (["attention_models:bare", "--strip", "s.safetensors"], "nothing can be removed from it"),
        (["attention_models:bare", "--track", "nothing"], "expected parameters whose name matches 'nothing'"),
        (["attention_models:lost"], "NaN"),
        (["attention_models:narrow"], "inputs"),
        (["attention_models:scattered"], "cpu, meta"),
    ],
)
def test_a_mistake_is_one_message(capsys, arguments, told):
    code, out, err = said(capsys, *arguments)
    assert code == 2, err
    assert err.startswith("addnorm: ")
    assert told.lower() in err.lower()
    assert "Traceback" not in out + err


def test_a_model_that_does_not_export_says_so_and_is_no_disagreement(capsys):
    """40 rows of a table of which three are read: nobody contradicts anybody, so the exit code is 0."""
    code, out, _ = said(capsys, "attention_models:branching", "--track", "table|bias", "--json")
    found = json.loads(out)
    assert code == 0
    assert found["methods"] == "numeric"
    assert any("does not export, so only the numerical method ran" in note for note in found["notes"])
    verdicts = {each["parameter"]: each["verdict"] for each in found["findings"]}
    assert verdicts["table"] == "undecided"
    assert found["disagreements"] == []


def test_inputs_from_a_file(capsys):
    Path("spec.json").write_text('{"0": {"shape": [2, 6, 4]}}', encoding="utf-8")
    code, out, _ = said(capsys, "attention_models:model", "--inputs", "spec.json", "--json")
    assert code == 0
    assert json.loads(out)["joint_null"] == 12


def test_a_run_of_ours(capsys, finished):
    from addnorm.store import StudyFolder

    run = StudyFolder(finished).runs()[0]
    code, out, _ = said(capsys, str(run.path))
    assert code == 0
    assert "has no bias scalars, so nothing can be given up" in out  # the base model of that study


def test_a_model_without_biases_is_told_so(capsys):
    code, out, err = said(capsys, "attention_models:bare", "--sarif", "a.sarif", "--html", "a.html")
    assert (code, err) == (0, "")
    assert "Linear has no bias scalars, so nothing can be given up." in out
    assert "--track" not in out
    assert json.loads(Path("a.sarif").read_text(encoding="utf-8"))["runs"][0]["results"] == []
    assert "has no bias scalars" in Path("a.html").read_text(encoding="utf-8")
    code, out, _ = said(capsys, "attention_models:bare", "--json")
    assert (code, json.loads(out)["findings"]) == (0, [])


SIZES = {"num_hidden_layers": 3, "hidden_size": 8, "num_attention_heads": 2, "intermediate_size": 12, "vocab_size": 20}
SIZES |= {"max_position_embeddings": 16}


def test_what_does_not_fit_into_memory_is_analysed_shrunk_and_says_so(capsys):
    """Two layers less of about a thousand numbers each, 26 bytes for each: between the two sizes."""
    arguments = ["transformers:BertModel", "--config", json.dumps(SIZES), "--memory", "5e-5", "--methods", "static"]
    code, out, _ = said(capsys, *arguments, "--json")
    found = json.loads(out)
    assert code == 0
    assert found["target"]["shrunk"] == "2 layers"
    assert found["notes"][0].startswith("analysed in a reduced configuration of 2 layers with random weights")
    verdicts = {each["parameter"]: each["verdict"] for each in found["findings"]}
    assert verdicts["encoder.layer.1.attention.self.key.bias"] == "redundant"
    assert not any("layer.2." in name for name in verdicts)


def test_a_reduced_analysis_is_transferred_and_certified_at_full_size(capsys):
    arguments = ["transformers:BertModel", "--config", json.dumps(SIZES), "--memory", "5e-5", "--methods", "static"]
    code, out, _ = said(capsys, *arguments, "--strip", "s.safetensors", "--json")
    found = json.loads(out)
    assert code == 0
    assert "its rewrite was transferred to the full weights and certified there" in found["notes"][0]
    certificate = found["certificate"]
    assert certificate["passed"]
    assert [row["dtype"] for row in certificate["compared"]] == ["float64", "float32"]
    assert {f"encoder.layer.{at}.attention.self.key.bias" for at in range(3)} <= set(certificate["removed"])
    from safetensors import safe_open

    with safe_open("s.safetensors", "pt") as file:
        names = set(file.keys())
    assert "encoder.layer.2.attention.self.query.weight" in names
    assert not names & set(certificate["removed"])


@pytest.mark.parametrize("extra", [["--diff", "transformers:BertModel", "transformers:BertModel"]])
def test_a_comparison_that_does_not_fit_is_refused(capsys, extra):
    code, _, err = said(capsys, *extra, "--config", json.dumps(SIZES), "--memory", "5e-5")
    assert code == 2
    assert "--diff compares the weights of transformers:BertModel at full size" in err


def test_a_model_of_the_users_own_that_does_not_fit_is_refused(capsys):
    code, _, err = said(capsys, "attention_models:model", "--memory", "1e-9")
    assert code == 2
    assert "takes about" in err
    assert "Allow more with --memory" in err
