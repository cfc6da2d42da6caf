"""Random faults over studies on a real two-node Slurm and a real two-node Ray, against a study that nothing disturbed.

    python benchmarks/cluster_soak.py --faults 100 --dir SCRATCH

Faults are drawn from the seed and the study's number. Each that found a victim is written to SCRATCH/faults.jsonl, and
each study that has ended to SCRATCH/studies.jsonl: the same command goes on where it was interrupted, with the study that was
under way. The exit code is 1 if a study is not, bit for bit, the undisturbed one.
"""

import argparse
import json
import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "supervision"))

import pytest
from eight_runs import assert_as_calm, study_file, trained_calmly, warm_server
from kills import events
from ray_nodes import actor_of, commands, ray_nodes, strike
from slurm_cluster import NODES, Cluster, packages
from warm_jobs import Supervisor

from addnorm.store import RunFolder, StudyFolder
from addnorm.store.lines import read_lines

ENVIRONMENT = {
    "ADDNORM_HEARTBEAT_S": "0.3",
    "OMP_NUM_THREADS": "1",
    "TEST_RETRIES": "1000",
    "TEST_PACE_S": "0.4",
    "TEST_LATER_PACE_S": "0.15",
}
LONGEST_S = 600.0


class Weather:
    """What befalls one study on one cluster.

    Args:
        chance: draws the victims.
        server: socket of the warm processes.
        folder: the study's scratch folder.
    """

    executor = ""

    def __init__(self, chance: random.Random, server: str, folder: Path) -> None:
        self.chance, self.server, self.folder, self.out = chance, server, folder, folder / "out"
        self.arguments = (study_file(folder, self.executor), "--out", str(self.out))
        self.begun = 0
        self.code: int | None = None
        self.unmade: list[tuple[float, Callable[[], None]]] = []
        """What mends a fault, and when."""
        self.started_before = self.started()
        self.supervisor = self.begin_supervisor()

    def begin_supervisor(self, host: str = "login1") -> Supervisor:
        self.begun += 1
        log = self.folder / f"supervisor-{os.getpid()}-{self.begun}.txt"
        return Supervisor(self.server, str(log), *self.arguments, environment={"ADDNORM_HOST": host})

    def kill_supervisor(self) -> bool:
        """Kill -9 the supervisor; another host's takes over."""
        self.supervisor.kill()
        self.started_before = self.started()
        self.supervisor = self.begin_supervisor(f"login{self.begun % 3}")
        return True

    def second_supervisor(self) -> bool:
        """Start a second supervisor on another host while the first is at work: it must be refused."""
        if self.started() == self.started_before:  # the first is not at work yet, and would itself be refused
            return False
        second = self.begin_supervisor("elsewhere")
        if second.wait(120) == 0:  # the study had ended before it looked
            end = time.monotonic() + 10
            while self.ended() is None:
                assert time.monotonic() < end, "two supervisors worked on one study"
                time.sleep(0.05)
            return False
        told = (self.folder / f"supervisor-{os.getpid()}-{self.begun}.txt").read_text()
        assert "expected no other supervisor" in told, told
        return True

    def started(self) -> int:
        """Number of supervisors that have worked on the study."""
        log = self.out / "supervisor.jsonl"
        return sum(entry["type"] == "supervisor started" for entry in read_lines(log)[0]) if log.exists() else 0

    def runs(self) -> list[RunFolder]:
        return StudyFolder(self.out).runs() if (self.out / "study.json").exists() else []

    def at_work(self) -> list[RunFolder]:
        return [run for run in self.runs() if run.is_held() and run.ending() is None]

    def ended(self) -> int | None:
        """Exit code of the supervisor; None while it is at work."""
        if self.code is None:
            self.code = self.supervisor.poll()
        return self.code

    def faults(self) -> Mapping[str, Callable[[], bool]]:
        """The faults by name; each tells whether it found a victim."""
        return {"death of the supervisor": self.kill_supervisor, "second supervisor": self.second_supervisor}


