"""Equivalence of two models: whether they differ only along directions that leave the output unchanged.

Both tests have to agree: the numbers that no rewrite touches are equal and the others differ by a null vector and by
rounding (`agreement/parameters.py`), and the outputs on fresh inputs differ by rounding (`agreement/outputs.py`). If the
parameters differ otherwise, the second model's feed-forward units and heads are put into the first one's order, and the
parameters are compared again.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import nn

from addnorm.redundancy.agreement.numbers import (
    check_same_names,
    equal_numbers,
    unequal_settings,
    unstored_buffers,
    with_zero_biases,
)
from addnorm.redundancy.agreement.outputs import OutputAgreement, OutputComparison
from addnorm.redundancy.agreement.parameters import ParameterAgreement, compare_parameters
from addnorm.redundancy.agreement.unit_order import reordered
from addnorm.redundancy.analysis import audit, check_options
from addnorm.redundancy.execution.checks import check_inputs, check_model
from addnorm.redundancy.execution.copies import PROCESS_LOCK
from addnorm.redundancy.execution.inputs import bind
from addnorm.redundancy.execution.observation import Observe
from addnorm.redundancy.execution.tracked_parameters import track_parameters
from addnorm.redundancy.graph.null_space import NullSpace


@dataclass(frozen=True, kw_only=True)
class Equivalence:
    """Result of a comparison of two models. True in a boolean context if they are equivalent."""

    equivalent: bool
    """True if parameters and outputs both agree: the parameters are equal up to the null space, the order of units and the
    rounding of what a rewrite touches, and this rounding explains every difference of the outputs."""
    difference: float
    """Difference of the parameter's entry that is farthest apart, relative to its bound, in canonical form."""
    parameter: str
    """Name of that parameter; empty if all stored numbers are equal."""
    bound: float
    """Difference of that entry that the rounding of its number format explains; zero if no rewrite touches it."""
    moved: float
    """Largest difference of a parameter without the canonical form."""
    outputs: OutputAgreement
    """Comparison of the outputs in float64, on inputs that the audit has not used."""
    reordered: tuple[str, ...] = ()
    """Parameters that are equal only once the units or heads of both models are in the same order."""
    rounded_to: str = ""
    """Number format to which the weights of one model are those of the other rounded; empty if they are not."""
    unstored: tuple[str, ...] = ()
    """Buffers that no file holds (rotary tables, masks) and that differ. The outputs decide whether they matter."""
    settings: tuple[str, ...] = ()
    """Plain attributes of modules and configurations that differ. A window or a length may act beyond the inputs tested."""

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
            "same_computation": self.outputs.same_computation,
            "inputs": self.outputs.inputs,
            "reordered": list(self.reordered),
            "rounded_to": self.rounded_to,
            "unstored": list(self.unstored),
            "settings": list(self.settings),
        }


def equivalent(
    a: nn.Module, b: nn.Module, inputs: Any, *, observe: Observe = "logits", training: bool = False
) -> Equivalence:
    """Test whether two models of one architecture differ only along directions that change nothing.

    Of all stored numbers, a rewrite touches biases that can move along the null space, and the running means of batch norms
    behind them. Every other parameter and buffer must hold the same numbers in both models, in whatever type: a
    difference by one unit in the last place is one. Touched biases may differ by a null direction and by the rounding of
    the stored sums in the coarser of both types. Biases that only one model has count as zeros in the other: stripped
    models are equivalent to the original and to each other.

    Outputs are compared in float64 on fresh inputs. With equal numbers they may differ by float64's own rounding alone, so
    that another epsilon, flag or hook is a difference; else by the rounding of the touched biases too. An update of touched
    biases alone that is not larger than their rounding cannot be told from it.

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
        InputError: the models' weights differ in name or shape, a model cannot be audited, or the inputs do not fit.
        UnknownName: unknown observation.
    """
    check_options(observe, "both")
    check_model(a)
    check_model(b)
    bound = bind(inputs)
    check_inputs(bound)
    first, second = with_zero_biases(a, like=b), with_zero_biases(b, like=a)
    check_same_names(first, second)
    with PROCESS_LOCK, torch.autocast("cpu", enabled=False), torch.inference_mode(False):
        tracked = track_parameters(first, bound)

        @cache
        def null_space() -> NullSpace:
            # The numerical method runs where the model does not export; elsewhere the outputs are compared below.
            subject = audit(first, inputs, observe=observe, training=training, methods="static").subject
            assert subject is not None  # a tracked parameter differs
            return subject.null_space

        def compared(other: nn.Module) -> ParameterAgreement:
            return compare_parameters(first, other, tracked, null_space, training=training)

        def outputs_of(other: nn.Module, parameters: ParameterAgreement) -> OutputAgreement:
            comparison = OutputComparison(
                first=first, second=other, inputs=bound, tracked=tracked, observe=observe, training=training
            )
            return comparison.agreement(parameters.rounding)

        parameters = compared(second)
        outputs = outputs_of(second, parameters)
        order: tuple[str, ...] = ()
        if not parameters.agreed:
            parameters, outputs, order = _in_one_order(first, second, parameters, outputs, compared, outputs_of)
    return Equivalence(
        equivalent=parameters.agreed and outputs.agreed,
        difference=parameters.difference,
        parameter=parameters.parameter,
        bound=parameters.bound,
        moved=parameters.moved,
        outputs=outputs,
        reordered=order,
        rounded_to=parameters.rounded_to,
        unstored=_unequal(unstored_buffers(first), unstored_buffers(second)),
        settings=unequal_settings(first, second),
    )


def _in_one_order(
    first: nn.Module,
    second: nn.Module,
    parameters: ParameterAgreement,
    outputs: OutputAgreement,
    compared: Callable[[nn.Module], ParameterAgreement],
    outputs_of: Callable[[nn.Module, ParameterAgreement], OutputAgreement],
) -> tuple[ParameterAgreement, OutputAgreement, tuple[str, ...]]:
    """Both comparisons with the second model's units in the first one's order, and the permuted parameters, if they then
    agree; those without an order otherwise."""
    candidate, names = reordered(second, first)
    if names and outputs.same_computation:
        # Without equal functions of equal numbers no order of units can help.
        again = compared(candidate)
        if again.agreed:
            in_order = outputs_of(candidate, again)
            # The given second model has to compute the same as in the first one's order, not only its reordered copy.
            if in_order.agreed and outputs.difference <= in_order.bound and not outputs.integers_changed:
                return again, in_order, names
    return parameters, outputs, ()


def _unequal(ours: dict[str, torch.Tensor], theirs: dict[str, torch.Tensor]) -> tuple[str, ...]:
    return tuple(
        name
        for name in {**ours, **theirs}
        if name not in ours or name not in theirs or not equal_numbers(ours[name], theirs[name])
    )
