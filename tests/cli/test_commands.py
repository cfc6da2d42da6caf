"""Every command as a user gives it: its help, its JSON, its exit codes, and what it says of mistakes."""

import io
import json
import shutil
import subprocess
import sys
from contextlib import redirect_stdout
from pathlib import Path

import pytest

from addnorm.cli import commands, main
from addnorm.store import StudyFolder
from train_here import workers_here

STATUS_KEYS = [
    "run", "variant", "seed", "state", "step", "steps", "loss", "accuracy", "perplexity", "attempts", "reason",
]  # fmt: skip
RANK_KEYS = {"metric", "margin", "provisional", "references", "variants", "warnings"}
RANK_VARIANT_KEYS = {"variant", "seeds", "mean", "interval", "accuracy", "tier", "rank_interval", "versus"}


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(arguments)
    out, err = capsys.readouterr()
    return code, out, err


def test_help_names_every_command(capsys):
    code, out, _ = said(capsys, "--help")
    assert code == 0
    assert {"list", "new", "plan", "run", "status", "rank", "export", "reindex", "doctor"} <= set(commands())
    for name, summary in commands().items():
        assert name in out
        assert summary in out
        assert summary.endswith("."), f"{name}: the help's first line is a sentence"


@pytest.mark.parametrize("name", list(commands()))
def test_every_command_has_help_and_json(name, capsys):
    code, out, _ = said(capsys, name, "--help")
    assert code == 0
    assert "--json" in out


def test_unknown_command_names_the_nearest(capsys):
    code, out, err = said(capsys, "rnak", "somewhere")
    assert code == 2
    assert out == ""
    assert "no command 'rnak'. Did you mean 'rank'?" in err


