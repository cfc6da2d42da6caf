"""Folder of a study: the frozen plan and the folders of its runs.

`study.json` contains the plan as it was before the first step. A second `addnorm run` with the same plan continues it. A plan
that only adds seeds is stored as an extension; any other plan is refused, because the runs of two plans would be ranked as
one study.
"""

import time
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Literal

from addnorm.errors import InputError, JobError
from addnorm.store.extension import (
    all_runs,
    extended,
    hashes,
    only_adds_seeds,
    pairs_of,
    references_of,
    seeds_again,
    stages,
    tuning_runs,
    with_stage,
)
from addnorm.store.files import Damaged, make_folder, read_json, write_json
from addnorm.store.lock import Lock
from addnorm.store.peeks import LOCK, NAME, peeks, record_peek
from addnorm.store.plan_difference import plan_differences
from addnorm.store.run import RunFolder
from addnorm.store.status import RunStatus

FORMAT = 1
"""Version of the folder layout."""

COSTS = "costs.json"
"""Name of the file of every variant's counted cost, in the study's folder."""

PREDICTION = "prediction.json"
"""Name of the file of what was predicted of the study before it was trained."""

_RUN_FIELDS: dict[str, type] = {"run": str, "variant": str, "seed": int, "steps": int}
_PLAN_FIELDS: dict[str, type] = {"study": str, "plan_hash": str, "runs": list}
_RESERVED = frozenset(
    {
        "data",
        "study.json",
        COSTS,
        PREDICTION,
        "extrapolation.json",
        "audit.json",
        "explain.json",
        "supervisor.lock",
        "supervisor-claims",
        "slurm",
        "supervisor.jsonl",
        "index.db",
        "report",
        "mirrors",
        "plugins",
        NAME,
        LOCK,
        "notes.jsonl",
        "notes.lock",
    }
)
_TRIES, _PAUSE_S = 500, 0.01

Batch = Literal["first", "second"]
"""Of the seeds of a study: those of its plan, or those of `replicate`, on which found verdicts are tested again."""


