"""Use of processors, memory and GPU by a worker, recorded with its training events.

A worker records its own use, because a page can be on another host, and because what `/proc` says of a process is gone when it
ends. Reading it takes some 10 microseconds per event. What is not known is left out: `gpu_busy` needs NVML (the package
`nvidia-ml-py`), and `resident_bytes` the file `/proc/self/statm`, which only Linux has.
"""

import os
import resource
import sys
import time
from contextlib import suppress

import torch


class ResourceUse:
    """Use by this process since the last call of `read`.

    Args:
        device: the device that it trains on.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._knows_busy = device.type == "cuda"
        self.restart()

    def restart(self) -> None:
        """Begin to count anew."""
        self._wall, self._processor = time.monotonic(), time.process_time()

    def read(self) -> dict[str, float]:
        """Use since the last call.

        Returns:
            `cpu_cores` (processor seconds per second, of all threads of this process), `resident_bytes` now; on a GPU
            `gpu_bytes` (reserved by this process now) and `gpu_busy` (share of the last moment in which the device worked, for
            whichever process).
        """
        wall, processor = time.monotonic(), time.process_time()
        use = {"cpu_cores": (processor - self._processor) / max(wall - self._wall, 1e-9)}
        self._wall, self._processor = wall, processor
        with suppress(OSError, ValueError, IndexError), open("/proc/self/statm", encoding="ascii") as file:
            use["resident_bytes"] = int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")  # Linux alone has it
        if self._device.type == "cuda":
            use["gpu_bytes"] = torch.cuda.memory_reserved(self._device)
            use |= self._busy()
        return {name: float(f"{value:.4g}") if name == "cpu_cores" else value for name, value in use.items()}

    def _busy(self) -> dict[str, float]:
        if self._knows_busy:
            try:
                return {"gpu_busy": torch.cuda.utilization(self._device) / 100}
            except Exception:  # noqa: BLE001  without NVML, torch and pynvml raise errors of many types; it stays unknown
                self._knows_busy = False
        return {}


def peak_bytes() -> int:
    """Largest resident set of this process, in bytes. (`ru_maxrss` is in KiB on Linux and in bytes on macOS.)"""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
