"""`addnorm inspect --terms`: runs side by side, a checkpoint by its path, and what is said of mistakes."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from studies import untrained
from tokenizers import Tokenizer, models, pre_tokenizers

from addnorm.cli import main

VARIANTS = """
  biased: {bias: {q: true, k: true}}
  partial: {bias: {q: true, k: true}, position: {kind: rope, fraction: 0.5}}
  alibi: {position: alibi, bias: {q: true, k: true}}
  unit: {gau: {key_dim: 8}, heads: 1, kv_heads: null, bias: {q: true, k: true}}
  masked: {objective: masked, bias: {k: true}}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return untrained(tmp_path_factory.mktemp("terms"), VARIANTS, seeds="[0]").path


def said(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    code = main(["inspect", *map(str, arguments), "--terms"])
    out, err = capsys.readouterr()
    return code, out, err


def files(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def run(folder: Path, variant: str) -> Path:
    return next(folder.glob(f"{variant}-s0-*"))


def test_runs_side_by_side(folder: Path, tmp_path: Path, capsys) -> None:
    biased, plain = run(folder, "biased"), run(folder, "plain")
    figure = tmp_path / "terms.svg"
    code, out, _ = said(capsys, biased, "--beside", plain, "--samples", 3, "--plot", figure, "--json")
    assert code == 0
    assert figure.read_bytes().startswith(b"<?xml")
    found = json.loads(out)
    assert [model["label"] for model in found["models"]] == ["biased-s0", "plain-s0"]
    assert [model["q_bias"] for model in found["models"]] == [True, False]
    assert {(model["samples"], model["length"], model["trained"]) for model in found["models"]} == {(3, 64, 16)}
    for model in found["models"]:
        assert model["largest_error"] <= model["rounding"] < 1e-10
        kept = json.loads((folder / model["run"] / "terms.json").read_text())
        assert kept["rows"] == [row for row in found["rows"] if row["label"] == model["label"]]
        assert len(kept["rows"]) == 2 * 2
        assert all(row["distances"] == list(range(64)) for row in kept["rows"])
    code, text, _ = said(capsys, biased, "--beside", plain, "--samples", 3)
    assert code == 0
    assert "q and k biases; 3 texts of 64 tokens, trained at 16" in " ".join(text.split())
    assert "no q or k bias" in text
    row = [row for row in found["rows"] if row["label"] == "biased-s0" and row["layer"] == 1]
    at_zero = sum(head["terms"]["sum"]["mean"][0] for head in row) / 2
    block = text.split("Mean score by distance")[1].splitlines()
    assert block[4].split()[:2] == ["1", f"{at_zero:.3f}"]


def test_models_of_the_same_label_are_kept_apart(folder: Path, tmp_path: Path, capsys) -> None:
    """The same variant and seed of another study, with other weights."""
    other = Path(shutil.copytree(folder, tmp_path / "other"))
    moved = run(other, "biased") / "final.safetensors"
    save_file({name: 2 * value for name, value in load_file(moved).items()}, moved)
    arguments = ("--samples", 2, "--length", "1x", "--json")
    code, out, _ = said(capsys, run(folder, "biased"), "--beside", moved.parent, *arguments)
    assert code == 0
    found = json.loads(out)
    assert [model["label"] for model in found["models"]] == ["biased-s0", "biased-s0 (2)"]
    for place, path in enumerate((run(folder, "biased"), moved.parent)):
        _, alone, _ = said(capsys, path, *arguments)
        mine = [row for row in found["rows"] if row["label"] == found["models"][place]["label"]]
        assert [row["terms"] for row in mine] == [row["terms"] for row in json.loads(alone)["rows"]]


@pytest.mark.parametrize(("variant", "rows"), [("partial", 4), ("unit", 4), ("masked", 4)])
def test_every_model_that_rotates(folder: Path, variant: str, rows: int, capsys) -> None:
    code, out, _ = said(capsys, run(folder, variant), "--samples", 2, "--length", "2x", "--json")
    assert code == 0
    found = json.loads(out)
    assert len(found["rows"]) == rows
    first = found["rows"][0]["distances"][0]
    assert first == (-31 if variant == "masked" else 0)
    assert found["models"][0]["largest_error"] <= found["models"][0]["rounding"] < 1e-10
    if variant == "masked":
        assert not any(any(row["terms"]["aRk"]["mean"]) for row in found["rows"]), "no q bias"


def checkpoint(folder: Path) -> Path:
    transformers = pytest.importorskip("transformers")
    config = transformers.Qwen2Config(
        vocab_size=40, hidden_size=16, intermediate_size=16, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, max_position_embeddings=24, pad_token_id=0,
    )  # fmt: skip
    torch.manual_seed(0)
    model = transformers.Qwen2ForCausalLM(config)
    for name, parameter in model.named_parameters():
        if name.endswith("k_proj.bias"):
            torch.nn.init.normal_(parameter)
    from addnorm.outside.targets.transformers_class import quiet_transformers

    with quiet_transformers():
        model.save_pretrained(folder)
    tokenizer = Tokenizer(models.WordLevel({f"w{index}": index for index in range(40)}, unk_token="w0"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


def test_a_checkpoint_by_its_path(tmp_path: Path, capsys) -> None:
    folder = checkpoint(tmp_path / "qwen")
    text = tmp_path / "text.txt"
    text.write_text(" ".join(f"w{1 + index * index % 37}" for index in range(200)), encoding="utf-8")
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    code, out, err = said(capsys, folder, "--text", text, "--length", 40, "--samples", 3, "--json")
    assert code == 0, err
    found = json.loads(out)
    (model,) = found["models"]
    assert (model["samples"], model["length"], model["trained"]) == (3, 40, 24)
    assert model["q_bias"] is model["k_bias"] is True
    assert model["largest_error"] <= model["rounding"]
    assert any(abs(value) > 1e-3 for row in found["rows"] for value in row["terms"]["qRb"]["mean"])
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    for arguments, expected in (
        ((), "which has no text of its own: expected --text FILE"),
        (("--text", text, "--length", "4x"), "expected a number of tokens such as 512, got '4x'"),
        (("--text", text), "expected at least 512 tokens, got 200"),
        (("--text", tmp_path / "none.txt"), "expected a UTF-8 text"),
    ):
        code, out, err = said(capsys, folder, *arguments)
        assert (code, out) == (2, "")
        assert expected in " ".join(err.split())
    others = Tokenizer(models.WordLevel({f"w{index}": index for index in range(50)}, unk_token="w49"))
    others.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    others.save(str(folder / "tokenizer.json"))
    text.write_text("w1 w45 w2 unknown", encoding="utf-8")
    code, out, err = said(capsys, folder, "--text", text, "--length", 2)
    assert (code, out) == (2, "")
    assert "the text belongs to another model: it has token 49, the model has 40 embeddings" in " ".join(err.split())
    (folder / "tokenizer.json").write_text("{}")
    assert "expected a tokenizer, got an error" in said(capsys, folder, "--text", text)[2]
    (folder / "tokenizer.json").unlink()
    assert "expected a tokenizer.json, got none" in said(capsys, folder, "--text", text)[2]


@pytest.mark.parametrize(
    "option", [("--plot", "terms.svg"), ("--beside", "."), ("--length", "2x"), ("--text", "book.txt")]
)
def test_an_option_of_the_terms_without_them_is_refused(folder: Path, option: tuple[str, str], capsys) -> None:
    code = main(["inspect", str(run(folder, "biased")), *option])
    out, err = capsys.readouterr()
    assert (code, out) == (2, "")
    assert f"{option[0]}: expected together with --terms" in " ".join(err.split())


def test_mistakes(folder: Path, tmp_path: Path, capsys) -> None:
    biased, alibi = run(folder, "biased"), run(folder, "alibi")
    assert said(capsys, biased, "--length", "2x")[0] == 0  # whose result must survive what follows
    before = files(folder)
    for arguments, expected in (
        ((alibi,), "the four terms: expected a rotary position, got 'alibi', with which no term of a bias depends"),
        ((biased, "--beside", alibi), "expected a rotary position, got 'alibi'"),
        ((biased, "--length", "64"), "expected a multiple of its train length such as 4x, got '64'"),
        ((biased, "--length", "9999x"), "the longest window must fit into the held-out text"),
        ((biased, "--samples", 0), "--samples: expected at least 1"),
        ((biased, "--plot", tmp_path / "terms.txt"), "expected a file name that ends with"),
        ((folder,), "expected the folder of a run (spec.json) or of a Transformers checkpoint"),
        ((tmp_path / "none",), "expected the folder of a run or of a Transformers checkpoint, got"),
        ((biased, "--text", tmp_path), "--text: expected a checkpoint as target"),
    ):
        code, out, err = said(capsys, *arguments)
        assert (code, out) == (2, ""), err
        assert expected in " ".join(err.split())
        assert "Traceback" not in err
        assert files(folder) == before
