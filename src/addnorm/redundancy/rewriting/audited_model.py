"""A model together with the null spaces that its audit computed: the input of every rewrite."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from torch import nn

from addnorm.errors import InputError
from addnorm.redundancy.execution.inputs import Inputs
from addnorm.redundancy.execution.observation import Observe
from addnorm.redundancy.execution.tracked_parameters import TrackedParameters
from addnorm.redundancy.graph.null_space import NullSpace


@dataclass(frozen=True, kw_only=True)
class AuditedModel:
    """The model as passed to the audit, and its null spaces."""

    model: nn.Module
    inputs: Inputs
    tracked: TrackedParameters
    observe: Observe
    training: bool
    generic_null_space: NullSpace | None
    """The null space at generic weights, to which the verdicts refer; None if no method computed one."""
    compute_null_space: Callable[[], NullSpace]
    """Computes `null_space`."""
    versions: tuple[tuple[int, int], ...]
    """`parameter_versions` of the model at the time of the audit."""

    @cached_property
    def null_space(self) -> NullSpace:
        """The null space at the model's own weights, which contains the generic one. Computed when first read.

        Raises:
            InputError: the model does not export and has too many scalars for the numerical method.
        """
        return self.compute_null_space()

    def check_unchanged(self) -> None:
        """Refuse to rewrite a model that was trained or edited after its audit.

        Raises:
            InputError: a parameter has changed since the audit.
        """
        if parameter_versions(self.model) != self.versions:
            raise InputError(
                "expected the parameters as they were at the audit, got changed ones. Audit the model again, then rewrite it."
            )


def parameter_versions(model: nn.Module) -> tuple[tuple[int, int], ...]:
    """Return the address of every parameter and torch's count of its in-place changes."""
    return tuple((each.data_ptr(), 0 if each.is_inference() else each._version) for each in model.parameters())
