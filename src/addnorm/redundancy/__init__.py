"""Which biases of any PyTorch model cannot matter: proof, certificate and removal. Knows torch, knows none of our rooms.

    audit = addnorm.audit(model, inputs)
    for finding in audit.findings:
        print(finding.parameter, finding.verdict, finding.redundant_dof, finding.reason)
    smaller, certificate = audit.strip()

`addnorm.audit` is both this package and the function: calling the package runs `analyse`, and `from addnorm.audit import audit`
gives the package, which can be called.
"""

import inspect
import sys
from types import ModuleType
from typing import TYPE_CHECKING

from addnorm.redundancy.analysis import analyse
from addnorm.redundancy.finding import Blocked, Directions, Finding, Fold
from addnorm.redundancy.lint import lint
from addnorm.redundancy.result import Audit
from addnorm.redundancy.rewriting.canonical import Equivalence, equivalent
from addnorm.redundancy.rewriting.certificate import Certificate, Compared

if TYPE_CHECKING:
    from addnorm.redundancy.analysis import analyse as audit

__all__ = [
    "Audit",
    "Blocked",
    "Certificate",
    "Compared",
    "Directions",
    "Equivalence",
    "Finding",
    "Fold",
    "analyse",
    "audit",
    "equivalent",
    "lint",
]


class _Callable(ModuleType):
    # Importing any file of this package binds `addnorm.audit` to the package, whatever a lazy table says, so the package itself
    # answers calls.
    __call__ = staticmethod(analyse)


_module = sys.modules[__name__]
_module.__class__ = _Callable
vars(_module)["__signature__"] = inspect.signature(analyse)
if not TYPE_CHECKING:
    audit = _module
