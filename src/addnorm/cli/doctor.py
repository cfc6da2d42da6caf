"""Check this machine: versions, devices, disk, file locks, executors, and a small training step.

For example:
    addnorm doctor --dir runs
"""

import platform
import shutil
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from addnorm.cli._text import JsonOption, on_screen, print_json, quantity
from addnorm.errors import InputError, missing_extra
from addnorm.reporting.formats.table import Column, ResultTable, at
from addnorm.words import spoken, translated


@dataclass(frozen=True)
class Options(JsonOption):
    dir: Path = Path()
    """Folder in which runs will be stored."""


def command(options: Options) -> int:
    for path in (options.dir, *options.dir.parents):
        if path.exists() and not path.is_dir():
            raise InputError(
                f"--dir: expected a folder or a path where one can be made, got {options.dir}: {path} is a file."
            )
    checks: dict[str, Callable[[Path], tuple[bool, str]]] = {
        "python": _python,
        "torch": _torch,
        "devices": _devices,
        "GPU": _gpu,
        "disk": _disk,
        "locks": _locks,
        "executors": _executors,
        "training step": _step,
    }
    results = {name: _checked(check, options.dir) for name, check in checks.items()}
    if options.json:
        print_json({name: {"ok": good, "detail": detail} for name, (good, detail) in results.items()})
    else:
        columns = (
            Column("check", None, translated, "l", at(0)),
            Column("ok", "", lambda good: "ok" if good else "NO", "l", at(1, 0)),
            Column("detail", None, _details, "l", at(1, 1)),
        )
        print(on_screen(ResultTable(columns, list(results.items()))))
    return 0 if all(good for good, _ in results.values()) else 1


def _details(detail: str) -> str:
    return spoken()("joint.semicolon").join(map(translated, detail.split("; ")))


def _checked(check: Callable[[Path], tuple[bool, str]], folder: Path) -> tuple[bool, str]:
    try:
        return check(folder)
    except ModuleNotFoundError as error:
        advice = missing_extra(error)
        if advice is None:
            raise
        return False, advice


def _python(folder: Path) -> tuple[bool, str]:
    return sys.version_info >= (
        3,
        11,
    ), f"Python {platform.python_version()} on {platform.platform()}; 3.11 or newer is needed"


def _torch(folder: Path) -> tuple[bool, str]:
    try:
        import torch
    except ImportError as error:
        return False, f"cannot be imported: {error}. Install with `pip install torch`"
    return True, f"{torch.__version__}, CPU kernels {torch.backends.cpu.get_cpu_capability()}"


def _devices(folder: Path) -> tuple[bool, str]:
    from addnorm.supervision.executors.local import LocalExecutor

    executor = LocalExecutor.create()
    kind = f"GPUs {', '.join(executor.cuda_devices)}" if executor.cuda_devices else "CPU cores"
    return True, f"{executor.slots} runs at the same time ({kind})"


def _gpu(folder: Path) -> tuple[bool, str]:
    """Tell which GPU runs are trained on, and which way attention takes there."""
    import torch

    from addnorm.training.attention_ways import LEAST_CAPABILITY

    if not torch.cuda.is_available():
        apple = torch.backends.mps.is_available()
        return True, "runs are trained on the CPU" + (", not on Apple's MPS, which has no float64" if apple else "")
    properties = torch.cuda.get_device_properties(0)
    capability = (properties.major, properties.minor)
    card = f"{properties.name}, compute capability {properties.major}.{properties.minor}, {quantity(properties.total_memory)}B"
    if capability < LEAST_CAPABILITY:
        return False, f"{card}: 8.0 or later is expected. Set CUDA_VISIBLE_DEVICES= to train on the CPU"
    ways, good = _ways()
    return good, f"{card}; {ways}"


def _ways() -> tuple[str, bool]:
    """The implementation that attention="auto" takes on this GPU in usual cases, and every other, with times and errors."""
    import torch

    from addnorm.training.attention_ways import ROUNDING, measure_ways

    measured = measure_ways(torch.device("cuda"))
    lines = []
    for case in dict.fromkeys(way.case for way in measured):
        ways = [way for way in measured if way.case == case]
        taken = next(way for way in ways if way.is_taken)
        fastest = min(ways, key=lambda way: way.milliseconds)
        times = ", ".join(f"{way.impl} {way.milliseconds:.2g} ms" for way in ways)
        advice = "" if fastest is taken else f", attention: {fastest.impl} would be faster"
        lines.append(f"{case}: auto takes {taken.impl} ({times}){advice}")
    wrong = [f"{way.case} by {way.impl} is wrong by {way.error:.2g}" for way in measured if not way.error <= ROUNDING]
    return "; ".join([*lines, *wrong]), not wrong


def _executors(folder: Path) -> tuple[bool, str]:
    """Tell where studies can be trained from here. A cluster that is not there is no fault of this machine."""
    from addnorm.supervision.executors import EXECUTORS

    obstacles = {kind: EXECUTORS.class_of(kind).obstacle() for kind in EXECUTORS.kinds()}
    sentences = [f"{kind} can be used" if why is None else f"{kind} cannot: {why}" for kind, why in obstacles.items()]
    return obstacles["local"] is None, "; ".join(sentences)


def _existing(folder: Path) -> Path:
    """The nearest existing parent folder, which is on the same disk."""
    return next(path for path in (folder.absolute(), *folder.absolute().parents) if path.is_dir())


def _disk(folder: Path) -> tuple[bool, str]:
    existing = _existing(folder)
    free = shutil.disk_usage(existing).free
    return free > 1 << 30, f"{quantity(free)}B free at {existing}; at least 1 GB is advised"


def _locks(folder: Path) -> tuple[bool, str]:
    """Check that a lock excludes others: otherwise two workers could train one run."""
    from addnorm.errors import AddnormError
    from addnorm.store import Lock, is_held

    existing = _existing(folder)
    path = existing / ".addnorm-doctor-lock"
    lock = Lock(path)
    try:
        held = lock.try_acquire() and is_held(path)
        lock.release()
    except (AddnormError, OSError) as error:
        return False, f"cannot lock files at {existing}: {error}"
    finally:
        with suppress(OSError):  # a read-only folder, which the result reports
            path.unlink(missing_ok=True)
    return held, f"file locks work at {existing}" if held else f"file locks do not work at {existing}"


def _step(folder: Path) -> tuple[bool, str]:
    import torch

    from addnorm.model.presets import preset

    model = preset("base", vocab=64, width=32, depth=2, heads=4, kv_heads=2, hidden=64, max_seq=32).build()
    tokens = torch.arange(32).remainder(64).unsqueeze(0)
    loss = torch.nn.functional.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())
    loss.backward()
    finite = all(p.grad is not None and bool(p.grad.isfinite().all()) for p in model.parameters())
    state = "finite" if finite else "not finite"
    return finite, f"loss {loss.item():.3f}, gradients {state}"
