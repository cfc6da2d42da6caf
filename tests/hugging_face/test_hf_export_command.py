"""`addnorm export --format hf`: runs with their tokenizers, as a user loads them."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from foreign import SIZES, assert_equal_to_rounding, model

import addnorm
import addnorm.hf
from addnorm.cli import main
from addnorm.data.tokenizers.bpe import Bpe
from addnorm.data.tokenizers.bytes import Bytes
from addnorm.errors import InputError
from addnorm.store import StudyFolder

TEXTS = [
    "The cat sat on the mat.",
    "a\n\n  b\tc",
    "naïve café, 中文, 🙂",
    "ends with <|end|> and <|mask|> in the text",
    " leading and trailing ",
    "Ā and Ġ",
    "",
]


def runs(folder: Path) -> dict[str, Path]:
    return {run.spec["variant"]: run.path for run in StudyFolder(folder).runs()}


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(arguments)
    return code, *capsys.readouterr()


@torch.no_grad()
def test_a_run_that_is_a_llama_is_written_with_its_tokenizer(finished, tmp_path, capsys) -> None:
    run = runs(finished)["base"]
    code, out, _ = said(capsys, "export", str(run), "--format", "hf", "--to", str(tmp_path / "x"))
    assert code == 0
    assert f"Wrote {tmp_path / 'x'} as LlamaForCausalLM" in out
    assert "import addnorm" not in out
    assert "vLLM has this class." in out
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "x")
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "x")
    ids = tokenizer("An example.", return_tensors="pt").input_ids
    ours = addnorm.load(addnorm_export(run, tmp_path / "ours"))
    assert_equal_to_rounding(theirs(ids).logits, ours(ids))
    assert theirs.generation_config.eos_token_id == tokenizer.eos_token_id == 0
    assert theirs.config.bos_token_id is None


def addnorm_export(run: Path, to: Path) -> Path:
    assert main(["export", str(run), "--to", str(to)]) == 0
    return to


def test_another_run_says_what_it_needs(finished, tmp_path, capsys) -> None:
    run = runs(finished)["v4m5"]
    code, out, _ = said(capsys, "export", str(run), "--format", "hf", "--to", str(tmp_path / "x"), "--json")
    result = json.loads(out)
    assert code == 0
    assert (result["architecture"], result["needs_addnorm"]) == ("AddnormForCausalLM", True)
    assert "one thing: scores: expected 'own', got 'weighted'" in result["notes"][0]
    assert "scores of earlier layers" in result["notes"][1]
    assert set(result["files"]) == {
        "README.md",
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "modeling_addnorm.py",
        "tokenizer.json",
        "tokenizer_config.json",
    }
    code, out, _ = said(capsys, "export", str(run), "--format", "hf", "--to", str(tmp_path / "y"))
    assert "import addnorm.hf" in out
    code, _, err = said(capsys, "export", str(run), "--format", "hf", "--to", str(tmp_path / "x"))
    assert (code, "expected an empty or a new folder" in err) == (2, True)


@pytest.mark.parametrize("kind", ["bytes", "bpe"])
@pytest.mark.parametrize("masked", [False, True])
def test_the_tokenizer_gives_our_ids_and_texts(kind: str, masked: bool, tmp_path: Path) -> None:
    spec = Bytes() if kind == "bytes" else Bpe(vocab=270)
    ours = spec.fit(TEXTS * 20)
    ours.save(tmp_path)
    ours_model = model("realformer" if masked else "llama", **SIZES | {"vocab": ours.vocab + masked})
    folder = addnorm.save_hf(ours_model, tmp_path / "x", tokenizer=tmp_path).folder
    theirs = transformers.AutoTokenizer.from_pretrained(folder)
    for text in TEXTS if kind == "bpe" else [*TEXTS, "with \0 inside"]:
        ids = theirs(text)["input_ids"]
        assert ids == ours.encode(text).tolist()
        assert theirs.decode(ids, skip_special_tokens=True) == text.replace("\0", "")
    assert theirs.eos_token_id == ours.separator
    assert len(theirs) == ours_model.spec.vocab
    assert theirs.mask_token_id == (ours.vocab if masked else None)
    assert theirs.model_max_length == SIZES["max_seq"]
    separated = np.concatenate([ours.encode("one"), [ours.separator], ours.encode("two")])
    assert theirs.decode(separated, skip_special_tokens=True) == "onetwo"


def test_a_tokenizer_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    Bytes().fit([]).save(tmp_path)
    with pytest.raises(InputError, match=r"tokenizer.json: expected at most 50 ids, the vocab of the model, got 256"):
        addnorm.save_hf(model("llama"), tmp_path / "x", tokenizer=tmp_path)
    assert not (tmp_path / "x").exists()
