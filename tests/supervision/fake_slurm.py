"""A Slurm that is a few lines of this file, whose jobs the test moves."""

import re
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class FakeSlurm:
    """Jobs in a queue, which the test moves."""

    largest: int = 1001
    refuses: str | None = None
    away: bool = False
    unseen: bool = False
    slow: bool = False
    """Cancelled jobs stay in the queue, as they do for some seconds."""
    arrays: list[tuple[str, str]] = field(default_factory=list)
    """Name and `--array` of what was submitted."""
    queue: dict[str, tuple[str, str, str, str]] = field(default_factory=dict)
    """By id: state, reason, node, name."""
    questions: int = 0
    cancelled: list[str] = field(default_factory=list)
    missing: str | None = None
    """A command that is not on the PATH."""
    on_submit: Callable[["FakeSlurm", str], None] = lambda slurm, number: None

    def ask(self, *command: str, stdin: str | None = None) -> "subprocess.CompletedProcess[str]":
        output, error = "", ""
        if self.away:
            error = "slurm_load_jobs error: Unable to contact slurm controller (connect failure)"
        elif command[:2] == ("sbatch", "--test-only") and self.refuses:
            error = self.refuses
        elif command[:2] == ("sbatch", "--parsable"):
            output = self.submit(Path(command[2]).read_text())
        elif command[0] == "squeue":
            self.questions += 1
            names = command[-1].removeprefix("--name=").split(",")
            output = "".join(f"{id}|{'|'.join(job)}\n" for id, job in self.queue.items() if job[3] in names)
        elif command[0] == "scancel":
            waiting = "--state=PENDING" in command
            gone = [id for id in command[1:] if id in self.queue and (not waiting or not self.queue[id][2])]
            self.cancelled += gone
            for id in gone if not self.slow else ():
                del self.queue[id]
        elif command[0] == "scontrol":
            output = f"MaxArraySize            = {self.largest}\n"
        elif command[0] == "sinfo":
            output = "low\nhigh\nlow\n"
        elif command[0] == "srun":
            output = "not seen by n1\n" if self.unseen else "seen\n"
        return subprocess.CompletedProcess(command, 1 if error else 0, output, error)

    def submit(self, script: str) -> str:
        (name,) = re.findall(r"--job-name=(\S+)", script)
        (array,) = re.findall(r"--array=(\S+)", script)
        number = str(len(self.arrays) + 10)
        self.arrays.append((name, array))
        last = int(array.partition("%")[0].partition("-")[2])
        self.queue |= {f"{number}_{task}": ("PENDING", "Priority", "", name) for task in range(last + 1)}
        self.on_submit(self, number)
        return f"{number};cluster\n"

    def run(self, id: str) -> None:
        self.queue[id] = ("RUNNING", "None", "n1", self.queue[id][3])
