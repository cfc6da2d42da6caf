"""`Audit`, the result of an audit, and the rewrites that start from it."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from addnorm.errors import InputError, UnknownName
from addnorm.redundancy.execution.copies import plain_copy
from addnorm.redundancy.rewriting.audited_model import AuditedModel
from addnorm.redundancy.rewriting.canonical_form import canonicalize
from addnorm.redundancy.rewriting.certificate import Certificate
from addnorm.redundancy.rewriting.strip import strip
from addnorm.redundancy.rewriting.transfer import transfer
from addnorm.redundancy.verdict.finding import Finding, InJson


@dataclass(frozen=True, kw_only=True)
class Audit(InJson):
    """The result of an audit: which of a model's additive parameters are redundant.

    The verdicts describe the model at a generic point. Weights at a special initial value (all zeros, all ones) are
    moved off it on a copy, because a parameter that is redundant only there becomes effective during training.

    Example:
        >>> import torch
        >>> layer = torch.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, dropout=0.0).eval()
        >>> result = addnorm.audit(layer, torch.randn(2, 5, 16))
        >>> isinstance(result, Audit), result.joint_null
        (True, 50)
    """

    model: str
    """Class of the model."""
    joint_null: int
    """Dimension of the space of joint moves of all tracked parameters that leave the observed output unchanged."""
    size: int
    """Number of tracked scalars."""
    assumptions: tuple[str, ...]
    """Conditions of the verdicts: input lengths, masks, the observed output."""
    findings: tuple[Finding, ...]
    """One finding per tracked parameter, in the model's order."""
    certificate: "dict[str, Any] | None" = None
    """JSON of a certificate that is reported together with the audit."""
    observe: str
    """The observed output: `logits`, `softmax` or `loss`."""
    observed: tuple[str, ...] = ()
    """The parts of the model's output that must not change, by name; with their type unless they are floating-point
    numbers."""
    unobserved: tuple[str, ...] = ()
    """The other parts: auxiliary fields of a Transformers output, and objects without numbers."""
    training: bool
    """True if the model was analysed in training mode."""
    methods: str
    """The methods that ran: `both`, `static` or `numeric`. A note explains why a requested one did not."""
    notes: tuple[str, ...] = ()
    """Sentences about the scope of the methods."""
    disagreements: tuple[str, ...] = ()
    """One sentence per contradiction between the two methods. A parameter that a single method could not decide is
    `undecided` without being listed here."""
    numeric_joint_null: int | None = None
    """`joint_null` according to the numerical method; None if it did not count."""
    versions: dict[str, str] = field(default_factory=dict)
    """Versions of addnorm, torch and Python."""
    seconds: dict[str, float] = field(default_factory=dict)
    """Wall-clock time per method, and `total`."""
    subject: AuditedModel | None = field(default=None, repr=False, compare=False)
    """The model and its null spaces, for the rewrites; not part of the JSON."""

    def __repr__(self) -> str:
        """One line; `print` shows the findings, and `to_json` has everything."""
        counts = Counter(finding.verdict for finding in self.findings)
        verdicts = ", ".join(f"{count} {verdict}" for verdict, count in counts.most_common()) or "no parameters"
        contradictions = f"; {len(self.disagreements)} contradictions" if self.disagreements else ""
        redundant = f"{self.joint_null} of {self.size} numbers redundant"
        return f"<Audit of {self.model}: {redundant}; parameters: {verdicts}{contradictions}>"

    def __str__(self) -> str:
        rows = (f"  {each.parameter}: {each.verdict}. {each.reason}".rstrip(" .") for each in self.findings)
        return "\n".join((repr(self), *rows, *self.disagreements))

    @property
    def agreed(self) -> bool:
        """True if the two methods do not contradict each other."""
        return not self.disagreements

    def finding(self, parameter: str) -> Finding:
        """Return the finding about one parameter.

        Raises:
            UnknownName: the parameter was not tracked.
        """
        for finding in self.findings:
            if finding.parameter == parameter:
                return finding
        raise UnknownName("finding about", parameter, [finding.parameter for finding in self.findings])

    def strip(
        self, *, prefer: Sequence[str] = (), max_amplification: float = 5.0, keep_float32_biases: bool = False
    ) -> tuple[nn.Module, Certificate]:
        """Return a copy of the model without its redundant and foldable parameters, and a certificate that the output
        is equal.

        A parameter is set to None (`bias=None`) where its class allows it, and to zeros that are not trained elsewhere.
        Folds that multiply by a weight are preferred to those that need its inverse.

        Example:

            >>> import torch, addnorm
            >>> layer = torch.nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True).eval()
            >>> smaller, certificate = addnorm.audit(layer, torch.randn(2, 5, 8)).strip()
            >>> certificate.passed
            True

        Args:
            prefer: regular expressions over parameter names: the parameters to remove first if not all can be removed.
            max_amplification: largest change of a parameter that absorbs another, relative to the largest number
                removed.
            keep_float32_biases: in a model stored in bfloat16 or float16, store the parameters that absorb others in
                float32, so that their sums are not rounded. Their modules then compute in float32; those that a fused
                kernel reads stay as they are (the certificate's `float32` lists the others).

        Raises:
            InputError: the model has changed since the audit, `prefer` matches no removable parameter, or the null
                space of a model that does not export is too large for the numerical method.
        """
        return strip(
            self._audited_model(),
            self.findings,
            prefer=prefer,
            max_amplification=max_amplification,
            keep_float32_biases=keep_float32_biases,
        )

    def transfer(
        self, model: nn.Module, inputs: Any, *, max_amplification: float = 5.0, keep_float32_biases: bool = False
    ) -> tuple[nn.Module, Certificate]:
        """Rewrite a larger model of the same class, with more layers or other widths, as `strip` rewrites this one.

        Use it for a model that is too large to be audited itself. Every fold of this model is expressed as products of
        weights, which are evaluated in each layer of the larger model with that model's weights. The certificate
        compares both large models in float64, computed operation by operation, and in their own precision. Parameters
        whose fold is not a product of weights stay; the certificate's `left` gives the reason.

        Example:

            >>> import torch, addnorm
            >>> def encoder(depth, width):
            ...     layer = torch.nn.TransformerEncoderLayer(width, 2, 2 * width, dropout=0.0, batch_first=True)
            ...     return torch.nn.TransformerEncoder(layer, depth, enable_nested_tensor=False).eval()
            >>> audit = addnorm.audit(encoder(2, 8), torch.randn(2, 5, 8), methods="static")
            >>> smaller, certificate = audit.transfer(encoder(3, 16), torch.randn(2, 5, 16))
            >>> certificate.passed
            True

        Args:
            model: the larger model.
            inputs: its inputs.
            max_amplification: as for `strip`.
            keep_float32_biases: as for `strip`.

        Returns:
            The rewritten model, which shares all unchanged weights with `model`, and the certificate.

        Raises:
            InputError: the models' classes differ, or this audit is of training mode or computed no null space.
        """
        return transfer(
            self._audited_model(),
            self.findings,
            model,
            inputs,
            max_amplification=max_amplification,
            keep_float32_biases=keep_float32_biases,
        )

    def carry(self, model: nn.Module, inputs: Any, *, max_amplification: float = 5.0) -> tuple[nn.Module, Certificate]:
        """Alias of `transfer`, its name in earlier versions."""
        return self.transfer(model, inputs, max_amplification=max_amplification)

    def canonicalize(self) -> nn.Module:
        """Return the canonical form: the copy whose tracked parameters have the least sum of squares among all models
        that compute the same function: a plain copy of a model without any. Its state dict has the same names and shapes.

        Example:

            >>> import torch, addnorm
            >>> layer = torch.nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True).eval()
            >>> x = torch.randn(2, 5, 8)
            >>> canonical = addnorm.audit(layer, x).canonicalize()
            >>> bool(addnorm.equivalent(layer, canonical, x))
            True

        Raises:
            InputError: as for `strip`.
            JobError: the outputs differ by more than rounding.
        """
        if self.subject is not None and not self.size:
            self.subject.check_unchanged()
            return plain_copy(self.subject.model)
        return canonicalize(self._audited_model())

    def _audited_model(self) -> AuditedModel:
        if not self.size:
            raise InputError(
                f"expected an audit with findings, got none: {self.model} has no parameter of the kind that was audited, so "
                "that nothing can be removed from it."
            )
        if self.subject is None:
            raise InputError("expected an audit that holds its model, got one read from JSON. Audit the model again.")
        return self.subject

    def to_json(self) -> dict[str, Any]:
        """Return the content of `addnorm audit --json`."""
        return {name: value for name, value in super().to_json().items() if name != "subject"}


def class_name(model: nn.Module) -> str:
    """Return the name of a model's class for reports."""
    return type(model).__qualname__
