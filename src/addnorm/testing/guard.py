"""Guarded mechanisms, which pass every call on to another one and raise an error if it writes into its inputs."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar, cast

from torch import Tensor, nn

from addnorm.bias import QKBias
from addnorm.errors import BrokenLaw
from addnorm.position import Position
from addnorm.residual import Residual
from addnorm.scores import Scores

M = TypeVar("M", bound=nn.Module)
BASES: tuple[type[nn.Module], ...] = (Residual, Scores, Position, QKBias)


def guard(model: M) -> M:
    """Replace every mechanism of a model by a guarded one, and guard the calls of its innermost modules, such as norms.

    A later forward pass raises `BrokenLaw` at the first mechanism that writes into a tensor that it is given.
    """
    for parent in list(model.modules()):
        for name, child in parent.named_children():
            base = next((base for base in BASES if isinstance(child, base)), None)
            if base is not None:
                setattr(parent, name, _guarded(base, child))
            elif not list(child.children()):
                _Versions(type(child).__name__).watch(child)
    return model


def _guarded(base: type[nn.Module], inner: nn.Module) -> nn.Module:
    """Make a mechanism of the same room that passes every call on to `inner`."""
    calls = [name for name, value in vars(base).items() if callable(value) and not name.startswith("_")]
    constants = {name: getattr(inner, name) for name, value in vars(base).items() if isinstance(value, bool)}

    def passed_on(name: str) -> Callable[..., Any]:
        method = getattr(inner, name)

        def call(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
            given = versions((args, kwargs))
            result = method(*args, **kwargs)
            require_unwritten(given, f"{type(inner).__name__}.{name}")
            return result

        return call

    # A subclass of the room's base, so that `isinstance` and the base's constants hold for it; every public method of
    # the base is passed on, those that the mechanism inherits included.
    cls = type(f"Guarded{base.__name__}", (base,), constants | {name: passed_on(name) for name in calls})
    guarded: nn.Module = cls()
    guarded.inner = inner
    return guarded


class _Versions:
    """Hooks that compare the versions of a module's inputs before and after each call."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._given: list[tuple[Tensor, int]] = []

    def watch(self, module: nn.Module) -> None:
        module.register_forward_pre_hook(self._before)
        module.register_forward_hook(self._after)

    def _before(self, module: nn.Module, args: tuple[Any, ...]) -> None:
        self._given = versions(args)

    def _after(self, module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        require_unwritten(self._given, f"{self.name}.forward")


def versions(arguments: Any) -> list[tuple[Tensor, int]]:
    """Pair every floating-point tensor in nested arguments with the number of writes to it so far."""
    return [(tensor, tensor._version) for tensor in floats(arguments)]


def require_unwritten(given: list[tuple[Tensor, int]], name: str) -> None:
    """Raises:
    BrokenLaw: one of the tensors has been written to.
    """
    if any(tensor._version != version for tensor, version in given):
        raise BrokenLaw(
            "leaves_inputs_alone",
            f"{name} writes into a tensor that it was given.",
            "Compute a new tensor: x + y, not x += y.",
        )


def floats(value: Any) -> Iterator[Tensor]:
    """Iterate over the floating-point tensors in nested arguments."""
    if isinstance(value, Tensor):
        if value.is_floating_point():
            yield value
    elif isinstance(value, Mapping):
        yield from floats(tuple(value.values()))
    elif isinstance(value, tuple | list):
        for part in cast("tuple[Any, ...]", value):
            yield from floats(part)
