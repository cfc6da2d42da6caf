"""The scripts that Slurm runs: one for each job of an array, one for each worker in it."""

import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from addnorm.training.exit_code import ExitCode

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


def array_script(
    options: Mapping[str, str | None],
    further: Sequence[str],
    *,
    folder: Path,
    study: Path,
    pack: int,
    cpus: int,
    environment: Mapping[str, str],
    setup: Sequence[str],
) -> str:
    """The script of an array.

    Args:
        options: values of sbatch's options; those that are None are left out.
        further: options as the user wrote them.
        folder: the array's folder, whose name is the end of the job's name.
        study: the study's folder.
        pack: runs of a job.
        cpus: cores for each run.
        environment: variables of the workers.
        setup: lines before the workers start.
    """
    options = {"job-name": job_name(folder.name), **options}
    # A percent sign of the path is doubled, because Slurm replaces %a and others.
    options |= {"open-mode": "append", "output": _quoted(f"{str(folder.absolute()).replace('%', '%%')}/%a.out")}
    directives = [f"#SBATCH --{name}={value}" for name, value in options.items() if value is not None]
    directives += ["#SBATCH --requeue", *(f"#SBATCH {option}" for option in further)]
    return _ARRAY.format(
        directives="\n".join(directives),
        batch=shlex.quote(str(folder.absolute())),
        study=shlex.quote(str(study.absolute())),
        pack=pack,
        cpus=cpus,
        stopped=int(ExitCode.STOPPED),
        environment=" ".join(f"{name}={value}" for name, value in environment.items()),
        setup="".join(f"{line}\n" for line in setup),
    )


def worker_script(command: Sequence[str], pack: int) -> str:
    """The script of one worker, which reads the run's name from the array's file `runs`."""
    return _WORKER.format(command=shlex.join(command), number=".$SLURM_PROCID" if pack > 1 else "")


def job_name(token: str) -> str:
    """Name of the jobs of an array, by which a supervisor finds them again."""
    return f"addnorm-{token}"


def _quoted(value: str) -> str:
    """A value of a directive, in which Slurm reads quotes, backslashes and a hash, and no variables."""
    if re.fullmatch(r"[^\s\"'\\#]*", value):
        return value
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
