"""The contract of mechanisms: every law on a small model. Tests check all siblings, a study its plug-ins before training."""

from collections.abc import Callable
from dataclasses import MISSING, asdict, fields, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

from addnorm.bias import Biases
from addnorm.block.gau import Gau
from addnorm.catalogue import MECHANISM_ROOMS, ROOMS, Spec, add_plugin, remove_plugin
from addnorm.docstrings import field_docstrings
from addnorm.errors import BrokenLaw, InputError, UnknownName, warn
from addnorm.model.architecture import Dropout
from addnorm.model.presets import FIELD_OF_ROOM
from addnorm.model.spec import ModelSpec
from addnorm.reduction import Reducible
from addnorm.testing.causes import broken_by
from addnorm.testing.laws import LAWS
from addnorm.testing.reductions import reduces_as_declared

T = TypeVar("T")


def check_any(mechanism: Any) -> None:
    """Check a spec, a spec's class or a plug-in file, as `addnorm.testing.check` does.

    Raises:
        BrokenLaw: the first law that the mechanism breaks.
        InputError: no mechanism, a field without a default, or a file that cannot be imported.
    """
    if isinstance(mechanism, str | Path):
        path = Path(mechanism).resolve()
        loaded = any(path in home.plugins.values() for home in ROOMS.values())
        home, kind = add_plugin(path)
        try:
            check_any(home.spec_class(kind))
        finally:
            if not loaded:
                remove_plugin(kind)
        return
    if isinstance(mechanism, type) and issubclass(mechanism, Spec):
        mechanism = of_defaults(mechanism)
    for name in MECHANISM_ROOMS:
        if isinstance(mechanism, _base(name)):
            check_mechanism(name, mechanism)
            return
    bases = ", ".join(_base(name).__name__ for name in MECHANISM_ROOMS)
    raise InputError(
        f"check: expected a spec (a frozen dataclass derived from one of {bases}), its class or the path of a plug-in file, "
        f"got {mechanism!r}. Pass the spec whose build() makes the module."
    )


def of_defaults(cls: type[Spec]) -> Spec:
    """The spec with the default of every field.

    Raises:
        InputError: a field has no default, or the defaults are refused.
    """
    required = [field.name for field in fields(cls) if field.default is MISSING and field.default_factory is MISSING]
    if required:
        raise InputError(
            f"{cls.__name__}: expected a default for every field, so that the mechanism can be checked in a small model, "
            f"got none for {', '.join(required)}."
        )
    try:
        return cls()
    except InputError:
        raise
    except Exception as error:  # a user's __post_init__ may raise anything
        raise broken_by(error, BUILDS, (), cls.__module__, f"{cls.__name__}()") from error


def check_mechanism(room_name: str, spec: Spec, say: Callable[[str], None] = warn) -> None:
    """Check every law on a tiny model with this mechanism; takes about a second.

    Args:
        room_name: one of the mechanism rooms.
        spec: the mechanism with its settings.
        say: receives what a plug-in's style lacks, which is an error in a mechanism of this library.

    Raises:
        BrokenLaw: the first law that it breaks, with numbers and what to do (an `InputError`).
        InputError: the mechanism does not fit the tiny model's sizes, or belongs to another room.
        UnknownName: no such room.
    """
    _require_room(room_name, spec)
    offender = f"{room_name} '{spec.kind}'"

    def held(name: str, law: Callable[[], T], *, unchanged: type[Exception] | tuple[()] = ()) -> T:
        try:
            return law()
        except BrokenLaw as broken:
            raise BrokenLaw(broken.law, broken.finding, broken.advice, offender) from None
        except unchanged as error:
            raise InputError(f"{offender}: {error}") from error
        except Exception as error:  # a user's code may raise anything
            bases = (_module_base(room_name), _base(room_name))
            raise broken_by(error, name, bases, type(spec).__module__, offender) from error

    model = held(BUILDS, partial(_built, room_name, spec), unchanged=InputError)  # its own words about sizes
    laws: dict[str, Callable[[], None]] = {"spec_round_trips": partial(spec_round_trips, room_name, spec)}
    laws |= {name: partial(law, model) for name, law in LAWS.items()}
    if isinstance(spec, Reducible):
        laws["reduces_as_declared"] = partial(reduces_as_declared, room_name, type(spec), plain())
    for name, law in laws.items():
        held(name, law)
    # Style last: whoever tries an idea wants to know first whether it works, and trains a plug-in without it.
    try:
        held("fields_are_documented", partial(fields_are_documented, room_name, spec))
    except BrokenLaw as broken:
        if type(spec).__module__.startswith(f"{ROOMS[room_name].package}."):
            raise
        say(str(broken))


BUILDS = "runs"
"""Law of what a spec builds."""


