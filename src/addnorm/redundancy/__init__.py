"""Which biases of any PyTorch model cannot matter: proof, certificate and removal. Knows torch, knows none of our
rooms.

audit = addnorm.audit(model, inputs)
for finding in audit.findings:
    print(finding.parameter, finding.verdict, finding.redundant_dof, finding.reason)
smaller, certificate = audit.strip()
"""

from addnorm.redundancy.analysis import audit
from addnorm.redundancy.equivalence import Equivalence, equivalent
from addnorm.redundancy.lint import lint
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
