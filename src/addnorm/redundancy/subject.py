"""What an audit was about: kept with its result, so that the model can be rewritten."""

from dataclasses import dataclass

from torch import nn

from addnorm.errors import InputError
from addnorm.redundancy.execution.inputs import Inputs
from addnorm.redundancy.execution.observation import Observe
from addnorm.redundancy.execution.tracked_parameters import Tracked
from addnorm.redundancy.graph.joint_space import Space
from addnorm.redundancy.graph.method import StaticAnalysis


@dataclass(frozen=True, kw_only=True)
class Subject:
    """The model as it was given, and the null space of its own weights."""

    model: nn.Module
    inputs: Inputs
    tracked: Tracked
    observe: Observe
    training: bool
    verdicts: Space | None
    """The null space at generic weights, where a method found one."""
    static: StaticAnalysis | None
    """What the static method found; None where only the numerical method ran."""
    versions: tuple[tuple[int, int], ...]
    """`changes` of the model when the audit ran."""

    def check_unchanged(self) -> None:
        """Refuse to rewrite a model that was trained or edited after its audit.

        Raises:
            InputError: a parameter has changed since.
        """
        if changes(self.model) != self.versions:
            raise InputError("the model's parameters have changed since its audit. Audit it again, then rewrite it.")


def changes(model: nn.Module) -> tuple[tuple[int, int], ...]:
    """Where every parameter's numbers are, and torch's count of how often they were changed there."""
    return tuple((each.data_ptr(), 0 if each.is_inference() else each._version) for each in model.parameters())
