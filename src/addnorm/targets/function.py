"""`module:function` and `file.py:function`: a user's function that returns a model, or a model and its inputs."""

import importlib
import importlib.util
import sys
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from torch import nn

from addnorm.errors import InputError, did_you_mean
from addnorm.targets.input_spec import make_inputs
from addnorm.targets.target import Target


def function_target(name: str, given: Mapping[str, Any] | None) -> Target:
    """Call a user's function for a model, with the current folder on the import path.

    Raises:
        InputError: the module, file or function does not exist or raises an exception, the function returns no model, or no
            inputs are given.
    """
    location, _, attribute = name.rpartition(":")
    with _current_folder_on_path():
        module = _file(Path(location)) if location.endswith(".py") else _module(location)
        function = getattr(module, attribute, None)
        if not callable(function):
            functions = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
            raise InputError(
                f"{location} has no function {attribute!r}.{did_you_mean(attribute, functions)} Known: {', '.join(functions)}."
            )
        returned = function if isinstance(function, nn.Module) else _called(function, name, module)
    model, inputs = returned if isinstance(returned, tuple) and len(returned) == 2 else (returned, None)
    if not isinstance(model, nn.Module):
        raise InputError(
            f"{name}: expected a function that returns a torch.nn.Module, or a module and its inputs, got "
            f"{type(returned).__name__}."
        )
    if given is not None:
        inputs = make_inputs(given)
    if inputs is None:
        raise InputError(
            f"{name}: expected inputs beside the model, got none. Return (model, inputs), or describe them with --inputs "
            "spec.json."
        )
    return Target(name=name, model=model, inputs=inputs, kind="function")


@contextmanager
def _current_folder_on_path() -> Iterator[None]:
    folder = str(Path.cwd())
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        sys.path.remove(folder)


def _file(path: Path) -> ModuleType:
    name = f"addnorm_target_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise InputError(f"expected a Python file, got {path}, which does not exist in {Path.cwd()}.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # torch's tracers look up classes by module name
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # a user's file may raise anything, or be a script that ends itself
        raise InputError(f"{path} failed to import{_line(error, module)}: {type(error).__name__}: {error}") from error
    return module


def _module(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except (Exception, SystemExit) as error:  # a user's module may raise anything, or end the process
        raise InputError(f"module {name!r} failed to import: {type(error).__name__}: {error}") from error


def _called(function: Any, name: str, module: ModuleType) -> Any:
    try:
        return function()
    except (Exception, SystemExit) as error:  # a user's function may raise anything, or end the process
        raise InputError(f"{name} failed{_line(error, module)}: {type(error).__name__}: {error}") from error


def _line(error: BaseException, module: ModuleType) -> str:
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == module.__file__]
    return f" in line {frames[-1].lineno}" if frames else ""
