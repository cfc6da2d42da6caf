"""Data sets: whole or absent, the hash means the text, batches are a pure function of seed and step."""

import json
import math
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from addnorm.data import Dataset, held_batches, mask_tokens, prepare, token_files, train_batch
from addnorm.data.corpora import CorpusSpec, Document
from addnorm.data.corpora.synthetic import Synthetic
from addnorm.data.corpora.text import Text
from addnorm.data.draws import POSITIONS, RandomStream, words
from addnorm.data.tokenizers import Tokenizer, TokenizerSpec
from addnorm.data.tokenizers.bpe import Bpe
from addnorm.data.tokenizers.bytes import Bytes, ByteTokenizer
from addnorm.errors import InputError

SMALL = Synthetic(num_documents=20, num_lines=32)


@dataclass(frozen=True, kw_only=True)
class Listed(CorpusSpec):
    """The documents given."""

    given: tuple[tuple[str, str, bool], ...] = (("a", "one é", False), ("b", "two", True), ("c", "three", False))

    def documents(self) -> Iterator[Document]:
        return (Document(*fields) for fields in self.given)


@dataclass(frozen=True, kw_only=True)
class Letters(CorpusSpec):
    """Lower-case letters to train on, upper-case letters held out: no byte is on both sides."""

    train: int = 10_000
    held: int = 1_000

    def documents(self) -> Iterator[Document]:
        yield Document("lower", ("abcdefghijklmnopqrstuvwxyz" * self.train)[: self.train], False)
        yield Document("upper", ("ABCDEFGHIJKLMNOPQRSTUVWXYZ" * self.held)[: self.held], True)


class Wide(ByteTokenizer):
    """Bytes shifted beyond what 16 bits hold."""

    vocab = 70_000

    def encode(self, text: str) -> np.ndarray:
        return super().encode(text) + 69_000


@dataclass(frozen=True, kw_only=True)
class Fixed(TokenizerSpec):
    """A tokenizer given by its vocabulary's size."""

    vocab: int = 70_000

    @property
    def size(self) -> int:
        return self.vocab

    def fit(self, texts: Iterable[str]) -> Tokenizer:
        tokenizer = Wide()
        tokenizer.vocab = self.vocab
        return tokenizer

    @classmethod
    def load(cls, folder: Path) -> Tokenizer:
        return Wide()


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


