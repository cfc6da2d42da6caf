"""Names of the columns that are read, and the cells of one row by what they mean."""

import re
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any

from addnorm.errors import InputError, did_you_mean

REQUIRED = ("variant", "seed", "loss")
COSTS = ("size", "compute", "throughput")
ITEMS = ("item", "document", "task")
OPTIONAL = ("state", "step", "run", "ended", *COSTS, *ITEMS)
COLUMNS = (*REQUIRED, *OPTIONAL)
_STATES = (
    "state status run_state run_status job_state job_status outcome info.status 状态 状態 ステータス 상태 "
    "статус состояние zustand estado stato statut état durum stan"
)
_STEPS = (
    "step _step global_step trainer/global_step train/global_step iteration iter train_step training_step training_iteration "
    "step_# step_count current_step last_step final_step completed_steps steps_completed global_steps n_iter optimizer_steps "
    "steps iters iterations train_steps training_steps num_steps n_steps update updates num_updates num_timesteps "
    "timesteps_total total_timesteps samples_seen tokens_seen consumed_samples consumed_tokens tokens_trained total_steps "
    "total_tokens train_tokens num_tokens epoch current_epoch last_epoch final_epoch completed_epochs epochs_run "
    "epochs_trained epochs num_epochs"
)
"""Names of what a run did stand before those that may be of what was planned."""
_STATE_NAMES, _STEP_NAMES = tuple(_STATES.split()), tuple(_STEPS.split())
_ANSWERED = {
    "finished completed done is_finished is_done": ("finished", "unfinished"),
    "crashed failed killed exit_code exitcode return_code returncode": ("failed", "finished"),
    "diverged is_diverged is_nan has_nan": ("diverged", "finished"),
    "complete is_complete is_completed ended is_ended has_finished": ("finished", "unfinished"),
    "success succeeded successful ok is_ok passed valid is_valid alive": ("finished", "failed"),
    "aborted oom is_oom timed_out preempted cancelled canceled interrupted has_failed is_failed has_error has_crashed rc "
    "exit_status": ("failed", "finished"),
}
ENDINGS = {name: states for names, states in _ANSWERED.items() for name in names.split()}
"""The state of a run by yes (or a code other than 0) and by no (or 0), in a column of that name."""
_STATE_LIKE = re.compile(rf"(?:^|[/.])(?:{'|'.join(ENDINGS)})$|(?:^|[_/.])(?:state|status)$")
"""Another name of such a column: `sys/failed`, `trial.status`, `slurm_state`."""
_YES, _NO = ("true", "yes", "y", "t", "1", "1.0"), ("false", "no", "n", "f", "0", "0.0", "0:0")
_NO_RUNS = {"", "unnamed:_0", *_STATE_NAMES, *_STEP_NAMES, *ENDINGS}
_CODES = re.compile("code|^rc$|exit_status")
_HELD_OUT = re.compile(
    r"(?:^|[^a-z])(?:val|valid|validation|eval|evaluation|test|dev|held_?out)(?:[^a-z]|$)|验证|测试|检验|検証|평가"
)
_A_LOSS = re.compile(r"(?:^|[^a-z])(?:loss|nll|ce|xent|ppl|perplexity|bpb|bpc)(?:[^a-z]|$)|损失|困惑度|損失|손실")
_MOST_SHOWN = 24
"""Columns that a message names."""
_USUAL_NAMES = {
    "item": ("item", "item_id", "doc_id", "question_id"),
    "document": ("document",),
    "task": ("task",),
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
        if not equals or (not column and name not in ("seed", "state", "step", *COSTS, *ITEMS)):
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
    all_ended: bool
    """True if the user says that every run has ended, whatever its last step."""
    further: Mapping[str, str | None]
    """Further columns by what they mean (`COSTS` or `ITEMS`), each as `step`."""

    @staticmethod
    def of(columns: Mapping[str, str] | None, *, further: Sequence[str] = ()) -> "Names":
        """The names that a user gave, and the usual ones in place of the others.

        Args:
            columns: as given.
            further: what is read besides, of `COSTS` or `ITEMS`.

        Raises:
            InputError: a column that is not read.
        """
        given = dict(columns or {})
        for name in given:
            if name not in COLUMNS:
                raise InputError(
                    f"columns: expected one of {', '.join(COLUMNS)}, got {name!r}.{did_you_mean(name, COLUMNS)}"
                )
            if name in (*COSTS, *ITEMS) and name not in further:
                where = "--as speedup or --rule" if name in COSTS else "--as downstream"
                raise InputError(
                    f"columns: expected {name} only with addnorm rank {where}, got {name}={given[name]}. Leave it out."
                )
        if given.get("ended", "all") != "all":
            raise InputError(
                f"columns: expected ended=all, which says that every run has ended, got ended={given['ended']}. Leave it out "
                "if you do not know."
            )
        return Names(
            variant=given.get("variant", "variant"),
            seed=given.get("seed", "seed"),
            loss=given.get("loss", "loss"),
            state=given.get("state"),
            step=given.get("step"),
            run=given.get("run"),
            loss_named=given.get("loss", "loss") != "loss",
            all_ended="ended" in given,
            further={name: given.get(name) for name in further},
        )

    @cached_property
    def required(self) -> dict[str, str]:
        """The columns that every row has to have."""
        # With a form of the runs' names, the column `variant` holds them, and they tell the seed.
        named = {"variant": self.variant, "seed": "" if self.tells_seed else self.seed, "loss": self.loss}
        return {name: column for name, column in named.items() if column}

    def lacking(self, known: Container[str]) -> dict[str, str]:
        """Required columns that are not there."""
        return {name: column for name, column in self.required.items() if column not in known}

    def spelled(self, header: Sequence[str]) -> list[str]:
        """The header with the wanted spelling of required columns that are there in other capitals, once; behind it that of
        the variant if several columns tell it."""
        spellings = list(header)
        if absent := self.lacking(header):
            folded = [column.casefold() for column in header]
            for column in absent.values():
                if folded.count(column.casefold()) == 1:
                    spellings[folded.index(column.casefold())] = column
        return [*spellings, self.variant] if self._is_joined(spellings) else spellings

    def _is_joined(self, known: Container[str]) -> bool:
        parts = self.variant.split("+")
        return len(parts) > 1 and self.variant not in known and all(part in known for part in parts)

    def joined(self, cells: Mapping[str, object]) -> dict[str, object]:
        """The cells with the variant's name where several columns tell it: `lr=0.1 norm=rms` of `lr+norm`."""
        if not self._is_joined(cells):
            return dict(cells)
        return {**cells, self.variant: " ".join(f"{part}={cells[part]}" for part in self.variant.split("+"))}

    @property
    def tells_seed(self) -> bool:
        """True if the runs' names tell the seed."""
        return self.run is not None and "{seed}" in self.run

    def parts_of(self, run: str, where: str) -> dict[str, str]:
        """The parts of a run's name that its form has: `variant`, `seed` or both.

        Raises:
            InputError: a name of another form.
        """
        parts = self.matched(run)
        if parts is None:
            raise InputError(
                f"{where}: expected a run's name of the form {self.run!r}, got {run!r}. Correct run= of the columns; * stands "
                "for anything."
            )
        return parts

    def matched(self, run: str) -> dict[str, str] | None:
        """The parts of a name, or None for one of another form.

        Raises:
            InputError: a form without `{variant}` and `{seed}`, or with one of them twice.
        """
        form = self.run or ""
        if max(form.count("{variant}"), form.count("{seed}")) != 1:
            raise InputError(f"columns: expected run={{variant}}_{{seed}} or another form with them, got run={form!r}.")
        escaped = re.escape(form).replace(r"\{variant\}", "(?P<variant>.+?)").replace(r"\{seed\}", r"(?P<seed>\d+)")
        match = re.fullmatch(escaped.replace(r"\*", ".*"), run)
        return None if match is None else match.groupdict()

    def runs_in(self, header: Sequence[str]) -> dict[str, dict[str, str]]:
        """Columns of a wide table that hold runs, with what their names tell; none if a column tells the variant."""
        if self.run is None or (self.variant in header and "{variant}" in self.run):
            return {}
        read = {self.variant, self.seed, self.state, self.step}
        others = [each for each in header if each not in read and folded(each) not in _NO_RUNS]
        # W&B's export of a chart has the extremes of a group of runs beside each value.
        others = [each for each in others if not (each.endswith(("__MIN", "__MAX")) and each[:-5] in header)]
        runs = {column: parts for column in others if (parts := self.matched(column)) is not None}
        near = "{seed}" in self.run and [each for each in others if each not in runs and self._nearly(each)]
        if runs and near:
            raise InputError(
                f"columns: expected names of the form {self.run!r}, got {', '.join(map(repr, near))} beside "
                f"{next(iter(runs))!r}. Write them alike, or leave out those that are no runs."
            )
        return runs

    def _nearly(self, column: str) -> bool:
        """True for a column's name that has the form but for capitals and marks, or that pandas gave to a second one."""
        plain = re.sub(r"\.\d+$", "", column)
        form = re.sub(r"[\s_.-]+", "_", (self.run or "").casefold())
        if plain != column and self.matched(plain) is not None:
            return True
        return replace(self, run=form).matched(re.sub(r"[\s_.-]+", "_", column.casefold())) is not None

    def optional(self, known: Mapping[str, Any] | tuple[str, ...], where: str) -> dict[str, str]:
        """The columns of states, steps and what else is read that are there.

        Raises:
            InputError: one that the user named is not there, or two columns of states are.
        """
        read = {}
        further = ((name, given, _USUAL_NAMES[name]) for name, given in self.further.items())
        usual_names = (
            ("state", self.state, _STATE_NAMES + tuple(ENDINGS)),
            ("step", self.step, _STEP_NAMES),
            *further,
        )
        for name, given, usual in usual_names:
            if given:
                if given not in known:
                    raise missing({name: given}, known, where)
                read[name] = given
            elif given is None:
                by_name = {folded(column): column for column in known if column not in self.required.values()}
                there = [by_name[each] for each in usual if each in by_name]
                if name == "state" and not there:
                    there = [column for each, column in by_name.items() if _STATE_LIKE.search(each)]
                if name == "state" and there[1:] and folded(there[1]) in _STATE_NAMES:
                    raise InputError(
                        f"{where}: expected one column of states, got {there[0]!r} and {there[1]!r}. Name the one that tells "
                        "which runs have ended with --columns state=NAME, or leave both out with state=."
                    )
                if there:
                    read[name] = there[0]
        return read

    @property
    def asks_endings(self) -> bool:
        """False if the user named the column of states, or said that the table has none."""
        return self.state is None

    def held_out(self, known: Iterable[str]) -> str | None:
        """A column of held-out losses beside the column `loss`, which nobody named and which may be that of training."""
        return (
            None
            if self.loss_named
            else next((each for each in known if _HELD_OUT.search(folded(each)) and _A_LOSS.search(folded(each))), None)
        )


@lru_cache(maxsize=4096)
def folded(column: str) -> str:
    parted = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", column) if any(map(str.islower, column[:1] + column[-1:])) else column
    return parted.casefold().replace(" ", "_").replace("-", "_").rstrip("?")


def last_part(column: str) -> str:
    return re.split("[/.]", folded(column))[-1]


def ending(column: str, cell: object) -> object:
    """The word for a run's state that a cell holds; of a column such as `finished` or `exit_code`, that of its answer.

    Example:
        >>> ending("Crashed", "True"), ending("exit_code", 137), ending("status", "ok")
        ('failed', 'failed', 'ok')
    """
    name, word = last_part(column), str(cell).strip().casefold()
    answers = word in (*_YES, *_NO) or (_CODES.search(name) and re.fullmatch(r"-?\d+(?::\d+)?", word))
    if (states := ENDINGS.get(name)) is None or not answers:
        return cell
    return states[word in _NO]


def missing(lacking: Mapping[str, str], known: Mapping[str, Any] | tuple[str, ...], where: str) -> InputError:
    """The error for columns that are not there.

    Args:
        lacking: columns by what they mean.
        known: the columns that are there.
        where: for the message.
    """
    names = [each for each in known if each]
    shown = [each if each.isprintable() and len(each) <= 60 else f"{each[:60]!r}" for each in names[:_MOST_SHOWN]]
    if len(names) > _MOST_SHOWN:
        shown.append(f"and {len(names) - _MOST_SHOWN} more")
    in_memory = where.startswith("row ")
    *first, last = map(repr, lacking.values())
    wanted = f"{', '.join(first)} and {last}" if first else last
    meant = dict.fromkeys(did_you_mean(column, names) for column in lacking.values())
    named = (
        f"columns={{{', '.join(f'{name!r}: NAME' for name in lacking)}}}"
        if in_memory
        else f"--columns {','.join(f'{name}=NAME' for name in lacking)}"
    )
    unnamed = "columns={'seed': ''}" if in_memory else "--columns seed="
    without = f" If the runs have no seeds, give {unnamed} to number them." if "seed" in lacking else ""
    one, it, has, other = ("a column", "it", "has", "another name")
    if len(lacking) > 1:
        one, it, has, other = ("columns", "they", "have", "other names")
    return InputError(
        f"{where}: expected {one} {wanted}, got {', '.join(shown) or 'none'}.{''.join(meant)} If {it} {has} {other}, give "
        f"{named}.{without}"
    )


@dataclass(frozen=True)
class RunRow:
    """The cells of one row."""

    where: str
    """Path and line, for messages."""
    variant: object = None
    loss: object = None
    seed: object = None
    """None if no column holds seeds."""
    state: object = None
    """None if no column holds states."""
    step: object = None
    """None if no column holds steps."""
    step_column: str | None = None
    size: object = None
    """None if no column holds sizes; so the others."""
    compute: object = None
    throughput: object = None
    item: object = None
    document: object = None
    task: object = None
    unread: Mapping[str, str] = field(default_factory=dict)
    """Cells that may speak against counting the run, by columns that are not read."""
    held_out: str | None = None
    """Column of held-out losses beside one that may be of training."""
