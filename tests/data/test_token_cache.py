"""Tokens of large corpora: bounded memory, a shared cache that is verified, and preparations that go on after a kill."""

import json
import os
import random
import shutil
import tracemalloc
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest

from addnorm.data import Dataset, preparation, prepare, token_files
from addnorm.data.corpora.text import Text
from addnorm.data.token_files import Progress
from addnorm.data.tokenizers import bpe
from addnorm.data.tokenizers.bpe import Bpe, BpeTokenizer
from addnorm.data.tokenizers.bytes import Bytes, ByteTokenizer
from addnorm.errors import InputError

LINE = "The quick brown fox jumps over the lazy dog, é and 中.\n"


def corpus_of(folder: Path, lines: int = 2000) -> Text:
    folder.mkdir(exist_ok=True)
    (folder / "a.txt").write_text("".join(f"{n} {LINE}" for n in range(lines)), encoding="utf-8")
    return Text(path=str(folder / "a.txt"))


@pytest.fixture
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pieces, batches and journals of a hundredth of their size."""
    for name, value in (("_PIECE", 2**12), ("_BATCH", 2**13), ("_JOURNAL_TOKENS", 2**13), ("_TELL_S", 0.0)):
        monkeypatch.setattr(token_files, name, value)


class Dies(Exception):
    """In place of a kill."""


@pytest.mark.usefixtures("small_batches")
class TestResumed:
    def test_goes_on_and_encodes_nothing_twice(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        corpus = corpus_of(tmp_path / "text")
        whole = prepare(corpus, Bytes(), tmp_path / "whole")
        encode, done = ByteTokenizer.encode, 0

        def dying(tokenizer: ByteTokenizer, text: str) -> np.ndarray:
            nonlocal done
            done += len(text)
            if done > 60_000:
                raise Dies
            return encode(tokenizer, text)

        monkeypatch.setattr(ByteTokenizer, "encode", dying)
        with pytest.raises(Dies):
            prepare(corpus, Bytes(), tmp_path / "data")
        journal = json.loads((tmp_path / ".data.building" / "progress.json").read_text())
        assert 30_000 < journal["train"] < 60_000
        with open(tmp_path / ".data.building" / "train.tokens", "ab") as torn:
            torn.write(b"half a")
        done = -1_000_000
        resumed = prepare(corpus, Bytes(), tmp_path / "data")
        assert (
            done + 1_000_000 < len(whole.train) + len(whole.held) - 30_000
        )  # the journal's share was not encoded again
        assert resumed.hash == whole.hash
        for name in ("train.tokens", "held.tokens", "dataset.json"):
            assert (resumed.folder / name).read_bytes() == (whole.folder / name).read_bytes()
        assert not (tmp_path / ".data.building").exists()

    def test_another_text_begins_anew(self, tmp_path: Path) -> None:
        corpus = corpus_of(tmp_path / "text")

        def dying(progress: Progress) -> None:
            if progress.tokens > 30_000:
                raise Dies

        with pytest.raises(Dies):
            prepare(corpus, Bytes(), tmp_path / "data", dying)
        assert (tmp_path / ".data.building" / "progress.json").exists()
        corpus_of(tmp_path / "text", lines=300)
        assert prepare(corpus, Bytes(), tmp_path / "data").train_bytes < 300 * 70

    def test_tells_the_progress(self, tmp_path: Path) -> None:
        told: list[Progress] = []
        corpus = corpus_of(tmp_path / "text")
        prepare(corpus, Bytes(), tmp_path / "data", told.append)
        size = (tmp_path / "text" / "a.txt").stat().st_size
        assert len(told) > 10
        assert all(progress.total == size for progress in told)
        assert [progress.read for progress in told] == sorted(progress.read for progress in told)
        assert told[-1].read == size


def _die() -> None:
    raise Dies


class TestCache:
    def test_two_studies_share_the_tokens(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        corpus = corpus_of(tmp_path / "text")
        alone = prepare(corpus, Bytes(), tmp_path / "alone")
        monkeypatch.setenv("ADDNORM_CACHE", str(tmp_path / "cache"))
        one = prepare(corpus, Bytes(), tmp_path / "one" / "data")
        monkeypatch.setattr(ByteTokenizer, "encode", lambda *arguments: _die())  # whoever encodes again
        two = prepare(corpus, Bytes(), tmp_path / "two" / "data")
        assert one.hash == two.hash == alone.hash
        assert np.array_equal(two.train, alone.train)
        assert {path.name for path in two.folder.iterdir()} == {"dataset.json", "tokenizer.json"}
        assert len(list((tmp_path / "cache" / "tokens").glob("[!.]*"))) == 1
        # A worker on another host has the study's folder, and no variable.
        monkeypatch.delenv("ADDNORM_CACHE")
        assert np.array_equal(Dataset.load(tmp_path / "two" / "data").held, alone.held)

    def test_a_damaged_entry_is_made_again(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        corpus = corpus_of(tmp_path / "text")
        monkeypatch.setenv("ADDNORM_CACHE", str(tmp_path / "cache"))
        one = prepare(corpus, Bytes(), tmp_path / "one")
        expected = one.train.tobytes()
        (file,) = (tmp_path / "cache").rglob("train.tokens")
        content = bytearray(file.read_bytes())
        content[1000] ^= 1
        file.write_bytes(content)
        assert prepare(corpus, Bytes(), tmp_path / "two").train.tobytes() == expected

    def test_a_changed_file_is_another_entry(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("ADDNORM_CACHE", str(tmp_path / "cache"))
        hashes = {prepare(corpus_of(tmp_path / "text", n), Bytes(), tmp_path / str(n)).hash for n in (100, 200)}
        assert len(hashes) == 2

    def test_a_host_that_does_not_see_the_cache_is_told(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("ADDNORM_CACHE", str(tmp_path / "cache"))
        prepare(corpus_of(tmp_path / "text"), Bytes(), tmp_path / "data")
        shutil.rmtree(tmp_path / "cache")
        with pytest.raises(
            InputError, match=r"expected its tokens in .*got no such folder on this host. Set ADDNORM_CACHE"
        ):
            Dataset.load(tmp_path / "data")


def test_memory_does_not_grow_with_the_corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four times the text in one file, which is one training document, needs no more memory."""
    monkeypatch.setattr(token_files, "_BATCH", 2**19)
    monkeypatch.setattr(token_files, "_PIECE", 2**19)
    peaks = []
    for megabytes in (8, 32):
        file = tmp_path / f"{megabytes}.txt"
        file.write_bytes((LINE * 2000 + "\n").encode() * (megabytes * 10))
        size = os.path.getsize(file)
        tracemalloc.start()
        dataset = prepare(Text(path=str(file)), Bytes(), tmp_path / f"data {megabytes}")
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert dataset.train_bytes + dataset.held_bytes == size
        assert peaks[-1] < size * 4
    assert peaks[1] < 1.1 * peaks[0]


