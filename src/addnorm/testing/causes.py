"""The cause of an exception that a mechanism's code raised, in one line: the law, the line of the file, and what to do."""

import inspect
import re
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import Any

from addnorm.errors import BrokenLaw, InputError

CONSTANTS = (
    "Make a constant where it is used, like its input: torch.arange(n, dtype=x.dtype, device=x.device) or x.new_ones(n); or "
    "keep it in a buffer: self.register_buffer(name, tensor, persistent=False)."
)
"""Advice about a tensor that is neither a parameter nor made from the input."""
_LENGTH = 240
_RULES: tuple[tuple[str, str, str, str], ...] = (
    # What torch's messages are about: a pattern, the law, the cause in words, the advice. The first that matches counts.
    (
        r"same dtype|expected scalar type|mat1 and mat2 .*dtype|have the same dtype",
        "keeps_shape_and_dtype",
        "a tensor that it makes has another dtype than the model's stream, such as float32 in a float64 model",
        CONSTANTS,
    ),
    (
        r"same device|not on the expected device|must be on the device"
        r"|not compiled with CUDA|No CUDA|NVIDIA driver|not linked with",
        "runs_on_its_device",
        "a tensor that it makes lies on another device than its input",
        CONSTANTS,
    ),
    (
        r"__init__\(\) call|has no attribute '_(parameters|buffers|modules|forward_hooks|backward_hooks|forward_pre_hooks)'",
        "runs",
        "the constructor of torch.nn.Module was not called",
        "Write super().__init__() as the first line of __init__.",
    ),
    (
        r"Can't instantiate abstract class (?P<cls>\w+).* abstract methods? (?P<names>.*)",
        "runs",
        "{cls} does not define {names}",
        "Define it; the room's docstring says what it returns.",
    ),
)


def broken_by(
    error: Exception, law: str, bases: Sequence[type[Any] | None], module: str, offender: str = "the model"
) -> BrokenLaw:
    """The law that an exception shows to be broken.

    Args:
        error: raised by the mechanism's code, or by code that it called or was called by.
        law: checked when it was raised.
        bases: the base classes of the room, whose signatures hold.
        module: name of the mechanism's module, whose lines are named.
        offender: the mechanism, for the message.
    """
    where, message = _place(error, module), _one_line(error)
    for pattern, its_law, cause, advice in _RULES:
        if matched := re.search(pattern, message):
            words = cause.format(**matched.groupdict())
            detail = "" if matched.groupdict() else f" ({message})"
            return BrokenLaw(its_law, f"{where}{words}{detail}.", advice, offender)
    what = message if isinstance(error, InputError) else f"{type(error).__name__}: {message or 'without a message'}"
    return BrokenLaw(law, f"{where}{what.rstrip('.')}.", _advice(message, bases, where), offender)


def _advice(message: str, bases: Sequence[type[Any] | None], where: str) -> str:
    if signature := next(filter(None, (_signature(message, base) for base in bases)), ""):
        return signature
    if "NoneType" in message and not where:
        return "A method of the mechanism returns nothing: look for a `return` that is missing."
    return "Make it work in a small model."


def _place(error: BaseException, module: str) -> str:
    """The last line of the mechanism's own file that was running; empty if none was."""
    file = getattr(sys.modules.get(module), "__file__", None)
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    return f"line {lines[-1]}: " if lines else ""


def _one_line(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return text if len(text) <= _LENGTH else f"{text[:_LENGTH].rpartition(' ')[0]} …"


def _signature(message: str, base: type[Any] | None) -> str:
    """The right signature of a method that was called with arguments which it does not take; empty for other mistakes."""
    matched = re.search(r"\w+\.(\w+)\(\) (takes|got an unexpected|got multiple|missing)", message)
    method: Callable[..., Any] | None = getattr(base, matched[1], None) if matched else None
    if matched is None or matched[1] == "__init__" or not inspect.isfunction(method):
        return ""
    names: list[str] = []
    for parameter in inspect.signature(method).parameters.values():
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY and "*" not in names:
            names.append("*")
        names.append(parameter.name)
    return f"Its signature is {matched[1]}({', '.join(names)})."
