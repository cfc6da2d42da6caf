"""Advice about text that is not UTF-8: what it says is followed in a shell, and the text is then read as it was written."""

import bz2
import gzip
import lzma
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from addnorm.data.corpora.text import Text
from addnorm.data.text_encoding import advice
from addnorm.errors import InputError

CHINESE = "今天天气很好，我们一起去公园散步吧。\n\n机器学习的模型需要很多数据，这是一个例子。\n\n" * 20
TRADITIONAL = "今天天氣很好，我們一起去公園散步吧。\n\n這個模型需要很多資料。\n\n" * 20
JAPANESE = "今日は天気がいいので、公園を散歩しましょう。\n\n" * 20
KOREAN = "오늘은 날씨가 좋아서 공원을 산책합니다.\n\n이 모델은 많은 데이터가 필요하다.\n\n" * 20
FRENCH = "Le café était fermé, où êtes-vous allé à Noël ?\n\n" * 20
RARE = "清华大学\n\n" * 20
ENCODED = [
    *(
        (CHINESE, "gbk"),
        (CHINESE, "gb2312"),
        (CHINESE, "gb18030"),
        (RARE, "gbk"),
        ("English first.\n\n" * 50 + CHINESE, "gbk"),
        (TRADITIONAL, "gbk"),
        ("x = 1  # 计算损失\n" * 3 + "y = 2\n" * 50, "gbk"),
        ("朱镕基、陶喆\n" * 20, "gbk"),  # the second byte of 镕 and 喆 is an ASCII letter
        ("床前明月光，疑是地上霜。\n" * 20, "gbk"),
    ),
    *((TRADITIONAL, "big5"), (JAPANESE, "cp932"), (JAPANESE, "euc-jp"), (KOREAN, "cp949")),
    *((FRENCH, "latin1"), ("“Curly” quotes — and dashes.\n\n" * 20, "cp1252"), (CHINESE, "utf-16"), (FRENCH, "utf-32")),
    *(
        ("English alone.\n\n" * 40, encoding) for encoding in ("utf-16-le", "utf-16-be")
    ),  # without a mark it is UTF-8 too
]
PACKED: list[tuple[Callable[[bytes], bytes], str]] = [
    (gzip.compress, "gz"),
    (bz2.compress, "bz2"),
    (lzma.compress, "xz"),
]


def refused(path: Path) -> str:
    with pytest.raises(InputError, match=r"expected (UTF-8|text), got") as caught:
        text_of(path)
    return str(caught.value)


def follow(message: str, start: str, folder: Path) -> None:
    subprocess.run(["bash", "-c", message[message.index(start) :]], check=True, cwd=folder)


def text_of(path: Path) -> str:
    return "".join(piece for document in Text(path=str(path)).documents() for piece in document.chunks())


@pytest.mark.parametrize(("text", "encoding"), ENCODED)
def test_the_advice_makes_the_text_readable(tmp_path: Path, text: str, encoding: str) -> None:
    path = tmp_path / "my 数据 $1.txt"
    path.write_bytes(text.encode(encoding))
    message = refused(path)
    assert ("LATIN1" in message) == (encoding == "latin1")
    follow(message, "mv ", tmp_path)
    assert text_of(path) == text
    assert (tmp_path / "my 数据 $1.txt.original").read_bytes() == text.encode(encoding)


@pytest.mark.parametrize(("pack", "suffix"), PACKED)
@pytest.mark.parametrize("is_named", [True, False])
def test_a_packed_file_is_unpacked(tmp_path: Path, pack: Callable[[bytes], bytes], suffix: str, is_named: bool) -> None:
    path = tmp_path / ("it's.txt" + f".{suffix}" * is_named)
    path.write_bytes(pack(CHINESE.encode()))
    message = refused(path)
    program = {"gz": "gzip", "bz2": "bzip2", "xz": "xz"}[suffix]
    follow(message, f": {program} -dc"[2:] if is_named else "mv ", tmp_path)
    assert text_of(tmp_path / "it's.txt") == CHINESE


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"one\0two\n\n" * 40, "offset 3. If it is text, remove such bytes: mv "),
        (bytes(b for token in range(4000) for b in (token % 120, 0)), "offset 0. If it is text"),
        (b"%PDF-1.5\n\x00\xff", "It is a PDF document."),
        (b"PK\x03\x04\x00\xff", "It is a zip archive or an office document."),
        (b"PAR1\x15\x00\xff", "It is a Parquet file."),
    ],
)
def test_bytes_that_are_no_text_are_not_trained_on(tmp_path: Path, data: bytes, expected: str) -> None:
    (tmp_path / "c.txt").write_bytes(data)
    message = refused(tmp_path / "c.txt")
    assert expected in message
    if " mv " in message:
        follow(message, "mv ", tmp_path)
        assert (tmp_path / "c.txt").read_bytes() == data.replace(b"\0", b"")


@pytest.mark.parametrize(
    ("text", "encoding"),
    [("Сегодня хорошая погода.\n", "cp1251"), ("Καλημέρα κόσμε.\n", "iso8859-7"), ("сад\n", "koi8-r")],
)
def test_an_encoding_that_is_not_known_is_not_guessed(tmp_path: Path, text: str, encoding: str) -> None:
    path = tmp_path / "c.txt"
    path.write_bytes(text.encode(encoding))
    assert "cannot be told" in advice(path, 0)