@pytest.mark.parametrize(("largest", "share"), [(2**26, 1), (2**15, 1 / 4)])
def test_a_tokenizer_is_trained_on_a_part_of_a_large_corpus_that_is_spread_over_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, largest: int, share: float
) -> None:
    monkeypatch.setattr(preparation, "_FITTED_PIECE", 2**9)
    monkeypatch.setattr(preparation, "_FITTED_BYTES", largest)
    seen: list[str] = []
    fit = Bpe.fit

    def noting(spec: Bpe, texts: Iterable[str]) -> BpeTokenizer:
        seen.extend(texts)
        return fit(spec, seen)

    monkeypatch.setattr(Bpe, "fit", noting)
    dataset = prepare(corpus_of(tmp_path / "text"), Bpe(vocab=280), tmp_path / "data")
    whole = tmp_path / "text" / "a.txt"
    size = whole.stat().st_size
    fitted = "".join(seen)
    assert len(fitted.encode()) == pytest.approx(share * dataset.train_bytes, rel=0.05)
    lines = [int(line.partition(" ")[0]) for line in fitted.splitlines()]
    quarters = np.histogram(lines, bins=4, range=(0, 0.95 * 2000))[0]
    assert quarters.min() > 0.8 * quarters.max()
    assert 3 * 2**15 < size <= 4 * 2**15


def test_encoding_in_parallel_gives_the_same_ids(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    corpus = corpus_of(tmp_path / "text", 300)
    tokenizer = Bpe(vocab=280).fit([document.read() for document in corpus.documents()])
    chance = random.Random(0)
    marks = [
        "a",
        "ab",
        "é",
        "中",
        "'s",
        "1",
        ".",
        "<|end|>",
        *(["\n"] * 6),
        " ",
        "  ",
        "\t",
        "\r\n",
        "\u00a0",
        "\u2028",
        "\x1c",
        "\x85",
        "\u200b",
    ]
    texts = [LINE, "", "<|end|> 中", LINE * 3, *("".join(chance.choices(marks, k=300)) for _ in range(200))]
    expected = [tokenizer._engine.encode(text, add_special_tokens=False).ids for text in texts]
    monkeypatch.setattr(bpe, "_PART", 5)
    assert len(bpe._parts(texts[3])) == 3
    assert sum(len(bpe._parts(text)) for text in texts) > 2000
    assert [tokenizer.encode(text).tolist() for text in texts] == expected
    assert [ids.tolist() for ids in tokenizer.encode_all(texts)] == expected
    monkeypatch.setattr(bpe, "_LEAST_IN_PARALLEL", 0)
    monkeypatch.setattr(bpe, "_CHARACTERS_PER_THREAD", 400)
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "true")  # else later forks of this process would be warned about
    assert [ids.tolist() for ids in tokenizer.encode_all(texts)] == expected
