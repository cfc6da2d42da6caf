"""The rooms and their siblings, read off the folders.

A room is a package; a sibling is one file in it, and its `kind` is the file's name. Nothing is registered by hand: adding
a file adds the kind. Names and docstrings are read without importing (`addnorm list` needs no torch); a sibling is
imported when it is asked for. A user's own file joins a room through `add_plugin`.
"""

import ast
import functools
import importlib
import importlib.util
import inspect
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, is_dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from addnorm.errors import InputError, UnknownName, did_you_mean
from addnorm.fields import check_fields

_PLUGINS = "addnorm_plugins"


@dataclass(frozen=True, kw_only=True)
class Spec:
    """Base of every sibling's configuration: a frozen dataclass whose fields are what a study may set.

    The fields of every instance are checked against their annotations, whatever the sibling overrides: before its own
    `__post_init__`, which may therefore rely on the types, and after an `__init__` of its own.

    Raises:
        InputError: a field's value does not fit its annotation.
    """

    def __init_subclass__(cls, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        # A sibling may forget to call the __post_init__ that it overrides, or inherit another class's before this one's.
        cls.__post_init__ = _check_before(cls.__post_init__)  # type: ignore[method-assign, assignment]
        # The decorator `dataclass` makes __init__ later, so what is here now was written by hand and calls no __post_init__.
        if "__init__" in vars(cls):
            cls.__init__ = _check_after(cls.__init__)  # type: ignore[method-assign]

    def __post_init__(self) -> None:
        """Checks of a sibling's own; the fields' types are checked before."""

    @property
    def kind(self) -> str:
        """The name of the file that defines this sibling."""
        return type(self).__module__.rpartition(".")[2]


def _check_before(check: Callable[[Spec], None]) -> Callable[[Spec], None]:
    if hasattr(check, "checks_fields"):
        return check

    @functools.wraps(check)
    def checked(self: Spec) -> None:
        if type(self).__post_init__ is checked:  # once, by the outermost of a chain of calls to super()
            check_fields(self, self.kind)
        check(self)

    checked.checks_fields = True  # type: ignore[attr-defined]
    return checked


def _check_after(make: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(make)
    def checked(self: Spec, *arguments: Any, **fields: Any) -> None:
        make(self, *arguments, **fields)
        if type(self).__init__ is checked:  # a subclass may set fields of its own after this
            check_fields(self, self.kind)

    return checked


@dataclass(frozen=True)
class Doc:
    """A sibling's docstring, taken apart. Texts are as written, without the leading line break."""

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
        """The formula's lines that are true of one model.

        A line that ends in `if bias.q and residual is not add` holds where the model's spec says so: a setting is named by its
        path; alone, it must be on; `not` denies it; `is` and `is not` compare it, a mechanism by its kind. A path such as
        `residual.alpha` within a formula stands for the setting's value.

        Args:
            model: the model's spec as plain JSON.

        Returns:
            The lines that hold, without their conditions; empty if none does.
        """
        return "\n".join(
            _SETTING.sub(lambda path: str(_setting(model, path[0])), line["formula"])
            for line in map(_LINE.fullmatch, self.formula.splitlines())
            if line is not None and (line["condition"] is None or _holds(line["condition"], model))
        )


@dataclass
class Room:
    """One folder of siblings behind one interface."""

    name: str
    package: str
    base: str
    """Name of the abstract spec class in the package's `__init__`, which every sibling's spec subclasses."""
    plugins: dict[str, Path] = field(default_factory=dict)

    def kinds(self) -> tuple[str, ...]:
        """Names of the siblings, built-in first, each group sorted. Imports nothing."""
        own = sorted(path.stem for path in self._folder().glob("*.py") if not path.stem.startswith("_"))
        return (*own, *sorted(self.plugins))

    def spec_class(self, kind: str) -> type[Any]:
        """The sibling's spec class.

        Raises:
            UnknownName: no such kind; the message names the nearest.
        """
        if kind not in self.kinds():
            raise UnknownName(self.name, kind, self.kinds())
        found = self._specs_in(self._module(kind))
        if len(found) != 1:
            raise InputError(f"{kind}.py must define exactly one spec for room '{self.name}', found {len(found)}.")
        return found[0]

    def make(self, kind: str, **fields: Any) -> Any:
        """A spec by name: `ROOMS["residual"].make("rezero", alpha_init=0.1)`.

        Raises:
            UnknownName: no such kind.
            InputError: a field that the spec does not have.
        """
        cls = self.spec_class(kind)
        known = list(cls.__dataclass_fields__)
        for name in fields:
            if name not in known:
                raise InputError(
                    f"{self.name} '{kind}' has no field {name!r}.{did_you_mean(name, known)} "
                    f"Known: {', '.join(known) or 'none'}."
                )
        return cls(**fields)

    def doc(self, kind: str) -> Doc:
        """The sibling's docstring, read without importing the file.

        Raises:
            UnknownName: no such kind.
        """
        if kind not in self.kinds():
            raise UnknownName(self.name, kind, self.kinds())
        path = self.plugins.get(kind, self._folder() / f"{kind}.py")
        text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
        return _take_apart(kind, text)

    def specs_of(self, module: ModuleType) -> list[type[Any]]:
        """Spec classes of this room that the module itself defines."""
        return self._specs_in(module)

    def _folder(self) -> Path:
        return Path(__file__).parent.joinpath(*self.package.split(".")[1:])

    def _module(self, kind: str) -> ModuleType:
        if kind in self.plugins:
            return sys.modules[f"{_PLUGINS}.{kind}"]
        return importlib.import_module(f"{self.package}.{kind}")

    def _specs_in(self, module: ModuleType) -> list[type[Any]]:
        base = getattr(importlib.import_module(self.package), self.base)
        return [
            cls
            for _, cls in inspect.getmembers(module, inspect.isclass)
            if cls.__module__ == module.__name__
            and issubclass(cls, base)
            and is_dataclass(cls)
            and not inspect.isabstract(cls)
        ]


ROOMS: dict[str, Room] = {
    room.name: room
    for room in (
        Room("residual", "addnorm.residual", "ResidualSpec"),
        Room("scores", "addnorm.scores", "ScoresSpec"),
        Room("norm", "addnorm.norm", "NormSpec"),
        Room("placement", "addnorm.placement", "PlacementSpec"),
        Room("bias", "addnorm.bias", "QKBiasSpec"),
        Room("position", "addnorm.position", "PositionSpec"),
        Room("corpus", "addnorm.data.corpora", "CorpusSpec"),
        Room("tokenizer", "addnorm.data.tokenizers", "TokenizerSpec"),
        Room("optimizer", "addnorm.optimization.optimizers", "OptimizerSpec"),
        Room("schedule", "addnorm.optimization.schedules", "ScheduleSpec"),
        Room("switch", "addnorm.insight.extrapolation.switches", "SwitchSpec"),
    )
}
"""Every room by name. The first six are mechanisms; the rest belong to the lab, the last to evaluation."""

MECHANISM_ROOMS = ("residual", "scores", "norm", "placement", "bias", "position")


def room(name: str) -> Room:
    """The room of that name.

    Raises:
        UnknownName: no such room.
    """
    if name not in ROOMS:
        raise UnknownName("room", name, ROOMS)
    return ROOMS[name]


def preset_docs() -> dict[str, str]:
    """The named models with their builders' docstrings, read without importing them.

    `PRESETS` must be a literal mapping of texts to functions; a preset made by a call has no docstring of its own.
    """
    tree = ast.parse((Path(__file__).parent / "model" / "presets.py").read_text(encoding="utf-8"))
    builders = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    (table,) = (
        node.value
        for node in tree.body
        if isinstance(node, ast.AnnAssign)
        and isinstance(node.target, ast.Name)
        and node.target.id == "PRESETS"
        and isinstance(node.value, ast.Dict)
    )
    docs = {}
    for name, builder in zip(table.keys, table.values, strict=True):
        text = ast.get_docstring(builders[builder.id], clean=False) if isinstance(builder, ast.Name) else None
        docs[ast.literal_eval(name)] = (text or "").strip()
    return docs


def add_plugin(path: str | Path) -> tuple[Room, str]:
    """Import a user's file and let its sibling take part like a built-in one.

    Returns:
        The room that the file's spec belongs to, and its kind (the file's name).

    Raises:
        InputError: the file is missing, fails to import, defines no spec or more than one, or has a built-in's name.
    """
    path = Path(path).resolve()
    kind = path.stem
    name = f"{_PLUGINS}.{kind}"
    if not path.is_file():
        raise InputError(f"plugin {path}: no such file. Give a path relative to the study, or an absolute one.")
    for known in ROOMS.values():
        if known.plugins.get(kind) == path:
            return known, kind
        if kind in known.kinds():
            raise InputError(f"plugin {path}: '{kind}' is already the name of a {known.name}. Rename the file.")
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise InputError(f"plugin {path}: not a Python file.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # a user's file may raise anything, or be a script that ends itself
        del sys.modules[name]
        where = _line_in(error, path)
        raise InputError(f"plugin {path}{where} failed to import: {type(error).__name__}: {error}") from error
    homes = [(known, cls) for known in ROOMS.values() for cls in known.specs_of(module)]
    if len(homes) != 1:
        del sys.modules[name]
        bases = ", ".join(f"addnorm.{r}.{ROOMS[r].base}" for r in MECHANISM_ROOMS)
        raise InputError(
            f"plugin {path} must define exactly one spec (a frozen dataclass derived from one of {bases}), "
            f"found {len(homes)}."
        )
    home = homes[0][0]
    home.plugins[kind] = path
    return home, kind


def remove_plugin(kind: str) -> None:
    """Forget a plugin, so that another file of that name may join."""
    for known in ROOMS.values():
        known.plugins.pop(kind, None)
    sys.modules.pop(f"{_PLUGINS}.{kind}", None)


def _line_in(error: BaseException, path: Path) -> str:
    frame, line = error.__traceback__, None
    while frame is not None:
        if frame.tb_frame.f_code.co_filename == str(path):
            line = frame.tb_lineno
        frame = frame.tb_next
    return f", line {line}," if line else ""


_LINE = re.compile(r"(?P<formula>.*?)(?:\s{2,}if (?P<condition>.+))?")
_SETTING = re.compile(r"\b(?:residual|scores|norm|placement|position|bias)\.[a-z_]+")


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
        f"a formula's condition: expected a setting, or 'PATH is [not] VALUE', got {' '.join(words)!r}. Correct the docstring."
    )


def _setting(model: Mapping[str, Any], path: str) -> Any:
    """A setting of the spec, a mechanism's as its kind; None where the spec does not have it."""
    value: Any = model
    for part in path.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value.get("kind", True) if isinstance(value, Mapping) else value


def _take_apart(kind: str, text: str) -> Doc:
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
