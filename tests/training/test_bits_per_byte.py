"""Bits per byte: nats and bytes of the same tokens, and no number where the bytes of a token are not known."""

import json
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers

import addnorm
from addnorm.data import Dataset, held_batches, mask_tokens, prepare
from addnorm.data.corpora.text import Text
from addnorm.data.tokenizers import TokenizerSpec
from addnorm.data.tokenizers.bpe import Bpe, BpeTokenizer
from addnorm.data.tokenizers.bytes import Bytes
from addnorm.data.tokenizers.pretrained import Pretrained
from addnorm.errors import InputError
from addnorm.study.definition import RunSpec, Training
from addnorm.training.loop import Trainer
from addnorm.training.objective import metrics

ENGLISH = "the residual stream adds what every branch of a layer writes\n\n"
CHINESE = "残差流把每一层写下的内容相加起来得到下一层的输入向量\n\n"
SEQ = 24


def dataset_of(folder: Path, tokenizer: TokenizerSpec, held: str | bytes | None = None) -> Dataset:
    """Data whose held-out text is English first and Chinese after, so that no part of it is like the whole."""
    held = ENGLISH * 30 + CHINESE * 20 if held is None else held
    (folder / "train.txt").write_text((ENGLISH + CHINESE) * 20 + "training text alone\n", encoding="utf-8")
    (folder / "held.txt").write_bytes(held if isinstance(held, bytes) else held.encode("utf-8"))
    corpus = Text(path=str(folder / "train.txt"), held_out_path=str(folder / "held.txt"))
    return prepare(corpus, tokenizer, folder / "data")


def evaluation(dataset: Dataset, *, objective: str = "causal", sequences: int = 64, batch: int = 4) -> dict[str, float]:
    """What an untrained model's evaluation measures."""
    sizes = {"width": 8, "depth": 1, "heads": 1, "kv_heads": 1, "hidden": 8, "max_seq": SEQ}
    model = addnorm.preset("base", vocab=dataset.vocab + 1, objective=objective, **sizes)
    spec = RunSpec(
        study="s",
        variant="v",
        seed=0,
        model=model,
        training=Training(steps=0, batch=batch, seq=SEQ, eval_sequences=sequences),
        corpus=Text(path="unused"),
        tokenizer=Bytes(),
        data_hash=dataset.hash,
    )
    return Trainer(spec, dataset, torch.device("cpu")).evaluate()


def written_bytes(dataset: Dataset, ids: np.ndarray) -> int:
    """Bytes of ids, by the names of the tokens."""
    tokenizer = dataset.tokenizer()
    if not isinstance(tokenizer, BpeTokenizer):
        return int((ids != 0).sum())
    names = [tokenizer._engine.id_to_token(int(each)) for each in ids if each != tokenizer.separator]
    return sum(map(len, names))  # byte level: a letter of a token is a byte


@pytest.mark.parametrize("tokenizer", [Bpe(vocab=300), Bytes()], ids=["bpe", "bytes"])
@pytest.mark.parametrize("sequences", [1, 3, 1000])
def test_the_bytes_are_those_of_the_scored_targets(tokenizer: TokenizerSpec, sequences: int, tmp_path: Path) -> None:
    dataset = dataset_of(tmp_path, tokenizer)
    measured = evaluation(dataset, sequences=sequences)
    targets = np.concatenate([windows[:, 1:].ravel() for windows in held_batches(dataset, 4, SEQ, sequences)])
    nats = measured["loss"] * len(targets)
    assert measured["bits_per_byte"] == pytest.approx(nats / math.log(2) / written_bytes(dataset, targets), rel=1e-9)
    assert measured["perplexity"] == pytest.approx(math.exp(measured["loss"]))


def test_a_masked_model_counts_the_bytes_of_the_hidden_tokens(tmp_path: Path) -> None:
    dataset = dataset_of(tmp_path, Bpe(vocab=300))
    measured = evaluation(dataset, objective="masked", sequences=6)
    hidden = []
    for step, windows in enumerate(held_batches(dataset, 4, SEQ, 6)):
        masked = mask_tokens(windows[:, :-1], vocab=dataset.vocab, mask_id=dataset.mask_id, seed=0, step=step)
        hidden.append(masked.targets[masked.scored])
    ids = np.concatenate(hidden)
    expected = measured["loss"] * len(ids) / math.log(2) / written_bytes(dataset, ids)
    assert measured["bits_per_byte"] == pytest.approx(expected, rel=1e-9)


def test_scored_tokens_without_text_have_no_bits_per_byte(tmp_path: Path) -> None:
    """Windows of separators alone have no byte to divide by."""
    assert "bits_per_byte" not in metrics(3.0, 0, 3, 0)
    assert metrics(3.0, 0, 3, 2)["bits_per_byte"] == pytest.approx(3.0 / math.log(2) / 2)


def saved(folder: Path, engine: Tokenizer, end: str = "<s>") -> Pretrained:
    """The tokenizer as a checkpoint has it."""
    folder.mkdir(exist_ok=True)
    engine.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": end}))
    return Pretrained(path=str(folder))


