"""Numbers as people write them in tables: read exactly, or refused with the reason.

A comma is a decimal mark (`2,31`) or a separator of thousands (`12,345`), and `2,912` may be either. The other cells of the
column, and a table whose cells are separated by semicolons, tell which; where nothing tells, the cell is refused.
"""

import math
import re
import string
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from typing import Literal

_INVISIBLE = "\x1a\ufeff\u200b\u200c\u200d\u2060\u200e\u200f\u00ad"
_OF_LISTS = "A cell holds one number: write the last one of the list, or a row for each step."
_BLANK = _INVISIBLE + string.whitespace + "\u00a0\u2028\u2029\u202f\u3000\x85"
_SPACES = re.compile(r"[\u00a0\u2000-\u200a\u202f\u205f\u3000\u2028\u2029]")
_SAME = str.maketrans(dict(zip("−﹣－＋．，％ｅＥ’", "---+.,%eE'", strict=True)))
_EXPONENT = r"(?:[eE][+-]?\d+)?"
_PLAIN = re.compile(rf"[+-]?(?:\d+\.?\d*|\.\d+){_EXPONENT}")
_DECIMAL_COMMA = re.compile(rf"[+-]?\d*,\d+{_EXPONENT}")
_EITHER = re.compile(r"[+-]?[1-9]\d{0,2},\d{3}")
_COMMA_GROUPS = re.compile(r"[+-]?[1-9]\d{0,2}(?:(?:,\d{3}){2,}(?:\.\d*)?|,\d{3}\.\d*)")
_DOT_GROUPS = re.compile(r"[+-]?[1-9]\d{0,2}(?:(?:\.\d{3}){2,}(?:,\d*)?|\.\d{3},\d*)")
_GROUPED = re.compile(r"[+-]?[1-9]\d{0,2}(?:[.,]\d{3})+")
_SPACED = re.compile(r"([+-]?[1-9]\d{0,2}(?:[ ']\d{3})+)([.,]\d*)?")
_NOT_FINITE = re.compile(r"[+-]?(?:nan|inf|infinity)", re.IGNORECASE)
_MISSING = ("", "-", "--", "–", "—", "na", "n/a", "#n/a", "none", "null", "nil", "?", ".")
_WHOLE = re.compile(r"[+-]?\d+")

Mark = Literal[".", ","]


class NotANumber(ValueError):
    """Text that is not one number; the message says what to write instead."""


@dataclass(frozen=True)
class Notation:
    """The decimal mark of a column; None where a comma in it may be either."""

    decimal: Mark | None

    @staticmethod
    def of(texts: Iterable[str], separator: str | None = None) -> "Notation":
        """The notation that the cells of a column share.

        Args:
            texts: cells of the column.
            separator: what separates the cells of a row; None if the table has another form.

        Example:
            >>> Notation.of(["2,912", "2,9"]).decimal
            ','
            >>> Notation.of(["2,912", "2,934"]).decimal is None
            True
        """
        seen = {mark for mark in map(_mark, map(cleaned, texts)) if mark is not None}
        if seen == {"either"}:
            return Notation("," if separator == ";" else None)
        return Notation("," if "," in seen and "." not in seen else ".")

    @staticmethod
    def beside(texts: Iterable[str], losses: "Notation") -> "Notation":
        """The notation of steps and costs: their own where it shows, else that of the table's losses.

        Example:
            >>> Notation.beside(["500", "1.000"], Notation(",")).decimal
            ','
            >>> Notation.beside(["0.5", "1.000"], Notation(",")).decimal
            '.'
        """
        seen = {_mark(text) for text in map(cleaned, texts) if not _GROUPED.fullmatch(text)} - {None}
        return Notation("," if seen == {","} else ".") if len(seen) == 1 else losses

    def ungrouped(self, value: object) -> object:
        """The digits of a whole number whose thousands are parted by the mark that is not the decimal one; else the cell.

        Example:
            >>> Notation(",").ungrouped("1.000"), Notation(".").ungrouped("1.000"), Notation(".").ungrouped("1,000")
            ('1000', '1.000', '1000')
        """
        text = cleaned(value) if isinstance(value, str) else ""
        is_grouped = self.decimal is not None and _GROUPED.fullmatch(text) and self.decimal not in text
        return re.sub(r"[.,]", "", text) if is_grouped else value