class SlurmWeather(Weather):
    executor = "{kind: slurm, poll_s: 0.5}"

    def __init__(self, cluster: Cluster, chance: random.Random, server: str, folder: Path) -> None:
        self.cluster = cluster
        super().__init__(chance, server, folder)

    def faults(self) -> Mapping[str, Callable[[], bool]]:
        return {
            **super().faults(),
            "SIGTERM": lambda: self.cancel("--signal=TERM"),
            "scancel": self.cancel,
            "preemption": self.preempt,
            "death of a node": self.kill_node,
        }

    def cancel(self, *options: str) -> bool:
        told = self.cluster.ask("squeue", "-h", "-r", "-t", "RUNNING", "-o", "%i")
        jobs = [job for job in told.split() if "_" in job]
        if jobs:
            self.cluster.ask("scancel", *options, self.chance.choice(jobs))
        return bool(jobs)

    def preempt(self) -> bool:
        node = self.chance.choice(NODES)
        options = ("--partition=high", f"--nodelist={node}", "-n4", "--wrap=sleep 1", "--output=/dev/null")
        self.cluster.ask("sbatch", *options)
        return True

    def kill_node(self) -> bool:
        if self.unmade:  # the other node stays
            return False
        node = self.chance.choice(NODES)
        self.cluster.kill_node(node)
        self.unmade.append((time.monotonic() + 3, lambda: self.cluster.start_node(node)))
        return True


class RayWeather(Weather):
    def __init__(self, nodes: Any, chance: random.Random, server: str, folder: Path) -> None:
        self.nodes = nodes
        names = "environment: [TEST_PACE_S, TEST_LATER_PACE_S]"
        self.executor = f"{{kind: ray, address: '{nodes.address}', gpus: 0.25, {names}}}"
        super().__init__(chance, server, folder)

    def faults(self) -> Mapping[str, Callable[[], bool]]:
        return {
            **super().faults(),
            "SIGTERM": lambda: self.strike(lambda pid: strike(pid, signal.SIGTERM)),
            "death of an actor": lambda: self.strike(lambda pid: strike(actor_of(pid))),
            "death of a worker": lambda: self.strike(strike),
            "ray.kill": self.drop,
            "death of a node": self.kill_node,
        }

    def strike(self, blow: Callable[[int], None]) -> bool:
        """Let a blow fall on the worker command of a run."""
        at_work = self.at_work()
        pids = commands(self.chance.choice(at_work).path) if at_work else []
        for pid in pids:
            blow(pid)
        return bool(pids)

    def drop(self) -> bool:
        log = read_lines(self.out / "supervisor.jsonl")[0]
        actors = {entry["run"]: entry["worker"].removeprefix("ray:") for entry in log if entry["type"] == "started"}
        victims = [actors[run.name] for run in self.at_work() if run.name in actors]
        if not victims:
            return False
        told = self.nodes.ask(
            f"name = {self.chance.choice(victims)!r}\n"
            "if {'namespace': 'addnorm', 'name': name} in ray.util.list_named_actors(all_namespaces=True):\n"
            "    ray.kill(ray.get_actor(name, namespace='addnorm')); print('killed')"
        )
        return told == ["killed"]

    def kill_node(self) -> bool:
        if self.unmade:
            return False
        self.nodes.remove_second()
        self.unmade.append((time.monotonic() + 3, self.nodes.add_second))
        return True


def weathered(weather: Weather, most: int, note: Callable[[str], None]) -> int:
    """Let at most so many faults befall a study until it has ended; returns their number."""
    struck, due, end = 0, 0.0, time.monotonic() + LONGEST_S
    while (code := weather.ended()) is None:
        assert time.monotonic() < end, f"a study did not end within {LONGEST_S:.0f} s; see {weather.folder}"
        for entry in [entry for entry in weather.unmade if time.monotonic() >= entry[0]]:
            weather.unmade.remove(entry)
            entry[1]()
        if struck < most and weather.at_work() and time.monotonic() >= due:
            name = weather.chance.choice(sorted(weather.faults()))
            if weather.faults()[name]():
                note(name)
                struck += 1
            due = time.monotonic() + weather.chance.uniform(0.5, 4.0)
        time.sleep(0.05)
    for _, mend in weather.unmade:
        mend()
    assert code == 0, f"the supervisor ended with {code}; see {weather.folder}"
    return struck


