"""Held-out text is not training text: copies under other names are left out and counted, other excerpts are reported."""

import hashlib
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from addnorm.data import Dataset, both_sides, prepare
from addnorm.data.corpora import CorpusSpec, Document
from addnorm.data.corpora.stdlib import Stdlib
from addnorm.data.corpora.synthetic import Synthetic
from addnorm.data.corpora.text import Text
from addnorm.data.tokenizers.bpe import Bpe
from addnorm.data.tokenizers.bytes import Bytes
from addnorm.errors import InputError

HELD = "held-out words that stand only here: zebra, quagga, okapi, and the number {n} of them\n\n"
OTHER = "training text of its own, about the sums of layers, with the number {n} as well\n\n"


def text(line: str, lines: int = 40, first: int = 0) -> str:
    return "".join(line.format(n=n * n + 7) for n in range(first, first + lines))


def trained_text(dataset: Dataset) -> str:
    return np.asarray(dataset.train).astype(np.uint8).tobytes().decode("utf-8")


def prepared(folder: Path, **fields: str) -> Dataset:
    paths = {name: str(folder / value) for name, value in fields.items()}
    return prepare(Text(**paths), Bytes(), folder / "prepared")  # type: ignore[arg-type]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A data set as it is published: a folder with its parts."""
    (tmp_path / "data").mkdir()
    (tmp_path / "data/train.txt").write_text(text(OTHER))
    (tmp_path / "data/valid.txt").write_text(text(HELD))
    return tmp_path


def link(folder: Path) -> None:
    os.symlink("valid.txt", folder / "data/again.txt")


def hard_link(folder: Path) -> None:
    os.link(folder / "data/valid.txt", folder / "data/again.txt")


def copy(folder: Path) -> None:
    (folder / "data/again.txt").write_text(text(HELD))


def windows_copy(folder: Path) -> None:
    """The same text with a byte order mark and another system's line ends."""
    (folder / "data/again.txt").write_bytes(b"\xef\xbb\xbf" + text(HELD).replace("\n", "\r\n").encode())


def without_last_line_end(folder: Path) -> None:
    (folder / "data/again.txt").write_text(text(HELD).rstrip("\n"))


def in_a_subfolder(folder: Path) -> None:
    (folder / "data/parts").mkdir()
    (folder / "data/parts/copy.txt").write_text(text(HELD) + "\n\n\n")


COPIES: list[Callable[[Path], None]] = [link, hard_link, copy, windows_copy, without_last_line_end, in_a_subfolder]


class TestLeftOut:
    @pytest.mark.parametrize("make", COPIES)
    def test_a_copy_of_the_held_out_file(self, make: Callable[[Path], None], folder: Path) -> None:
        make(folder)
        dataset = prepared(folder, path="data", held_out_path="data/valid.txt")
        assert trained_text(dataset) == text(OTHER) + "\0"
        assert dataset.both_sides.left_out == 2
        assert "2 document(s) left out of the training text" in dataset.both_sides.sentences()[0]
        assert json.loads((dataset.folder / "dataset.json").read_text())["both_sides"]["left_out"] == 2

    @pytest.mark.parametrize("make", COPIES)
    def test_a_folder_that_is_split_by_names(self, make: Callable[[Path], None], folder: Path) -> None:
        make(folder)
        (folder / "data/train.txt").unlink()
        (folder / "data/c.txt").write_text(text(OTHER))
        dataset = prepared(folder, path="data")
        held = np.asarray(dataset.held).astype(np.uint8).tobytes().decode("utf-8").split("\0")[0]
        assert "".join(held.split()).lstrip("\ufeff") not in "".join(trained_text(dataset).split())

    def test_a_folder_reached_through_a_link(self, folder: Path) -> None:
        os.symlink("data", folder / "same")
        dataset = prepared(folder, path="same", held_out_path="data/valid.txt")
        assert trained_text(dataset) == text(OTHER) + "\0"

    def test_the_tokenizer_is_not_trained_on_it(self, folder: Path) -> None:
        corpus = Text(path=str(folder / "data"), held_out_path=str(folder / "data/valid.txt"))
        alone = Text(path=str(folder / "data/train.txt"), held_out_path=str(folder / "data/valid.txt"))
        one, other = (prepare(each, Bpe(vocab=290), folder / name) for each, name in ((corpus, "a"), (alone, "b")))
        assert one.tokenizer_hash == other.tokenizer_hash
        assert one.train.tolist() == other.train.tolist()

    def test_one_short_file_under_two_paths(self, folder: Path) -> None:
        """Too short to be recognised by its text, but the same file."""
        (folder / "data/valid.txt").write_text("short text\n")
        link(folder)
        dataset = prepared(folder, path="data", held_out_path="data/valid.txt")
        assert trained_text(dataset) == text(OTHER) + "\0"

    def test_a_corpus_of_the_users_own(self, tmp_path: Path) -> None:
        dataset = prepare(Rows(), Bytes(), tmp_path / "data")
        assert (dataset.both_sides.left_out, dataset.both_sides.names) == (5, ("train/0", "train/1", "train/2"))
        assert trained_text(dataset).count("\0") == 15
        assert dataset.both_sides.sentences()[0].endswith("train/0, train/1, train/2, ….")

    def test_the_hash_is_that_of_the_text_that_is_left(self, folder: Path) -> None:
        alone = prepared(folder, path="data/train.txt", held_out_path="data/valid.txt")
        os.rename(folder / "prepared", folder / "first")
        copy(folder)
        assert prepared(folder, path="data", held_out_path="data/valid.txt").train.tolist() == alone.train.tolist()


