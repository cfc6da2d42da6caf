"""Import and call a user's Python code: a plugin file, or a function named as `file.py:function` or `module:function`.

Such code may raise anything or be a script that ends the process. Every failure becomes an `InputError` that names the file,
the line and the exception.
"""

import importlib
import importlib.util
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from addnorm.errors import InputError, did_you_mean


def import_file(path: Path, module_name: str, label: str, advice: str = "") -> ModuleType:
    """Import a Python file under a module name of its own.

    Args:
        path: the file.
        module_name: its key in `sys.modules`, where pickling and torch's tracers look for its classes.
        label: the file's name in messages, such as `plugin mine.py`.
        advice: a sentence for the message about a missing file.

    Raises:
        InputError: the file is missing, is not a Python file, or raises when it is imported.
    """
    if path.is_dir():
        raise InputError(f"{label}: expected a file, got a folder.{advice and ' '}{advice}")
    if not path.is_file():
        raise InputError(f"{label}: no such file (looked in {Path.cwd()}).{advice and ' '}{advice}")
    spec = importlib.util.spec_from_file_location(module_name, path)
    if spec is None or spec.loader is None:
        raise InputError(f"{label}: expected a Python file, got '{path.name}'. Rename it to end in .py.")
    module = importlib.util.module_from_spec(spec)
    # Before the file runs: dataclasses, pickle and torch's tracers look a class up by its module while it is being
    # defined.
    sys.modules[module_name] = module
    try:
        spec.loader.exec_module(module)
    # A module that failed halfway must not be what the next import gets.
    except (Exception, SystemExit) as error:  # the file may raise anything, or be a script that ends the process
        del sys.modules[module_name]
        raise _failure(error, label, module.__file__, "failed to import") from error
    return module


def import_function(reference: str, label: str, advice: str = "") -> tuple[Any, ModuleType]:
    """Import the callable that a reference names.

    Args:
        reference: `file.py:name` or `module:name`.
        label: what the file is in messages, such as `study file`.
        advice: a sentence for the message about a file or module that is missing.

    Returns:
        The callable and its module.

    Raises:
        InputError: no such file, module or callable, or the import raises.
    """
    home, _, name = reference.rpartition(":")
    if home.endswith(".py"):
        path = Path(home)
        module = import_file(path, f"addnorm_user_{path.stem}", f"{label} {home}", advice)
    else:
        module = _import_module(home, advice)
    function = getattr(module, name, None)
    if not callable(function):
        known = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
        raise InputError(
            f"{home}: no function {name!r}.{did_you_mean(name, known)} Known: {', '.join(known) or 'none'}."
        )
    return function, module


def call(function: Callable[[], Any], label: str, module: ModuleType) -> Any:
    """Call a user's function without arguments.

    Raises:
        InputError: the function raises, or ends the process.
    """
    try:
        return function()
    except (Exception, SystemExit) as error:  # the function may raise anything, or end the process
        raise _failure(error, label, module.__file__, "failed") from error


def _import_module(name: str, advice: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except (Exception, SystemExit) as error:  # the module may raise anything, or end the process
        raise InputError(
            f"module {name!r} failed to import: {type(error).__name__}: {error}{advice and '. '}{advice}"
        ) from error


def _failure(error: BaseException, label: str, file: str | None, failed: str) -> InputError:
    if isinstance(error, InputError):
        return InputError(f"{label}: {error}")
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    line = f", line {lines[-1]}" if lines else ""
    return InputError(f"{label}{line}: {failed}: {type(error).__name__}: {error}")
