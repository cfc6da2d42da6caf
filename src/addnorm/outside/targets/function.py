"""`module:function` and `file.py:function`: a user's function that returns a model, or a model and its inputs."""

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch import nn

from addnorm.errors import InputError
from addnorm.outside.targets.input_spec import make_inputs
from addnorm.outside.targets.target import Target
from addnorm.user_code import call, import_function


def function_target(name: str, given: Mapping[str, Any] | None) -> Target:
    """Call a user's function for a model, with the current folder on the import path.

    Raises:
        InputError: the module, file or function does not exist or raises an exception, the function returns no model, or no
            inputs are given.
    """
    with _current_folder_on_path():
        function, module = import_function(name, "file")
        returned = function if isinstance(function, nn.Module) else call(function, name, module)
    model, inputs = returned if isinstance(returned, tuple) and len(returned) == 2 else (returned, None)
    if not isinstance(model, nn.Module):
        raise InputError(
            f"{name}: expected a torch.nn.Module, or a module and its inputs, got {type(returned).__name__}."
        )
    if given is not None:
        inputs = make_inputs(given, model)
    if inputs is None:
        raise InputError(
            f"{name}: expected inputs beside the model, got none. Return (model, inputs), or describe them to `addnorm "
            "audit` with --inputs spec.json."
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
