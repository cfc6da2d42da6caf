"""Peak memory of tokenising text files of growing size.

    python benchmarks/large_corpus.py --sizes 0.25 1 --dir SCRATCH
    python benchmarks/large_corpus.py --sizes 1 10 --dir SCRATCH --tokenizer bytes

Each file is made in SCRATCH and removed afterwards; its tokens too. Words are drawn by a power law without an end, so that the
number of distinct words grows with the text as in collections of web pages (about 5 million in 10 GB), in lines and paragraphs
of ordinary length. A process of its own prepares the data set as `addnorm run` does, with RAYON_NUM_THREADS threads, by
default one per core. Its peak is the kernel's: memory of the process that is not backed by files (VmRSS without RssFile,
sampled) and its resident peak (VmHWM), which counts pages of mapped files too.
"""

import argparse
import json
import multiprocessing
import os
import resource
import shutil
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

from addnorm.data import prepare
from addnorm.data.corpora.text import Text
from addnorm.data.tokenizers import TokenizerSpec
from addnorm.data.tokenizers.bpe import Bpe
from addnorm.data.tokenizers.bytes import Bytes

_EXPONENT = 1.4
_LETTERS = np.frombuffer(b"etaoinshrdlucmfwypvbgkqjxz", dtype=np.uint8)
_DIGITS = 9
_ENDS = (b" ",) * 8 + (b", ", b". ", b".\n", b".\n\n")
_WORDS = 2**18


def words(chance: np.random.Generator) -> bytes:
    """A block of text. The word of rank r is r in base 26, after two letters that depend on it."""
    ranks = np.minimum(chance.zipf(_EXPONENT, _WORDS), 10**12)
    digits = [ranks * 7 % 26, ranks * 11 % 26]
    used = [np.ones(_WORDS, dtype=bool)] * 2
    for _ in range(_DIGITS):
        used.append(ranks > 0)
        digits.append(ranks % 26)
        ranks = ranks // 26
    ends = np.array([list(end.ljust(3, b"\0")) for end in _ENDS], dtype=np.uint8)[
        chance.integers(len(_ENDS), size=_WORDS)
    ]
    letters = np.concatenate([_LETTERS[np.stack(digits, axis=1)], ends], axis=1)
    return letters[np.concatenate([np.stack(used, axis=1), ends > 0], axis=1)].tobytes()


def make(path: Path, size: int) -> None:
    """Write a file of about that many bytes."""
    chance = np.random.default_rng(0)
    with open(path, "wb") as file:
        while file.tell() < size:
            file.write(words(chance))


class Peak(threading.Thread):
    """Largest memory of this process that no file backs, sampled fifty times a second."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.bytes = 0
        self._ended = threading.Event()

    def run(self) -> None:
        while not self._ended.wait(0.02):
            self.bytes = max(self.bytes, status("RssAnon"))

    def end(self) -> int:
        self._ended.set()
        self.join()
        return self.bytes


def status(name: str) -> int:
    """A value of /proc/self/status in bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    raise KeyError(name)


def measured(file: str, tokenizer: TokenizerSpec, out: str, answer: Any) -> None:
    """Prepare the data set of a file and send what it took."""
    before, peak, start = status("RssAnon"), Peak(), time.perf_counter()
    peak.start()
    dataset = prepare(Text(path=file), tokenizer, Path(out))
    seconds = time.perf_counter() - start
    use = resource.getrusage(resource.RUSAGE_SELF)
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert children.ru_utime == 0, "processes of its own would have to be counted"
    found = {
        "tokens": len(dataset.train) + len(dataset.held),
        "seconds": seconds,
        "cpu_s": use.ru_utime + use.ru_stime,
        "before": before,
        "anonymous": peak.end(),
        "resident": status("VmHWM"),
    }
    answer.send(json.dumps(found))


def row(options: argparse.Namespace, gigabytes: float, folder: Path) -> dict[str, float]:
    file, out = folder / "text.txt", folder / "data"
    make(file, round(gigabytes * 1e9))
    size = file.stat().st_size
    tokenizer = Bytes() if options.tokenizer == "bytes" else Bpe(vocab=options.vocab)
    receiver, sender = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("spawn").Process(
        target=measured, args=(str(file), tokenizer, str(out), sender)
    )
    process.start()
    sender.close()
    found = {"bytes": size, **json.loads(receiver.recv())}
    process.join()
    file.unlink()
    shutil.rmtree(out)
    return found


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--sizes", type=float, nargs="+", default=[0.25, 1.0], help="gigabytes")
    parser.add_argument("--tokenizer", choices=["bpe", "bytes"], default="bpe")
    parser.add_argument("--vocab", type=int, default=8192)
    parser.add_argument("--dir", type=Path, required=True, help="scratch folder with room for twice the largest size")
    options = parser.parse_args()
    folder = options.dir / f"large-corpus-{os.getpid()}"
    folder.mkdir(parents=True)
    print(f"{options.tokenizer}, {os.environ.get('RAYON_NUM_THREADS', len(os.sched_getaffinity(0)))} threads\n")
    print("| GB of text | million tokens | seconds | processor seconds | peak GB, not of files | peak GB, resident |")
    print("|---|---|---|---|---|---|")
    peaks = []
    try:
        for gigabytes in options.sizes:
            found = row(options, gigabytes, folder)
            peaks.append(found["anonymous"])
            values = (found["bytes"] / 1e9, found["tokens"] / 1e6, found["seconds"], found["cpu_s"])
            memory = (found["anonymous"] / 1e9, found["resident"] / 1e9)
            cells = (f"{values[0]:.2f}", *(f"{value:,.0f}" for value in values[1:]), *(f"{m:.2f}" for m in memory))
            print(f"| {' | '.join(cells)} |", flush=True)
    finally:
        shutil.rmtree(folder)
    print("\nWanted: less than 1 GB, whatever the size.")
    return 0 if max(peaks) < 1e9 else 1


if __name__ == "__main__":
    sys.exit(main())
