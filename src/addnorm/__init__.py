"""addnorm: a PyTorch library for how a Transformer's layers are connected.

`__all__` lists the public names; docs/reference.md lists those of all public modules. All other modules are private.
"""

import importlib
from typing import TYPE_CHECKING, Any

from addnorm.errors import missing_extra
from addnorm.version import __version__

# torch takes seconds to import and half of the commands do not need it, so public names are imported when first used.
# No submodule of addnorm may have one of these names: importing it would replace the name here.
_HOMES = {
    "preset": "addnorm.model.presets",
    "ModelSpec": "addnorm.model.spec",
    "generate": "addnorm.model.generation",
    "joint": "addnorm.model.joint",
    "attend": "addnorm.kernels.grouped_attention",
    "load": "addnorm.training.export",
    "load_spec": "addnorm.training.export",
    "load_hf": "addnorm.outside.hugging_face.loading",
    "save_hf": "addnorm.outside.hugging_face.saving",
    "patch": "addnorm.outside.hugging_face.patching.attach",
    "unpatch": "addnorm.outside.hugging_face.patching.attach",
    "save_patch": "addnorm.outside.hugging_face.patching.adapter",
    "load_patch": "addnorm.outside.hugging_face.patching.adapter",
    "load_study": "addnorm.study.loading",
    "run": "addnorm.supervision.run",
    "rank": "addnorm.notebook.ranking",
    "trend": "addnorm.notebook.questions",
    "noise": "addnorm.notebook.questions",
    "judge": "addnorm.notebook.questions",
    "rule": "addnorm.notebook.questions",
    "downstream": "addnorm.notebook.questions",
    "speedup": "addnorm.notebook.questions",
    "predict_largest": "addnorm.store.questions.prediction",
    "explain": "addnorm.insight.scalars.explain",
    "inspect": "addnorm.insight.inspect",
    "scale_check": "addnorm.insight.scale_check",
    "ablate": "addnorm.insight.ablation",
    "depth_matrix": "addnorm.insight.depth",
    "identities": "addnorm.insight.depth",
    "early_exits": "addnorm.insight.early_exits",
    "equal_to": "addnorm.insight.port",
    "extrapolate": "addnorm.insight.extrapolation.extrapolate",
    "report": "addnorm.reporting.report",
    "audit": "addnorm.redundancy",
    "equivalent": "addnorm.redundancy",
    "lint": "addnorm.redundancy",
    "Audit": "addnorm.redundancy",
    "symmetries": "addnorm.symmetry",
    "Symmetries": "addnorm.symmetry",
    "open_runs": "addnorm.notebook",
}

if TYPE_CHECKING:
    from addnorm.insight.ablation import ablate as ablate
    from addnorm.insight.depth import depth_matrix as depth_matrix
    from addnorm.insight.depth import identities as identities
    from addnorm.insight.early_exits import early_exits as early_exits
    from addnorm.insight.extrapolation.extrapolate import extrapolate as extrapolate
    from addnorm.insight.inspect import inspect as inspect
    from addnorm.insight.port import equal_to as equal_to
    from addnorm.insight.scalars.explain import explain as explain
    from addnorm.insight.scale_check import scale_check as scale_check
    from addnorm.kernels.grouped_attention import attend as attend
    from addnorm.model.generation import generate as generate
    from addnorm.model.joint import joint as joint
    from addnorm.model.presets import preset as preset
    from addnorm.model.spec import ModelSpec as ModelSpec
    from addnorm.notebook import open_runs as open_runs
    from addnorm.notebook.questions import judge as judge
    from addnorm.notebook.questions import noise as noise
    from addnorm.notebook.ranking import rank as rank
    from addnorm.outside.hugging_face.loading import load_hf as load_hf
    from addnorm.outside.hugging_face.patching.adapter import load_patch as load_patch
    from addnorm.outside.hugging_face.patching.adapter import save_patch as save_patch
    from addnorm.outside.hugging_face.patching.attach import patch as patch
    from addnorm.outside.hugging_face.patching.attach import unpatch as unpatch
    from addnorm.outside.hugging_face.saving import save_hf as save_hf
    from addnorm.redundancy import Audit as Audit
    from addnorm.redundancy import audit as audit
    from addnorm.redundancy import equivalent as equivalent
    from addnorm.redundancy import lint as lint
    from addnorm.reporting.report import report as report
    from addnorm.store.questions.prediction import predict_largest as predict_largest
    from addnorm.study.loading import load_study as load_study
    from addnorm.supervision.run import run as run
    from addnorm.symmetry import Symmetries as Symmetries
    from addnorm.symmetry import symmetries as symmetries
    from addnorm.training.export import load as load
    from addnorm.training.export import load_spec as load_spec

__all__ = [
    "Audit",
    "ModelSpec",
    "Symmetries",
    "__version__",
    "ablate",
    "attend",
    "audit",
    "depth_matrix",
    "downstream",
    "early_exits",
    "equal_to",
    "equivalent",
    "explain",
    "extrapolate",
    "generate",
    "identities",
    "inspect",
    "joint",
    "judge",
    "lint",
    "load",
    "load_hf",
    "load_patch",
    "load_spec",
    "load_study",
    "noise",
    "open_runs",
    "patch",
    "predict_largest",
    "preset",
    "rank",
    "report",
    "rule",
    "run",
    "save_hf",
    "save_patch",
    "scale_check",
    "speedup",
    "symmetries",
    "trend",
    "unpatch",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        try:
            return getattr(importlib.import_module(_HOMES[name]), name)
        except ModuleNotFoundError as error:
            advice = missing_extra(error)
            if advice is None:
                raise
            # No AttributeError: `hasattr` would then say that there is no such name.
            raise ModuleNotFoundError(f"addnorm.{name}: {advice}", name=error.name) from error
    raise AttributeError(f"module 'addnorm' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
