"""Equivalence of two models: whether they differ only along directions that leave the output unchanged.

Both tests have to agree: the parameters differ by a null vector and by rounding (`agreement/parameters.py`), and the
outputs on fresh inputs by rounding (`agreement/outputs.py`). If the parameters differ otherwise, the second model's
feed-forward units and heads are put into the first one's order, and the parameters are compared again.
"""

from dataclasses import dataclass
from typing import Any

from torch import nn

from addnorm.redundancy.agreement.outputs import OutputAgreement, compare_outputs
from addnorm.redundancy.agreement.parameters import ParameterAgreement, compare_parameters
from addnorm.redundancy.agreement.unit_order import reordered
from addnorm.redundancy.analysis import audit
from addnorm.redundancy.execution.checks import check_model
from addnorm.redundancy.execution.copies import PROCESS_LOCK
from addnorm.redundancy.execution.observation import Observe
from addnorm.redundancy.rewriting.audited_model import AuditedModel


@dataclass(frozen=True, kw_only=True)
class Equivalence:
    """Result of a comparison of two models. True in a boolean context if they are equivalent."""

    equivalent: bool
    """True if parameters and outputs both agree: the parameters are equal up to the null space, the order of units and
    rounding, and rounding explains every difference of the outputs."""
    difference: float
    """Difference of the parameter's entry that is farthest apart, relative to its bound, in canonical form."""
    parameter: str
    """Name of that parameter."""
    bound: float
    """Difference of that entry that the rounding of its number format explains."""
    moved: float
    """Largest difference of a parameter without the canonical form."""
    outputs: OutputAgreement
    """Comparison of the outputs in float64, on inputs that the audit has not used."""
    reordered: tuple[str, ...] = ()
    """Parameters that are equal only once the units or heads of both models are in the same order."""

    @property
    def parameters_agree(self) -> bool:
        """True if the parameters differ only by the null space, the order of units and rounding."""
        return self.difference <= self.bound

    def __bool__(self) -> bool:
        return self.equivalent

    def to_json(self) -> dict[str, Any]:
        """Return the content of `addnorm audit --diff --json`."""
        return {
            "equivalent": self.equivalent,
            "difference": self.difference,
            "parameter": self.parameter,
            "bound": self.bound,
            "moved": self.moved,
            "parameters_agree": self.parameters_agree,
            "outputs_agree": self.outputs.agreed,
            "output_difference": self.outputs.difference,
            "output_bound": self.outputs.bound,
            "output_integers_changed": self.outputs.integers_changed,
            "inputs": self.outputs.inputs,
            "reordered": list(self.reordered),
        }


def equivalent(
    a: nn.Module, b: nn.Module, inputs: Any, *, observe: Observe = "logits", training: bool = False
) -> Equivalence:
    """Test whether two models of one architecture differ only along directions that change nothing.

    Biases that only one of the two models has count as zeros in the other: a stripped model is equivalent to the
    original. Parameters that no rewrite touches must be equal up to a few units in the last place of each entry, the
    others up to the null space and the rounding of a fold. Both models are also called on fresh inputs; a difference of
    their outputs that rounding does not explain refutes equivalence.

    Example:

        >>> import torch, addnorm
        >>> layer = torch.nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True).eval()
        >>> x = torch.randn(2, 5, 8)
        >>> smaller, _ = addnorm.audit(layer, x).strip()
        >>> bool(addnorm.equivalent(layer, smaller, x))
        True

    Args:
        a: one model.
        b: the other model.
        inputs: inputs of both.
        observe: the observed output.
        training: compare in training mode.

    Raises:
        InputError: the models' weights differ in name or shape, or a model cannot be audited.
    """
    check_model(a)
    check_model(b)
    first, second = (b, a) if _count(b) > _count(a) else (a, b)
    subject = audit(first, inputs, observe=observe, training=training).subject
    assert subject is not None
    with PROCESS_LOCK:
        parameters, outputs = _compared(subject, second)
        order: tuple[str, ...] = ()
        if not parameters.agreed:
            candidate, names = reordered(second, first)
            if names:
                again = _compared(subject, candidate)
                if again[0].agreed and again[1].agreed:
                    (parameters, outputs), order = again, names
    return Equivalence(
        equivalent=parameters.agreed and outputs.agreed,
        difference=parameters.difference,
        parameter=parameters.parameter,
        bound=parameters.bound,
        moved=parameters.moved,
        outputs=outputs,
        reordered=order,
    )


def _compared(subject: AuditedModel, other: nn.Module) -> tuple[ParameterAgreement, OutputAgreement]:
    parameters = compare_parameters(
        subject.model, other, subject.tracked, subject.null_space, training=subject.training
    )
    return parameters, compare_outputs(
        subject.model,
        other,
        subject.inputs,
        subject.tracked,
        subject.observe,
        parameters.rounding,
        training=subject.training,
    )


def _count(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())
