"""What a worker would refuse, `addnorm plan` and `addnorm run` refuse before anything is written, with the place."""

import json
import os
from pathlib import Path

import pytest

from addnorm.cli import main
from addnorm.study.loading import load_study
from addnorm.study.points import points
from addnorm.supervision.prepared import fitted_study
from addnorm.supervision.study_notes import study_notes
from sampled import sampled

STUDY = """name: s
model: {preset: base, width: 16, depth: 2, heads: 2, kv_heads: 2, hidden: 32, max_seq: 32}
corpus: {kind: text, path: c.txt}
tokenizer: bytes
training: {steps: 20, batch: 2, seq: 16, eval_sequences: 4}
seeds: [0, 1, 2]
variants: {a: {}, b: {residual: rezero}}
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("s.yaml").write_text(STUDY)
    Path("c.txt").write_text("".join(f"line {n} of the text, which has {n * n} in it\n\n" for n in range(200)))
    Path("short.txt").write_text("a few\nwords\n")
    Path("empty.txt").write_text("\n\n")
    Path("latin.txt").write_bytes(b"caf\xe9\n" * 40)
    Path("c.jsonl").write_text("".join(f'{{"text": "line {n}"}}\n' for n in range(200)))
    Path("mixed").mkdir()
    for name in ("a.txt", "b.txt", "C.TXT", "d.md"):
        Path("mixed", name).write_text("".join(f"{name} {n} of {n * n}\n\n" for n in range(200)))
    Path("mixed/gone.txt").symlink_to("nowhere.txt")
    Path("mixed/further").symlink_to("../one")
    Path("one").mkdir()
    Path("one/only.txt").write_text("one file\n" * 30)


BAD = [
    # schedule and steps
    (
        ["training.schedule={kind: cosine, warmup: 50}"],
        "$.training.schedule.warmup: expected fewer steps than the run's 20, got 50",
    ),
    (["training.schedule={kind: wsd, warmup: 20}"], "$.training.schedule.warmup: expected fewer"),
    (["training.schedule={kind: constant, warmup: 21}"], "$.training.schedule.warmup: expected fewer"),
    (
        ["training.schedule={kind: cosine, warmup: 0.99}"],
        "$.training.schedule.warmup: expected fewer steps than the run's 20, got 20",
    ),
    (["training.steps=1"], "$.training.schedule.warmup: expected fewer steps than the run's 1, got 1"),
    (["training.tokens=40"], "$.training.schedule.warmup: expected fewer steps than the run's 1, got 1"),
    (["training.tokens=31"], "$.training.tokens: expected a budget of at least one step"),
    (["training.flops=1.0"], "$.training.flops: expected a budget of at least one step"),
    (["training.tokens_per_parameter=1e-9"], "$.training.tokens_per_parameter: expected a budget"),
    (["variants.b.training.schedule={kind: wsd, warmup: 20}"], "$.variants.b.training.schedule.warmup: expected fewer"),
    (["variants.b.training.steps=1"], "$.variants.b.training.schedule.warmup: expected fewer"),
    (["variants.b.residual={kind: schedule, start: 100}"], "$.variants.b"),
    # vocabulary
    (["model.vocab=100"], "$.variants.a.vocab: expected at least 256, the ids of tokenizer 'bytes', got 100"),
    (["variants.b.vocab=255"], "$.variants.b.vocab: expected at least 256"),
    (["model.vocab=256", "model.objective=masked"], "expected at least 257, the ids of tokenizer 'bytes' and the mask"),
    (["tokenizer={kind: bpe, vocab: 300}", "model.vocab=299"], "$.variants.a.vocab: expected at least 300"),
    (["tokenizer={kind: bpe, vocab: 9000}"], "$.corpus: bpe.vocab: expected at most"),
    (["tokenizer={kind: pretrained, path: one}"], "one/tokenizer.json"),
    # text
    (["corpus.path=none.txt"], "$.corpus: corpus path none.txt: no such file or folder"),
    (["corpus.path=empty.txt"], "$.corpus: corpus file empty.txt: expected text, got an empty file"),
    (["corpus.path=latin.txt"], "$.corpus: corpus file latin.txt: expected UTF-8, got byte 0xe9"),
    (["corpus.path=one"], "$.corpus: corpus folder one: expected at least two .txt files"),
    (["corpus.held_out_path=c.txt"], "$.corpus: text.held_out_path: expected another path"),
    (["corpus.held_out_path=short.txt"], "$.corpus: corpus 'text': expected at least 16 + 1 held-out tokens"),
    (["corpus.held_out_path=none"], "$.corpus: corpus path none: no such file or folder"),
    (["corpus.held_out=1.5"], "$.corpus.held_out: expected a share"),
    (["corpus={kind: stdlib, max_bytes: 10}"], "$.corpus: corpus 'stdlib': expected text, got 0 documents"),
    (["corpus={kind: synthetic, num_documents: 2, num_lines: 1, num_symbols: 1}"], "expected at least 16 + 1 training"),
    (["training.seq=8000", "model.max_seq=8000"], "$.corpus: corpus 'text': expected at least 8000 + 1"),
    # the model on the study's sequences
    (["variants.b={position: {kind: xpos, span: 1.0e-9}}"], "$.variants.b"),
    (["variants.b={attention: running, scores: sum, windows: [4, null]}"], "$.variants.b"),
    (["variants.b={attention: stored, scores: own}"], "$.variants.b: attention: stored"),
    (["variants.b={scores: free, attention: running}"], "$.variants.b: attention: running"),
    (
        ["variants.b={norm: batch}", "training.shards=2"],
        "$.variants.b: expected modules that treat each sequence alone",
    ),
    # how it is trained
    (["training.shards=4"], "$.training.shards: expected a power of two that divides the batch"),
    (["training.devices=2", "training.shards=1"], "$.training.devices: expected at most the number of shards"),
    (["training.eval_sequences=0"], "$.training.eval_sequences: expected a whole number of at least 1"),
    (["training.init_from=nowhere"], "$.variants.a: training.init_from"),
    (["training.optimizer={kind: adamw, betas: [0.9, 1.0]}"], "$.training.optimizer.betas: expected numbers from 0"),
    (["training.precision=tf32"], "training.precision: tf32: expected a GPU"),
    (["corpus.path="], "$.corpus.path: expected a"),
]


def refused(capsys: pytest.CaptureFixture[str], command: str, settings: list[str]) -> str:
    code = main([command, "s.yaml", *(word for setting in settings for word in ("--set", setting))])
    captured = capsys.readouterr()
    assert code == 2, f"{captured.out}\n{captured.err}"
    assert "Traceback" not in captured.err
    return captured.err


@pytest.mark.parametrize(("settings", "expected"), sampled(2, BAD), ids=["; ".join(settings) for settings, _ in BAD])
def test_plan_refuses_it_with_the_place(settings: list[str], expected: str, capsys: pytest.CaptureFixture[str]) -> None:
    before = sorted(os.listdir())
    assert expected in refused(capsys, "plan", settings)
    assert sorted(os.listdir()) == before


@pytest.mark.parametrize(
    "settings", [BAD[0][0], BAD[10][0], BAD[12][0], BAD[29][0]], ids=["warm-up", "own steps", "vocab", "position"]
)
def test_run_refuses_it_before_there_is_a_folder(settings: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    before = sorted(os.listdir())
    refused(capsys, "run", settings)
    assert sorted(os.listdir()) == before


def rows(*settings: str) -> dict[str, int]:
    study = load_study("s.yaml", settings=settings)
    return {name: model.vocab for name, model in fitted_study(study, study.tokenizer.size).study.variants.items()}


class TestVocab:
    """A table may have more rows than the tokenizer ids, as padded ones have."""

    def test_is_the_tokenizers_where_it_is_not_given(self) -> None:
        assert rows() == {"a": 256, "b": 256}
        assert rows("model.objective=masked") == {"a": 257, "b": 257}

    def test_is_kept_where_it_is_given(self) -> None:
        assert rows("model.vocab=512") == {"a": 512, "b": 512}
        assert rows("variants.b.vocab=320") == {"a": 256, "b": 320}
        assert rows("model.vocab=512", "variants.b.preset=gpt2", "variants.b.heads=2") == {"a": 512, "b": 512}
        assert rows("model.vocab=32000") == {"a": 32000, "b": 32000}, "the default, but given"

    def test_a_grid_over_it_and_points_of_a_tuned_study(self) -> None:
        assert set(rows("grid.model.vocab=[256, 384]").values()) == {256, 384}
        study = load_study("s.yaml", settings=["model.vocab=384", "tune={seeds: [9], over: {depth: [1, 2]}}"])
        tuned = fitted_study(points(study).study, 256).study
        assert {model.vocab for model in tuned.variants.values()} == {384}

    def test_a_study_in_python_says_so(self) -> None:
        Path("p.py").write_text(
            "from addnorm import preset\nfrom addnorm.study.definition import Study\n"
            "sizes = dict(width=16, depth=1, heads=2, kv_heads=2, hidden=16, max_seq=300)\n"
            "def study():\n"
            "    variants = {name: preset('base', vocab=vocab, **sizes) for name, vocab in (('kept', 512), ('not', 511))}\n"
            "    return Study(name='p', variants=variants, own_vocab=('kept',))\n"
        )
        study = load_study("p.py")
        fitted = fitted_study(study, 256)
        assert {name: model.vocab for name, model in fitted.study.variants.items()} == {"kept": 512, "not": 256}
        (note,) = (note for note in study_notes(fitted) if note.startswith("vocab"))
        assert note.startswith("vocab: 511 is replaced by 256")
        assert note.endswith("Variants: not.")
        one = load_study("p.py", settings=["variants.not.vocab=640"])
        assert fitted_study(one, 256).study.variants["not"].vocab == 640


def notes(capsys: pytest.CaptureFixture[str], *settings: str) -> list[str]:
    assert main(["plan", "s.yaml", "--json", *(word for each in settings for word in ("--set", each))]) == 0
    found: list[str] = json.loads(capsys.readouterr().out)["notes"]
    return found


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (["model.max_seq=8"], "max_seq: 8 is replaced by 16, training.seq"),
        (["corpus={kind: text, path: c.txt, held_out: 0.3, held_out_path: one}"], "$.corpus.held_out: 0.3 is not used"),
        (["training.eval_sequences=4000"], "training.eval_sequences: the held-out text has"),
        (["variants.b.residual=add"], "$.variants.b: the same model and training as a (a reference)"),
        (["seeds=[0]"], "$.seeds: 1 seed(s), but a verdict needs 3"),
        (["corpus.path=mixed"], "$.corpus.path: 4 other file(s) or link(s) of mixed are not read"),
        (["corpus.held_out_path=mixed"], "$.corpus.held_out_path: 4 other file(s) or link(s) of mixed are not read"),
        (["corpus.path=c.jsonl"], "$.corpus.path: c.jsonl is read as plain text"),
        (["corpus={kind: text, path: one, held_out_path: one/only.txt}"], ""),
    ],
)
def test_what_is_replaced_or_not_used_is_named(
    settings: list[str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if not expected:
        assert "left out of the training text" in refused(capsys, "plan", settings)
        return
    assert any(note.startswith(expected) for note in notes(capsys, *settings))


def test_a_study_without_fault_has_no_notes(capsys: pytest.CaptureFixture[str]) -> None:
    assert notes(capsys) == []
