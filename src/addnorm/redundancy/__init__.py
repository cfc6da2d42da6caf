"""Redundant biases of any PyTorch model: proof, removal and certificate. Depends on torch only, on no other room.

    audit = addnorm.audit(model, inputs)
    for finding in audit.findings:
        print(finding.parameter, finding.verdict, finding.redundant_dof, finding.reason)
    smaller, certificate = audit.strip()

The stages, each of which imports only the ones after it (`derivation.md` has the mathematics):

    linter, equivalence, analysis, result    the public functions, and the result that they share
    agreement      parameters and outputs of two models, compared up to the null space
    rewriting      removal plan, folds, canonical form, transfer to a larger model, certificate
    verdict        comparison of the two methods, and the finding per parameter
    numeric        the numerical method: gradients and finite moves
    graph          the static method: export, propagation, rules, elimination, null space
    execution      copies, inputs, tracked parameters, float64
    algebra        ranks, linear maps
"""

from addnorm.redundancy.analysis import audit
from addnorm.redundancy.equivalence import Equivalence, equivalent
from addnorm.redundancy.linter import lint
from addnorm.redundancy.result import Audit
from addnorm.redundancy.rewriting.certificate import Certificate, Compared
from addnorm.redundancy.verdict.finding import Blocked, Directions, Finding, Fold

__all__ = [
    "Audit",
    "Blocked",
    "Certificate",
    "Compared",
    "Directions",
    "Equivalence",
    "Finding",
    "Fold",
    "audit",
    "equivalent",
    "lint",
]
