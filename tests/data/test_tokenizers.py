"""Tokenizers: text survives the round trip, training is repeatable, the separator is never text."""

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from addnorm.catalogue import ROOMS
from addnorm.data.tokenizers import Tokenizer
from addnorm.data.tokenizers.bpe import Bpe
from addnorm.data.tokenizers.bytes import Bytes
from addnorm.errors import InputError

TEXTS = [f"def function_{i}(argument):\n    return argument + {i}\n\n" for i in range(300)]
FIELDS = {"bpe": {"vocab": 300}}


@cache
def trained(kind: str) -> Tokenizer:
    """A tokenizer trained on the texts."""
    return ROOMS["tokenizer"].make(kind, **FIELDS.get(kind, {})).fit(iter(TEXTS))


# `pretrained` is whatever a checkpoint brings: tests/hugging_face/test_checkpoint_variants.py.
@pytest.mark.parametrize("kind", [kind for kind in ROOMS["tokenizer"].kinds() if kind != "pretrained"])
class TestEvery:
    @given(text=st.text(alphabet=st.characters(exclude_characters="\0", exclude_categories=["Cs"])))
    @settings(max_examples=60, deadline=None)
    def test_text_survives_and_ids_are_in_range(self, kind: str, text: str) -> None:
        tokenizer = trained(kind)
        ids = tokenizer.encode(text)
        assert tokenizer.decode(ids) == text
        assert ids.dtype == np.int64
        assert all(0 <= i < tokenizer.vocab and i != tokenizer.separator for i in ids)

    def test_text_that_spells_a_separator_is_text(self, kind: str) -> None:
        tokenizer = trained(kind)
        ids = tokenizer.encode("a<|end|>b")
        assert tokenizer.separator not in ids
        assert tokenizer.decode(ids) == "a<|end|>b"

    def test_a_cut_inside_a_character_decodes(self, kind: str) -> None:
        tokenizer = trained(kind)
        assert tokenizer.decode(tokenizer.encode("é")[:1]) == "\ufffd"

    def test_a_saved_one_opens_with_the_same_ids_and_hash(self, kind: str, tmp_path: Path) -> None:
        tokenizer = trained(kind)
        tokenizer.save(tmp_path)
        assert [path.name for path in tmp_path.iterdir()] == ["tokenizer.json"]
        opened = ROOMS["tokenizer"].spec_class(kind).load(tmp_path)
        assert (opened.hash, opened.vocab, opened.separator) == (tokenizer.hash, tokenizer.vocab, tokenizer.separator)
        text = "def f(x):  # <|end|> é\n"
        assert np.array_equal(opened.encode(text), tokenizer.encode(text))
        assert opened.decode(opened.encode(text)) == text

    @pytest.mark.parametrize("content", [None, "", "[1, 2]", '{"kind": "other"}'])
    def test_a_damaged_file_is_refused(self, kind: str, content: str | None, tmp_path: Path) -> None:
        if content is not None:
            (tmp_path / "tokenizer.json").write_text(content)
        with pytest.raises(InputError, match=r"tokenizer file .*tokenizer\.json"):
            ROOMS["tokenizer"].spec_class(kind).load(tmp_path)


class TestBytes:
    def test_is_utf8(self) -> None:
        tokenizer = Bytes().fit(iter(()))
        assert tokenizer.vocab == 256
        assert tokenizer.encode("aé").tolist() == [97, 0xC3, 0xA9]

    def test_training_text_is_not_read(self) -> None:
        texts = iter(TEXTS)
        Bytes().fit(texts)
        assert next(texts) == TEXTS[0]


class TestBpe:
    def test_merges_what_is_frequent(self) -> None:
        tokenizer = trained("bpe")
        assert tokenizer.vocab == 300
        assert len(tokenizer.encode("argument")) < len("argument")

    def test_training_is_repeatable_across_processes_and_threads(self) -> None:
        script = (
            "from addnorm.data.tokenizers.bpe import Bpe\n"
            "texts = [f'def function_{i}(argument):\\n    return argument + {i}\\n\\n' for i in range(300)]\n"
            "print(Bpe(vocab=300).fit(texts).hash)\n"
        )
        hashes = [
            subprocess.run(
                [sys.executable, "-c", script],
                env={**os.environ, "RAYON_NUM_THREADS": threads, "PYTHONHASHSEED": threads},
                capture_output=True,
                text=True,
                check=True,
            ).stdout.strip()
            for threads in ("1", "2")
        ]
        assert hashes == [trained("bpe").hash] * 2

    def test_other_text_gives_another_hash(self) -> None:
        other = Bpe(vocab=300).fit([text.replace("argument", "parameter") for text in TEXTS])
        assert other.hash != trained("bpe").hash

    def test_the_separator_is_a_special_token_to_other_readers_of_the_file(self, tmp_path: Path) -> None:
        trained("bpe").save(tmp_path)
        added = json.loads((tmp_path / "tokenizer.json").read_text())["added_tokens"]
        assert [(token["id"], token["content"], token["special"]) for token in added] == [(0, "<|end|>", True)]

    def test_a_vocabulary_without_room_for_all_bytes_is_refused(self) -> None:
        with pytest.raises(InputError, match=r"bpe\.vocab: expected a whole number of at least 257, got 256"):
            Bpe(vocab=256)

    def test_a_vocabulary_that_the_text_cannot_fill_is_refused(self) -> None:
        with pytest.raises(InputError, match=r"bpe\.vocab: expected at most \d+, .* got 9999"):
            Bpe(vocab=9999).fit(["abc abc"])
