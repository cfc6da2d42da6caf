"""Peak memory of this process."""

import resource
import sys


def peak_bytes() -> int:
    """Largest resident set of this process, in bytes. (`ru_maxrss` is in KiB on Linux and in bytes on macOS.)"""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
