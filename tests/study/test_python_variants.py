"""`python: FILE.py:FUNCTION`, a module of the user's own as a variant: contract, start, identity, training."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from starlette.testclient import TestClient

import addnorm
from addnorm.cli import main
from addnorm.data import Dataset
from addnorm.data.tokenizers.bytes import Bytes
from addnorm.errors import InputError
from addnorm.outside.foreign.python import Python
from addnorm.reporting.sections.report.reproduce import study_content
from addnorm.roles import roles
from addnorm.store import StudyFolder
from addnorm.study.expansion import expand, fit_models, run_identity, run_name
from addnorm.study.loading import load_study
from addnorm.training.loop import Trainer, content_hash
from addnorm.training.run_weights import newest_weights
from addnorm.web.app import application
from train_here import train_here

MODULE = """
import random
import torch
from torch import nn


class Mixer(nn.Module):
    def __init__(self, vocab, width):
        super().__init__()
        self.table = nn.Parameter(torch.randn(vocab, width))
        self.inner = nn.Linear(width, width)
        self.out = nn.Parameter(torch.randn(width, vocab) * 0.1)
        self.drop = nn.Dropout(0.1)
        self.calls = 0
{init}
    def forward(self, tokens):
        x = nn.functional.embedding(tokens, self.table)
        before = x.cumsum(1) / torch.arange(1, tokens.shape[1] + 1)[:, None]
        x = x + self.drop(torch.relu(self.inner(before)))
{forward}
        return x @ self.out


def build(vocab, max_seq, width=8):
{build}    return Mixer(vocab, width)
"""
STUDY = """
name: own
references: [mine]
seeds: [0]
corpus: {kind: synthetic, num_documents: 20}
training: {steps: 4, batch: 2, seq: 16, log_every: 2, eval_every: 4, eval_sequences: 4, checkpoint_every: 2}
variants:
  mine: {model: {python: "NAME.py:build"}}
  wide: {python: "NAME.py:build", options: {width: 12}}
  ours: {preset: base, width: 16, depth: 2, heads: 2, kv_heads: 1, hidden: 16}