class StudyFolder:
    """Existing folder of a study.

    Args:
        out: the folder.

    Raises:
        InputError: the folder contains no study, or one of another format.
        Damaged: `study.json` is damaged.
    """

    def __init__(self, out: str | Path) -> None:
        self.path = Path(out)
        path = self.path / "study.json"
        if not path.exists():
            raise InputError(
                f"{self.path} holds no study: expected a study.json. Give a folder created by `addnorm run`."
            )
        self.plan: dict[str, Any] = read_json(path)
        if not isinstance(self.plan, dict) or "plan_hash" not in self.plan:
            raise Damaged(f"{path} is damaged: expected a plan with a plan_hash. Restore it from a copy.")
        _check_format(self.plan, self.path)
        try:
            _check_plan(self.plan)
        except InputError as error:
            raise Damaged(f"{path} is damaged: {error} Restore it from a copy.") from error
        self._runs = [RunFolder(self.path / entry["run"], entry) for entry in all_runs(self.plan)]

    @classmethod
    def create(cls, out: str | Path, plan: dict[str, Any]) -> "StudyFolder":
        """Freeze the plan in the folder, open a folder that has this plan already, or extend one by seeds.

        Args:
            out: the folder; created if missing.
            plan: `study`, `plan_hash`, `runs` (each with `run`, `variant`, `seed`, `steps`; the whole entry becomes
                the run's `spec.json`), and any further fields.

        Raises:
            InputError: the plan lacks a field, or the folder contains another plan or another format.
            DiskFull, JobError: the folder cannot be written, or would be extended while a supervisor works in it.
        """
        _check_plan(plan)
        out = Path(out)
        make_folder(out)
        if not (out / "study.json").exists():
            _freeze(out, plan)
        study = cls(out)
        # Compared by hash, first and extended plans alike. Whoever adds seeds keeps every old run with its identity, so
        # the runs of one folder always stem from one specification; anything else would be ranked as one study without
        # being one.
        if plan["plan_hash"] not in hashes(study.plan) and only_adds_seeds(study.plan, plan):
            _extend(out, plan)
            study = cls(out)
        if plan["plan_hash"] not in hashes(study.plan):
            raise InputError(
                f"{out}: expected the plan that study {study.name!r} was started with, got another one "
                f"({plan_differences(study.plan, plan)}). One folder holds one plan, to which "
                "only seeds may be added: choose another folder with --out, or undo the change to continue the old "
                f"plan.{_ABOUT_REPLICATE if 'replicate' in {**study.plan, **plan} else ''}"
            )
        study._make_run_folders()
        return study

    def add_stage(self, stage: int, runs: list[dict[str, Any]], chosen: dict[str, str] | None = None) -> "StudyFolder":
        """Add the runs of a further stage of the plan; nothing if another process has added it.

        Args:
            stage: number of the stage, from 1.
            runs: entries as in the plan.
            chosen: for a plan with `tune`, the name of each variant's chosen point.

        Returns:
            The folder with the stage.

        Raises:
            DiskFull, JobError: the folder cannot be written, or a supervisor works in it.
        """
        with _without_supervisor(self.path):
            # Read again under the lock. `stages` grows with every stage, so a process that comes second sees that its
            # stage is there already and writes nothing: adding the same runs twice would give one cell of the ranking
            # two results.
            present = read_json(self.path / "study.json")
            if stages(present) == stage:
                write_json(self.path / "study.json", with_stage(present, stage, runs, chosen))
        folder = StudyFolder(self.path)
        folder._make_run_folders()
        return folder

    def _make_run_folders(self) -> None:
        for run in self._runs:
            make_folder(run.path)
            run.write_spec()

    @property
    def name(self) -> str:
        """Name of the study."""
        return str(self.plan["study"])

    @property
    def references(self) -> tuple[str, ...]:
        """The variants that all others are compared with: those that the plan names, or else its first variant."""
        return references_of(self.plan)

    @property
    def pairs(self) -> tuple[tuple[str, str], ...] | None:
        """The pairs (variant, reference) that are compared; None for every variant with every reference."""
        return pairs_of(self.plan)

    @property
    def plan_hash(self) -> str:
        """Hash of the first plan."""
        return str(self.plan["plan_hash"])

    @property
    def extensions(self) -> list[dict[str, Any]]:
        """Seeds that were added later, oldest first: `plan_hash`, `seeds`, `time`, `looked`, `runs`; `stage` for those that the
        plan's design adds."""
        return list(self.plan.get("extensions", []))

    def record_peek(self) -> None:
        """Record that the present results were shown. Call it wherever a ranking is shown.

        Raises:
            DiskFull, JobError: the record cannot be written.
        """
        finished = sum((run.ending() or {}).get("state") == "finished" for run in self.runs())
        record_peek(self.path, finished=finished, plan_hash=hashes(self.plan)[-1])

    @property
    def lock_path(self) -> Path:
        """Lock that the supervisor holds."""
        return self.path / "supervisor.lock"

    @property
    def claims_path(self) -> Path:
        """Claims of the supervisors, which exclude one on another host."""
        return self.path / "supervisor-claims"

    def runs(self, batch: Batch | None = None) -> list[RunFolder]:
        """Runs that are compared, in plan order; the same objects at every call.

        Args:
            batch: those of one batch alone. The second one has the seeds of the plan's `replicate`, and the variants that the
                first decided: together they would compare a variant of 24 seeds with one of 12, most of them not in common.
        """
        second = seeds_again(self.plan)
        return [
            run
            for run in self._runs[len(tuning_runs(self.plan)) :]
            if batch is None or (run.spec["seed"] in second) == (batch == "second")
        ]

    def tuning_runs(self) -> list[RunFolder]:
        """Runs on which the variants of a study with `tune` are tuned, before they are compared; none for any other study."""
        return self._runs[: len(tuning_runs(self.plan))]

    def all_runs(self) -> list[RunFolder]:
        """Every run in plan order, those of tuning included."""
        return list(self._runs)

    def run(self, name: str) -> RunFolder:
        """Run of a name.

        Raises:
            InputError: there is no such run.
        """
        for run in self._runs:
            if run.name == name:
                return run
        raise InputError(f"{self.path} has no run {name!r}. Known: {', '.join(run.name for run in self._runs)}.")

    def statuses(self) -> list[RunStatus]:
        """Status of every run, read from the files, in plan order.

        Raises:
            InputError, Damaged: as `RunFolder.status`.
        """
        return [run.status() for run in self._runs]

    def status(self) -> dict[str, Any]:
        """Name of the study, hash of its plan and status of every run, those of tuning included.

        Raises:
            InputError, Damaged: as `RunFolder.status`.
        """
        runs = [status.to_json() for status in self.statuses()]
        return {"study": self.name, "plan_hash": self.plan_hash, "runs": runs}


