"""Catalogue of the rooms and their siblings, read from the folders.

A room is a package; a sibling is one file in it, and its `kind` is the file's name. There is no registration: a new file adds
its kind. Names and docstrings are read without importing the files (`addnorm list` needs no torch); a sibling is imported
when it is requested. A user's own file joins a room through `add_plugin`.

Every mechanism can be run: `python -m addnorm.residual.rezero` prints its formula, what it equals, its parameters in a small
model, and the weights with which that model's reads have their sources.
"""

import ast
import functools
import importlib
import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from dataclasses import fields as fields_of
from pathlib import Path
from types import ModuleType
from typing import Any

from addnorm.docstrings import Doc as Doc
from addnorm.docstrings import module_docstring, parse_docstring
from addnorm.errors import InputError, UnknownName, did_you_mean
from addnorm.fields import check_fields
from addnorm.user_code import import_file

_PLUGINS = "addnorm_plugins"
_PACKAGE = Path(__file__).parent


@dataclass(frozen=True, kw_only=True)
class Spec:
    """Base of every sibling's configuration: a frozen dataclass whose fields a study may set.

    The fields of every instance are checked against their annotations, whatever the sibling overrides: before its own
    `__post_init__`, which may therefore rely on the types, and after an `__init__` of its own.

    Raises:
        FieldError: a field's value does not fit its annotation.
    """

    def __init_subclass__(cls, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        if cls.__module__ == "__main__":
            _show_what_runs()
        # A sibling may omit the call of super().__post_init__, or inherit another class's __post_init__ before this one.
        cls.__post_init__ = _check_before(cls.__post_init__)  # type: ignore[method-assign, assignment]
        # The decorator `dataclass` adds its __init__ later, so one that exists now is handwritten and calls no __post_init__.
        if "__init__" in vars(cls):
            cls.__init__ = _check_after(cls.__init__)  # type: ignore[method-assign]

    def __post_init__(self) -> None:
        """Check values beyond their types, which are checked before."""

    @property
    def kind(self) -> str:
        """The name of the file that defines this sibling."""
        return type(self).__module__.rpartition(".")[2]


def _show_what_runs() -> None:
    """Print a mechanism whose file is run, as in `python -m addnorm.residual.rezero`, and end the process."""
    # Here and not in each file: every mechanism defines a spec, so no file needs a line for it. A script or notebook of a
    # user's that defines one is no module of a room. What runs as __main__ is a second copy of the module, whose classes the
    # room does not know; the text is made from the room's own, and the copy is not run to its end.
    module = getattr(sys.modules["__main__"], "__spec__", None)
    package, _, kind = module.name.rpartition(".") if module is not None else ("", "", "")
    home = next((each for each in _MECHANISMS if each.package == package), None)
    if home is not None and kind in home.kinds():
        # By name, because it stands far above this room.
        sys.stdout.write(importlib.import_module("addnorm.insight.mechanism").on_one_screen(home.name, kind))
        sys.exit()


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


def _check_after(initialise: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(initialise)
    def checked(self: Spec, *arguments: Any, **fields: Any) -> None:
        initialise(self, *arguments, **fields)
        if type(self).__init__ is checked:  # a subclass may set fields of its own after this
            check_fields(self, self.kind)

    return checked


@functools.cache  # every mechanism of every point of a grid asks for them
def _files(package: Path) -> tuple[str, ...]:
    return tuple(sorted(path.stem for path in package.glob("*.py") if not path.stem.startswith("_")))


@dataclass
class Siblings:
    """Classes of one base class, one per file of a package, found by file name.

    Example:
        >>> trackers = Siblings("tracker", "addnorm.supervision.trackers", "Tracker")
        >>> trackers.class_of("tensorboard").__name__
        'TensorBoard'
    """

    name: str
    """The word for one of them in messages."""
    package: str
    base: str
    """Name of the base class, which the package's `__init__` defines."""

    def kinds(self) -> tuple[str, ...]:
        """Names of the files, sorted. Imports nothing."""
        return _files(self._folder())

    def class_of(self, kind: str) -> type[Any]:
        """The class that the file `kind` defines.

        Raises:
            UnknownName: no such file; the message has the nearest name.
            InputError: the file defines no class of the base class, or several.
        """
        if kind not in self.kinds():
            raise UnknownName(self.name, kind, self.kinds())
        classes = self.classes_in(self._module(kind))
        if len(classes) != 1:
            raise InputError(f"{kind}.py: expected exactly one {self.base}, got {len(classes)}.")
        return classes[0]

    def doc(self, kind: str) -> Doc:
        """The file's docstring, read without importing the file.

        Raises:
            UnknownName: no such file.
        """
        if kind not in self.kinds():
            raise UnknownName(self.name, kind, self.kinds())
        return parse_docstring(kind, module_docstring(self._file(kind).read_text(encoding="utf-8")))

    def module_file(self, kind: str) -> Path:
        """The file that defines a sibling."""
        return self._file(kind)

    def classes_in(self, module: ModuleType) -> list[type[Any]]:
        """Concrete classes of the base class that the module itself defines."""
        base = getattr(importlib.import_module(self.package), self.base)
        return [
            cls
            for cls in vars(module).values()
            if isinstance(cls, type)
            # Names that a file imports are its attributes too; a sibling is what the file itself defines.
            and cls.__module__ == module.__name__
            and issubclass(cls, base)
            and not inspect.isabstract(cls)
        ]

    def _folder(self) -> Path:
        return _PACKAGE.joinpath(*self.package.split(".")[1:])

    def _file(self, kind: str) -> Path:
        return self._folder() / f"{kind}.py"

    def _module(self, kind: str) -> ModuleType:
        return importlib.import_module(f"{self.package}.{kind}")


@dataclass
class Room(Siblings):
    """Siblings that are specs. A user's plugins join a room."""

    plain: str = ""
    """The kind of a standard Transformer; empty where standard Transformers differ, or have none."""
    is_joint: bool = False
    """True for what joins a layer to others or to the stream, with numbers of its own to learn."""
    plugins: dict[str, Path] = field(default_factory=dict)

    def kinds(self) -> tuple[str, ...]:
        """Names of the siblings, built-in ones first, each group sorted. Imports nothing."""
        return (*super().kinds(), *sorted(self.plugins))

    def spec_class(self, kind: str) -> type[Any]:
        """The sibling's spec class; see `class_of`."""
        return self.class_of(kind)

    def make(self, kind: str, **fields: Any) -> Any:
        """Construct a spec by name.

        Example:
            >>> ROOMS["residual"].make("rezero", alpha_init=0.1).kind
            'rezero'

        Raises:
            UnknownName: no such kind.
            InputError: the spec has no such field, or refuses a value.
        """
        cls = self.spec_class(kind)
        known = [field.name for field in fields_of(cls)]
        for name in fields:
            if name not in known:
                raise InputError(
                    f"{self.name} '{kind}' has no field {name!r}.{did_you_mean(name, known)} "
                    f"Known: {', '.join(known) or 'none'}."
                )
        return cls(**fields)

    def module_of(self, kind: str) -> ModuleType:
        """The module that defines a sibling."""
        return self._module(kind)

    def _file(self, kind: str) -> Path:
        return self.plugins.get(kind) or super()._file(kind)

    def _module(self, kind: str) -> ModuleType:
        # A plugin is known by its path and has no place from which it could be imported by name.
        return sys.modules[f"{_PLUGINS}.{kind}"] if kind in self.plugins else super()._module(kind)


_MECHANISMS = (
    Room("residual", "addnorm.residual", "ResidualSpec", plain="add", is_joint=True),
    Room("scores", "addnorm.scores", "ScoresSpec", plain="own", is_joint=True),
    Room("values", "addnorm.values", "ValuesSpec", plain="own", is_joint=True),
    Room("sink", "addnorm.sink", "SinkSpec", plain="none", is_joint=True),
    Room("column", "addnorm.column", "ColumnSpec", plain="none", is_joint=True),
    Room("attended", "addnorm.attended", "AttendedSpec", plain="plain", is_joint=True),
    Room("norm", "addnorm.norm", "NormSpec"),
    Room("placement", "addnorm.placement", "PlacementSpec"),
    Room("block", "addnorm.block", "BlockSpec", plain="sequential"),
    Room("bias", "addnorm.bias", "QKBiasSpec", plain="linear"),
    Room("position", "addnorm.position", "PositionSpec"),
)
"""A new room of mechanisms is a line here, its folder, a field of `addnorm.model.architecture.Architecture`, and its place in
the forward pass; tests then ask for its layer in pyproject.toml, its words, and its line in docs/reference.py."""
_OTHERS = (
    Room("corpus", "addnorm.data.corpora", "CorpusSpec"),
    Room("tokenizer", "addnorm.data.tokenizers", "TokenizerSpec"),
    Room("optimizer", "addnorm.optimization.optimizers", "OptimizerSpec"),
    Room("schedule", "addnorm.optimization.schedules", "ScheduleSpec"),
    Room("switch", "addnorm.insight.extrapolation.switches", "SwitchSpec"),
    Room("foreign", "addnorm.outside.foreign", "ForeignSpec"),
    Room("executor", "addnorm.supervision.executors", "ExecutorSpec"),
)
ROOMS: dict[str, Room] = {room.name: room for room in (*_MECHANISMS, *_OTHERS)}
"""Every room of specs by name: mechanisms, data and optimization, changes at evaluation, and where runs are trained."""
MECHANISM_ROOMS = tuple(room.name for room in _MECHANISMS)
JOINT_ROOMS = tuple(room.name for room in _MECHANISMS if room.is_joint)
"""Rooms of what joins a layer to others or to the stream, with numbers of its own to learn."""


def room(name: str) -> Room:
    """The room of that name.

    Raises:
        UnknownName: no such room.
    """
    if name not in ROOMS:
        raise UnknownName("room", name, ROOMS)
    return ROOMS[name]


def family_of(parameter: str) -> str:
    """The name of a parameter without the numbers of layers and of modules in lists: `residual.gates.static` for
    `residual.gates.3.static`.

    Numbers of one family are tested, counted and drawn together, so this rule stands here alone.
    """
    return ".".join(part for part in parameter.removeprefix("layers.").split(".") if not part.isdigit())


@functools.cache
def rooms_by_base() -> dict[Any, Room]:
    """The rooms by the base class of their specs, which annotates a field that takes any sibling of the room."""
    return {getattr(importlib.import_module(room.package), room.base): room for room in ROOMS.values()}


def preset_docs() -> dict[str, str]:
    """The docstrings of the presets by name, read without importing them.

    `PRESETS` must be a literal mapping from texts to functions, or to calls whose first argument is the docstring; it may
    unpack such mappings of other modules of the folder.
    """
    return _preset_docs("presets", "PRESETS")


def _preset_docs(module: str, mapping: str) -> dict[str, str]:
    tree = ast.parse((_PACKAGE / "model" / f"{module}.py").read_text(encoding="utf-8"))
    builders = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    imported = {
        alias.name: (node.module or "").rpartition(".")[2]
        for node in tree.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    texts: dict[str, str] = {}
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            texts[node.targets[0].id] = _text(node.value, texts)
    # The names and their functions stand in a literal, so they can be read like the docstrings: without the import of
    # torch that calling them would need.
    (table,) = (
        node.value
        for node in tree.body
        if isinstance(node, ast.AnnAssign)
        and isinstance(node.target, ast.Name)
        and node.target.id == mapping
        and isinstance(node.value, ast.Dict)
    )
    docs: dict[str, str] = {}
    for name, builder in zip(table.keys, table.values, strict=True):
        if name is None and isinstance(builder, ast.Name):
            docs |= _preset_docs(imported[builder.id], builder.id)
            continue
        text = (
            ast.get_docstring(builders[builder.id], clean=False)
            if isinstance(builder, ast.Name)
            # Wrapped in its file, one line where it is listed.
            else " ".join(_text(builder.args[0], texts).split())
            if isinstance(builder, ast.Call)
            else None
        )
        docs[_text(name, texts)] = (text or "").strip()
    return docs


def _text(node: ast.expr | None, texts: Mapping[str, str]) -> str:
    """The text of a literal, which may hold names of texts; empty for anything else."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=parts):
            return "".join(_text(part, texts) for part in parts)
        case ast.FormattedValue(value=ast.Name(id=name)):
            return texts[name]
    return ""


def add_plugin(path: str | Path) -> tuple[Room, str]:
    """Import a user's file and add its sibling to its room.

    Returns:
        The room of the file's spec, and the spec's kind (the file's name).

    Raises:
        InputError: the file is missing, fails to import, defines no spec or several, or has the name of another sibling.
    """
    path = Path(path).resolve()
    kind, label = path.stem, f"plugin {path}"
    for known in ROOMS.values():
        # A study, its workers and its pages each load the same list: the same file again is no conflict.
        if known.plugins.get(kind) == path and path.is_file():
            return known, kind
        # A kind is unique over all rooms, not in its own alone, which is known only after the import. All plugins share
        # the package of their modules, so two files of one name would replace each other there.
        if path.is_file() and kind in known.kinds():
            raise InputError(f"{label}: '{kind}' is already the name of a {known.name}. Rename the file.")
    name = f"{_PLUGINS}.{kind}"
    module = import_file(path, name, label, "Give a path relative to the study, or an absolute one.")
    # A room for each class, so that a file with two specs of one room counts as two.
    homes = [known for known in ROOMS.values() for _ in known.classes_in(module)]
    if len(homes) != 1:
        # Otherwise the next file of this name would be refused, or taken for this one.
        del sys.modules[name]
        bases = ", ".join(f"addnorm.{r}.{ROOMS[r].base}" for r in MECHANISM_ROOMS)
        own = ", ".join(
            value.__name__ for value in vars(module).values() if isinstance(value, type) and value.__module__ == name
        )
        raise InputError(
            f"{label}: expected exactly one spec (a frozen dataclass derived from one of {bases}), got {len(homes)}. "
            f"The file defines {f'the classes {own}' if own else 'no class'}; `addnorm new --mechanism ROOM FILE` writes one."
        )
    homes[0].plugins[kind] = path
    return homes[0], kind


def remove_plugin(kind: str) -> None:
    """Remove a plugin, so that another file of that name may join."""
    for known in ROOMS.values():
        known.plugins.pop(kind, None)
    sys.modules.pop(f"{_PLUGINS}.{kind}", None)
