"""Builds the GPU of paper: the runtime (runtime.c, libraries.c), and stubs of each library that torch's CUDA build needs.

    python build.py FOLDER      ->  FOLDER/libcudart.so.13, FOLDER/libcuda.so.1, …, and FOLDER/run, which preloads them

A stub counts its call and succeeds; where torch reads more than success, the C files have a function of that name, which comes
first in the order of preloading.
"""

import re
import subprocess
import sys
import sysconfig
from pathlib import Path

HERE = Path(__file__).parent
SITE = Path(sysconfig.get_paths()["purelib"])
SOURCES = (HERE / "runtime.c", HERE / "libraries.c")
CUDA = r"(?:__cuda|cu|nccl|nvrtc|nvshmem)"
# Libraries whose symbols have no version, by the beginning of the symbol.
UNVERSIONED = {
    "cuFile": "libcufile.so.0",
    "cusparseLt": "libcusparseLt.so.0",
    "nccl": "libnccl.so.2",
    "curand": "libcurand.so.10",
    "nvshmem": "libnvshmem_host.so.3",
    "cu[A-Z]": "libcuda.so.1",
}
BY_TRITON = ("cuTensorMapEncodeIm2col", "cuTensorMapEncodeTiled", "cuLaunchHostFunc")


def build(folder: Path) -> None:
    """Compile everything into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    own = _own_symbols()
    libraries = _needed(own)
    options = ("gcc", "-shared", "-fPIC", "-O2", "-w")
    headers = SITE / "triton/backends/nvidia/include"
    runtime = (*options, "-I", headers, *SOURCES, "-o", folder / "libpaper.so", "-ldl", "-lpthread")
    subprocess.run((*runtime, "-Wl,-soname,libpaper.so"), check=True)
    for name, symbols in libraries.items():
        source, versions = folder / "stub.c", folder / "stub.map"
        source.write_text("\n".join(_stubs(set(symbols) - own)))
        version = next((version for version in symbols.values() if version), "")
        versions.write_text(f"{version} {{ global: *; }};\n")
        linking = (
            f"-Wl,-soname,{name}",
            f"-Wl,--version-script={versions}",
            "-L",
            folder,
            "-lpaper",
            "-Wl,-rpath,$ORIGIN",
        )
        subprocess.run((*options, source, "-o", folder / name, *linking), check=True)
        source.unlink()
        versions.unlink()
    preloaded = ":".join(str((folder / name).resolve()) for name in ("libpaper.so", *sorted(libraries)))
    run = folder / "run"
    run.write_text(f'#!/bin/sh\nexport LD_PRELOAD="{preloaded}" TRITON_LIBCUDA_PATH="{folder.resolve()}"\nexec "$@"\n')
    run.chmod(0o755)


def _own_symbols() -> set[str]:
    text = "\n".join(source.read_text() for source in SOURCES)
    macros = r"(?:MAKES|PRODUCT|WORKSPACE|SAYS)\((\w+)"
    return set(re.findall(r"^API [^(]*?\b\**(\w+)\(", text, re.MULTILINE)) | set(re.findall(macros, text))


def _needed(own: set[str]) -> dict[str, dict[str, str | None]]:
    """Every library that torch's ones need, with the symbols that they take from it and each symbol's version."""
    libraries: dict[str, dict[str, str | None]] = {"libcuda.so.1": {}}
    symbols: dict[str, str | None] = dict.fromkeys(
        (*BY_TRITON, *(name for name in own if re.match(r"cu[A-Z]", name))), None
    )
    for library in sorted((SITE / "torch/lib").glob("lib*.so")):
        dynamic = _output("readelf", "-d", library)
        pattern = r"\[(lib(?:cu|nccl|nvrtc|nvshmem|nvJit|cupti)[\w.-]*)\]"
        libraries.update({name: libraries.get(name, {}) for name in re.findall(pattern, dynamic)})
        undefined = _output("nm", "-D", "--undefined-only", library)
        symbols.update(
            (found[1], found[2] or None)
            for found in re.finditer(rf"[UwV] ({CUDA}\w*)(?:@+(\S+))?$", undefined, re.MULTILINE)
        )
    for name, version in symbols.items():
        home = version if version in libraries else _home(name, version)
        if home in libraries:
            libraries[home][name] = version
        elif name not in own:
            raise SystemExit(f"{name}: expected one of the libraries {', '.join(sorted(libraries))}, got {version}.")
    return libraries


def _home(name: str, version: str | None) -> str | None:
    if version == "NVSHMEM":
        return UNVERSIONED["nvshmem"]
    return None if version else next((home for start, home in UNVERSIONED.items() if re.match(start, name)), None)


def _stubs(names: set[str]) -> list[str]:
    kinds = {name: ("const char *", '"paper"') if "String" in name else ("long", "0") for name in sorted(names)}
    return [
        "extern void paper_count(const char *);",
        *(f'{kind} {name}(void) {{ paper_count("{name}"); return {value}; }}' for name, (kind, value) in kinds.items()),
    ]


def _output(*command: object) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout  # type: ignore[call-overload]


if __name__ == "__main__":
    build(Path(sys.argv[1]))
