"""YAML in which a name given twice is an error, as a second entry would silently win over the first."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from addnorm.errors import InputError

_FAST: Any = yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader
"""libyaml reads ten times as fast as Python; PyYAML may be installed without it."""


def read_yaml(text: str, where: str) -> Any:
    """The plain value that the text holds.

    Args:
        where: file or argument, for messages.

    Raises:
        InputError: no YAML, or a mapping with a name given twice.
    """
    try:
        try:
            return _read(text, where, _FAST)
        except (yaml.YAMLError, ValueError, RecursionError):
            return _read(text, where, yaml.SafeLoader)  # libyaml names other lines and columns for the same mistakes
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise InputError(f"{where}{line}: not valid YAML: {error.problem or error.context}.") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        # PyYAML lets a date like 2001-99-99 out as ValueError; nesting of hundreds of levels overflows its stack.
        if isinstance(error, InputError):
            raise
        raise InputError(f"{where}: not valid YAML: {error}.") from error


def read_yaml_file(path: Path) -> Any:
    """The plain value in a file.

    Raises:
        InputError: as `read_yaml`, or the file cannot be read or is not UTF-8.
    """
    try:
        text = path.read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"{path} must be UTF-8: byte 0x{error.object[error.start]:02x} at {error.start}.") from error
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}.") from error
    return read_yaml(text, str(path))


def _read(text: str, where: str, loader_class: Any) -> Any:
    loader = loader_class(text)
    try:
        node = loader.get_single_node()
        if node is None:
            return None
        for problem in _repeats(node, "$", ()):
            raise InputError(f"{where}: {problem}")
        return loader.construct_document(node)
    finally:
        loader.dispose()


def _repeats(node: yaml.Node, path: str, above: tuple[yaml.Node, ...]) -> Iterator[str]:
    if any(node is outer for outer in above):
        yield f"{path}: an alias must not stand for a value around itself."
    elif isinstance(node, yaml.MappingNode):
        first: dict[str, int] = {}
        for name, entry in node.value:
            text, line = str(name.value), name.start_mark.line + 1
            if isinstance(name, yaml.ScalarNode) and text in first:
                yield f"{path}: {text!r} is given twice, in line {first[text]} and in line {line}. Keep one."
            first.setdefault(text, line)
            yield from _repeats(entry, f"{path}.{text}", (*above, node))
    elif isinstance(node, yaml.SequenceNode):
        for index, entry in enumerate(node.value):
            yield from _repeats(entry, f"{path}[{index}]", (*above, node))