def _built(room_name: str, spec: Spec) -> ModelSpec:
    """The tiny model's spec, after its model has been built once.

    Raises:
        BrokenLaw: `build` is missing, or does not return the room's module.
    """
    _require_field_decorator(type(spec))
    module, cls = _module_base(room_name), type(spec)
    own: Callable[..., Any] | None = getattr(cls, "build", None)
    if module is None or own is None:
        model = tiny(room_name, spec)
        model.build()
        return model
    if own is getattr(_base(room_name), "build", None):
        raise BrokenLaw(
            BUILDS, f"{cls.__name__} has no method `build`.", f"Define it: it returns the room's {module.__name__}."
        )

    def build(self: Spec, *args: Any, **kwargs: Any) -> Any:
        made = own(self, *args, **kwargs)
        if not isinstance(made, module):
            what = "None" if made is None else f"a {type(made).__name__}"
            raise BrokenLaw(
                BUILDS,
                f"{cls.__name__}.build returns {what}, not a {module.__name__}.",
                f"Return the module, whose class derives from {module.__module__}.{module.__name__}.",
            )
        return made

    inherited = "build" not in vars(cls)
    cls.build = build  # type: ignore[attr-defined]
    try:
        model = tiny(room_name, spec)
        model.build()
    finally:
        if inherited:
            del cls.build  # type: ignore[attr-defined]
        else:
            cls.build = own  # type: ignore[attr-defined]
    return model


def _module_base(room_name: str) -> type[Any] | None:
    """The class of what a room's specs build; None if they build nothing, or one of several classes."""
    build = getattr(_base(room_name), "build", None)
    made = None if build is None else get_type_hints(build).get("return")
    return made if isinstance(made, type) else None


def _require_field_decorator(cls: type[Spec]) -> None:
    """Raises:
    BrokenLaw: the class has annotations, but is no dataclass, so that they are no fields.
    """
    if "__dataclass_params__" not in vars(cls) and vars(cls).get("__annotations__"):
        names = ", ".join(vars(cls)["__annotations__"])
        raise BrokenLaw(
            BUILDS,
            f"{cls.__name__} is not a dataclass, so that {names} cannot be set.",
            "Write @dataclass(frozen=True, kw_only=True) above the class.",
        )


def tiny(room_name: str, spec: Spec, **changes: Any) -> ModelSpec:
    """Make the spec of a small model with the mechanism, grouped-query heads and every bias switched on.

    Raises:
        UnknownName: no such room of mechanisms.
        InputError: the spec belongs to another room.
    """
    _require_room(room_name, spec)
    heads = {"heads": 1} if isinstance(spec, Gau) else {"kv_heads": 2}
    parts: dict[str, Any] = {"bias": Biases.all(True), FIELD_OF_ROOM[room_name]: spec} | heads
    return shrunk(ModelSpec(**parts), **changes)


def _require_room(room_name: str, spec: Spec) -> None:
    """Raises:
    UnknownName: no such room of mechanisms.
    InputError: the spec belongs to another room.
    """
    if room_name not in MECHANISM_ROOMS:
        raise UnknownName("room of mechanisms", room_name, MECHANISM_ROOMS)
    base = _base(room_name)
    if not isinstance(spec, base):
        raise InputError(f"a {room_name} must be a {base.__name__}, got {spec!r}.")


def plain() -> ModelSpec:
    """Return the toy model of two layers in which reductions are held."""
    return shrunk(ModelSpec(bias=Biases.all(True), kv_heads=2), depth=2)


def _base(room_name: str) -> type[Spec]:
    """Return the base class of all specs of a room of mechanisms."""
    base: type[Spec] = get_type_hints(ModelSpec)[FIELD_OF_ROOM[room_name]]
    return base


def shrunk(spec: ModelSpec, **changes: Any) -> ModelSpec:
    """Reduce a spec to toy size, with weights large enough to show a fault and without dropout, which would hide it."""
    sizes: dict[str, Any] = {"vocab": 11, "width": 32, "depth": 3, "heads": 4, "hidden": 40, "max_seq": 16}
    sizes["kv_heads"] = None if spec.kv_heads is None else 2
    if isinstance(spec.block, Gau):
        sizes |= {"heads": 1, "kv_heads": None, "block": replace(spec.block, key_dim=8)}
    return replace(spec, **(sizes | {"init_std": 0.2, "dropout": Dropout()} | changes))


def fields_are_documented(room_name: str, spec: Spec) -> None:
    """Every field of a spec is followed by a docstring."""
    documented = field_docstrings(type(spec))
    own = [field.name for field in fields(spec) if field.name in type(spec).__annotations__]
    bare = [name for name in own if name not in documented]
    if bare:
        raise BrokenLaw("fields_are_documented", f"{', '.join(bare)} has no docstring.", "Write one line under it.")


def spec_round_trips(room_name: str, spec: Spec) -> None:
    """A spec that is converted to plain values and back is equal to the original."""
    again = type(spec)(**asdict(spec))
    if again != spec or hash(again) != hash(spec) or replace(spec) != spec:
        raise BrokenLaw(
            "spec_round_trips", f"{spec} comes back as {again}.", "Use a frozen, kw_only dataclass of plain values."
        )