"""


def write(folder: Path, name: str, *, init: str = "", forward: str = "", build: str = "") -> Path:
    """A study and its module, whose name is unlike that of every other test: a process knows a module by it."""
    lines = {"init": (8, init), "forward": (8, forward), "build": (4, build)}
    parts = {part: "".join(f"{' ' * by}{line}\n" for line in text.splitlines()) for part, (by, text) in lines.items()}
    (folder / f"{name}.py").write_text(MODULE.format(**parts))
    file = folder / f"{name}.yaml"
    file.write_text(STUDY.replace("NAME", name))
    return file


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> StudyFolder:
    folder = tmp_path_factory.mktemp("own")
    return train_here(load_study(write(folder, "mixer")), folder / "out")


def test_a_module_is_trained_and_ranked_beside_ours(trained: StudyFolder, capsys: Any) -> None:
    assert {entry["state"] for entry in trained.status()["runs"]} == {"finished"}
    assert main(["rank", str(trained.path)]) == 0
    out = capsys.readouterr().out
    assert all(name in out for name in ("mine", "wide", "ours"))


@pytest.mark.thorough
def test_a_module_is_in_the_report(trained: StudyFolder) -> None:
    html = addnorm.report(trained.path).html.read_text(encoding="utf-8")
    assert "mixer.py:build" in html


def test_a_modules_page_says_what_is_not_known_of_it(trained: StudyFolder) -> None:
    site = TestClient(application(trained.path), base_url="http://127.0.0.1:8321")
    mine, ours = (site.get(f"/model?variant={name}").text for name in ("mine", "ours"))
    overview = site.get("/").text
    assert "A module of the user&#39;s own: mixer.py:build" in mine
    assert (
        mine.count("Not measured: this needs the parts of a model of addnorm") == 2
    )  # depth matrices and terms of scores
    assert "as in a standard Transformer" not in mine
    assert "<code>residual.kind</code>" not in mine, "what a module does not have is no difference"
    assert "as in a standard Transformer" in ours
    assert "Not measured: this needs the parts" not in ours
    assert all(name in overview for name in ("mine", "wide", "ours"))


def test_commands_that_need_our_rooms_say_so_and_what_is_left(trained: StudyFolder, capsys: Any) -> None:
    run = next(run for run in trained.runs() if run.spec["variant"] == "mine")
    plugin = ["--plugin", str(trained.path.parent / "mixer.py:build")]
    for command, said in (
        (["explain", run.path], "which only a patch puts into a model of others"),
        (["audit", run.path], "reads the parts of a model of addnorm"),
        (["inspect", run.path, "--terms"], "reads the parts of a model of addnorm"),
        (["inspect", run.path, "--ablate"], "reads the parts of a model of addnorm"),
        (["inspect", run.path], "expected a list of layers that are called one after the other, got none"),
        (["extrapolate", trained.path], "variant 'mine': `extrapolate` of a run reads the parts"),
    ):
        assert main([*map(str, command), *plugin]) == 2
        err = " ".join(capsys.readouterr().err.split())
        assert said in err
        assert "Traceback" not in err
    assert "Leave it out: --variant ours." in err
    assert main(["extrapolate", str(trained.path), "--variant", "ours", "--lengths", "1x", "--windows", "2"]) == 0
    assert "ours" in capsys.readouterr().out


def test_a_resumed_run_repeats_its_steps_and_its_start_is_a_function_of_the_seed(trained: StudyFolder) -> None:
    run = next(run for run in trained.runs() if run.spec["variant"] == "mine")
    found, dataset = newest_weights(run), Dataset.load(trained.path / "data")
    torch.manual_seed(123)  # of no importance
    first, second = (Trainer(found.spec, dataset, torch.device("cpu")) for _ in range(2))
    for _ in range(2):
        first.train_step()
    second.load_state(first.state())
    for _ in range(2):
        second.train_step()
    assert content_hash(second.model.state_dict()) == content_hash(found.weights)
    other = replace(found.spec, seed=1)
    assert content_hash(Trainer(other, dataset, torch.device("cpu")).model.state_dict()) != content_hash(
        found.any_initial_model().state_dict()
    )


def test_the_content_of_the_file_is_the_identity_and_its_folder_is_not(tmp_path: Path) -> None:
    identities = []
    for place, init in (("a", ""), ("b", "self.more = nn.Linear(2, 2)")):
        (tmp_path / place).mkdir()
        study = load_study(write(tmp_path / place, f"mixer_{place}", init=init))
        run = expand(fit_models(study, 256), "0")[0]
        assert run.plugins == (f"{tmp_path / place / f'mixer_{place}.py'}:build",)
        assert isinstance(run.model, Python)
        assert run.model.python == f"mixer_{place}.py:build"
        first = run_identity(run)
        file = tmp_path / place / f"mixer_{place}.py"
        moved = tmp_path / f"mixer_{place}.py"
        moved.write_bytes(file.read_bytes())
        assert run_identity(replace(run, plugins=(f"{moved}:build",))) == first
        file.write_text(file.read_text() + "# changed\n")
        assert run_identity(run) != first
        identities.append(first)
    assert len(set(identities)) == 2


def test_a_plan_is_written_as_a_study_file_of_the_same_runs(trained: StudyFolder, tmp_path: Path) -> None:
    (tmp_path / "again.yaml").write_text(json.dumps(study_content(trained.plan)))
    again = fit_models(load_study(tmp_path / "again.yaml"), 256)
    assert {run_name(run) for run in expand(again, trained.plan["data_hash"])} == {run.name for run in trained.runs()}


def test_roles_are_found_by_use(tmp_path: Path) -> None:
    study = load_study(write(tmp_path, "mixer_roles"))
    found = roles(study.variants["mine"].fitted(256, 16).build())  # type: ignore[union-attr]
    assert found == {
        "module.table": "embedding",
        "module.out": "head",
        "module.inner.weight": "hidden_matrix",
        "module.inner.bias": "bias",
    }


def test_code_is_loaded_when_it_is_given_only(
    trained: StudyFolder, capsys: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    run = next(run for run in trained.runs() if run.spec["variant"] == "mine")
    monkeypatch.setattr("addnorm.study.plugins._BUILDERS", {})
    monkeypatch.setenv("ADDNORM_STATE", str(tmp_path))  # as of a user who has not trained with it
    assert main(["export", str(run.path), "--to", str(run.path / "none")]) == 2
    assert "They are code" in capsys.readouterr().err
    plugin = str(trained.path.parent / "mixer.py:build")
    exported = trained.path.parent / "exported"
    assert main(["export", str(run.path), "--plugin", plugin, "--to", str(exported)]) == 0
    assert "from mixer import build" in capsys.readouterr().out
    assert main(["export", str(run.path), "--plugin", plugin, "--to", f"{exported}-hf", "--format", "hf"]) == 2
    assert "Leave --format out" in capsys.readouterr().err
    assert main(["explain", str(run.path), "--plugin", plugin]) == 2
    assert "which only a patch puts into a model of others" in capsys.readouterr().err


BROKEN: dict[str, tuple[dict[str, str], str]] = {
    "shape": ({"forward": "return (x @ self.out)[:, 0]"}, "keeps_shape"),
    "vocab": ({"forward": "return x"}, "keeps_shape"),
    "sees_later": ({"forward": "x = x + x.mean(1, keepdim=True)"}, "is_causal"),
    "hidden_leak": (
        {
            "init": "self.gate = nn.Parameter(torch.zeros(()))",
            "forward": "x = x + self.gate * x.mean(1, keepdim=True)",
        },
        "is_causal",
    ),
    "mixes_batch": ({"forward": "x = x + x.mean(0, keepdim=True)"}, "treats_each_sequence_alone"),
    "infinite": ({"forward": "x = x / (x.detach() * 0)"}, "is_finite"),
    "bad_gradient": ({"forward": "x = x + 0 * (x * 0).sqrt()"}, "has_finite_gradients"),
    "no_gradient": ({"forward": "x = x.detach(); return x @ self.out.detach()"}, "has_finite_gradients"),
    "counts": ({"forward": "self.calls += 1; x = x * self.calls"}, "repeats"),
    "random_step": ({"forward": "x = x * (1 + random.random() * self.training)"}, "repeats"),
    "random_start": ({"init": "self.inner.weight.data += random.random()"}, "starts_the_same"),
    "unregistered": (
        {
            "init": "self.seen = torch.zeros(())",
            "forward": "if self.training:\n    self.seen = x.detach().mean()\nelse:\n    x = x + self.seen",
        },
        "survives_its_state_dict",
    ),
    "writes_tokens": ({"forward": "tokens.zero_()"}, "leaves_inputs_alone"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_module_that_breaks_the_contract_is_refused_before_training(name: str, tmp_path: Path, capsys: Any) -> None:
    changes, law = BROKEN[name]
    file = write(tmp_path, f"mixer_{name}", **changes)
    assert main(["plan", str(file)]) == 2
    message = capsys.readouterr().err
    assert f"'{law}'" in message
    assert f"mixer_{name}.py:build" in message
    assert "variants.mine" in message
    assert "Traceback" not in message


@pytest.mark.parametrize(
    ("reference", "build", "said"),
    [
        ("absent.py:build", "", "absent.py: no such file"),
        ("mixer_bad.py:biuld", "", "Did you mean 'build'"),
        ("mixer_bad.py", "", "expected FILE.py:FUNCTION"),
        ("mixer_bad.py:build", "raise KeyError('x')", "mixer_bad.py:build, line"),
        ("mixer_bad.py:build", "return 3", "expected a torch.nn.Module, got int"),
        ("mixer_bad.py:build, options: {widht: 3}", "", "takes vocab, max_seq, widht"),
        ("mixer_bad.py:build, depth: 3", "", "Known: python, options, objective"),
        ("mixer_bad.py:build, from: x", "", "'python'"),
    ],
)
def test_a_mistake_is_one_message(reference: str, build: str, said: str, tmp_path: Path, capsys: Any) -> None:
    own = f"mixer_{tmp_path.name}"
    write(tmp_path, own, build=build)
    reference, said = reference.replace("mixer_bad", own), said.replace("mixer_bad", own)
    file = tmp_path / "study.yaml"
    name, comma, rest = reference.partition(", ")
    file.write_text(f'name: bad\ntraining: {{seq: 16}}\nvariants: {{it: {{python: "{name}"{comma}{rest}}}}}\n')
    assert main(["plan", str(file)]) == 2
    message = capsys.readouterr().err
    assert said in message
    assert "Traceback" not in message


def test_a_masked_module_sees_all_positions(tmp_path: Path) -> None:
    write(tmp_path, "mixer_masked", forward="x = x + x.mean(1, keepdim=True)")
    spec, _ = Python(python="mixer_masked.py:build", objective="masked").located(tmp_path)
    spec.fitted(257, 16).check(Bytes())
    with pytest.raises(InputError, match="is_causal"):
        replace(spec, objective="causal").fitted(257, 16).check(Bytes())


@pytest.mark.usefixtures("blank_pictures")
def test_a_module_whose_probe_raises_is_named_and_stops_nothing(tmp_path: Path, capsys: Any) -> None:
    """It trains, and raises when it is measured, as one does that refuses hooks or another batch."""
    flag = tmp_path / "raise"
    forward = f"if __import__('os').path.exists({str(flag)!r}): raise RuntimeError('not to be measured')"
    study = load_study(write(tmp_path, "shy", forward=forward))
    out = train_here(study, tmp_path / "out").path
    flag.touch()
    capsys.readouterr()
    assert main(["inspect", str(out), "--json"]) == 0
    inspected = json.loads(capsys.readouterr().out)
    assert {run["variant"] for run in inspected["runs"]} == {"ours"}
    assert len(inspected["skipped"]) == 2
    for name, reason in inspected["skipped"].items():
        assert name.startswith(("mine-s0", "wide-s0"))
        assert "not to be measured" in reason
    assert main(["inspect", str(out)]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert main(["report", str(out), "--json"]) == 0
    reported = json.loads(capsys.readouterr().out)
    assert reported["not_inspected"] == inspected["skipped"]
    html = Path(reported["report"]).read_text(encoding="utf-8")
    assert said.count("not to be measured") == 2
    assert all(f"{name}-s0" in said and name in html for name in ("mine", "wide"))
    # The report names what it does not show, with the reason; so does a model's own page.
    absent = html.partition('id="absent-title"')[2].partition("</section>")[0]
    assert [f"<dt>Layer by layer: {name}</dt>" in absent for name in ("ours", "mine", "wide")] == [False, True, True]
    assert absent.count("not to be measured") == 2
    assert html.count("not in this figure: mine, wide.") > 3
    assert "not in this figure: ours" not in html
    assert main(["report", str(out), "--no-inspect", "--site", str(tmp_path / "site")]) == 0
    pages = [page.read_text(encoding="utf-8") for page in (tmp_path / "site").rglob("*.html")]
    reasons = [re.findall(r'<p class="empty">([^<]*not to be measured[^<]*)</p>', page) for page in pages]
    assert sum(map(len, reasons)) == 2 * 2, "two models, two languages"
    capsys.readouterr()
    flag.unlink()  # tried again: the reason is a new one
    assert main(["report", str(out), "--json"]) == 0
    html = Path(json.loads(capsys.readouterr().out)["report"]).read_text(encoding="utf-8")
    absent = html.partition('id="absent-title"')[2].partition("</section>")[0]
    assert absent.count("Mixer: expected a list of layers") == 2
    assert "not to be measured" not in absent
