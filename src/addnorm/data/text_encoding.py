"""Advice about a text file that is not UTF-8: what it seems to be, and a command that makes UTF-8 of it.

Compressed files and UTF-16 have a signature. Of the older encodings, those of Chinese, Japanese and Korean text write two
bytes above 127 side by side, of which the most frequent characters of each language tell the encoding; western European
encodings write single ones. Anything else is not guessed: a wrong conversion gives text without an error.
"""

import codecs
import re
from pathlib import Path

from addnorm.words import command_line

_PACKED = {
    b"\x1f\x8b": ("gzip", (".gz", ".gzip")),
    b"\xfd7zXZ\x00": ("xz", (".xz",)),
    b"BZh": ("bzip2", (".bz2",)),
    b"\x28\xb5\x2f\xfd": ("zstd", (".zst",)),
}
_NO_TEXT = {b"PK\x03\x04": "a zip archive or an office document", b"%PDF": "a PDF document", b"PAR1": "a Parquet file"}
_MARKED = {
    codecs.BOM_UTF32_LE: "UTF-32",
    codecs.BOM_UTF32_BE: "UTF-32",
    codecs.BOM_UTF16_LE: "UTF-16",
    codecs.BOM_UTF16_BE: "UTF-16",
}
"""By the mark at the start of the file; that of UTF-32 begins with that of UTF-16."""
_FREQUENT = {
    "GB18030": "的一是不了在人有我他这中大来上国和地到以说时要就出会",
    "BIG5": "的一是不了在人有我他這中大來上國和地到以說時要就出會",
    "EUC-JP": "のにはをたがでてとしれさいるなもか",
    "CP932": "のにはをたがでてとしれさいるなもか",
    "CP949": "이다는을의에가고하지로를은기리",
}
"""Frequent characters by the encoding's name, which Python and iconv share."""
_LEAST = 0.02
"""Share of the frequent characters from which a text is taken for one of that language."""
_SAMPLE = 1 << 20


def advice(path: Path, at: int) -> str:
    """Advise how to make UTF-8 of a file.

    Args:
        path: the file.
        at: its first byte that is not UTF-8.

    Raises:
        OSError: the file cannot be read.

    Example:
        >>> Path("x").write_bytes("数据的例子".encode("gb18030"))
        10
        >>> advice(Path("x"), 0)
        'It seems to be GB18030. Convert it: mv x x.original && iconv -f GB18030 -t UTF-8 < x.original > x'
    """
    with open(path, "rb") as file:
        head = file.read(8)
        start = max(0, at - _SAMPLE // 2)
        file.seek(start)
        sample = file.read(_SAMPLE)
    for signature, (program, suffixes) in _PACKED.items():
        if not head.startswith(signature):
            continue
        if path.suffix.lower() in suffixes:
            unpacked = path.with_suffix("")
            line = f"{command_line(program, '-dc', path)} > {command_line(unpacked)}"
            return f"It is compressed with {program}. Unpack it, and give {unpacked} in its place: {line}"
        return f"It is compressed with {program}. Unpack it: {_replaced(path, program, '-dc')}"
    if (kind := next((kind for signature, kind in _NO_TEXT.items() if head.startswith(signature)), None)) is not None:
        return f"It is {kind}. Write its text into a file, and give that."
    name = next((name for mark, name in _MARKED.items() if head.startswith(mark)), None)
    if name is None and sample[at - start] == 0:
        # Every second byte of most letters is NUL in UTF-16: the second one if it is little-endian.
        nuls = [sample[(start + parity) % 2 :: 2].count(0) for parity in (0, 1)]
        name = "UTF-16BE" if nuls[0] > nuls[1] else "UTF-16LE"
        text = sample[start % 2 :].decode(name, "replace")
        letters = sum(letter.isprintable() or letter.isspace() for letter in text)
        if 4 * max(nuls) < len(sample) or letters < 0.99 * len(text):
            line = _replaced(path, "tr", "-d", "\\000")
            return f"If it is text, remove such bytes: {line}"
    # A line break is never part of another character in these encodings: from there on, bytes pair up as they were written.
    name = name or _guess(sample[sample.rfind(b"\n", 0, at - start) + 1 :])
    if name is None:
        line = _replaced(path, "iconv", "-f", "ENCODING", "-t", "UTF-8")
        return f"Its encoding cannot be told from its bytes. Convert it from the one it was written in: {line}"
    return f"It seems to be {name}. Convert it: {_replaced(path, 'iconv', '-f', name, '-t', 'UTF-8')}"


def _guess(sample: bytes) -> str | None:
    """The encoding of a text that is not UTF-8; None if none is likely."""
    # Many wrong encodings decode without an error; only the right one gives the characters that are frequent in the
    # language.
    shares = {name: _share(sample, name, frequent) for name, frequent in _FREQUENT.items()}
    best = max(shares, key=shares.__getitem__)
    if shares[best] >= _LEAST:
        return best
    high = len(re.findall(rb"[\x80-\xff]", sample))
    alone = len(re.findall(rb"(?<![\x80-\xff])[\x80-\xff](?![\x80-\xff])", sample))
    if alone < 0.8 * high:  # pairs: a short Chinese text may have none of the frequent characters
        return "GB18030" if _text(sample, "GB18030") is not None else None
    if not re.search(rb"[\x80-\x9f]", sample):
        return "LATIN1"
    return "CP1252" if _text(sample, "CP1252") is not None else None


def _share(sample: bytes, name: str, frequent: str) -> float:
    """Share of frequent characters among those beyond ASCII; 0.0 for bytes that the encoding does not have."""
    text = [character for character in _text(sample, name) or "" if character > "\x7f"]
    return sum(character in frequent for character in text) / len(text) if text else 0.0


def _text(sample: bytes, name: str) -> str | None:
    try:
        return codecs.getincrementaldecoder(name)().decode(sample)  # the last character may be cut off
    except UnicodeDecodeError:
        return None


def _replaced(path: Path, *command: str) -> str:
    """A command line that keeps the file under another name, and writes UTF-8 under the present one."""
    original = path.with_name(f"{path.name}.original")
    move = command_line("mv", path, original)
    return f"{move} && {command_line(*command)} < {command_line(original)} > {command_line(path)}"
