"""Docstrings of mechanisms, parsed into summary, formula, reason and source.

A line of a formula may end in a condition, `if bias.q and residual is not add`, and may contain the path of a setting, such
as `residual.alpha`. Pages show the lines that hold for a model, with the model's values.
"""

import ast
import inspect
import re
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any


@dataclass(frozen=True)
class Doc:
    """A parsed docstring."""

    kind: str
    summary: str
    """The first sentence."""
    formula: str
    """The indented block that follows the summary, with the conditions of its lines; empty if there is none."""
    why: str
    source: str
    differs: str
    text: str
    """The whole docstring."""

    def formula_in(self, model: Mapping[str, Any]) -> str:
        """The lines of the formula that hold for a model, without their conditions.

        A condition such as `if bias.q and residual is not add` names settings of the model's spec by their paths. A path alone
        requires a true value, `not PATH` a false one; `PATH is VALUE` and `PATH is not VALUE` compare it, a mechanism by its
        kind. Within a formula, a path such as `residual.alpha` is replaced by the setting's value.

        Args:
            model: the model's spec as plain JSON.

        Returns:
            The lines that hold; an empty text if there are none.
        """
        return "\n".join(
            _SETTING.sub(lambda path: str(_setting(model, path[0])) if path[1] in model else path[0], line["formula"])
            for line in map(_LINE.fullmatch, self.formula.splitlines())
            if line is not None and (line["condition"] is None or _holds(line["condition"], model))
        )


_LINE = re.compile(r"(?P<formula>.*?)(?:\s{2,}if (?P<condition>.+))?")
_SETTING = re.compile(r"\b([a-z_]+)\.[a-z_]+")


def _holds(condition: str, model: Mapping[str, Any]) -> bool:
    return all(_is_true(part.split(), model) for part in condition.split(" and "))


def _is_true(words: list[str], model: Mapping[str, Any]) -> bool:
    match words:
        case [path]:
            return bool(_setting(model, path))
        case ["not", path]:
            return not _setting(model, path)
        case [path, "is", value]:
            return str(_setting(model, path)) == value
        case [path, "is", "not", value]:
            return str(_setting(model, path)) != value
    raise ValueError(
        f"condition of a formula: expected 'PATH', 'not PATH' or 'PATH is [not] VALUE', got {' '.join(words)!r}. Correct the "
        "docstring."
    )


def _setting(model: Mapping[str, Any], path: str) -> Any:
    """The value at a path of the spec, the kind of a mechanism; None if the spec has no such path."""
    value: Any = model
    for part in path.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value.get("kind", True) if isinstance(value, Mapping) else value


def field_docstrings(of: type) -> dict[str, str]:
    """The docstring below each field of a dataclass and of the classes that it inherits from, by the field's name."""
    texts: dict[str, str] = {}
    for each in (cls for cls in reversed(of.__mro__) if "__dataclass_fields__" in vars(cls)):
        (tree,) = ast.parse(textwrap.dedent(inspect.getsource(each))).body
        for first, second in pairwise(tree.body if isinstance(tree, ast.ClassDef) else []):
            match first, second:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                    texts[name] = text
    return texts


def module_docstring(source: str | bytes) -> str:
    """The docstring of a Python file; empty if it has none.

    Raises:
        SyntaxError: the file is not Python.

    Example:
        >>> module_docstring("'Mine: a thing.'")
        'Mine: a thing.'
    """
    # Not cleaned: Python takes the indentation that all lines after the first share for that of the code. A docstring of a
    # summary and a formula alone would lose the indentation that makes the formula one.
    text = ast.get_docstring(ast.parse(source), clean=False) or ""
    return "\n".join(line.rstrip() for line in text.splitlines()).strip("\n")


def parse_docstring(kind: str, text: str) -> Doc:
    """Parse a mechanism's docstring. Sections that it lacks are empty texts."""
    paragraphs = [p for p in text.split("\n\n") if p.strip()]
    labelled = {"Why:": "", "Source:": "", "Differs from the source:": ""}
    formula: list[str] = []
    current = None
    for paragraph in paragraphs[1:]:
        for line in paragraph.splitlines():
            current = next((label for label in labelled if line.startswith(label)), current)
            if current is not None:
                labelled[current] += line.removeprefix(current).strip() + " "
            elif line.startswith("    "):
                formula.append(line)
    return Doc(
        kind=kind,
        summary=" ".join(paragraphs[0].split()) if paragraphs else "",
        formula="\n".join(formula),
        why=labelled["Why:"].strip(),
        source=labelled["Source:"].strip(),
        differs=labelled["Differs from the source:"].strip(),
        text=text,
    )
