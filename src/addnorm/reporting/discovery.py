"""Finding subclasses by file: each module of a package defines one."""

import functools
import importlib
import inspect
import pkgutil
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, TypeVar, cast

T = TypeVar("T")


def classes_in(package: str, folders: Sequence[str], base: type[T]) -> Mapping[str, type[T]]:
    """The subclass of `base` that each module of a package defines, by module name. A package in it without one is a group: its
    modules count as the package's own.

    Args:
        package: name of the package.
        folders: its `__path__`.
        base: modules that begin with an underscore are skipped; every other one defines exactly one subclass of this.

    Raises:
        TypeError: a module defines no subclass, or several.
    """
    return cast(Mapping[str, type[T]], _classes_in(package, tuple(folders), cast(Hashable, base)))


@functools.cache
def _classes_in(package: str, folders: tuple[str, ...], base: Any) -> Mapping[str, type[Any]]:
    by_module: dict[str, type[Any]] = {}
    for name in sorted(module.name for module in pkgutil.iter_modules(folders) if not module.name.startswith("_")):
        module = importlib.import_module(f"{package}.{name}")
        classes = [
            cls
            for _, cls in inspect.getmembers(module, inspect.isclass)
            if issubclass(cls, base) and cls.__module__ == module.__name__
        ]
        # Imported names do not count (`__module__` differs), so that a section may import another one's class for a
        # type, and a package's `__init__` defines the section that its modules serve.
        if not classes and hasattr(module, "__path__"):
            by_module |= _classes_in(module.__name__, tuple(module.__path__), base)
            continue
        if len(classes) != 1:
            raise TypeError(f"{package}.{name}: expected one subclass of {base.__name__}, got {len(classes)}.")
        by_module[name] = classes[0]
    return by_module
