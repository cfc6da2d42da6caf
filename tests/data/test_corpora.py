"""Corpora: the same text everywhere, nothing on both sides, and readable refusals."""

import hashlib
import math
import os
import shutil
import sys
import sysconfig
from collections import Counter
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from addnorm.data.corpora import CorpusSpec
from addnorm.data.corpora._split import hold_out, is_held_out
from addnorm.data.corpora._tasks import Draws
from addnorm.data.corpora.hf import HuggingFace
from addnorm.data.corpora.stdlib import Stdlib
from addnorm.data.corpora.synthetic import Synthetic
from addnorm.data.corpora.text import Text
from addnorm.errors import InputError


def sides(corpus: CorpusSpec) -> tuple[dict[str, str], dict[str, str]]:
    documents = list(corpus.documents())
    train = {d.name: d.read() for d in documents if not d.held_out}
    held = {d.name: d.read() for d in documents if d.held_out}
    assert len(train) + len(held) == len(documents), "names are unique, so none is on both sides"
    return train, held


def write(folder: Path, files: dict[str, str | bytes]) -> Path:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    return folder


class TestSplit:
    def test_of_many_names_the_share_is_held_out(self) -> None:
        names = [f"name {i}" for i in range(1000)]
        assert len(hold_out(names, 0.05)) == 50
        # Binomial(1000, 0.05): standard deviation 6.9; six of them leave a chance of 2e-9.
        assert abs(sum(is_held_out(name, 0.05) for name in names) - 50) < 6 * math.sqrt(1000 * 0.05 * 0.95)

    def test_at_least_one_is_held_out_and_one_is_not(self) -> None:
        assert [len(hold_out("ab", share)) for share in (0.001, 0.5, 0.999)] == [1, 1, 1]
        assert hold_out(["alone"], 0.5) == hold_out([], 0.5) == frozenset()

    def test_order_of_the_names_does_not_matter(self) -> None:
        names = [str(i) for i in range(100)]
        assert hold_out(names, 0.2) == hold_out(names[::-1], 0.2)

    @pytest.mark.parametrize("share", [0.0, 1.0, -0.1])
    @pytest.mark.parametrize("make", [Stdlib, Synthetic, lambda **f: Text(path="x", **f)])
    def test_a_share_outside_zero_to_one_is_refused(self, make: type, share: float) -> None:
        with pytest.raises(InputError, match="held_out: expected a share of the text between 0 and 1"):
            make(held_out=share)


