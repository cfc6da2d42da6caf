"""addnorm: a PyTorch library and laboratory for how a Transformer's layers are joined."""

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

# torch takes seconds to import and half of the commands never need it, so public names are imported when first used.
_HOMES = {
    "preset": "addnorm.blocks.presets",
    "ModelSpec": "addnorm.blocks.spec",
    "generate": "addnorm.blocks.generation",
    "attend": "addnorm.kernels.grouped_attention",
    "load": "addnorm.lab.export",
    "load_spec": "addnorm.lab.export",
    "load_study": "addnorm.lab.load",
    "run": "addnorm.lab.run",
    "audit": "addnorm.audit",
    "equivalent": "addnorm.audit",
    "lint": "addnorm.audit",
    "open_runs": "addnorm.store",
}

if TYPE_CHECKING:
    from addnorm.audit import audit as audit
    from addnorm.audit import equivalent as equivalent
    from addnorm.audit import lint as lint
    from addnorm.blocks.generation import generate as generate
    from addnorm.blocks.presets import preset as preset
    from addnorm.blocks.spec import ModelSpec as ModelSpec
    from addnorm.kernels.grouped_attention import attend as attend
    from addnorm.lab.export import load as load
    from addnorm.lab.export import load_spec as load_spec
    from addnorm.lab.load import load_study as load_study
    from addnorm.lab.run import run as run
    from addnorm.store import open_runs as open_runs

__all__ = [
    "ModelSpec",
    "__version__",
    "attend",
    "audit",
    "equivalent",
    "generate",
    "lint",
    "load",
    "load_spec",
    "load_study",
    "open_runs",
    "preset",
    "run",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'addnorm' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
