"""Commands on a checkpoint that Transformers wrote: equal to the same measures on a run, and what is said of mistakes."""

import json
import shutil
from pathlib import Path

import pytest
import torch
import transformers
from foreign import SIZES, model
from scipy import stats

import addnorm
from addnorm.cli import main
from addnorm.insight.extrapolation.checkpoint import extrapolate_checkpoint
from addnorm.outside.targets import resolve
from addnorm.store import StudyFolder

TEXT = "The quick brown fox jumps over the lazy dog, and the dog does not mind. " * 40


@pytest.fixture(scope="module")
def folders(finished: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Runs as checkpoints: a Llama saved by Transformers itself, a model of addnorm.hf, a BERT."""
    root = tmp_path_factory.mktemp("checkpoints")
    for run in StudyFolder(finished).runs():
        if run.spec["seed"] == 0:
            assert main(["export", str(run.path), "--format", "hf", "--to", str(root / run.spec["variant"])]) == 0
    transformers.AutoModelForCausalLM.from_pretrained(root / "base").save_pretrained(root / "llama")
    shutil.copy(root / "base" / "tokenizer.json", root / "llama")
    masked = model("bert", **SIZES | {"vocab": 257}, head_transform="gelu", token_types=2)
    tokenizer = finished / "data"
    addnorm.save_hf(masked, root / "bert", tokenizer=tokenizer)
    (root / "text.txt").write_text(TEXT, encoding="utf-8")
    return {path.stem: path for path in root.iterdir()}


def said(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    code = main([str(argument) for argument in arguments])
    return code, *capsys.readouterr()


def losses_of(folder: Path, seq: int, sequences: int) -> torch.Tensor:
    """Nats per token of each of the first windows of the text, by Transformers itself."""
    ids = torch.tensor([*TEXT.encode()])
    total = (len(ids) - 1) // seq
    starts = [index * total // sequences * seq for index in range(sequences)]
    rows = torch.stack([ids[start : start + seq + 1] for start in starts])
    with torch.no_grad():
        logits = transformers.AutoModelForCausalLM.from_pretrained(folder)(rows[:, :-1]).logits
    return torch.nn.functional.cross_entropy(logits.mT, rows[:, 1:], reduction="none").mean(1)


def loss_of(folder: Path, seq: int, sequences: int) -> float:
    """Their mean."""
    return float(losses_of(folder, seq, sequences).mean())


def test_inspect_measures_a_checkpoint_on_a_text(folders: dict[str, Path], capsys) -> None:
    code, out, err = said(
        capsys, "inspect", folders["llama"], "--text", folders["text"], "--length", 12, "--sequences", 6, "--json"
    )
    assert code == 0, err
    (found,) = json.loads(out)["runs"]
    assert "start" not in found
    assert (found["data"]["seq"], found["data"]["sequences"], len(found["end"]["layers"])) == (12, 6, 2)
    assert found["end"]["loss"] == pytest.approx(loss_of(folders["llama"], 12, 6), abs=1e-5)
    code, out, _ = said(capsys, "inspect", folders["llama"], "--text", folders["text"], "--sequences", 2)
    assert code == 0
    assert "llama: loss " in out
    assert "2 sequences of 16 tokens" in " ".join(out.split())


@pytest.mark.parametrize("kind", ["v4m5", "bert"])
def test_inspect_takes_every_checkpoint_that_can_be_loaded(kind: str, folders: dict[str, Path]) -> None:
    (found,) = addnorm.inspect(folders[kind], text=folders["text"], sequences=2, map_sequences=1)["runs"]
    own = addnorm.load_hf(folders[kind])
    assert len(found["end"]["attention"]) == own.spec.depth
    assert ("own_share" in found["end"]["attention"][-1]) == (kind == "v4m5")
    assert 0 < found["end"]["loss"] < 20


def test_extrapolate_evaluates_a_checkpoint_at_each_length(folders: dict[str, Path], tmp_path: Path, capsys) -> None:
    arguments = ["--text", folders["text"], "--trained", 8, "--lengths", "1x,2x", "--windows", 4]
    code, out, err = said(capsys, "extrapolate", folders["llama"], *arguments, "--with", "yarn", "--json")
    assert code == 0, err
    found = json.loads(out)
    assert [(row["label"], row["length"]) for row in found["rows"]] == [
        ("llama", 8),
        ("llama +yarn", 8),
        ("llama", 16),
        ("llama +yarn", 16),
    ]
    assert found["rows"][2]["loss"] == pytest.approx(loss_of(folders["llama"], 16, 4), abs=1e-5)
    assert found["rows"][0]["loss"] == found["rows"][1]["loss"]
    assert found["rows"][2]["loss"] != found["rows"][3]["loss"]
    each = losses_of(folders["llama"], 16, 4).double()
    low, high = stats.t.interval(0.975, 3, loc=each.mean(), scale=each.std() / 2)  # 95 % for both lengths together
    assert found["rows"][2]["loss_interval"] == pytest.approx([low, high], abs=1e-5)
    assert low < high
    figure = tmp_path / "lengths.svg"
    code, out, _ = said(capsys, "extrapolate", folders["llama"], *arguments, "--plot", figure)
    assert code == 0
    assert "llama" in out
    assert "intervals are over the 4 segments of 16 tokens of this text" in " ".join(out.split())
    assert "over seeds" not in out
    assert figure.read_bytes().startswith(b"<?xml")
    assert said(capsys, "extrapolate", folders["llama"], *arguments, "--csv")[1].startswith("variant,switch,length")


def test_too_few_segments_have_no_interval(folders: dict[str, Path], capsys) -> None:
    arguments = ["--text", folders["text"], "--trained", 8, "--lengths", "1x,2x", "--windows", 2]
    code, out, err = said(capsys, "extrapolate", folders["llama"], *arguments)
    assert code == 0, err
    assert "No intervals: the 2 segments of 16 tokens of this text are too few." in " ".join(out.split())
    assert "±" not in out


def test_a_masked_checkpoint_reads_its_own_mask(folders: dict[str, Path]) -> None:
    found = extrapolate_checkpoint(folders["bert"], folders["text"], trained=8, lengths="1x,2x", windows=20)
    assert [row["length"] for row in found["rows"]] == [8, 16]
    assert all(0 < row["loss"] < 20 for row in found["rows"])


def test_terms_and_audit_take_an_exported_run(folders: dict[str, Path], capsys) -> None:
    arguments = ["--terms", "--text", folders["text"], "--length", 16, "--samples", 2, "--json"]
    code, out, err = said(capsys, "inspect", folders["v4m5"], *arguments)
    assert code == 0, err
    assert json.loads(out)["models"][0]["label"] == "v4m5"
    target = resolve(folders["v4m5"])
    assert target.kind == "checkpoint"
    assert target.model(target.inputs).shape[-1] == 256


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["inspect", "llama"], "which has no text of its own: expected --text FILE"),
        (["extrapolate", "llama"], "which has no text of its own: expected --text FILE"),
        (["inspect", "llama", "--text", "none.txt"], "--text: expected a UTF-8 text"),
        (["inspect", "llama", "--text", "text", "--length", "2x"], "expected a number of tokens such as 512, got '2x'"),
        (["extrapolate", "llama", "--text", "text", "--variant", "base"], "--variant: expected a study as target"),
        (
            ["extrapolate", "bert", "--text", "text"],
            "a learned position table: expected at most max_seq = 16 positions",
        ),
        (["extrapolate", "bert", "--text", "text", "--with", "yarn", "--lengths", "1x"], "yarn"),
        (["extrapolate", "finished", "--text", "text"], "--text: expected a checkpoint as target"),
        (["inspect", "finished", "--text", "text"], "--text: expected together with --terms"),
        *(
            (
                [*command, *options],
                "model.safetensors: expected the folder of a run, of a study or of a checkpoint, got a file",
            )
            for command, options in (
                (["inspect", "file"], ["--text", "text"]),
                (["inspect", "file"], []),
                (["inspect", "file"], ["--terms", "--text", "text"]),
                (["extrapolate", "file"], ["--text", "text"]),
                (["generate", "file"], ["--prompt", "a"]),
            )
        ),
        (
            ["inspect", "nowhere", "--text", "text"],
            "nowhere: expected the folder of a run, of a study or of a checkpoint",
        ),
        (["inspect", "empty", "--text", "text"], "--text: expected a checkpoint as target, got"),
    ],
)
def test_a_mistake_is_one_message(
    arguments: list[str], message: str, folders: dict[str, Path], finished: Path, tmp_path: Path, capsys
) -> None:
    places = {**folders, "finished": finished, "file": folders["llama"] / "model.safetensors", "empty": tmp_path}
    code, _, err = said(capsys, *(places.get(argument, argument) for argument in arguments))
    assert code == 2
    assert message in " ".join(err.split())
    assert "Traceback" not in err


def test_a_tokenizer_of_another_model_is_refused(folders: dict[str, Path], tmp_path: Path, capsys) -> None:
    addnorm.save_hf(model("llama"), tmp_path / "small")
    shutil.copy(folders["base"] / "tokenizer.json", tmp_path / "small")
    for command in ("inspect", "extrapolate"):
        code, _, err = said(capsys, command, tmp_path / "small", "--text", folders["text"])
        assert code == 2
        assert "belongs to another model" in " ".join(err.split())