def test_unknown_option_names_the_nearest(capsys):
    code, _, err = said(capsys, "status", ".", "--jsn")
    assert code == 2
    assert "--json" in err
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["plan", "residual-score"], "Did you mean 'residual-scores'?"),
        (["run", "nowhere.yaml"], "nowhere.yaml"),
        (["new", "residual-score"], "Did you mean 'residual-scores'?"),
        (["list", "residuals"], "Did you mean 'residual'?"),
        (["status", "nowhere"], "nowhere holds no study"),
        (["rank", "nowhere"], "nowhere holds no study"),
        (["reindex", "nowhere"], "nowhere holds no study"),
        (["export", "nowhere"], "nowhere"),
        (["plan", "residual-scores", "--set", "training.stepz=3"], "did you mean 'steps'?"),
        (["plan", "residual-scores", "--set", "model.heads=5"], "heads must divide the width"),
        (["plan", "residual-scores", "--profile", "papr"], "Did you mean 'paper'?"),
    ],
)
def test_wrong_input_gets_one_message_and_exit_code_2(arguments, expected, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, err = said(capsys, *arguments)
    assert code == 2, err
    assert out == ""
    assert expected.lower() in err.lower()
    assert err.startswith("addnorm: ")
    assert "Traceback" not in err


def test_list_everything(capsys):
    code, out, _ = said(capsys, "list", "--json")
    found = json.loads(out)
    assert code == 0
    assert "residual-scores" in found["study"]
    assert {"add", "scale", "rezero", "gate", "cumulative", "replay"} <= set(found["residual"])
    assert "v4m7" in found["preset"]


def test_every_preset_is_described(capsys):
    _, out, _ = said(capsys, "list", "preset", "--json")
    presets = {each["kind"]: each["summary"] for each in json.loads(out)["preset"]}
    assert [kind for kind, summary in presets.items() if not summary.partition("\n")[0].endswith(".")] == []
    assert len(set(presets.values())) == len(presets)


def test_list_a_room_gives_formula_and_source(capsys):
    _, out, _ = said(capsys, "list", "residual")
    assert "x_{l+1} = x_l + alpha_l * f_l(x_l)" in out
    assert "arXiv:2003.04887" in out


def test_list_studies_gives_their_profiles(capsys):
    _, out, _ = said(capsys, "list", "study")
    assert "norm-placement\n" in out
    profiles = "quick, quick_rates, quick_depth, quick_start, quick_dropout, no_residual, dropout_sizes, paper"
    assert f"    Profiles: {profiles}\n" in out
    _, out, _ = said(capsys, "list", "study", "--json")
    assert {"quick", "paper"} <= set(json.loads(out)["study"][0]["profiles"])


def test_list_source_gives_title_and_address(capsys):
    _, out, _ = said(capsys, "list")
    assert "`addnorm list source` lists the cited documents" in out
    _, out, _ = said(capsys, "list", "source")
    assert "Su (2023)\n    苏剑林" in out
    assert "    https://kexue.fm/archives/9577\n" in out
    assert "    address not known\n" in out
    _, out, _ = said(capsys, "list", "source", "--json")
    addresses = {each["kind"]: each["address"] for each in json.loads(out)["source"]}
    assert addresses["Anonymous (n.d.)"] is None
    assert addresses["Su (2020)"] == "https://kexue.fm/archives/8027"


def test_new_writes_a_study_that_loads_and_refuses_to_overwrite(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, _ = said(capsys, "new", "residual-scores", "--json")
    assert code == 0
    assert json.loads(out) == {"study": "residual-scores", "file": "residual-scores.yaml"}
    before = Path("residual-scores.yaml").read_text(encoding="utf-8")
    code, _, err = said(capsys, "new", "residual-scores")
    assert code == 2
    assert "expected a new file" in err
    assert Path("residual-scores.yaml").read_text(encoding="utf-8") == before


def test_plan_counts_before_anything_starts(capsys, tmp_path, monkeypatch, tiny_study_text):
    monkeypatch.chdir(tmp_path)
    Path("tiny.yaml").write_text(tiny_study_text, encoding="utf-8")
    code, out, _ = said(capsys, "plan", "tiny.yaml", "--workers", "2", "--json")
    plan = json.loads(out)
    assert code == 0
    assert plan["runs"] == 6
    assert plan["tokens"] == 6 * 6 * 2 * 16
    assert [cost["variant"] for cost in plan["variants"]] == ["base", "v4m5"]
    assert plan["variants"][1]["parameters"] == plan["variants"][0]["parameters"] + 1 + 2
    assert plan["variants"][0]["relative"] == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["tiny.yaml"], "planning must leave nothing behind"


def test_status_of_a_finished_study(finished, capsys):
    code, out, _ = said(capsys, "status", str(finished), "--json")
    status = json.loads(out)
    assert code == 0
    assert status["study"] == "tiny"
    assert len(status["runs"]) == 6
    for entry in status["runs"]:
        assert list(entry)[: len(STATUS_KEYS)] == STATUS_KEYS
        assert entry["state"] == "finished"
        assert entry["step"] == entry["steps"] == 6
        assert entry["perplexity"] == pytest.approx(2.718281828459045 ** entry["loss"])
        assert 0 <= entry["accuracy"] <= 1


def test_rank_of_a_finished_study(finished, capsys):
    code, out, _ = said(capsys, "rank", str(finished), "--json")
    ranking = json.loads(out)
    assert code == 0
    assert set(ranking) >= RANK_KEYS
    assert ranking["provisional"] is False
    assert ranking["references"] == ["base"]
    assert {row["variant"] for row in ranking["variants"]} == {"base", "v4m5"}
    for row in ranking["variants"]:
        assert set(row) >= RANK_VARIANT_KEYS
        assert row["seeds"] == 3


def test_rank_prints_every_seeds_value_and_the_commands_to_go_on(finished, capsys):
    _, out, _ = said(capsys, "rank", str(finished), "--json")
    ranking = json.loads(out)
    code, out, _ = said(capsys, "rank", str(finished))
    assert code == 0
    lines = out.splitlines()
    assert any(line.split() == ["variant", "seed", "0", "seed", "1", "seed", "2"] for line in lines)
    for row in ranking["variants"]:
        values = {value["seed"]: f"{value['loss']:.4f}" for value in row["values"]}
        assert [row["variant"], *(values[seed] for seed in (0, 1, 2))] in [line.split() for line in lines]
    for command in ("status", "explain", "export", "rank"):
        assert f"  addnorm {command} {finished}" in out


@pytest.mark.parametrize(("option", "sign"), [("--csv", "variant,"), ("--latex", "\\toprule")])
def test_rank_in_other_forms(finished, capsys, option, sign):
    code, out, _ = said(capsys, "rank", str(finished), option)
    assert code == 0
    assert sign in out


def test_rank_on_the_printed_numbers_of_kuang_2025(capsys):
    code, out, _ = said(capsys, "rank", "kuang-2025")
    assert code == 0
    assert "v4m7" in out


def test_reindex(finished, tmp_path, capsys):
    copy = tmp_path / "copy"
    shutil.copytree(finished, copy)
    (copy / "index.db").unlink()
    code, out, _ = said(capsys, "reindex", str(copy), "--json")
    assert code == 0
    assert json.loads(out) == {"runs": 6, "damaged": {}}
    assert (copy / "index.db").exists()


def test_export_and_load_give_the_trained_model(finished, tmp_path, capsys):
    import torch
    import yaml
    from safetensors.torch import load_file

    import addnorm
    from addnorm.store import StudyFolder
    from addnorm.store.events import read_events

    run = StudyFolder(finished).runs()[1]
    code, out, _ = said(capsys, "export", str(run.path), "--to", str(tmp_path / "model"), "--json")
    assert code == 0
    assert json.loads(out)["files"] == ["README.md", "model.json", "model.safetensors", "tokenizer.json"]
    card = (tmp_path / "model" / "README.md").read_text(encoding="utf-8")
    head = yaml.safe_load(card.split("---")[1])
    assert head == {"library_name": "addnorm", "tags": ["addnorm"]}
    assert "model = addnorm.load('model')" in card
    last = [event for event in read_events(run.events_path)[0] if event["type"] == "eval"][-1]
    assert f"| Loss | {last['loss']:.5g} |" in card
    assert run.spec["spec"]["data_hash"] in card
    assert str(run.path.parent) not in card, "no path of this machine"
    model = addnorm.load(tmp_path / "model")
    sizes = {"width": 16, "depth": 2, "heads": 2, "kv_heads": 1, "hidden": 16, "max_seq": 16, "vocab": 256}
    assert addnorm.load_spec(tmp_path / "model") == addnorm.preset("v4m5", **sizes)
    assert not model.training
    trained = load_file(run.final_path)
    assert {name: tensor.shape for name, tensor in model.state_dict().items()} == {
        n: t.shape for n, t in trained.items()
    }
    assert all(torch.equal(tensor, trained[name]) for name, tensor in model.state_dict().items())
    code, _, err = said(capsys, "export", str(run.path), "--to", str(tmp_path / "model"))
    assert code == 2
    assert "empty or a new folder" in err


def test_export_of_an_unfinished_run_is_refused(finished, tmp_path, capsys):
    copy = tmp_path / "copy"
    shutil.copytree(finished, copy)
    run = next(path for path in copy.iterdir() if path.name.startswith("base-s0"))
    (run / "final.safetensors").unlink()
    (run / "DONE").unlink()
    code, _, err = said(capsys, "export", str(run), "--to", str(tmp_path / "model"))
    assert code == 2
    assert "expected a finished run" in err


def test_run_goes_on_with_what_is_there_and_refuses_another_plan(finished, tmp_path, capsys, tiny_study_text):
    copy = tmp_path / "copy"
    shutil.copytree(finished, copy)
    file = tmp_path / "tiny.yaml"
    file.write_text(tiny_study_text, encoding="utf-8")
    code, out, _ = said(capsys, "run", str(file), "--out", str(copy), "--json")
    assert code == 0
    assert {entry["attempts"] for entry in json.loads(out)["runs"]} == {1}, "finished runs must not be run again"
    code, _, err = said(capsys, "run", str(file), "--out", str(copy), "--set", "training.steps=7")
    assert code == 2
    assert "another folder with --out" in err
    assert "(training.steps: 6 → 7)" in err


def test_a_run_whose_loss_became_nan_is_not_advised_to_repeat_it(tmp_path, capsys, tiny_study_text):
    file, out = tmp_path / "tiny.yaml", tmp_path / "runs"
    file.write_text(tiny_study_text, encoding="utf-8")
    with workers_here():
        code, text, _ = said(
            capsys, "run", str(file), "--out", str(out), "--set", "training.optimizer={kind: adamw, learning_rate: 1.0e+30}",
            "--set", "seeds=[0]",
        )  # fmt: skip
    assert code == 1
    assert {(run.status().state, run.ending()["cause"]) for run in StudyFolder(out).runs()} == {
        ("failed", "not finite")
    }
    assert "2 failed because a loss or gradient was not finite" in text
    assert "training.optimizer.learning_rate" in text
    assert "--retry" not in text
    StudyFolder(out).runs()[0].mark("failed", reason="out of memory", step=3)
    with workers_here():
        _, text, _ = said(
            capsys, "run", str(file), "--out", str(out), "--set", "training.optimizer={kind: adamw, learning_rate: 1.0e+30}",
            "--set", "seeds=[0]",
        )  # fmt: skip
    assert "1 failed because a loss or gradient was not finite" in text
    assert "--retry" in text


def test_an_audit_whose_names_match_nothing_names_the_commands_option(finished, capsys):
    code, _, err = said(capsys, "audit", str(next(finished.glob("base-s0-*"))), "--track", "nothing")
    assert code == 2
    assert "--track" in err
    assert "track=" not in err


def test_an_audit_of_a_model_without_biases_says_so_and_succeeds(finished, capsys):
    code, out, _ = said(capsys, "audit", str(next(finished.glob("base-s0-*"))))
    assert code == 0
    assert "bias" in out


class Terminal(io.StringIO):
    """Standard output of a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    "arguments",
    [
        ["status", "DIR"],
        ["rank", "DIR"],
        pytest.param(["explain", "DIR", "--entries"], marks=pytest.mark.thorough),
        ["inspect", "DIR"],
        ["list"],
        pytest.param(["plan", "residual-scores"], marks=pytest.mark.thorough),
    ],
)
def test_tables_keep_within_the_terminal(arguments, finished, tmp_path, monkeypatch):
    shutil.copytree(finished, tmp_path / "d")
    (run,) = (run for run in StudyFolder(tmp_path / "d").runs() if run.name.startswith("base-s1"))
    run.mark("failed", reason="a reason " * 12, step=3)
    (run.path / "DONE").unlink()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    screen = Terminal()
    with redirect_stdout(screen):
        assert main([word.replace("DIR", "d") for word in arguments]) == 0
    table = [
        line for line in screen.getvalue().splitlines() if "  " in line.strip() and not line.startswith("  addnorm")
    ]
    assert len(table) > 3
    assert [line for line in table if len(line) > 80] == []


def test_the_table_of_inspected_runs_has_at_most_100_columns(finished, tmp_path, capsys):
    shutil.copytree(finished, tmp_path / "d")
    for target in (tmp_path / "d", next((tmp_path / "d").glob("v4m5-s0-*"))):
        _, out, _ = said(capsys, "inspect", str(target))
        assert max(map(len, out.splitlines())) <= 100


def test_doctor(capsys, tmp_path):
    code, out, _ = said(capsys, "doctor", "--dir", str(tmp_path), "--json")
    found = json.loads(out)
    assert code == 0
    assert all(check["ok"] for check in found.values())


def test_commands_that_only_read_files_import_no_torch(finished):
    program = (
        "import sys; from addnorm.cli import main; "
        f"assert main(['status', {str(finished)!r}, '--json']) == 0; "
        "assert main(['--help']) == 0; assert main(['list', 'scores']) == 0; "
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True, stdout=subprocess.DEVNULL)
