"""What an audit found, and what can be done with it."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from addnorm.errors import InputError, UnknownName
from addnorm.redundancy.finding import Finding
from addnorm.redundancy.rewriting.canonical_form import canonicalize
from addnorm.redundancy.rewriting.certificate import Certificate
from addnorm.redundancy.rewriting.strip import strip
from addnorm.redundancy.rewriting.transfer import carry
from addnorm.redundancy.subject import Subject


@dataclass(frozen=True, kw_only=True)
class Audit:
    """Which of a model's additive parameters cannot matter.

    The model is described at a generic point: weights that are still at a special start (all zeros, all ones) are moved off
    it first, on a copy, because what looks redundant only there would not stay so.
    """

    model: str
    """The model's class."""
    findings: tuple[Finding, ...]
    """One per parameter looked at, in the model's order."""
    joint_null: int
    """Dimension of the space of joint moves of all these parameters that change nothing observed."""
    size: int
    """Number of scalars looked at."""
    assumptions: tuple[str, ...]
    """What the verdicts rest on: lengths, masks, what counts as the output."""
    observe: str
    """What must not change: `logits`, `softmax` or `loss`."""
    training: bool
    """Whether the model was looked at in training mode."""
    methods: str
    """`both`, `static` or `numeric`: what did run, which is less than was asked for where a note says so."""
    notes: tuple[str, ...] = ()
    """Sentences on how far the methods reached."""
    disagreements: tuple[str, ...] = ()
    """Where two methods spoke and contradict each other, one sentence each. A parameter that one method alone could not decide
    is `undecided` without being listed here."""
    numeric_joint_null: int | None = None
    """`joint_null` as the numerical method counts it; None where it did not count."""
    versions: dict[str, str] = field(default_factory=dict)
    """Of addnorm, torch and Python."""
    seconds: dict[str, float] = field(default_factory=dict)
    """Wall-clock time per method, and `total`."""
    certificate: "dict[str, Any] | None" = None
    """Filled in by whoever stripped the model and prints both."""
    subject: Subject | None = field(default=None, repr=False, compare=False)
    """The model and the inputs, for `strip` and `canonicalize`; not part of the JSON."""

    @property
    def agreed(self) -> bool:
        """Whether no two methods contradict each other."""
        return not self.disagreements

    def finding(self, parameter: str) -> Finding:
        """The finding about one parameter.

        Raises:
            UnknownName: it was not looked at.
        """
        for finding in self.findings:
            if finding.parameter == parameter:
                return finding
        raise UnknownName("finding about", parameter, [finding.parameter for finding in self.findings])

    def strip(self, *, prefer: Sequence[str] = (), max_amplification: float = 5.0) -> tuple[nn.Module, Certificate]:
        """A copy of the model without the parameters that cannot matter, and the proof that its output is the same.

        Where the class allows it a parameter is gone (`bias=None`), elsewhere it is zeros that no longer train. Folds that
        multiply by a weight come before those that need its inverse.

        Args:
            prefer: regular expressions over parameter names: what to remove first, where not all can go.
            max_amplification: largest number that takes over, relative to the largest it replaces.

        Raises:
            InputError: the model has changed since the audit, `prefer` names nothing that can go, or the null space of a
                model that does not export is too large to be found numerically.
        """
        return strip(self._subject(), self.findings, prefer=prefer, max_amplification=max_amplification)

    def carry(self, model: nn.Module, inputs: Any, *, max_amplification: float = 5.0) -> tuple[nn.Module, Certificate]:
        """The rewrite of another model of the same class, of more layers or other widths, from this audit: for a model whose
        own audit would not fit into memory.

        What `strip` would do here is explained as products of weights and repeated in every layer there, with that model's
        weights. The certificate is about that model: in float64, computed operation by operation, and in its own precision.
        What no product of weights explains stays, and the certificate's `left` says why.

        Args:
            model: the other model.
            inputs: what it takes.
            max_amplification: as for `strip`.

        Returns:
            The rewritten model, which shares all weights that did not change with the one given, and the certificate.

        Raises:
            InputError: another class, or this audit is of training mode or found no null space.
        """
        return carry(self._subject(), self.findings, model, inputs, max_amplification=max_amplification)

    def canonicalize(self) -> nn.Module:
        """A copy of the model with the smallest parameters (least sum of squares over those looked at) of all models that
        compute the same. Its state dict has the same names and shapes.

        Raises:
            InputError: as for `strip`.
            JobError: its output differs from the model's by more than rounding.
        """
        return canonicalize(self._subject())

    def _subject(self) -> Subject:
        if self.subject is None:
            raise InputError("an audit read from JSON has no model to rewrite. Audit the model again.")
        return self.subject

    def to_json(self) -> dict[str, Any]:
        """What `addnorm audit --json` prints."""
        return {
            "model": self.model,
            "joint_null": self.joint_null,
            "size": self.size,
            "assumptions": list(self.assumptions),
            "findings": [finding.to_json() for finding in self.findings],
            "certificate": self.certificate,
            "observe": self.observe,
            "training": self.training,
            "methods": self.methods,
            "notes": list(self.notes),
            "disagreements": list(self.disagreements),
            "numeric_joint_null": self.numeric_joint_null,
            "versions": dict(self.versions),
            "seconds": dict(self.seconds),
        }


def class_name(model: nn.Module) -> str:
    """A model's class as reports name it."""
    return type(model).__qualname__
