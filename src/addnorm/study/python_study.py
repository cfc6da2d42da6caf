"""Studies written in Python: a function without arguments that returns a `Study`."""

import importlib
import importlib.util
import sys
import traceback
from pathlib import Path
from types import ModuleType

from addnorm.errors import InputError
from addnorm.study.definition import Study
from addnorm.study.problems import nearest, shown


def call_study(target: str) -> tuple[Study, Path]:
    """The study that `file.py`, `file.py:function` or `module:function` returns, and the folder its plugins are relative
    to. The function is `study` unless named.

    Raises:
        InputError: no such file, module or function; it raises; or it returns something else.
    """
    home, _, name = target.rpartition(":") if not target.endswith(".py") else (target, "", "study")
    module = _file(Path(home)) if home.endswith(".py") else _module(home)
    function = getattr(module, name, None)
    if not callable(function):
        own = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
        raise InputError(f"{home} has no function {name!r}{nearest(name, own)}")
    try:
        study = function()
    except InputError as error:
        raise InputError(f"{target}: {error}") from error
    except (Exception, SystemExit) as error:  # a user's function may raise anything, or end the process
        raise InputError(f"{target} failed{_line(error, module)}: {type(error).__name__}: {error}") from error
    if not isinstance(study, Study):
        raise InputError(f"{target} must return a Study, got {shown(study)}.")
    return study, Path(module.__file__ or ".").resolve().parent


def _file(path: Path) -> ModuleType:
    name = f"addnorm_study_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise InputError(f"study file {path} does not exist (looked in {Path.cwd()}).")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except InputError as error:
        raise InputError(f"{path}: {error}") from error
    except (Exception, SystemExit) as error:  # a user's file may raise anything, or be a script that ends itself
        raise InputError(f"{path} failed to import{_line(error, module)}: {type(error).__name__}: {error}") from error
    return module


def _module(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except (Exception, SystemExit) as error:  # a user's module may raise anything, or end the process
        raise InputError(
            f"module {name!r} failed to import: {type(error).__name__}: {error}. "
            "A study is given as a built-in name, a .yaml or .py file, or module:function."
        ) from error


def _line(error: BaseException, module: ModuleType) -> str:
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == module.__file__]
    return f" in line {frames[-1].lineno}" if frames else ""
