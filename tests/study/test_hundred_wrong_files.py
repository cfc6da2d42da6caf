"""A hundred and more wrong study files, as newcomers write them: each is refused in one line, with its place and what to write.

Through `addnorm plan`, in process, so that what only the data or a built model can show is refused there too. A list of whole
messages is tests/study/test_study_files.py.
"""

# ruff: noqa: E501 - a table, with the marks of a Chinese keyboard

from pathlib import Path

import pytest

from addnorm.cli import main

STUDY = """name: mine
model: {preset: base, width: 16, depth: 2, heads: 2, kv_heads: 1, hidden: 16, max_seq: 16}
corpus: {kind: text, path: text.txt}
tokenizer: bytes
training: {steps: 20, batch: 2, seq: 16, eval_sequences: 4}
seeds: [0, 1, 2]
references: [base]
variants:
  base: {}
  zero: {residual: rezero}
"""
WRONG = [
    ('name: mine', 'name：mine', 's.yaml, line 2', "Line 1 has the full-width '：': write ':'"),
    ('seeds: [0, 1, 2]', 'seeds: [0，1，2]', '$.seeds[0]', 'Write 0, 1, 2'),
    ('seeds: [0, 1, 2]', 'seeds： [0, 1, 2]', 's.yaml, line 7', "Line 6 has the full-width '：': write ':'"),
    ('steps: 20', 'steps：20', '$.training', 'Write steps: 20'),
    ('steps: 20', 'steps: ２０', '$.training.steps', 'Write 20'),
    ('batch: 2,', 'batch: 2，', 's.yaml, line 5', "Line 5 has the full-width '，': write ','"),
    ('zero: {residual: rezero}', 'zero: {residual： rezero}', '$.variants.zero', 'Write residual: rezero'),
    ('path: text.txt}', 'path: text.txt｝', 's.yaml, line 4', "Line 3 has the full-width '｝': write '}'"),
    ('  base: {}', '\tbase: {}', 's.yaml, line 9', 'Line 9 begins with a tab: write spaces'),
    ('name: mine', 'name: “mine”', '$.name', 'Write mine'),
    ('references: [base]', 'references: 【base】', '$.references', 'Write [base]'),
    ('seeds: [0, 1, 2]', 'seeds: [0, 1, 2', 's.yaml, line 7', "expected ',' or ']'"),
    ('name: mine', 'name: mine\nname: yours', '$', 'Keep one'),
    ('seeds: [0, 1, 2]', 'seeds:0, 1, 2', 's.yaml, line 7', 'Line 6 has no space behind its colon: write one'),
    ('tokenizer: bytes', 'tokenizer: bytes\n  extra: 1', 's.yaml, line 5', 'Its indentation'),
    (STUDY, '', '$', 'Begin with the file that addnorm new --blank writes'),
    (STUDY, '- a\n- b\n', '$', 'Begin with the file that addnorm new --blank writes'),
    (STUDY, 'hello\n', '$', 'Begin with the file that addnorm new --blank writes'),
    ('training: {', 'lr: 3e-4\ntraining: {', '$', 'Write training.optimizer.learning_rate'),
    ('steps: 20', 'epochs: 3', '$.training', 'Write tokens'),
    ('steps: 20', 'max_steps: 20', '$.training', 'Write steps'),
    ('training: {', 'training: {lr: 1e-3, ', '$.training', 'Write training.optimizer.learning_rate'),
    ('training: {', 'training: {learning_rate: 1e-3, ', '$.training', 'Write training.optimizer.learning_rate'),
    ('batch: 2', 'batch_size: 2', '$.training', 'Write batch'),
    ('depth: 2', 'n_layers: 2', '$.model', 'Write depth'),
    ('depth: 2', 'num_hidden_layers: 2', '$.model', 'Write depth'),
    ('width: 16', 'd_model: 16', '$.model', 'Write width'),
    ('width: 16', 'hidden_size: 16', '$.model', 'Write width'),
    ('width: 16', 'n_embd: 16', '$.model', 'Write width'),
    ('heads: 2', 'n_heads: 2', '$.model', 'Write heads'),
    ('heads: 2', 'n_head: 2', '$.model', 'Write heads'),
    ('seq: 16, eval', 'seq_len: 16, eval', '$.training', 'Write seq'),
    ('max_seq: 16', 'block_size: 16', '$.model', 'Write training.seq'),
    ('hidden: 16', 'd_ff: 16', '$.model', 'Write hidden'),
    ('hidden: 16', 'intermediate_size: 16', '$.model', 'Write hidden'),
    ('seeds: [0, 1, 2]', 'seed: 0', '$', "did you mean 'seeds'"),
    ('references: [base]', 'reference: base', '$', "did you mean 'references'"),
    ('references: [base]', 'baseline: base', '$', 'Write references'),
    ('training: {', 'training: {weight_decay: 0.1, ', '$.training', 'Write training.optimizer.weight_decay'),
    ('training: {', 'training: {warmup: 10, ', '$.training', 'Write training.schedule.warmup'),
    ('corpus: {kind: text, path: text.txt}', 'dataset: text.txt', '$', 'Write corpus'),
    ('corpus: {kind: text, path: text.txt}', 'corpus: text.txt', '$.corpus', 'Write {kind: text, path: text.txt}'),
    ('corpus: {kind: text, path: text.txt}', 'corpus: {path: text.txt}', '$.corpus', 'Write kind: text'),
    ('corpus: {kind: text, path: text.txt}', 'corpus: wikitext', '$.corpus', "did you mean 'text'"),
    ('model: {preset: base', 'model: {preset: gpt2x', '$.model.preset', "did you mean 'gpt2'"),
    ('model: {preset: base, width: 16, depth: 2, heads: 2, kv_heads: 1, hidden: 16, max_seq: 16}', 'model: gpt2', '$.model', 'Write {preset: gpt2}'),
    ('zero: {residual: rezero}', 'zero: rezero', '$.variants.zero', 'Write {residual: rezero}'),
    ('zero: {residual: rezero}', 'zero: gpt2', '$.variants.zero', 'Write {preset: gpt2}'),
    ('tokenizer: bytes', 'tokenizer: gpt2', '$.tokenizer', 'Write {kind: pretrained, path: FOLDER}, with its tokenizer.json'),
    ('tokenizer: bytes', 'tokenizer: tokenizer.json', '$.tokenizer', 'Write {kind: pretrained, path: tokenizer.json}'),
    ('tokenizer: bytes', 'tokenizer: byte', '$.tokenizer', "did you mean 'bytes'"),
    ('steps: 20', 'steps: 1e3', '$.training.steps', 'Write 1000'),
    ('steps: 20', 'steps: 2.5', '$.training.steps', 'expected a whole number, got'),
    ('steps: 20', 'steps: twenty', '$.training.steps', 'expected a whole number, got'),
    ('steps: 20', 'steps: -1', '$.training.steps', 'expected a whole number of at least 0, got'),
    ('steps: 20', 'steps: true', '$.training.steps', 'expected a whole number, got'),
    ('steps: 20', "steps: '20'", '$.training.steps', 'Write 20 without quotes'),
    ('steps: 20', 'steps:', '$.training.steps', 'expected a whole number, got'),
    ('batch: 2', 'batch: 0', '$.training.batch', 'expected a whole number of at least 1, got'),
    ('seq: 16, eval', 'seq: 0, eval', '$.training.seq', 'expected a whole number of at least 1, got'),
    ('seeds: [0, 1, 2]', 'seeds: 3', '$.seeds', 'Write [3]'),
    ('seeds: [0, 1, 2]', 'seeds: []', '$.seeds', 'expected at least one seed'),
    ('seeds: [0, 1, 2]', 'seeds: [a]', '$.seeds[0]', 'expected a whole number, got'),
    ('seeds: [0, 1, 2]', 'seeds: 0..4', '$.seeds', 'Write [0, 1, 2, 3, 4]'),
    ('references: [base]', 'references: base', '$.references', 'Write [base]'),
    ('references: [base]', 'references: [bas]', '$.references', 'Known: base, zero'),
    ('references: [base]', 'margin: 0\nreferences: [base]', '$.margin', 'expected a positive number of nats per token, got'),
    ('references: [base]', 'margin: 0.5%\nreferences: [base]', '$.margin', 'expected a finite number, got'),
    ('name: mine', 'name: my study', '$.name', 'Write my-study'),
    ('name: mine', 'name: 我的研究', '$.name', 'a title may be in any script'),
    ('name: mine', 'name: 3', '$.name', 'Put it in quotes'),
    ('name: mine\n', '', '$', "needs the field 'name'"),
    ('training: {', 'training: {optimizer: adam, ', '$.training.optimizer', "did you mean 'adamw'"),
    ('training: {', 'training: {optimizer: {kind: adamw, lr: 1e-3}, ', '$.training.optimizer', 'Write learning_rate'),
    ('training: {', 'training: {optimizer: {kind: adamw, learning_rate: 0}, ', '$.training.optimizer.learning_rate', 'expected a positive number, got'),
    ('training: {', 'training: {schedule: linear, ', '$.training.schedule', 'Write wsd'),
    ('training: {', 'training: {precision: fp16, ', '$.training.precision', "expected one of 'float32'"),
    ('heads: 2, kv', 'heads: 3, kv', '$.variants.base', 'Choose heads from [1, 2, 4, 8, 16]'),
    ('kv_heads: 1', 'kv_heads: 3', '$.variants.base', 'Choose kv_heads from [1, 2]'),
    ('zero: {residual: rezero}', 'zero: {residual: rezro}', '$.variants.zero.residual', "did you mean 'rezero'"),
    ('zero: {residual: rezero}', 'zero: {residual: {alpha_init: 1}}', '$.variants.zero.residual', 'Write its kind: rezero'),
    ('zero: {residual: rezero}', 'zero: {residual: {kind: rezero, alpha: 1}}', '$.variants.zero.residual', "did you mean 'alpha_init'"),
    ('zero: {residual: rezero}', 'zero: {norm: layernorm}', '$.variants.zero.norm', 'Write layer'),
    ('zero: {residual: rezero}', 'zero: {placement: prenorm}', '$.variants.zero.placement', 'Write pre'),
    ('zero: {residual: rezero}', 'zero: {dropout: 2}', '$.variants.zero.dropout', 'must lie in [0, 1)'),
    ('zero: {residual: rezero}', 'zero: {python: mine.py}', '$.variants.zero', "Write the function in a file: its content is part of a run's identity"),
    ('zero: {residual: rezero}', 'zero: {from: missing}', '$.variants.zero', 'Write one with save_pretrained'),
    ('zero: {residual: rezero}', 'a/b: {}', '$.variants', 'Write a-b'),
    ('zero: {residual: rezero}', '变体: {}', '$.variants', 'a title may be in any script'),
    ('zero: {residual: rezero}', 'on: {}', '$.variants', 'Put it in quotes'),
    ('variants:\n  base: {}\n  zero: {residual: rezero}\n', '', '$.variants', 'Write {base: {}, mine: {}}'),
    ('variants:\n  base: {}\n  zero: {residual: rezero}\n', 'variants: [base, zero]\n', '$.variants', 'Write {base: {}, zero: {}}'),
    ('width: 16', 'widht: 16', '$.model', "did you mean 'width'"),
    ('width: 16', 'width: 15', '$.variants.base', 'Choose heads from [1, 3, 5, 15]'),
    ('seeds:', 'grid: {depht: [1, 2]}\nseeds:', '$.grid.depht', "did you mean 'depth'"),
    ('seeds:', 'tune: {over: {training.optimizer.learning_rate: [1e-3, 3e-3]}}\nseeds:', '$.tune', 'Add seeds: [100, 101]'),
    ('seeds:', 'tune: {seeds: [0], over: {training.optimizer.learning_rate: [1e-3, 3e-3]}}\nseeds:', '$.tune.seeds', 'Name other tuning seeds'),
    ('seeds:', 'compare: [[zero, bse]]\nseeds:', '$.compare[0]', "did you mean 'base'"),
    ('seeds:', 'default_profile: quik\nseeds:', 'no profile', 'Known: none'),
    ('seeds:', 'plugins: [mechanism.py]\nseeds:', '$.plugins', 'Give a path relative to the study, or an absolute one'),
    ('seeds:', 'plugins: mechanism.py\nseeds:', '$.plugins', 'Write [mechanism.py]'),
    ('seeds:', 'replicate: [2, 3, 4]\nseeds:', '$.replicate', 'name others'),
    ('seeds:', 'replicate: [3]\nseeds:', '$.replicate', 'expected at least 3 seeds'),
    ('path: text.txt', 'path: missing.txt', '$.corpus', 'Give a path relative to this folder, or an absolute one'),
    ('path: text.txt', 'path: empty.txt', '$.corpus', 'Give another'),
    ('path: text.txt', 'path: gbk.txt', '$.corpus', 'Convert it'),
    ('path: text.txt', 'path: short.txt', '$.corpus', 'Break its lines, give a longer file, or a held_out_path'),
    ('path: text.txt', 'path: picture.png', '$.corpus', 'Convert it from the one it was written in'),
    ('corpus: {kind: text, path: text.txt}', 'corpus: {kind: stdlib, max_bytes: 10}', '$.corpus', 'Raise max_bytes'),
    ('training: {', 'training: {schedule: {kind: cosine, warmup: 50}, ', '$.training.schedule.warmup', 'Lower warmup, or train for longer'),
    ('training: {steps: 20', 'training: {steps: 20, tokens: 100', '$.training', 'Keep one'),
    ('training: {steps: 20', 'training: {tokens: 10', '$.training.tokens', 'Raise it, or set steps'),
    ('training: {', 'training: {shards: 3, ', '$.training.shards', 'The largest is 2'),
    ('training: {', 'training: {log_every: 0, ', '$.training.log_every', 'expected a whole number of at least 1, got'),
    ('corpus: {kind: text, path: text.txt}', 'corpus: {kind: text, path: text.txt, held_out: 2}', '$.corpus.held_out', 'expected a share of the text between 0 and 1, got'),
    ('tokenizer: bytes', 'tokenizer: {kind: bpe, vocab: 9000}', '$.corpus', 'Lower vocab, or use more text'),
    ('tokenizer: bytes', 'tokenizer: {kind: bpe, vocab: 10}', '$.tokenizer.vocab', 'expected a whole number of at least 257, got'),
    ('model: {preset: base', 'model: {vocab: 100, preset: base', '$.variants.base.vocab', 'Leave vocab out'),
]  # fmt: skip
"""What is replaced, by what; the place and the cure in the message."""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LC_ALL", "C")
    Path("text.txt").write_text("".join(f"line {n} of the text, {n * n}\n\n" for n in range(200)), encoding="utf-8")
    Path("empty.txt").write_text("\n", encoding="utf-8")
    Path("short.txt").write_text("a few\nwords\n", encoding="utf-8")
    Path("gbk.txt").write_bytes("这是一个文本文件，用于训练。\n".encode("gbk") * 80)
    Path("picture.png").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 9)


def test_there_are_a_hundred_different_ones() -> None:
    assert len({STUDY.replace(old, new) for old, new, _, _ in WRONG}) == len(WRONG) >= 100


def test_the_study_itself_is_right(capsys: pytest.CaptureFixture[str]) -> None:
    Path("s.yaml").write_text(STUDY, encoding="utf-8")
    assert main(["plan", "s.yaml"]) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(("old", "new", "place", "cure"), WRONG, ids=[new[:40] or "empty" for _, new, _, _ in WRONG])
def test_it_is_refused_in_one_line_with_place_and_cure(
    old: str, new: str, place: str, cure: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert STUDY.count(old) == 1
    Path("s.yaml").write_text(STUDY.replace(old, new), encoding="utf-8")
    assert main(["plan", "s.yaml"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    (line,) = err.splitlines()
    assert line.startswith(("addnorm: s.yaml", "addnorm: study 'mine'"))
    assert (
        f"{place}: " in line or f"{place} (line " in line or f"{place}, column " in line or f"{place} 'quik'" in line
    ), line
    assert cure in line, line
