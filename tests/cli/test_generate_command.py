"""`addnorm generate` and `addnorm.generate` of a text: the tokens' answer in letters, from all three kinds of folder."""

import json
from pathlib import Path

import pytest
import torch

import addnorm
from addnorm.cli import main
from addnorm.errors import InputError
from addnorm.outside.hugging_face.saving import export_hf
from addnorm.store import RunFolder, StudyFolder
from addnorm.training.export import WEIGHTS, export_run
from addnorm.training.run_weights import newest_weights

PROMPT = "ab("


def run_of(finished: Path) -> RunFolder:
    return StudyFolder(finished).runs()[0]


def said(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    code = main(["generate", *map(str, arguments)])
    return code, *capsys.readouterr()


def expected(run: RunFolder, new_tokens: int, **how: float) -> str:
    """The text by the tokens alone: these models' ids are bytes."""
    model = newest_weights(run).model()
    ids = addnorm.generate(model, torch.tensor([list(PROMPT.encode())]), new_tokens=new_tokens, **how)
    return bytes(ids[0].tolist()).decode(errors="replace")


def test_a_run_an_export_and_a_checkpoint_give_the_same_text(finished, tmp_path, capsys) -> None:
    run = run_of(finished)
    export_run(run, tmp_path / "ours")
    export_hf(run, tmp_path / "hf")
    for folder in (run.path, tmp_path / "ours", tmp_path / "hf"):
        code, out, _ = said(capsys, folder, "--prompt", PROMPT, "--tokens", 9, "--temperature", 0, "--json")
        assert code == 0
        answer = json.loads(out)
        # A checkpoint of Transformers has the separator where byte 0 was, and leaves it out of a text.
        text = expected(run, 9)
        assert answer["text"] == (text.replace("\0", "") if folder.name == "hf" else text)
        assert answer["step"] == (6 if folder == run.path else None)


def test_the_text_is_sampled_as_the_tokens_are(finished, capsys) -> None:
    run = run_of(finished)
    texts = set()
    for seed in range(3):
        _, out, _ = said(capsys, run.path, "--prompt", PROMPT, "--tokens", 8, "--temperature", 1, "--seed", seed)
        assert out == expected(run, 8, temperature=1.0, seed=seed) + "\n"
        texts.add(out)
    assert len(texts) == 3


def test_without_a_number_the_text_ends_where_the_positions_do(finished, capsys) -> None:
    run = run_of(finished)
    _, out, _ = said(capsys, run.path, "--prompt", PROMPT, "--json")
    assert json.loads(out)["new_tokens"] == newest_weights(run).spec.model.max_seq - len(PROMPT)


def test_a_character_of_several_tokens_is_whole(finished) -> None:
    model = newest_weights(run_of(finished)).model()
    with torch.no_grad():
        model.head.weight.zero_()  # greedy decoding then repeats id 0
    assert addnorm.generate(model, "é", new_tokens=2) == "é\0\0"
    assert addnorm.generate(model, "中文", new_tokens=1).startswith("中文")


def test_wrong_targets_and_prompts_are_told_what_is_wrong(finished, tmp_path, capsys) -> None:
    run = run_of(finished)
    export_run(run, tmp_path / "bare")
    (tmp_path / "bare" / "tokenizer.json").unlink()
    export_run(run, tmp_path / "own")
    (tmp_path / "own" / "tokenizer.json").write_text('{"kind": "syllables"}')
    export_run(run, tmp_path / "damaged")
    (tmp_path / "damaged" / "tokenizer.json").write_text("{")
    for folder, part in [
        (finished, "It contains runs; give one of them"),
        (tmp_path / "nowhere", "expected a run with spec.json"),
        (tmp_path / "bare", "expected a tokenizer.json beside the weights"),
        (tmp_path / "own", "'syllables'"),
        (tmp_path / "damaged", "tokenizer.json: expected the tokenizer of the model"),
    ]:
        code, out, err = said(capsys, folder, "--prompt", PROMPT)
        assert (code, out) == (2, ""), err
        assert part in err
        assert "Traceback" not in err
    for option, value, part in [
        ("--tokens", -1, "new_tokens"),
        ("--temperature", -1, "temperature"),
        ("--top-k", 0, "top_k"),
    ]:
        code, _, err = said(capsys, run.path, "--prompt", PROMPT, option, value)
        assert code == 2
        assert part in err


def test_a_damaged_tokenizer_keeps_no_model_from_being_loaded(finished, tmp_path) -> None:
    folder = export_run(run_of(finished), tmp_path / "exported")
    (folder / "tokenizer.json").write_text("{")
    model = addnorm.load(folder)  # its tokens are as good as ever
    assert (folder / WEIGHTS).is_file()
    assert addnorm.generate(model, torch.tensor([[1]]), new_tokens=1).shape == (1, 2)
    with pytest.raises(InputError, match=r"tokenizer\.json"):
        addnorm.generate(model, "a", new_tokens=1)
