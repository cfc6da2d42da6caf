"""`module:function` and `file.py:function`: a user's code that returns a model, or a model and its inputs."""

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch import nn

from addnorm.errors import InputError
from addnorm.targets.input_spec import make_inputs
from addnorm.targets.target import Target
from addnorm.user_code import call, import_function


def of_function(name: str, given: Mapping[str, Any] | None) -> Target:
    """The model that a function returns; the present folder is on the path while it runs.

    Raises:
        InputError: no such module, file or function; it raises; it returns no model; no inputs are given.
    """
    with _present_folder():
        function, module = import_function(name, "file")
        returned = function if isinstance(function, nn.Module) else call(function, name, module)
    model, inputs = returned if isinstance(returned, tuple) and len(returned) == 2 else (returned, None)
    if not isinstance(model, nn.Module):
        raise InputError(
            f"{name}: expected a torch.nn.Module, or a module and its inputs, got {type(returned).__name__}."
        )
    if given is not None:
        inputs = make_inputs(given)
    if inputs is None:
        raise InputError(
            f"{name} returns a model without inputs. Return (model, inputs), or describe them with --inputs spec.json."
        )
    return Target(name=name, model=model, inputs=inputs, kind="function")


@contextmanager
def _present_folder() -> Iterator[None]:
    folder = str(Path.cwd())
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        sys.path.remove(folder)
