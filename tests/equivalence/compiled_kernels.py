"""Compiles Triton kernels for GPUs that are not here, in a process without the interpreter."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence

SCRIPT = """
import importlib, json, sys, triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

kernels, switches = json.loads(sys.argv[1])
POINTERS = {
    **dict.fromkeys(("q", "k", "v", "grad", "out", "bias", "distance"), "*bf16"),
    **dict.fromkeys(("weights", "log_sum", "delta", "total", "gradient"), "*fp32"),
    **{"padding": "*u8", "seed": "*i64"},
    **{"threshold": "i64"}, **dict.fromkeys(("share", "alpha", "beta", "factor", "above", "below", "ratio"), "fp32"),
}
found = {}
for module, names in kernels.items():
    module = importlib.import_module(f"addnorm.kernels.grouped_attention.triton.{module}")
    for kernel in (getattr(module, name) for name in names):
        for capability in (80, 90):
            signature, constants = {}, {}
            for name in kernel.arg_names:
                if name in switches:
                    constants[name], signature[name] = switches[name], "constexpr"
                else:
                    signature[name] = POINTERS.get(name, "*fp32" if name.startswith("d_") else "i32")
            source = ASTSource(kernel, signature, constants)
            binary = triton.compile(source, target=GPUTarget("cuda", capability, 32), options={"num_warps": 8})
            found[f"{kernel.__name__} {capability}"] = [binary.metadata.shared, len(binary.asm["cubin"])]
print(json.dumps(found))
"""
SWITCHES = {
    **dict.fromkeys(("HEAD_DIM", "VALUE_DIM", "BLOCK_DIM", "BLOCK_VALUE"), 64),
    **dict.fromkeys(("CAUSAL", "HAS_BIAS", "HAS_DISTANCE", "HAS_PADDING", "DROPS"), True),
    "WINDOW": 256,
    "UPCAST": False,
}


def assert_compiles(kernels: Mapping[str, Sequence[str]], **switches: int | bool) -> None:
    """Compile kernels for compute capability 8.0 and 9.0 with bfloat16 operands; assert that a multiprocessor holds them.

    Args:
        kernels: their names by module of the triton folder.
        switches: compile-time constants beside those above.
    """
    environment = {**os.environ, "TRITON_INTERPRET": "0", "TRITON_DEFAULT_FP_FUSION": "1"}
    given = json.dumps([kernels, {**SWITCHES, **switches}])
    command = [sys.executable, "-c", SCRIPT, given]
    run = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=600)
    assert run.returncode == 0, run.stderr[-2000:]
    found = json.loads(run.stdout)
    assert len(found) == 2 * sum(len(names) for names in kernels.values())
    for name, (shared, size) in found.items():
        # What one program may take: 163 KiB on compute capability 8.0, 227 KiB on 9.0.
        assert shared <= (163 if name.endswith("80") else 227) * 1024, name
        assert size > 0