_ABOUT_REPLICATE = (
    " A second batch of seeds is planned before the first is seen: where `replicate` is given, no seed is added, and "
    "`replicate` is not added, changed or removed later."
)


def _freeze(out: Path, plan: dict[str, Any]) -> None:
    # Two first calls may arrive together. The one that gets the lock writes the plan; the other one waits for the file,
    # not for the lock, which the first may go on to hold for days as the supervisor.
    lock = Lock(out / "supervisor.lock")
    for _ in range(_TRIES):
        if lock.try_acquire():
            break
        if (out / "study.json").exists():
            return
        time.sleep(_PAUSE_S)  # another process is about to write it
    else:
        raise JobError(
            f"{out}: expected a study.json, got none while process {lock.held_by()} works in the folder. Stop that "
            "process first."
        )
    try:
        if not (out / "study.json").exists():
            write_json(out / "study.json", {"format": FORMAT, **plan})
    finally:
        lock.release()


def _without_supervisor(out: Path) -> AbstractContextManager[None]:
    """Keep supervisors away from a folder while its plan grows."""
    return Lock(out / "supervisor.lock").held(
        lambda holder: (
            f"{out}: expected no running supervisor while seeds are added, got process {holder}. Run the same command again "
            "when it has ended."
        )
    )


def _extend(out: Path, plan: dict[str, Any]) -> None:
    with _without_supervisor(out):
        old = read_json(out / "study.json")  # again: another process may have extended it since
        if plan["plan_hash"] not in hashes(old) and only_adds_seeds(old, plan):
            looked = any(peek["finished"] > 0 for peek in peeks(out))
            write_json(out / "study.json", extended(old, plan, looked=looked))


def _check_format(plan: dict[str, Any], path: Path) -> None:
    present = plan.get("format")
    if present == FORMAT:
        return
    newer = isinstance(present, int) and present > FORMAT
    advice = "Install that version of addnorm to open it" if newer else "Start the study again"
    raise InputError(
        f"{path}: expected folder format {FORMAT}, got folder format {present}, made by "
        f"{'a newer' if newer else 'another'} addnorm ({plan.get('addnorm_version', 'version unknown')}). {advice}, or "
        "choose another folder with --out."
    )


def _check_plan(plan: dict[str, Any]) -> None:
    _check_fields("plan", plan, _PLAN_FIELDS)
    names: set[str] = set()
    for place, entry in enumerate(plan["runs"]):
        if not isinstance(entry, dict):
            raise InputError(f"plan.runs[{place}]: expected a dict, got {entry!r}.")
        _check_fields(f"plan.runs[{place}]", entry, _RUN_FIELDS)
        name = entry["run"]
        if not name or name in _RESERVED or name.startswith(".") or "/" in name or "\0" in name:
            raise InputError(f"plan.runs[{place}].run: expected a name for a folder, got {name!r}.")
        if name in names:
            raise InputError(f"plan.runs: expected one run of each name, got {name!r} twice.")
        names.add(name)


def _check_fields(where: str, values: dict[str, Any], fields: dict[str, type]) -> None:
    for name, kind in fields.items():
        if not isinstance(values.get(name), kind):
            raise InputError(f"{where}.{name}: expected a value of type {kind.__name__}, got {values.get(name)!r}.")