@contextmanager
def made(kind: str, scratch: Path) -> Iterator[Callable[..., Weather]]:
    """A cluster during the block, and what makes its weather."""
    with ExitStack() as stack:
        if kind == "ray":
            nodes = stack.enter_context(ray_nodes())
            yield lambda *arguments: RayWeather(nodes, *arguments)
            return
        folder = Path(__file__).parents[1] / ".pytest_cache" / "d" / "slurm-packages"
        folder.mkdir(parents=True, exist_ok=True)
        cluster = Cluster(packages(folder), scratch / f"slurm-{os.getpid()}")
        stack.callback(cluster.stop)
        os.environ.update(cluster.environment)
        yield lambda *arguments: SlurmWeather(cluster, *arguments)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--faults", type=int, default=100, help="over all clusters together")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--dir", type=Path, required=True, help="scratch folder, which is kept")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin no further study after this time")
    parser.add_argument("--clusters", nargs="+", default=["slurm", "ray"], choices=["slurm", "ray"])
    options = parser.parse_args()
    scratch = options.dir.absolute()
    scratch.mkdir(parents=True, exist_ok=True)
    os.environ.update(ENVIRONMENT)
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(1))  # the clusters end with it
    end = time.monotonic() + options.minutes * 60
    if not (scratch / "calm" / "study.json").exists():
        trained_calmly(scratch)
    with ExitStack() as stack:
        server = stack.enter_context(warm_server(Path(stack.enter_context(TemporaryDirectory()))))
        clusters = {}
        for kind in options.clusters:
            try:
                clusters[kind] = stack.enter_context(made(kind, scratch))
            except pytest.skip.Exception as reason:
                print(f"without {kind}: {reason}", file=sys.stderr)
        while clusters and len(lines(scratch / "faults.jsonl")) < options.faults and time.monotonic() < end:
            number = len(lines(scratch / "studies.jsonl"))
            kind = list(clusters)[number % len(clusters)]
            study(clusters[kind], kind, number, server, scratch, options)
    return told(scratch)


def study(make: Callable[..., Weather], kind: str, number: int, server: str, scratch: Path, options: Any) -> None:
    """Have one study trained in bad weather and record what came of it."""
    folder = scratch / f"study-{number}"
    folder.mkdir(exist_ok=True)
    before = lines(scratch / "faults.jsonl")
    chance = random.Random(f"{options.seed} {number} {sum(fault['study'] == number for fault in before)}")
    result: dict[str, Any] = {"study": number, "cluster": kind, "problem": None}
    note = lambda name: add(scratch / "faults.jsonl", {"study": number, "cluster": kind, "fault": name})  # noqa: E731
    try:
        weathered(make(chance, server, folder), min(15, options.faults - len(before)), note)
        assert_as_calm(scratch / "calm", folder / "out")
    except AssertionError as error:
        result["problem"] = str(error) or "not as the undisturbed study"
    runs = StudyFolder(folder / "out").runs()
    result["runs"] = len(runs)
    result["finished"] = sum(run.status().state == "finished" for run in runs)
    result["attempts"] = sum(run.status().attempts for run in runs)
    result["resumed"] = sum(event["resumed_from"] > 0 for run in runs for event in events(run, "start"))
    add(scratch / "studies.jsonl", result)


def told(scratch: Path) -> int:
    """Print the tables. Returns the exit code."""
    studies, faults = lines(scratch / "studies.jsonl"), lines(scratch / "faults.jsonl")
    print("| cluster | studies | faults | runs | finished | attempts | resumed | studies not bit-identical |")
    print("|---|---|---|---|---|---|---|---|")
    for kind in sorted({entry["cluster"] for entry in studies}):
        own = [entry for entry in studies if entry["cluster"] == kind]
        sums = [sum(entry[name] for entry in own) for name in ("runs", "finished", "attempts", "resumed")]
        struck = sum(fault["cluster"] == kind for fault in faults)
        bad = sum(entry["problem"] is not None for entry in own)
        print(f"| {kind} | {len(own)} | {struck} | " + " | ".join(map(str, sums)) + f" | {bad} |")
    print("\n| fault | cluster | times |\n|---|---|---|")
    for (name, kind), times in sorted(Counter((fault["fault"], fault["cluster"]) for fault in faults).items()):
        print(f"| {name} | {kind} | {times} |")
    problems = [entry for entry in studies if entry["problem"] is not None]
    for entry in problems:
        print(f"\nstudy {entry['study']} on {entry['cluster']}: {entry['problem']}")
    return 1 if problems else 0


def lines(path: Path) -> list[dict[str, Any]]:
    """The entries of a file; none before the first."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def add(path: Path, entry: dict[str, Any]) -> None:
    """Append an entry."""
    with open(path, "a") as file:
        file.write(json.dumps(entry) + "\n")


if __name__ == "__main__":
    sys.exit(main())