class TestStdlib:
    def test_is_the_library_in_name_order_with_both_sides(self) -> None:
        documents = list(Stdlib().documents())
        names = [d.name for d in documents]
        assert names == sorted(set(names))
        assert {"ast.py", "asyncio/tasks.py", "pydoc_data/topics.py/assert"} <= set(names)
        total = sum(len(d.text.encode()) for d in documents)
        assert 6e6 < total < 20e6
        assert sum(d.held_out for d in documents) == round(0.05 * len(documents))

    def test_holds_no_tests_no_packages_and_nothing_of_this_machine(self) -> None:
        prefix = sysconfig.get_path("stdlib")
        for document in Stdlib().documents():
            assert not {"test", "tests", "idle_test", "site-packages", "encodings"} & set(document.name.split("/"))
            assert prefix not in document.text

    def test_help_topics_are_prose_and_not_also_one_source_file(self) -> None:
        texts = {d.name: d.read() for d in Stdlib().documents()}
        assert "pydoc_data/topics.py" not in texts
        assert texts["pydoc_data/topics.py/assert"].startswith('The "assert" statement\n')

    def test_a_packages_docstrings_are_prose_of_their_own(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        code = '"""About it."""\n\nclass A:\n    """An A."""\n\n    async def f(self):\n        """Does f.\n\n        Twice."""'
        write(
            tmp_path,
            {
                "told/__init__.py": code,
                "told/silent.py": "a = 1\n",
                "told/old.py": "print 1\n",
                "told/tests/t.py": '"""A test."""\n',
            },
        )
        monkeypatch.syspath_prepend(tmp_path)
        (document,) = Stdlib(package="told").documents()
        assert (document.name, document.read()) == ("told/__init__.py", "About it.\n\nAn A.\n\nDoes f.\n\nTwice.\n")
        for name in ("no_such_package", "ast", "../told", ""):
            with pytest.raises(InputError, match="package: expected an installed package with modules"):
                list(Stdlib(package=name).documents())

    @pytest.mark.parametrize("max_bytes", [50_000, 1_000_000])
    def test_a_subset_keeps_the_bound_both_sides_and_every_documents_side(self, max_bytes: int) -> None:
        whole_train, whole_held = sides(Stdlib())
        train, held = sides(Stdlib(max_bytes=max_bytes))
        assert train.items() <= whole_train.items()
        assert held.items() <= whole_held.items()
        total = sum(len(text.encode()) for text in (*train.values(), *held.values()))
        assert 0.8 * max_bytes < total <= max_bytes
        assert held

    def test_reads_any_library_folder_and_skips_what_is_not_its_text(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        write(
            tmp_path,
            {
                "ast.py": "a = 1\n",
                "b/c.py": "# é\n",
                "b/latin.py": b"# -*- coding: latin-1 -*-\n# \xe9\n",
                "empty.py": "",
                "data.txt": "no source",
                "_sysconfigdata__linux.py": "machine = 1\n",
                "config-3.11/python-config.py": "machine = 1\n",
                "test/test_a.py": "a\n",
                "pydoc_data/topics.py": "topics = {'x': 'About x\\n', 'y': 'About y\\n'}\n",
            },
        )
        monkeypatch.setattr(sysconfig, "get_path", lambda name: str(tmp_path))
        train, held = sides(Stdlib(held_out=0.5))
        assert train | held == {
            "ast.py": "a = 1\n",
            "b/c.py": "# é\n",
            "pydoc_data/topics.py/x": "About x\n",
            "pydoc_data/topics.py/y": "About y\n",
        }

    def test_a_python_without_sources_is_refused(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sysconfig, "get_path", lambda name: str(tmp_path))
        with pytest.raises(InputError, match=r"expected the sources of Python's library.*or corpus 'text'"):
            list(Stdlib().documents())

    def test_a_bound_below_one_byte_is_refused(self) -> None:
        with pytest.raises(InputError, match="max_bytes: expected a whole number of at least 1"):
            Stdlib(max_bytes=0)


class TestText:
    def test_a_file_is_cut_once_between_paragraphs_near_the_share(self, tmp_path: Path) -> None:
        text = "".join(f"Paragraph {i}, line one.\nLine two.\n\n" for i in range(200))
        write(tmp_path, {"a.txt": text})
        head, tail = Text(path=str(tmp_path / "a.txt"), held_out=0.1).documents()
        assert (head.held_out, tail.held_out) == (False, True)
        assert head.read() + tail.read() == text
        assert head.read().endswith("\n\n")
        assert abs(len(tail.read()) - 0.1 * len(text)) < 40

    def test_without_a_paragraph_near_it_is_cut_at_a_line(self, tmp_path: Path) -> None:
        text = "title\n\n" + "line of text\n" * 100
        write(tmp_path, {"a.txt": text})
        head, tail = Text(path=str(tmp_path / "a.txt"), held_out=0.2).documents()
        assert head.read() + tail.read() == text
        assert head.read().endswith("text\n")
        assert 0.1 * len(text) < len(tail.read()) < 0.3 * len(text)

    def test_a_folder_is_split_by_file_whatever_its_place_and_dates(self, tmp_path: Path) -> None:
        files: dict[str, str | bytes] = {f"part{i % 3}/{i}.txt": f"text {i}\n" for i in range(20)}
        write(tmp_path / "one", {**files, "read.me": "no text file"})
        shutil.copytree(tmp_path / "one", tmp_path / "elsewhere" / "two")
        for path in (tmp_path / "elsewhere").rglob("*.txt"):
            os.utime(path, (1, 1))
        one, two = (list(Text(path=str(tmp_path / p), held_out=0.25).documents()) for p in ("one", "elsewhere/two"))
        assert [(d.name, d.read(), d.held_out) for d in one] == [(d.name, d.read(), d.held_out) for d in two]
        assert sum(d.held_out for d in one) == 5
        assert {d.name for d in one} == set(files)

    def test_a_published_split_is_kept_whole(self, tmp_path: Path) -> None:
        write(tmp_path, {"train/a.txt": "a\n", "train/b.txt": "b\n", "valid.txt": "c\n"})
        train, held = sides(Text(path=str(tmp_path / "train"), held_out_path=str(tmp_path / "valid.txt")))
        assert train == {"train/a.txt": "a\n", "train/b.txt": "b\n"}
        assert held == {"held-out/valid.txt": "c\n"}

    @pytest.mark.parametrize(
        ("files", "path", "message"),
        [
            ({}, "missing.txt", "missing.txt: no such file or folder"),
            ({"a.txt": " \n"}, "a.txt", "a.txt: expected text, got an empty file"),
            ({"a.txt": b"abc \xff"}, "a.txt", r"a.txt: expected UTF-8, got byte 0xff at offset 4. .*iconv"),
            ({"a.txt": "one line"}, "a.txt", "expected the end of a line near the last .* of its 8 characters"),
            ({"f/a.txt": "a\n"}, "f", "f: expected at least two .txt files to split, got only a.txt"),
            ({"f/a.md": "a\n"}, "f", "expected .txt files, got none"),
            ({"f/a.txt": "a\n", "f/b.txt": b"\x80"}, "f", "b.txt: expected UTF-8, got byte 0x80 at offset 0"),
        ],
    )
    def test_refusals_name_the_file(
        self, tmp_path: Path, files: dict[str, str | bytes], path: str, message: str
    ) -> None:
        write(tmp_path, files)
        with pytest.raises(InputError, match=message):
            [document.read() for document in Text(path=str(tmp_path / path)).documents()]

    def test_the_same_text_on_both_sides_is_refused(self, tmp_path: Path) -> None:
        write(tmp_path, {"a.txt": "a\n"})
        with pytest.raises(InputError, match="held_out_path: expected another path"):
            list(Text(path=str(tmp_path / "a.txt"), held_out_path=str(tmp_path / "x" / ".." / "a.txt")).documents())


class TestSynthetic:
    def test_random_numbers_are_splitmix64(self) -> None:
        # Published outputs for state 1234567 (Rosetta Code, "Pseudo-random numbers/Splitmix64").
        draws = Draws(1234567)
        assert [draws.below(2**64) for _ in range(5)] == [
            6457827717110365317,
            3203168211198807973,
            9817491932198370423,
            4593380528125082431,
            16408922859458223821,
        ]

    def test_induction_repeats_its_first_half(self) -> None:
        letters: Counter[str] = Counter()
        for document in Synthetic(num_documents=20, num_symbols=12).documents():
            assert document.text.isascii()
            assert document.text.count("\n") == 64
            for line in document.text.splitlines():
                first, second = line.split("|")
                assert first == second
                assert len(first) == 12
                letters.update(first)
        n = letters.total()
        bound = 6 * math.sqrt(n * (1 / 26) * (25 / 26))  # six standard deviations of a binomial count
        assert all(abs(letters[c] - n / 26) < bound for c in "abcdefghijklmnopqrstuvwxyz")

    def test_associative_recall_asks_for_every_pair_in_another_order(self) -> None:
        reordered = 0
        for document in Synthetic(task="associative_recall", num_documents=5, num_symbols=26).documents():
            for line in document.text.splitlines():
                told, asked = ([half[i : i + 2] for i in range(0, len(half), 2)] for half in line.split("|"))
                assert len({pair[0] for pair in told}) == 26
                assert sorted(told) == sorted(asked)
                reordered += told != asked
        assert reordered == 5 * 64

    @pytest.mark.parametrize(
        ("task", "digest"), [("induction", "3bddd470ecefe025"), ("associative_recall", "22a33777efe77405")]
    )
    def test_every_machine_makes_the_same_text(self, task: str, digest: str) -> None:
        corpus = Synthetic(task=task, num_documents=10, seed=3)  # type: ignore[arg-type]
        text = "".join(f"{d.name}{d.held_out}{d.text}" for d in corpus.documents())
        assert hashlib.sha256(text.encode("ascii")).hexdigest()[:16] == digest

    def test_seeds_and_tasks_share_no_line(self) -> None:
        corpora = (Synthetic(num_documents=20, seed=seed) for seed in (0, 1))
        lines = [{line for d in corpus.documents() for line in d.text.splitlines()} for corpus in corpora]
        assert not lines[0] & lines[1]

    def test_no_line_is_on_both_sides(self) -> None:
        train, held = sides(Synthetic(num_documents=40, num_lines=8))
        lines = [{line for text in side.values() for line in text.splitlines()} for side in (train, held)]
        assert len(held) == 2
        assert not lines[0] & lines[1]

    @pytest.mark.parametrize(
        ("fields", "message"),
        [
            ({"num_documents": 1}, "num_documents: expected a whole number of at least 2"),
            ({"num_lines": 0}, "num_lines: expected a whole number of at least 1, got 0"),
            ({"num_symbols": 27, "task": "associative_recall"}, "num_symbols: expected at most 26, .* got 27"),
        ],
    )
    def test_sizes_out_of_range_are_refused(self, fields: dict[str, int], message: str) -> None:
        with pytest.raises(InputError, match=message):
            Synthetic(**fields)  # type: ignore[arg-type]


class Rows(list[dict[str, str]]):
    column_names = ("text", "title")


class TestHuggingFace:
    @pytest.fixture
    def calls(self, monkeypatch: pytest.MonkeyPatch) -> list[SimpleNamespace]:
        calls: list[SimpleNamespace] = []

        def load_dataset(path: str, name: str | None, *, split: str, revision: str | None) -> Rows:
            calls.append(SimpleNamespace(path=path, name=name, split=split, revision=revision))
            if split == "lost":
                raise ConnectionError("no route to the hub")
            return Rows({"text": f"{split} {i}" if i % 4 else " \n", "title": str(i)} for i in range(400))

        fake = ModuleType("datasets")
        fake.load_dataset = load_dataset  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "datasets", fake)
        return calls

    def test_without_the_package_the_command_is_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "datasets", None)
        with pytest.raises(InputError, match=r'pip install "addnorm\[hf\]"'):
            list(HuggingFace(name="a/b").documents())

    def test_rows_are_split_by_name_and_blank_ones_left_out(self, calls: list[SimpleNamespace]) -> None:
        train, held = sides(HuggingFace(name="a/b", config="c", revision="r", held_out=0.2))
        assert calls == [SimpleNamespace(path="a/b", name="c", split="train", revision="r")]
        assert train | held == {f"train/{i:09d}": f"train {i}" for i in range(400) if i % 4}
        assert abs(len(held) - 60) < 6 * math.sqrt(300 * 0.2 * 0.8)

    def test_a_published_split_is_held_out_whole(self, calls: list[SimpleNamespace]) -> None:
        documents = list(HuggingFace(name="a/b", held_out_split="validation").documents())
        assert [call.split for call in calls] == ["train", "validation"]
        assert {(d.name.split("/")[0], d.held_out) for d in documents} == {("train", False), ("validation", True)}

    def test_a_missing_column_names_the_nearest(self, calls: list[SimpleNamespace]) -> None:
        with pytest.raises(InputError, match=r"no column 'txt'\. Did you mean 'text'\? Known: text, title\."):
            list(HuggingFace(name="a/b", text_field="txt").documents())

    def test_what_the_library_says_is_passed_on(self, calls: list[SimpleNamespace]) -> None:
        with pytest.raises(InputError, match=r"'a/b' .*split lost.* cannot be loaded: ConnectionError: no route"):
            list(HuggingFace(name="a/b", split="lost").documents())

    def test_one_split_for_both_sides_is_refused(self) -> None:
        with pytest.raises(InputError, match="held_out_split: expected another split"):
            HuggingFace(name="a/b", held_out_split="train")
