"""Compiles Triton's kernels for cards that are not here, as they are launched, and reads what the binary takes of a card."""

import importlib
import os
import re
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

TRITON = "addnorm.kernels.grouped_attention.triton"
MODULES = {
    "attend_rows": "forward",
    "differentiate_rows": "backward",
    "differentiate_keys": "backward",
    **dict.fromkeys(("sum_terms", "attend_sum", "differentiate_sum_rows", "differentiate_sum_keys"), "running"),
}
KIB = 1024
CARDS = {80: 163 * KIB, 86: 99 * KIB, 89: 99 * KIB, 90: 227 * KIB, 100: 227 * KIB, 120: 99 * KIB}
"""Shared memory that one program may take, by compute capability: CUDA's programming guide, technical specifications."""
NVIDIA = 32
"""Threads of a warp."""
MI300 = GPUTarget("hip", "gfx942", 64)
MI300_SHARED = 64 * KIB
"""Local data share of one program: AMD, CDNA 3 instruction set architecture."""
OPERANDS = ("q", "k", "v", "grad", "out")
POINTERS = {
    # Parameters stay in float32 under autocast, and what is made of them alone does, too.
    **dict.fromkeys(("bias", "distance", "weights", "log_sum", "delta", "total", "gradient", "ratio_at"), "*fp32"),
    "padding": "*u8",
    "seed": "*i64",
    "threshold": "i64",
    **dict.fromkeys(("share", "cap", "alpha", "beta", "above", "below"), "fp32"),
}
DIVISIBLE = (
    *("num_rows", "num_keys", "term_queries", "term_keys", "slab_entries"),
    *("bias_batch", "bias_head", "bias_row", "distance_head", "distance_first"),
)
"""Sizes that Triton finds to be multiples of 16 at usual shapes, for which it loads several numbers at once."""
PLAIN: dict[str, Any] = {
    **dict.fromkeys(("HAS_BIAS", "HAS_DISTANCE", "HAS_PADDING", "DROPS", "CAPPED", "SCALED", "BIAS_NEEDED"), False),
    **dict.fromkeys(("WEIGHT_NEEDED", "FIRST", "LAST", "UPCAST"), False),
    **dict.fromkeys(("CAUSAL", "ALONE", "ADDS", "HAS_GRAD", "HAS_ABOVE"), True),
    "WINDOW": 0,
}
"""Causal attention of one term, or a layer in the middle of a running sum."""


@dataclass(frozen=True)
class Taken:
    """What a program of a compiled kernel takes."""

    shared: int
    """Bytes of shared memory."""
    registers: int
    """Of each thread."""
    spilled: int
    """Bytes of each thread that are in memory instead of registers."""
    tensor_cores: bool
    """True if it multiplies by them."""


def compiled(
    kernel: str, launch: dict[str, int], *, width: int, dtype: str, capability: int, switches: dict[str, Any]
) -> Taken:
    """Compile a kernel.

    Args:
        kernel: its name.
        launch: the keyword arguments of its launch: tiles, warps, stages.
        width: of queries, keys and values.
        dtype: of the operands, in Triton's words.
        capability: 90 for compute capability 9.0.
        switches: compile-time constants other than PLAIN's.
    """
    target = GPUTarget("cuda", capability, NVIDIA)
    return taken_of(_binary(kernel, launch, width=width, dtype=dtype, target=target, switches=switches))


def compiled_for_mi300(kernel: str, launch: dict[str, int], *, width: int, switches: dict[str, Any]) -> Taken:
    """Compile a kernel of bfloat16 for MI300, whose registers are counted and spilled per thread of 64."""
    binary = _binary(kernel, launch, width=width, dtype="bf16", target=MI300, switches=switches)
    return taken_of_mi300(binary)


def taken_of_mi300(binary: Any) -> Taken:
    """What a program compiled for MI300 takes."""
    text = binary.asm["amdgcn"]
    (registers,), (spilled,) = (re.findall(rf"\.vgpr_{name}:\s*(\d+)", text) for name in ("count", "spill_count"))
    return Taken(binary.metadata.shared, int(registers), 4 * int(spilled), "v_mfma" in text)


def compiled_balance(kernel: str, streams: int, target: GPUTarget) -> Any:
    """Compile a kernel of `sinkhorn` as it is launched for float32 logits, a position's lying side by side."""
    module = importlib.import_module("addnorm.kernels.depth_mixing.balancing")
    function, sizes = getattr(module, kernel), module.launch_of(streams, 20)
    warps = sizes.pop("num_warps")
    tensors = ("logits", "above", "gradient", "out")
    signature = {
        name: "constexpr" if name.isupper() else "*fp32" if name in tensors else "fp32" if name == "eps" else "i32"
        for name in function.arg_names
    }
    return triton.compile(ASTSource(function, signature, sizes, {}), target=target, options={"num_warps": warps})


def _binary(
    kernel: str, launch: dict[str, int], *, width: int, dtype: str, target: GPUTarget, switches: dict[str, Any]
) -> Any:
    function = getattr(importlib.import_module(f"{TRITON}.{MODULES[kernel]}"), kernel)
    block = max(16, triton.next_power_of_2(width))
    constants = {**PLAIN, **dict.fromkeys(("HEAD_DIM", "VALUE_DIM"), width), **switches}
    constants |= {"BLOCK_DIM": block, "BLOCK_VALUE": block, **launch}
    options = {name: constants.pop(name) for name in ("num_warps", "num_stages")}
    signature, attributes = {}, {}
    for place, name in enumerate(function.arg_names):
        if name.isupper():
            signature[name] = "constexpr"
            continue
        operand = f"*{dtype}" if name in OPERANDS else "*fp32" if name.startswith("d_") else "i32"
        signature[name] = POINTERS.get(name, operand)
        if signature[name].startswith("*") or name in DIVISIBLE:
            attributes[place,] = [["tt.divisibility", 16]]
    for name in _ones(kernel, constants):
        if name in signature:
            signature[name], constants[name] = "constexpr", 1
    own = {name: value for name, value in constants.items() if name in signature}
    source = ASTSource(function, signature, own, attributes)
    return triton.compile(source, target=target, options=options)


def _ones(kernel: str, constants: dict[str, Any]) -> list[str]:
    """Sizes that are 1 at usual shapes, which Triton makes constants: a loop over one term is then none, and what lies around
    it gets stages of its own, in shared memory."""
    # One kernel leaves the number of terms open, and a sum is begun anew where there are several.
    terms = ["num_terms"] if constants["ALONE"] and kernel not in ("sum_terms", "differentiate_rows") else []
    return terms + (["bias_column"] if constants["HAS_BIAS"] else [])


def taken_of(binary: Any) -> Taken:
    """What a program compiled for a card of NVIDIA's takes."""
    tool = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(binary.asm["cubin"])
        file.flush()
        printed = subprocess.run([tool, "--dump-resource-usage", file.name], capture_output=True, text=True, check=True)
    used = dict(re.findall(r"\b(REG|STACK|LOCAL):(\d+)", printed.stdout))
    # wgmma of Hopper, tcgen05 of data-centre Blackwell, mma of all others
    multiplies = re.search(r"\b(mma\.sync|wgmma\.|tcgen05\.mma)", binary.asm["ptx"]) is not None
    return Taken(binary.metadata.shared, int(used["REG"]), int(used["STACK"]) + int(used["LOCAL"]), multiplies)


os.environ["TRITON_INTERPRET"] = "0"