def number(value: object, notation: Notation) -> float:
    """The number that a cell holds.

    Raises:
        NotANumber: the cell does not hold one number, or several readings are possible.

    Example:
        >>> number("1,234.5", Notation("."))
        1234.5
        >>> number("2,31", Notation(","))
        2.31
    """
    value = _plain(value)
    if isinstance(value, bool):
        raise NotANumber("Write a number.")
    if isinstance(value, int | float):
        return _float(str(value))
    if not isinstance(value, str):
        raise NotANumber(_OF_LISTS if isinstance(value, list | tuple) else "Write a number.")
    text = cleaned(value)
    if _NOT_FINITE.fullmatch(text):
        return float(text)
    mark = _mark(text)
    if mark is None and not _PLAIN.fullmatch(text) and not _SPACED.fullmatch(text):
        raise NotANumber(_advice(text))
    if mark == "either" and notation.decimal != ",":
        raise NotANumber("A comma may be a decimal mark or separate thousands: write 2.912 or 2912.")
    if mark in (",", ".") and notation.decimal not in (None, mark):
        raise NotANumber("Other rows of this column use another decimal mark: write a point in all of them.")
    decimal = notation.decimal or mark or "."
    thousands = "." if decimal == "," else ","
    return _float(re.sub(rf"[ '{thousands}]", "", text).replace(",", "."))


def whole(value: object) -> int:
    """The whole number that a cell holds, in every digit.

    Raises:
        NotANumber: the cell holds none.

    Example:
        >>> whole(" 9007199254740993 ")
        9007199254740993
    """
    value = _plain(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    text = cleaned(value) if isinstance(value, str) else value
    if isinstance(text, str) and _WHOLE.fullmatch(text) and len(text) < 100:
        return int(text)
    read = number(text, Notation(None)) if not isinstance(text, str) or _PLAIN.fullmatch(text) else math.nan
    if not read.is_integer() or abs(read) >= 2**53:
        raise NotANumber("")
    return int(read)


def _plain(value: object) -> object:
    """The number of Python in a number or array of one entry of NumPy or torch, and the text of a decimal."""
    if isinstance(value, str | int | float | Decimal):
        return str(value) if isinstance(value, Decimal) else value
    try:
        return value.item() if hasattr(value, "item") else value
    except (ValueError, RuntimeError):  # more than one entry, in NumPy and in torch
        return value


def words_of(text: str) -> frozenset[str]:
    """The words of a list that is written as text."""
    return frozenset(text.split())


def stripped(text: str) -> str:
    """The text without spaces and invisible characters at its ends."""
    return text.strip(_BLANK)


def visible(text: str) -> str:
    """The text with plain spaces, without invisible characters and spaces at its ends; a letter in its composed form.

    Example:
        >>> visible("pre\u200bnorm, 2\u00a0layers ")
        'prenorm, 2 layers'
    """
    shown = _SPACES.sub(" ", text).translate(dict.fromkeys(map(ord, _INVISIBLE)))
    return unicodedata.normalize("NFC", stripped(shown))


def cleaned(text: str) -> str:
    """The text without invisible characters and outer spaces, digits of other scripts as 0 to 9."""
    text = stripped(text)
    if text.isascii():
        return text
    # Not NFKC: it makes 10² into 102.
    return "".join(str(unicodedata.decimal(each, each)) for each in visible(text).translate(_SAME))


def is_missing(value: object) -> bool:
    """True for an empty cell, and for the signs that stand for one."""
    return value is None or (isinstance(value, str) and cleaned(value).casefold() in _MISSING)


def _mark(text: str) -> Literal[".", ",", "either"] | None:
    """The decimal mark of its column that a cell shows."""
    if _EITHER.fullmatch(text):
        return "either"
    if _DOT_GROUPS.fullmatch(text) or _DECIMAL_COMMA.fullmatch(text):
        return ","
    if _COMMA_GROUPS.fullmatch(text) or (_PLAIN.fullmatch(text) and "." in text):
        return "."
    spaced = _SPACED.fullmatch(text)
    return "," if spaced and "," in text else "." if spaced and "." in text else None


def _float(text: str) -> float:
    try:
        read = float(text)
    except ValueError:
        raise NotANumber("Write a number.") from None
    if math.isinf(read) and any(digit in text for digit in "0123456789"):
        raise NotANumber("It is too large for a float: write inf for a run that diverged.")
    if not read and re.match(r"[+-]?[0.]*[1-9]", text):
        raise NotANumber("It is too small for a float: write 0.")
    return read


def _advice(text: str) -> str:
    if text.casefold() in _MISSING:
        return ""
    if text.endswith("%"):
        return "Write the number alone, and the unit as --unit %."
    if text.startswith("["):
        return _OF_LISTS
    if "±" in text or "+-" in text or "+/-" in text or re.fullmatch(r"[\d.,]+\(\d+\)", text):
        return "A row is one run, with one value and no spread: give every run a row."
    if re.fullmatch(r"[+-]?[\d.,]+\s*[^\W\d]+.*", text):
        return "Write the number without a unit."
    return "Write the number alone." if any(map(str.isdigit, text)) and "#" not in text else ""
