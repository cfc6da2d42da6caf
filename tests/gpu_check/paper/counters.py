"""What the GPU of paper counted, and where the host waited for it."""

import ctypes
import os
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

_LIBRARY = next((path for path in os.environ.get("LD_PRELOAD", "").split(":") if path.endswith("libpaper.so")), None)
IS_HERE = _LIBRARY is not None
"""True in a process that the GPU of paper was preloaded into."""
if _LIBRARY is not None:
    _paper = ctypes.CDLL(_LIBRARY)
    _paper.paper_name.restype = ctypes.c_char_p
    _paper.paper_value.restype = ctypes.c_long
_CALL = ctypes.CFUNCTYPE(None, ctypes.c_char_p)


def _counts() -> Counter[str]:
    return Counter({_paper.paper_name(i).decode(): _paper.paper_value(i) for i in range(_paper.paper_size())})


@contextmanager
def counted() -> Iterator[Counter[str]]:
    """Count calls during a block: launches, products by type, functions of libraries; kernels by name under PAPER_NAMES=1."""
    counts: Counter[str] = Counter()
    before = _counts()
    yield counts
    counts.update(_counts() - before)


@contextmanager
def waits(part: str = "/src/addnorm/") -> Iterator[Counter[tuple[str, str]]]:
    """Count the host's waits during a block by kind and place: the two innermost lines whose file's path has `part`."""
    counts: Counter[tuple[str, str]] = Counter()

    def note(kind: bytes) -> None:
        frame, places = sys._getframe(1), []
        while frame is not None and len(places) < 2:
            path = frame.f_code.co_filename
            if part in path:
                places.append(f"{path.split(part)[-1]}:{frame.f_lineno}")
            frame = frame.f_back
        counts[kind.decode(), " < ".join(places)] += 1

    call = _CALL(note)
    _paper.paper_on_wait(call)
    try:
        yield counts
    finally:
        _paper.paper_on_wait(ctypes.cast(None, _CALL))
