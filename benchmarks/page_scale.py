"""The page at its largest: a generated study of 1,000 runs with 10,000 training events each.

Measured on a server of its own (`addnorm watch`), with the index that a supervisor would have kept:

- start: from the command to the first answer (imports, a first look at every run, the ranking)
- each page: time to its last byte, first request and median of the following, and the processor time of each of these, which
  tells more on a machine that others use too
- update: from an event's write to its arrival at an open page, over server-sent events
- memory: largest resident memory of the server over all of that
- looking: processor time per second while nothing happens

    python benchmarks/page_scale.py                              about 20 minutes and 3 GB, nearly all of it to make the study
    python benchmarks/page_scale.py --runs 50 --points 500       seconds, to see that it works
"""

import argparse
import http.client
import json
import math
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from addnorm.store import Index, RunFolder, StudyFolder
from addnorm.store.lines import encode

PAGES = (
    "/",
    "/ranking",
    "/curves",
    "/scalars",
    "/cost",
    "/record",
    "/model?variant=v001",
    "/log?run=v001-s0",
    "/curves?metric=train.loss&metric=eval.loss",
    "/curves.json?mode=seeds",
)
SEEDS = 10
TARGETS = {"every page": 1.0, "update": 0.5, "memory": 200.0}


def make(out: Path, runs: int, points: int) -> StudyFolder:
    """A study whose runs have all finished but one, which is at work."""
    variants = [f"v{place:03}" for place in range(max(1, runs // SEEDS))]
    model = {"residual": {"kind": "add"}, "scores": {"kind": "own"}, "width": 512, "depth": 8}
    spec = {"model": model, "training": {"steps": points, "batch": 2, "seq": 512}}
    plan = {
        "study": "scale", "references": variants[:3], "margin": 0.005, "seeds": list(range(SEEDS)), "variants": variants,
        "data_hash": "d", "tokenizer_hash": "t", "plan_hash": "made",
        "runs": [
            {"run": f"{name}-s{seed}", "variant": name, "seed": seed, "steps": points, "spec": spec}
            for seed in range(SEEDS) for name in variants
        ],
    }  # fmt: skip
    study = StudyFolder.create(out, plan)
    for place, run in enumerate(study.runs()):
        write(run, points, is_last=place == len(study.runs()) - 1)
        if place % 100 == 0:
            print(f"  made {place} of {len(study.runs())} runs", file=sys.stderr)
    Index(out).sync()
    return study


def write(run: RunFolder, points: int, *, is_last: bool, level: float = 2.5) -> None:
    """The events of one run, as its worker would have written them; `level` is the loss that it ends at."""
    noise = random.Random(run.name)
    at = time.time() - points
    lines = [encode({"time": at, "attempt": 1, "type": "start", "step": 0, "resumed_from": 0, "replays": 0})]
    for step in range(1, points // 2 if is_last else points + 1):
        loss = level + 3 * math.exp(-step / (points / 10)) + noise.gauss(0, 0.05)
        event = {"time": at + step, "attempt": 1, "type": "train", "step": step, "loss": loss, "tokens_per_s": 1e4}
        lines.append(encode({**event, "losses": [loss], "grad_norms": [1.0]}))
    final = level + noise.gauss(0, 0.002) + 1e-5 * sum(map(ord, run.spec["variant"]))
    event = {"time": at + points, "attempt": 1, "type": "eval", "step": points, "final": True, "loss": final}
    lines.append(b"" if is_last else encode({**event, "accuracy": 0.5, "perplexity": math.exp(final)}))
    run.events_path.write_bytes(b"".join(lines))
    if not is_last:
        run.mark("finished", step=points, content_hash=run.name, peak_bytes=4 << 30)


def ask(port: int, path: str) -> tuple[float, bytes]:
    """Seconds to the last byte of an answer, and the answer."""
    began = time.perf_counter()
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    connection.request("GET", path, headers={"Accept-Encoding": "identity"})
    answer = connection.getresponse()
    content = answer.read()
    connection.close()
    if answer.status != 200:
        raise SystemExit(f"{path} answered {answer.status}")
    return time.perf_counter() - began, content


def updates(port: int, run: RunFolder, points: int, count: int) -> list[float]:
    """Seconds from an event's write to its arrival at an open page."""
    _, page = ask(port, "/")
    path = page.partition(b'data-events="')[2].partition(b'"')[0].decode().replace("&amp;", "&")
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    connection.request("GET", path)
    stream = connection.getresponse()
    found = []
    with run.claim() as events:
        for place in range(count):
            step = points // 2 + place
            began = time.perf_counter()
            events.write("train", step=step, loss=2.5, tokens_per_s=1e4)
            while True:
                line = stream.readline()
                if not line:
                    raise SystemExit("the server has closed the stream")
                if line.startswith(b"data: ") and run.name in json.loads(line.removeprefix(b"data: "))["runs"]:
                    break
            found.append(time.perf_counter() - began)
            time.sleep(0.37)  # another phase of the server's looking each time
    connection.close()
    return found


def memory_mib(pid: int) -> float:
    """Largest resident memory of a process so far, in MiB."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    raise SystemExit(f"/proc/{pid}/status does not say VmHWM")


def processor_s(pid: int) -> float:
    """Processor time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--points", type=int, default=10_000)
    parser.add_argument("--dir", type=Path, help="keep the study here, and use it again if it is there")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        out = options.dir or Path(made) / "study"
        study = StudyFolder(out) if (out / "index.db").exists() else make(out, options.runs, options.points)
        measure(out, study, options.points)


def measure(out: Path, study: StudyFolder, points: int) -> None:
    began = time.perf_counter()
    command = [sys.executable, "-m", "addnorm", "watch", str(out), "--port", "0", "--json"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONUNBUFFERED": "1"})
    try:
        assert server.stdout is not None
        said = ""
        while "}" not in said:
            said += server.stdout.readline()
        port = int(json.loads(said)["url"].rstrip("/").rpartition(":")[2])
        first, page = ask(port, "/")
        started = time.perf_counter() - began
        print(f"{len(study.runs())} runs, {points} points each")
        print(f"start                     {started:6.2f} s")
        print(f"first page                {first:6.2f} s   {len(page) / 1024:.0f} KiB")
        for path in PAGES:
            once, content = ask(port, path)
            before = processor_s(server.pid)
            again = statistics.median(ask(port, path)[0] for _ in range(5))
            used = (processor_s(server.pid) - before) / 5
            print(
                f"{path:<45} {once:6.2f} s   then {again:.3f} s, {used:.2f} s of processor   {len(content) / 1024:.0f} KiB"
            )
        found = updates(port, study.runs()[-1], points, 20)
        print(
            f"update                    {statistics.median(found):6.2f} s   at most {max(found):.2f} s   of {len(found)}"
        )
        before = processor_s(server.pid)
        time.sleep(10)
        print(f"looking, nothing happens  {(processor_s(server.pid) - before) / 10:6.3f} s of processor per second")
        print(f"memory                    {memory_mib(server.pid):6.0f} MiB at most")
        wanted = ", ".join(f"{name} < {limit:g}" for name, limit in TARGETS.items())
        print(f"wanted: {wanted} (s, s, MB)")
    finally:
        server.terminate()
        server.wait(timeout=30)


if __name__ == "__main__":
    main()