@dataclass(frozen=True, kw_only=True)
class Rows(CorpusSpec):
    """Rows of two overlapping splits, as `train` and `train[:25%]` of a hub's data set."""

    def documents(self) -> Iterator[Document]:
        rows = [f"row {n}: " + text(OTHER, 2, first=3 * n) for n in range(20)]
        yield from (Document(f"train/{n}", row, False) for n, row in enumerate(rows))
        yield from (Document(f"valid/{n}", row, True) for n, row in enumerate(rows[:5]))


class TestRefused:
    def test_nothing_is_left(self, folder: Path) -> None:
        (folder / "data/train.txt").unlink()
        copy(folder)
        with pytest.raises(
            InputError, match=r"expected training text, got none\. 2 document\(s\) left out .*again\.txt"
        ):
            prepared(folder, path="data", held_out_path="data/valid.txt")

    def test_one_path_for_both(self, folder: Path) -> None:
        with pytest.raises(InputError, match="expected another path than 'path'"):
            prepared(folder, path="data", held_out_path="data/../data")


class TestStays:
    def test_data_without_copies_says_nothing(self, folder: Path) -> None:
        dataset = prepared(folder, path="data/train.txt", held_out_path="data/valid.txt")
        assert dataset.both_sides.sentences() == []
        assert "both_sides" not in json.loads((dataset.folder / "dataset.json").read_text())

    def test_short_boilerplate(self, folder: Path) -> None:
        """A line that many packages begin with is no copy."""
        (folder / "data/valid.txt").write_text("# This directory is a Python package.\n")
        (folder / "data/again.txt").write_text("# This directory is a Python package.\n")
        dataset = prepared(folder, path="data", held_out_path="data/valid.txt")
        assert "# This directory" in trained_text(dataset)
        assert dataset.both_sides.left_out == 1  # the held-out file itself

    def test_another_letter_makes_another_document(self, folder: Path) -> None:
        (folder / "data/again.txt").write_text(text(HELD) + "x")
        dataset = prepared(folder, path="data", held_out_path="data/valid.txt")
        assert dataset.both_sides.left_out == 1
        assert dataset.both_sides.repeated == 1.0, "but its excerpts are seen"

    @pytest.mark.parametrize("corpus", [Stdlib(max_bytes=200_000), Synthetic(num_documents=30, num_lines=4)])
    def test_the_corpora_of_the_library_are_what_they_were(self, corpus: CorpusSpec, tmp_path: Path) -> None:
        dataset = prepare(corpus, Bytes(), tmp_path / "data")
        assert dataset.both_sides.sentences() == []
        documents = [document for document in corpus.documents() if not document.held_out]
        assert len(dataset.train) == sum(len(document.read().encode()) + 1 for document in documents)


class TestExcerpts:
    """Held-out text inside longer training documents."""

    @pytest.mark.parametrize(
        "around",
        [
            lambda held: text(OTHER) + held + text(OTHER, first=50),
            lambda held: text(OTHER, 3) + "x" + held.replace("\n", " "),  # at another offset, in one line
            lambda held: "\n\n".join(reversed(held.split("\n\n"))),  # its paragraphs in another order
            lambda held: text(OTHER, 2000) + held,  # beyond the first block
        ],
        ids=["between", "shifted", "shuffled", "far"],
    )
    def test_one_file_that_contains_the_other(self, around: Callable[[str], str], folder: Path) -> None:
        (folder / "all.txt").write_text(around(text(HELD)))
        dataset = prepared(folder, path="all.txt", held_out_path="data/valid.txt")
        assert dataset.both_sides.repeated > 0.2
        assert "of the held-out text is also training text" in dataset.both_sides.sentences()[0]

    def test_the_share_is_that_of_the_text(self, folder: Path) -> None:
        """Lines of one excerpt each, none like another."""
        lines = [hashlib.sha256(str(n).encode()).hexdigest() + "\n" for n in range(60)]
        (folder / "data/valid.txt").write_text("".join(lines[:40]))
        (folder / "all.txt").write_text("".join(reversed(lines[30:])))
        assert prepared(folder, path="all.txt", held_out_path="data/valid.txt").both_sides.repeated == 0.25

    def test_one_file_that_repeats_itself(self, folder: Path) -> None:
        (folder / "all.txt").write_text(text(HELD, 10) * 20)
        assert prepared(folder, path="all.txt").both_sides.repeated > 0.8

    def test_more_excerpts_than_are_kept_are_sampled(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(both_sides, "_MOST_EXCERPTS", 8)
        monkeypatch.setattr(both_sides, "_BLOCK", 256)
        (folder / "all.txt").write_text(text(OTHER) + text(HELD, 20))
        share = prepared(folder, path="all.txt", held_out_path="data/valid.txt").both_sides.repeated
        assert 0.2 < share < 0.8
