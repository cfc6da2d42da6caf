"""YAML in which a repeated name is an error; PyYAML would silently keep the last entry."""

import re
import unicodedata
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import yaml

from addnorm.errors import InputError

_FAST: Any = yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader
"""libyaml reads ten times as fast as Python; PyYAML may be installed without it."""


_MOST_VALUES = 300_000
_OTHER_BASE = re.compile(r"[-+]?(?:0[0-7_]+$|\d[\d_]*:)")


def read_yaml(text: str, where: str) -> Any:
    """Read the plain value of a YAML text.

    Args:
        text: the text.
        where: the file or argument, for messages.

    Raises:
        InputError: the text is not YAML, or a mapping repeats a name.
    """
    try:
        try:
            # Twice only where the text is wrong: libyaml is ten times as fast, but its messages name other places than
            # PyYAML's, and a message must not depend on what happens to be installed.
            return _read(text, where, _FAST)
        except (yaml.YAMLError, ValueError, RecursionError):
            return _read(text, where, yaml.SafeLoader)  # libyaml names other lines and columns for the same mistakes
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        hint = full_width_hint(text) or _typing_hint(text)
        if not hint and "escape" in str(error.problem):
            hint = " Write a path with backslashes without quotes or in single ones."
        if not hint and str(error.problem).startswith("mapping values"):
            hint = " Its indentation, or a value without quotes above it, makes the line part of another."
        if not hint and "another document" in str(error.problem):
            hint = " A file holds one study: remove what follows the line ---."
        if not hint and "constructor for the tag" in str(error.problem):
            hint = " Tags are not read: remove it."
        raise InputError(f"{where}{line}: not valid YAML: {error.problem or error.context}.{hint}") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        # PyYAML raises ValueError for a date such as 2001-99-99, RecursionError for hundreds of nested levels.
        if isinstance(error, InputError):
            raise
        raise InputError(f"{where}: not valid YAML: {error}.") from error


def read_yaml_file(path: Path) -> Any:
    """Read the plain value of a YAML file.

    Raises:
        InputError: as `read_yaml`, or the file cannot be read or is not UTF-8.
    """
    try:
        text = path.read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(
            f"{path}: expected UTF-8, got byte 0x{error.object[error.start]:02x} at {error.start}. Save it as UTF-8."
        ) from error
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}.") from error
    return read_yaml(text, str(path))


def lines_of(text: str) -> dict[str, int]:
    """The line of every name and list entry of a YAML text that `read_yaml` accepts, by path (`$.grid.depth[1]`)."""
    return dict(_lines(yaml.compose(text, Loader=yaml.SafeLoader), "$"))


def _lines(node: yaml.Node | None, path: str) -> Iterator[tuple[str, int]]:
    if isinstance(node, yaml.MappingNode):
        for name, entry in node.value:
            yield f"{path}.{name.value}", name.start_mark.line + 1
            yield from _lines(entry, f"{path}.{name.value}")
    elif isinstance(node, yaml.SequenceNode):
        for index, entry in enumerate(node.value):
            yield f"{path}[{index}]", entry.start_mark.line + 1
            yield from _lines(entry, f"{path}[{index}]")


def _read(text: str, where: str, loader_class: Any) -> Any:
    loader = loader_class(text)
    try:
        node = loader.get_single_node()
        if node is None:
            return None
        for problem in _problems(node, "$", (), count()):
            raise InputError(f"{where}: {problem}")
        return loader.construct_document(node)
    finally:
        loader.dispose()


def _problems(node: yaml.Node, path: str, above: tuple[yaml.Node, ...], visited: Iterator[int]) -> Iterator[str]:
    if next(visited) >= _MOST_VALUES:
        yield f"{path}: expected at most {_MOST_VALUES} values in a file, got more by aliases of aliases."
    # An alias of a value that contains it makes an endless tree. PyYAML builds it; everything that walks over the
    # content later would never end.
    if any(node is outer for outer in above):
        yield f"{path}: expected an alias of another value, got one of a value that contains it."
    elif isinstance(node, yaml.MappingNode):
        first: dict[str, int] = {}
        for name, entry in node.value:
            text, line = str(name.value), name.start_mark.line + 1
            if isinstance(name, yaml.ScalarNode) and text in first:
                yield f"{path}: expected each name once, got {text!r} in line {first[text]} and in line {line}. Keep one."
            first.setdefault(text, line)
            yield from _problems(entry, f"{path}.{text}", (*above, node), visited)
    elif isinstance(node, yaml.SequenceNode):
        for index, entry in enumerate(node.value):
            yield from _problems(entry, f"{path}[{index}]", (*above, node), visited)
    elif node.tag in ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float") and _OTHER_BASE.match(node.value):
        # YAML 1.1 reads 010 as eight and 1:30 as ninety.
        yield f"{path}: expected a number in decimal digits, got {node.value}. Write no zero before it and no colon in it."


def in_ascii(text: str) -> str:
    """A text with the marks and digits of a Chinese keyboard as YAML reads them.

    Example:
        >>> in_ascii("seeds：［0，1，２］")
        'seeds: [0, 1, 2]'
    """
    if text.isascii():
        return text
    plain = unicodedata.normalize("NFKC", text).translate(
        {ord("【"): "[", ord("】"): "]", ord("“"): '"', ord("”"): '"'}
    )
    return re.sub(r"([,:])(?=\S)", r"\1 ", plain) if plain != text else text


def _typing_hint(text: str) -> str:
    """Point to what is often typed and is no YAML: tabs before a line, a name without a space behind its colon."""
    for number, line in enumerate(text.splitlines(), start=1):
        if re.match(r" *\t", line):
            return f" Line {number} begins with a tab: write spaces."
        if re.match(r" *[A-Za-z_]\w*:[^\s/]", line):
            return f" Line {number} has no space behind its colon: write one."
    return ""


def full_width_hint(text: str) -> str:
    """Point to the first full-width mark of a YAML text outside quotes and comments: ` Line 3 has …`; empty without one."""
    for number, line in enumerate(text.splitlines(), start=1):
        if mark := re.search(r"[：，［］｛｝【】]", re.sub(r"\"[^\"]*\"|'[^']*'|(?:^|\s)#.*", "", line)):
            return f" Line {number} has the full-width {mark[0]!r}: write {in_ascii(mark[0])!r}."
    return ""