class TestPrepare:
    def test_documents_end_in_a_separator_on_their_side(self, tmp_path: Path) -> None:
        dataset = prepare(Listed(), Bytes(), tmp_path / "data")
        assert dataset.train.tobytes() == np.frombuffer("one é\0three\0".encode(), np.uint8).astype("<u2").tobytes()
        assert bytes(dataset.held.astype(np.uint8)) == b"two\0"
        assert (dataset.vocab, dataset.mask_id) == (256, 256)
        assert (dataset.train_bytes, dataset.held_bytes) == (len("one éthree".encode()), 3)
        assert [dataset.byte_lengths[id] for id in dataset.held] == [1, 1, 1, 0]
        assert not dataset.train.flags.writeable
        assert dataset.corpus["kind"] == "test_data"

    def test_leaves_the_four_files(self, tmp_path: Path) -> None:
        prepare(Listed(), Bytes(), tmp_path / "deep" / "data")
        assert set(contents(tmp_path / "deep" / "data")) == {
            "dataset.json",
            "held.tokens",
            "tokenizer.json",
            "train.tokens",
        }
        assert {path.name for path in (tmp_path / "deep").iterdir()} == {"data", ".data.lock"}

    def test_is_the_same_bytes_every_time(self, tmp_path: Path) -> None:
        one = prepare(SMALL, Bpe(vocab=300), tmp_path / "one")
        two = prepare(SMALL, Bpe(vocab=300), tmp_path / "two")
        assert contents(one.folder) == contents(two.folder)

    def test_a_large_vocabulary_takes_four_bytes(self, tmp_path: Path) -> None:
        dataset = prepare(Listed(), Fixed(), tmp_path / "data")
        assert dataset.held.dtype == np.dtype("<u4")
        assert dataset.held.tolist() == [*(69_000 + byte for byte in b"two"), 0]

    def test_a_large_document_is_encoded_in_pieces_without_loss(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        text = "line\n" * 30 + "without an end of line é" * 20
        monkeypatch.setattr(token_files, "_PIECE", 17)
        dataset = prepare(Listed(given=(("a", text, False), ("b", "two", True))), Bytes(), tmp_path / "data")
        assert bytes(dataset.train.astype(np.uint8)).decode() == text + "\0"

    def test_bpe_sees_only_the_training_side(self, tmp_path: Path) -> None:
        train = tuple((f"t{i}", f"argument {i} of function\n", False) for i in range(300))
        one = prepare(Listed(given=(*train, ("h", "argument", True))), Bpe(vocab=280), tmp_path / "one")
        two = prepare(Listed(given=(*train, ("h", "zzz zzz " * 999, True))), Bpe(vocab=280), tmp_path / "two")
        assert one.tokenizer_hash == two.tokenizer_hash
        assert one.hash != two.hash
        assert one.tokenizer().decode(one.held) == "argument"

    @pytest.mark.parametrize(
        ("given", "message"),
        [
            ((), "corpus 'test_data': expected text, got 0 documents"),
            ((("a", "", False), ("b", "", True)), "expected text, got 2 documents without any"),
            ((("a", "x", False),), "expected held-out text, got none: all of its 1 documents"),
            ((("a", "x", True),), "expected training text, got none"),
            (
                (("a", "x", False), ("a", "y", True)),
                "corpus 'test_data': expected unique document names, got 'a' twice",
            ),
            ((("a", "x\ud800", False),), "document 'a': expected Unicode text"),
        ],
    )
    def test_a_corpus_that_cannot_serve_leaves_nothing(
        self, tmp_path: Path, given: tuple[tuple[str, str, bool], ...], message: str
    ) -> None:
        with pytest.raises(InputError, match=message):
            prepare(Listed(given=given), Bytes(), tmp_path / "data")
        assert {path.name for path in tmp_path.iterdir()} == {".data.lock"}

    def test_ids_beyond_the_vocabulary_are_refused(self, tmp_path: Path) -> None:
        with pytest.raises(InputError, match=r"tokenizer: expected ids in \[0, 100\), got \d+ to \d+\."):
            prepare(Listed(), Fixed(vocab=100), tmp_path / "data")


class TestHash:
    BASE = Listed().given

    def made(self, tmp_path: Path, *given: tuple[str, str, bool]) -> str:
        shutil.rmtree(tmp_path / "data", ignore_errors=True)
        return prepare(Listed(given=given), Bytes(), tmp_path / "data").hash

    @pytest.mark.parametrize(
        "changed",
        [
            (("a", "one e", False), BASE[1], BASE[2]),
            (("A", "one é", False), BASE[1], BASE[2]),
            (("a", "one é", True), BASE[1], BASE[2]),
            (BASE[1], BASE[0], BASE[2]),
            (BASE[0], BASE[1]),
            (("a", "one ét", False), BASE[1], ("c", "hree", False)),
        ],
        ids=["text", "name", "side", "order", "one fewer", "text moved across a border"],
    )
    def test_changes_with_everything_that_reaches_a_model(
        self, tmp_path: Path, changed: tuple[tuple[str, str, bool], ...]
    ) -> None:
        assert self.made(tmp_path, *changed) != self.made(tmp_path, *self.BASE)

    def test_changes_with_the_tokenizer(self, tmp_path: Path) -> None:
        hashes = {prepare(SMALL, Bpe(vocab=v), tmp_path / str(v)).hash for v in (290, 300)}
        assert len(hashes) == 2

    def test_ignores_dates_places_and_how_the_text_was_named_in_the_study(self, tmp_path: Path) -> None:
        for place, date in (("one", 1), ("far/away", 2_000_000_000)):
            (tmp_path / place).mkdir(parents=True)
            (tmp_path / place / "a.txt").write_text("line\n" * 100)
            os.utime(tmp_path / place / "a.txt", (date, date))
        one, two = (
            prepare(Text(path=str(tmp_path / place / "a.txt")), Bytes(), tmp_path / place / "data")
            for place in ("one", "far/away")
        )
        assert one.hash == two.hash


@dataclass(frozen=True, kw_only=True)
class Once(CorpusSpec):
    """A corpus that counts how often it is read, in a file."""

    counter: str

    def documents(self) -> Iterator[Document]:
        with Path(self.counter).open("a") as file:
            file.write("read\n")
        return Listed().documents()


class TestReopening:
    def test_does_not_read_the_corpus(self, tmp_path: Path) -> None:
        corpus = Once(counter=str(tmp_path / "count"))
        first = prepare(corpus, Bytes(), tmp_path / "data")
        reads = (tmp_path / "count").read_text()
        again = prepare(corpus, Bytes(), tmp_path / "data")
        assert (tmp_path / "count").read_text() == reads
        assert again.hash == first.hash
        assert Dataset.load(tmp_path / "data").hash == first.hash

    @pytest.mark.parametrize("file", ["train.tokens", "held.tokens", "dataset.json"])
    @pytest.mark.parametrize("damage", ["truncate", "remove", "garbage"])
    def test_a_damaged_one_is_made_anew(self, tmp_path: Path, file: str, damage: str) -> None:
        folder = tmp_path / "data"
        prepare(Listed(), Bytes(), folder)
        whole = contents(folder)
        if damage == "truncate":
            (folder / file).write_bytes(whole[file][: len(whole[file]) // 2])
        elif damage == "remove":
            (folder / file).unlink()
        else:
            (folder / file).write_bytes(b"[]")
        with pytest.raises(InputError, match=r"cannot be read|is damaged"):
            Dataset.load(folder)
        prepare(Listed(), Bytes(), folder)
        assert contents(folder) == whole

    @pytest.mark.parametrize("key", ["hash", "vocab", "dtype", "train", "corpus"])
    def test_a_description_without_a_key_is_refused(self, tmp_path: Path, key: str) -> None:
        folder = tmp_path / "data"
        prepare(Listed(), Bytes(), folder)
        content = json.loads((folder / "dataset.json").read_text())
        del content[key]
        (folder / "dataset.json").write_text(json.dumps(content))
        with pytest.raises(InputError, match=f"dataset.json: missing or wrong field: '{key}'"):
            Dataset.load(folder)

    def test_another_tokenizers_file_is_refused(self, tmp_path: Path) -> None:
        one = prepare(SMALL, Bpe(vocab=300), tmp_path / "one")
        two = prepare(SMALL, Bpe(vocab=301), tmp_path / "two")
        shutil.copy(two.folder / "tokenizer.json", one.folder / "tokenizer.json")
        with pytest.raises(InputError, match=r"tokenizer\.json: expected hash .*, got "):
            one.tokenizer()

    def test_other_data_in_the_folder_is_refused_and_kept(self, tmp_path: Path) -> None:
        folder = tmp_path / "data"
        prepare(Listed(), Bytes(), folder)
        whole = contents(folder)
        with pytest.raises(
            InputError, match=r"expected the data set of corpus .*Choose another folder, or delete that one"
        ):
            prepare(Letters(), Bytes(), folder)
        assert contents(folder) == whole

    def test_the_same_text_by_another_spec_is_the_same_data_set(self, tmp_path: Path) -> None:
        for name in ("here", "there"):
            (tmp_path / name).mkdir()
            (tmp_path / name / "a.txt").write_text("line\n" * 100)
        folder = tmp_path / "data"
        one = prepare(Text(path=str(tmp_path / "here" / "a.txt")), Bytes(), folder)
        two = prepare(Text(path=str(tmp_path / "there" / "a.txt")), Bytes(), folder)
        assert one.hash == two.hash

    @pytest.mark.parametrize("name", ["thesis.tex", "data"])
    def test_a_folder_with_anything_else_in_it_is_left_alone(self, tmp_path: Path, name: str) -> None:
        folder = tmp_path / "home" if name != "data" else tmp_path / "data"
        if name == "data":
            folder.write_text("a file")
        else:
            folder.mkdir()
            (folder / name).write_text("years of work")
        with pytest.raises(InputError, match=r"expected a folder for the data set alone, got (thesis\.tex|a file)"):
            prepare(Listed(), Bytes(), folder)
        assert folder.read_text() == "a file" if name == "data" else (folder / name).read_text() == "years of work"


SCRIPT = """
import os, sys
from pathlib import Path
from addnorm.data.corpora.synthetic import Synthetic
from addnorm.data import prepare
from addnorm.data import token_files
from addnorm.data.tokenizers.bytes import Bytes
if len(sys.argv) > 2:
    at, rename = sys.argv[2], os.rename
    if at == "write":
        token_files._Side.counts = lambda side: os._exit(9)
    elif at == "rename":
        os.rename = lambda *paths: os._exit(9)
    else:
        os.rename = lambda *paths: (rename(*paths), os._exit(9))
print(prepare(Synthetic(num_documents=20, num_lines=32), Bytes(), Path(sys.argv[1])).hash)
"""


def start(*arguments: str) -> "subprocess.Popen[str]":
    return subprocess.Popen([sys.executable, "-c", SCRIPT, *arguments], stdout=subprocess.PIPE, text=True)


class TestWholeOrAbsent:
    @pytest.mark.parametrize(("at", "left"), [("write", False), ("rename", False), ("after", True)])
    def test_a_kill_leaves_nothing_or_everything(self, tmp_path: Path, at: str, left: bool) -> None:
        folder = tmp_path / "data"
        with start(str(folder), at) as process:
            process.communicate()
        assert process.returncode == 9
        assert folder.exists() == left
        if left:
            Dataset.load(folder)
        else:
            assert (tmp_path / ".data.building").exists(), "the kill came while it was being made"
        dataset = prepare(SMALL, Bytes(), folder)
        assert contents(folder) == contents(prepare(SMALL, Bytes(), tmp_path / "fresh").folder)
        assert dataset.hash == Dataset.load(folder).hash
        assert not (tmp_path / ".data.building").exists()

    def test_nothing_of_a_dead_writer_stays(self, tmp_path: Path) -> None:
        (tmp_path / ".data.building").mkdir()
        (tmp_path / ".data.building" / "left.over").write_text("half")
        prepare(Listed(), Bytes(), tmp_path / "data")
        assert {path.name for path in tmp_path.iterdir()} == {"data", ".data.lock"}
        assert not (tmp_path / "data" / "left.over").exists()

    def test_two_at_once_agree(self, tmp_path: Path) -> None:
        processes = [start(str(tmp_path / "data")) for _ in range(2)]
        hashes = {process.communicate()[0].strip() for process in processes}
        assert [process.returncode for process in processes] == [0, 0]
        assert hashes == {Dataset.load(tmp_path / "data").hash}
        assert {path.name for path in tmp_path.iterdir()} == {"data", ".data.lock"}


@pytest.fixture(scope="module")
def letters(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return prepare(Letters(), Bytes(), tmp_path_factory.mktemp("letters") / "data")


def philox(counter: list[int], key: list[int]) -> list[int]:
    """Philox 4x64-10 written out from its paper, as a second opinion."""
    mask = 2**64 - 1
    x, k = list(counter), list(key)
    for _ in range(10):
        high0, low0 = divmod(0xD2E7470EE14C6C93 * x[0], 2**64)
        high1, low1 = divmod(0xCA5A826395121157 * x[2], 2**64)
        x = [high1 ^ x[1] ^ k[0], low1, high0 ^ x[3] ^ k[1], low0]
        k = [(k[0] + 0x9E3779B97F4A7C15) & mask, (k[1] + 0xBB67AE8584CAA73B) & mask]
    return x


class TestDraws:
    def test_the_second_opinion_gives_the_published_answer(self) -> None:
        # Known-answer test of Random123 for philox4x64-10, counter and key zero.
        assert philox([0] * 4, [0] * 2) == [
            0x16554D9ECA36314C,
            0xDB20FE9D672D0FDC,
            0xD7E772CEE186176B,
            0x7E68B68AEC7BA23B,
        ]

    @pytest.mark.parametrize(("seed", "step"), [(0, 0), (7, 123_456), (2**64 - 1, 2**63)])
    def test_words_are_philox_of_seed_stream_and_step(self, seed: int, step: int) -> None:
        expected = [word for block in (1, 2) for word in philox([block, 0, step, 0], [seed, 5])]
        assert words(seed, step, RandomStream(5), 8).tolist() == expected

    @pytest.mark.parametrize(("seed", "step"), [(-1, 0), (2**64, 0), (0, -1)])
    def test_outside_64_bits_is_refused(self, seed: int, step: int) -> None:
        with pytest.raises(InputError, match=r"(seed|step): expected a number in \[0, 2\*\*64\)"):
            words(seed, step, POSITIONS, 1)


class TestTrainBatch:
    def test_is_a_pure_function_of_seed_and_step(self, letters: Dataset) -> None:
        first = train_batch(letters, 1, 10, 4, 16)
        for step in (0, 11, 5):
            train_batch(letters, 1, step, 4, 16)
        assert np.array_equal(train_batch(letters, 1, 10, 4, 16), first)
        assert np.array_equal(train_batch(Dataset.load(letters.folder), 1, 10, 4, 16), first)
        assert first.shape == (4, 17)
        assert first.dtype == np.int64
        assert type(first) is np.ndarray

    def test_another_seed_or_step_gives_another_batch(self, letters: Dataset) -> None:
        batches = {train_batch(letters, seed, step, 8, 16).tobytes() for seed in range(5) for step in range(5)}
        assert len(batches) == 25

    def test_windows_are_runs_of_the_training_text(self, letters: Dataset) -> None:
        text = bytes(letters.train.astype(np.uint8))
        for window in train_batch(letters, 0, 0, 64, 16):
            assert bytes(window.astype(np.uint8)) in text

    def test_every_start_is_equally_likely_ends_included(self, tmp_path: Path) -> None:
        # 26 letters and a separator give 27 tokens: windows of 17 start at 0 to 10, so the first token tells where.
        dataset = prepare(Letters(train=26, held=26), Bytes(), tmp_path / "data")
        starts = np.concatenate([train_batch(dataset, 0, step, 500, 16)[:, 0] - ord("a") for step in range(40)])
        counts = np.bincount(starts, minlength=11)
        n, p = len(starts), 1 / 11
        assert len(counts) == 11
        assert np.abs(counts - n * p).max() < 6 * math.sqrt(n * p * (1 - p))  # six binomial standard deviations

    def test_too_short_a_corpus_is_refused_with_the_counts(self, tmp_path: Path) -> None:
        dataset = prepare(Letters(train=100, held=50), Bytes(), tmp_path / "data")
        assert train_batch(replace_side(dataset), 0, 0, 1, 100).shape == (1, 101)
        with pytest.raises(InputError, match=r"at least 200 \+ 1 training tokens.* got 101.*at most 100"):
            train_batch(dataset, 0, 0, 1, 200)
        with pytest.raises(InputError, match=r"at least 60 \+ 1 held-out tokens.* got 51.*at most 50"):
            dataset.require(60)


def replace_side(dataset: Dataset) -> Dataset:
    """The training side on both sides."""
    return replace(dataset, held=dataset.train)


class TestHeldBatches:
    def test_every_held_out_token_but_the_first_is_a_target_once(self, letters: Dataset) -> None:
        windows = np.concatenate(list(held_batches(letters, 4, 20)))
        assert np.array_equal(windows[:, 1:].ravel(), np.asarray(letters.held[1:1001]))
        assert np.array_equal(windows[:, :-1].ravel(), np.asarray(letters.held[:1000]))

    def test_none_is_ever_trained_on(self, letters: Dataset) -> None:
        trained = {int(t) for step in range(50) for t in train_batch(letters, 0, step, 16, 20).ravel()}
        held = {int(t) for batch in held_batches(letters, 8, 20) for t in batch.ravel()}
        assert trained & held <= {ByteTokenizer.separator}
        assert len(held) == 26 + 1, "all capitals and the separator were seen"

    @pytest.mark.parametrize("batch", [1, 3, 50, 1000])
    @pytest.mark.parametrize("limit", [None, 1, 7, 49, 1000])
    def test_the_windows_do_not_depend_on_the_batch_size(self, letters: Dataset, batch: int, limit: int | None) -> None:
        batches = list(held_batches(letters, batch, 20, limit))
        assert all(len(b) == batch for b in batches[:-1])
        windows = np.concatenate(batches)
        assert len(windows) == min(50, limit or 50)
        assert np.array_equal(windows, np.concatenate(list(held_batches(letters, 50, 20, limit))))

    def test_a_limit_spreads_them_evenly(self, tmp_path: Path) -> None:
        dataset = prepare(Letters(held=26), Bytes(), tmp_path / "data")
        starts = np.concatenate(list(held_batches(dataset, 2, 1, limit=5)))[:, 0] - ord("A")
        assert starts.tolist() == [0, 5, 10, 15, 20]

    def test_a_limit_of_none_at_all_is_refused(self, letters: Dataset) -> None:
        with pytest.raises(InputError, match="at least one held-out window, got 0"):
            held_batches(letters, 4, 20, limit=0)

    def test_too_short_a_side_is_refused_at_once(self, letters: Dataset) -> None:
        with pytest.raises(InputError, match=r"expected at least .* held-out tokens"):
            held_batches(letters, 4, 2000)


class TestMasking:
    TOKENS = np.arange(40_000, dtype=np.int64).reshape(200, 200) % 50

    def test_proportions(self) -> None:
        tokens = np.tile(self.TOKENS, (10, 1))
        inputs, targets, scored = mask_tokens(tokens, vocab=50, mask_id=50, seed=0, step=0)
        masked = inputs == 50
        changed = (inputs != targets) & ~masked
        n = tokens.size

        def within(count: int, total: int, share: float) -> bool:
            return abs(count - total * share) < 6 * math.sqrt(total * share * (1 - share))

        assert within(int(scored.sum()), n, 0.15)
        assert within(int(masked.sum()), int(scored.sum()), 0.8)
        # A replacement equals the token itself once in 50.
        assert within(int(changed.sum()), int(scored.sum()), 0.1 * 49 / 50)
        assert not (masked & ~scored).any()
        assert not (changed & ~scored).any()

    def test_replacements_use_the_whole_vocabulary_and_only_it(self) -> None:
        inputs, _, scored = mask_tokens(np.zeros((200, 500), np.int64), vocab=50, mask_id=50, seed=0, step=0, rate=1.0)
        assert scored.all()
        assert set(np.unique(inputs)) == set(range(51))

    def test_targets_are_the_tokens_which_stay_as_they_were(self) -> None:
        tokens = self.TOKENS.copy()
        masked = mask_tokens(tokens, vocab=50, mask_id=50, seed=3, step=4)
        masked.inputs[:] = -1
        assert np.array_equal(masked.targets, self.TOKENS)
        assert np.array_equal(tokens, self.TOKENS)

    def test_is_a_pure_function_of_seed_and_step(self) -> None:
        def inputs(seed: int, step: int) -> bytes:
            return mask_tokens(self.TOKENS, vocab=50, mask_id=50, seed=seed, step=step).inputs.tobytes()

        assert inputs(1, 2) == inputs(1, 2)
        assert len({inputs(seed, step) for seed in (0, 1) for step in (0, 1)}) == 4

    def test_at_least_one_position_is_scored(self) -> None:
        for step in range(100):
            masked = mask_tokens(np.ones((1, 3), np.int64), vocab=5, mask_id=5, seed=0, step=step, rate=1e-9)
            assert masked.scored.sum() == 1

    def test_does_not_follow_the_draws_of_the_positions(self) -> None:
        mask = words(0, 0, RandomStream(2), 100)
        assert not set(mask.tolist()) & set(words(0, 0, POSITIONS, 100).tolist())

    @pytest.mark.parametrize("rate", [0.0, -0.1, 1.1, math.nan])
    def test_a_rate_that_is_no_share_is_refused(self, rate: float) -> None:
        with pytest.raises(InputError, match="rate: expected a share"):
            mask_tokens(self.TOKENS, vocab=50, mask_id=50, seed=0, step=0, rate=rate)

    def test_a_mask_that_text_uses_is_refused(self) -> None:
        with pytest.raises(InputError, match=r"mask_id: expected an id from 50 on, .* got 49"):
            mask_tokens(self.TOKENS, vocab=50, mask_id=49, seed=0, step=0)
