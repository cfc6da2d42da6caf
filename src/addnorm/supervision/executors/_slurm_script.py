"""The scripts that Slurm runs: one for each job of an array, one for each worker in it."""

import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from addnorm.supervision.executors import Work
from addnorm.supervision.executors.local import THREADS
from addnorm.training.exit_code import ExitCode

if TYPE_CHECKING:
    from addnorm.supervision.executors.slurm import Slurm

_ARRAY = """#!/usr/bin/env bash
{directives}

export ADDNORM_BATCH={batch} ADDNORM_STUDY={study} ADDNORM_PACK={pack}
export {environment}
{setup}
if [ ! -r "$ADDNORM_BATCH/runs" ]; then
    echo "addnorm: $(hostname) does not see $ADDNORM_BATCH" >&2
    exit 66
fi
first=$((SLURM_ARRAY_TASK_ID * ADDNORM_PACK))
last=$((first + ADDNORM_PACK - 1))
for place in $(seq "$first" "$last"); do rm -f "$ADDNORM_BATCH/$place.code"; done

# Workers run as a step, because the warning before the time limit reaches steps, not this shell.
srun --ntasks={pack} --cpus-per-task={cpus} --kill-on-bad-exit=0 bash "$ADDNORM_BATCH/worker.sh"
code=$?

# A worker that was stopped has saved a checkpoint and is to go on. Slurm itself requeues only what it killed. The array's own
# number is also the number of one of its jobs: requeued by it, all others would be killed.
mapfile -t runs < "$ADDNORM_BATCH/runs"
for place in $(seq "$first" "$last"); do
    if [ "$(cat "$ADDNORM_BATCH/$place.code" 2> /dev/null)" = {stopped} ] \\
        && [ ! -e "$ADDNORM_STUDY/${{runs[$place]}}/STOP" ]; then
        scontrol requeue "${{SLURM_ARRAY_JOB_ID}}_$SLURM_ARRAY_TASK_ID"
        break
    fi
done
exit "$code"
"""

_WORKER = """#!/usr/bin/env bash
mapfile -t runs < "$ADDNORM_BATCH/runs"
place=$((SLURM_ARRAY_TASK_ID * ADDNORM_PACK + SLURM_PROCID))
[ "$place" -lt "${{#runs[@]}}" ] || exit 0
run=$ADDNORM_STUDY/${{runs[$place]}}
export ADDNORM_WORKER="slurm:${{SLURM_ARRAY_JOB_ID}}_$SLURM_ARRAY_TASK_ID{number}"
trap : TERM  # the worker hears it too; this shell stays to write its exit code
{command} "$run" >> "$run/log.txt" 2>&1
code=$?
echo "$code" > "$ADDNORM_BATCH/$place.code"
exit "$code"
"""


def array_script(spec: "Slurm", work: Work, folder: Path, *, tasks: int, at_once: int | None) -> str:
    """The script of an array.

    Args:
        spec: the executor's settings.
        work: the study's.
        folder: the array's folder, whose name is the end of the job's name.
        tasks: number of its jobs.
        at_once: number of jobs that may work at the same time; None for any.
    """
    cpus = spec.cpus if spec.cpus is not None else work.threads * work.devices
    options = {
        "job-name": job_name(folder.name),
        "array": f"0-{tasks - 1}" + (f"%{at_once}" if at_once is not None else ""),
        "nodes": "1",
        "ntasks": str(spec.pack),
        "cpus-per-task": str(cpus),
        "gres": f"gpu:{spec.gpus}" if spec.gpus else None,
        "mem": spec.memory,
        "partition": spec.partition,
        "account": spec.account,
        "qos": spec.qos,
        "time": spec.time_limit,
        "signal": f"TERM@{spec.notice_s}",
        "open-mode": "append",
        # A percent sign of the path is doubled, because Slurm replaces %a and others.
        "output": _quoted(f"{str(folder.absolute()).replace('%', '%%')}/%a.out"),
    }
    directives = [f"#SBATCH --{name}={value}" for name, value in options.items() if value is not None]
    directives += ["#SBATCH --requeue", *(f"#SBATCH {option}" for option in spec.options)]
    return _ARRAY.format(
        directives="\n".join(directives),
        batch=shlex.quote(str(folder.absolute())),
        study=shlex.quote(str(work.folder.absolute())),
        pack=spec.pack,
        cpus=cpus,
        stopped=int(ExitCode.STOPPED),
        environment=" ".join(
            f"{name}={value}"
            for name, value in {
                **dict.fromkeys(THREADS, str(work.threads)),
                "PYTHONUNBUFFERED": "1",
                "TOKENIZERS_PARALLELISM": "false",
            }.items()
        ),
        setup="".join(f"{line}\n" for line in spec.setup),
    )


def worker_script(spec: "Slurm", work: Work) -> str:
    """The script of one worker, which reads the run's name from the array's file `runs`."""
    return _WORKER.format(command=shlex.join(work.command), number=".$SLURM_PROCID" if spec.pack > 1 else "")


def job_name(token: str) -> str:
    """Name of the jobs of an array, by which a supervisor finds them again."""
    return f"addnorm-{token}"


def _quoted(value: str) -> str:
    """A value of a directive, in which Slurm reads quotes, backslashes and a hash, and no variables."""
    if re.fullmatch(r"[^\s\"'\\#]*", value):
        return value
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