def letters(text: str) -> dict[str, int]:
    return {letter: index for index, letter in enumerate(["<s>", *sorted(set(text))])}


def byte_level(*, prefix: bool = False, normalizer: normalizers.Normalizer | None = None) -> Tokenizer:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    engine = Tokenizer(
        models.BPE(vocab={**{a: i for i, a in enumerate(alphabet)}, "th": 256, "<s>": 257}, merges=[("t", "h")])
    )
    engine.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=prefix)
    engine.decoder = decoders.ByteLevel()
    if normalizer is not None:
        engine.normalizer = normalizer
    engine.add_special_tokens([AddedToken("<s>", special=True)])
    engine.add_tokens([AddedToken("stream", special=False)])
    return engine


def metaspace(*, prepend: str = "never", fallback: bool = True) -> Tokenizer:
    """Pieces of SentencePiece: `▁` is a space, and what has no piece is written in bytes."""
    pieces = [
        ("<unk>", 0.0),
        ("<s>", 0.0),
        ("\u2581", -3.0),
        ("\u2581the", -2.0),
        *((c, -4.0) for c in "abcdefghilmnoprstuvwy\n"),
    ]
    pieces += [(f"<0x{byte:02X}>", -9.0) for byte in range(256)] if fallback else []
    engine = Tokenizer(models.Unigram(pieces, unk_id=0, byte_fallback=fallback))
    engine.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=prepend)
    engine.add_special_tokens(["<s>"])
    return engine


def words_of_a_list(*, lower: bool = False) -> Tokenizer:
    engine = Tokenizer(models.WordPiece(vocab={"<s>": 0, "[UNK]": 1, "the": 2, "##m": 3, "a": 4}, unk_token="[UNK]"))
    engine.normalizer = normalizers.BertNormalizer(lowercase=lower)
    engine.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return engine


class TestKnown:
    @pytest.mark.parametrize(
        "make",
        [
            byte_level,
            lambda: byte_level(normalizer=normalizers.NFC()),
            metaspace,
        ],
        ids=["byte level", "nfc", "metaspace with bytes"],
    )
    def test_lengths_are_those_of_the_text(self, make: Callable[[], Tokenizer], tmp_path: Path) -> None:
        """Each prefix of a text has the bytes of its tokens."""
        dataset = dataset_of(tmp_path, saved(tmp_path / "tokenizer", make()))
        assert dataset.byte_lengths is not None
        tokenizer = dataset.tokenizer()
        for text in ("the stream\n", "they saw 残差 the <", "é\n"):
            assert dataset.byte_lengths[tokenizer.encode(text)].sum() == len(text.encode("utf-8"))
        assert dataset.byte_lengths[tokenizer.separator] == 0
        assert "bits_per_byte" in evaluation(dataset)

    def test_a_token_that_was_added_is_text_and_a_special_one_is_not(self, tmp_path: Path) -> None:
        lengths = saved(tmp_path, byte_level()).fit(()).byte_lengths()
        assert lengths is not None
        assert (lengths[257], lengths[258], lengths[256]) == (0, len("stream"), 2)


class TestUnknown:
    @pytest.mark.parametrize(
        "make",
        [
            lambda: byte_level(prefix=True),  # a space that is not in the text
            lambda: metaspace(prepend="always"),
            lambda: metaspace(fallback=False),  # Chinese is unknown
            words_of_a_list,  # spaces are dropped
            lambda: words_of_a_list(lower=True),
            lambda: byte_level(normalizer=normalizers.Lowercase()),  # the tokens of another text of as many bytes
            lambda: byte_level(normalizer=normalizers.Sequence([normalizers.NFD(), normalizers.StripAccents()])),
        ],
        ids=["prefix", "metaspace prefix", "unknown letters", "words", "lower words", "lower case", "accents"],
    )
    def test_no_number_is_given(self, make: Callable[[], Tokenizer], tmp_path: Path) -> None:
        dataset = dataset_of(tmp_path, saved(tmp_path / "tokenizer", make()))
        assert dataset.byte_lengths is None
        measured = evaluation(dataset)
        assert "bits_per_byte" not in measured
        assert set(measured) == {"loss", "accuracy", "perplexity"}

    def test_text_that_a_normaliser_changes(self, tmp_path: Path) -> None:
        """NFC keeps composed letters, and shortens others: the bytes are no longer those of the text."""
        tokenizer = saved(tmp_path / "tokenizer", byte_level(normalizer=normalizers.NFC()))
        assert dataset_of(tmp_path, tokenizer, "café " * 60).byte_lengths is not None
        other = tmp_path / "decomposed"
        other.mkdir()
        assert dataset_of(other, tokenizer, "cafe\u0301 " * 60).byte_lengths is None

    def test_bytes_that_are_text_and_separator_at_once(self, tmp_path: Path) -> None:
        with pytest.raises(InputError, match="got a NUL byte at offset 3"):
            dataset_of(tmp_path, Bytes(), b"one\0two\n" * 20)
