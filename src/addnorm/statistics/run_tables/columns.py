"""Names of the columns that are read, and the cells of one row by what they mean."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from addnorm.errors import InputError, did_you_mean

REQUIRED = ("variant", "seed", "loss")
COSTS = ("size", "compute", "throughput")
OPTIONAL = ("state", "step", "run", *COSTS)
COLUMNS = (*REQUIRED, *OPTIONAL)
_STATE_NAMES = ("state", "status", "run_state")
_STEP_NAMES = ("step", "_step", "global_step", "trainer/global_step", "iteration")
_COST_NAMES = {
    "size": ("size",),
    "compute": ("compute", "flops", "total_training_flops"),
    "throughput": ("throughput", "tokens_per_second", "throughput/tokens_per_second"),
}


def columns_from(text: str) -> dict[str, str]:
    """Names of the columns from `variant=model,loss=val_loss`; those that are left out keep their own.

    Raises:
        InputError: text of another form, or a column that is not read.

    Example:
        >>> columns_from("variant=model,loss=val_loss")
        {'variant': 'model', 'seed': 'seed', 'loss': 'val_loss'}
    """
    named = dict(zip(REQUIRED, REQUIRED, strict=True))
    for part in text.split(",") if text else ():
        name, equals, column = part.strip().partition("=")
        if name not in COLUMNS and equals:
            raise InputError(
                f"columns: expected one of {', '.join(COLUMNS)} before '=', got {name!r}.{did_you_mean(name, COLUMNS)}"
            )
        if not equals or (not column and name not in ("seed", "state", "step", *COSTS)):
            raise InputError(f"columns: expected NAME=COLUMN, such as loss=val_loss, got {part!r}.")
        named[name] = column
    return named


@dataclass(frozen=True)
class Names:
    """The columns to read."""

    variant: str
    seed: str
    """Empty if the runs have none: each gets a number of its own."""
    loss: str
    state: str | None
    """Empty if none is to be read; None for the first of the usual names that is there."""
    step: str | None
    run: str | None
    """Pattern of the names of folders, such as `{variant}_{seed}`."""
    loss_named: bool
    """True if the user named the loss."""
    costs: Mapping[str, str | None]
    """Columns of size, compute and throughput as `step`; empty where they are not read."""

    @staticmethod
    def of(columns: Mapping[str, str] | None, *, sized: bool = False) -> "Names":
        """The names that a user gave, and the usual ones in place of the others.

        Args:
            columns: as given.
            sized: whether sizes, compute and throughput are read.

        Raises:
            InputError: a column that is not read.
        """
        given = dict(columns or {})
        for name in given:
            if name not in COLUMNS:
                raise InputError(
                    f"columns: expected one of {', '.join(COLUMNS)}, got {name!r}.{did_you_mean(name, COLUMNS)}"
                )
            if name in COSTS and not sized:
                raise InputError(
                    f"columns: expected {name} only where sizes are compared, as with addnorm rank --as speedup or --rule, got "
                    f"{name}={given[name]}. Leave it out."
                )
        return Names(
            variant=given.get("variant", "variant"),
            seed=given.get("seed", "seed"),
            loss=given.get("loss", "loss"),
            state=given.get("state"),
            step=given.get("step"),
            run=given.get("run"),
            loss_named=given.get("loss", "loss") != "loss",
            costs={name: given.get(name) for name in COSTS} if sized else {},
        )

    @property
    def required(self) -> dict[str, str]:
        """The columns that every row has to have."""
        named = {"variant": self.variant, "seed": self.seed, "loss": self.loss}
        return {name: column for name, column in named.items() if column}

    def optional(self, known: Mapping[str, Any] | tuple[str, ...], where: str) -> dict[str, str]:
        """The columns of states, steps and costs that are there.

        Raises:
            InputError: one that the user named is not there.
        """
        read = {}
        costs = ((name, given, _COST_NAMES[name]) for name, given in self.costs.items())
        for name, given, usual in (("state", self.state, _STATE_NAMES), ("step", self.step, _STEP_NAMES), *costs):
            if given:
                if given not in known:
                    raise missing(name, given, known, where)
                read[name] = given
            elif given is None:
                by_name = {column.casefold(): column for column in known}
                there = next((by_name[each] for each in usual if each in by_name), None)
                if there is not None and there not in self.required.values():
                    read[name] = there
        return read


def missing(name: str, column: str, known: Mapping[str, Any] | tuple[str, ...], where: str) -> InputError:
    """The error for a column that is not there."""
    names = [each for each in known if each]
    in_memory = where.startswith("row ")
    named, unnamed = (
        (f"columns={{{name!r}: NAME}}", "columns={'seed': ''}")
        if in_memory
        else (f"--columns {name}=NAME", "--columns seed=")
    )
    without = f" If the runs have no seeds, give {unnamed} to number them." if name == "seed" else ""
    return InputError(
        f"{where}: expected a column {column!r}, got {', '.join(names) or 'none'}.{did_you_mean(column, names)} "
        f"If it has another name, give {named}.{without}"
    )


@dataclass(frozen=True)
class RunRow:
    """The cells of one row."""

    where: str
    """Path and line, for messages."""
    variant: object
    loss: object
    seed: object = None
    """None if no column holds seeds."""
    state: object = None
    """None if no column holds states."""
    step: object = None
    """None if no column holds steps."""
    size: object = None
    """None if no column holds sizes; so the next two."""
    compute: object = None
    throughput: object = None
