"""What an audit was about: kept with its result, so that the model can be rewritten."""

from dataclasses import dataclass

from torch import nn

from addnorm.audit.inputs import Inputs
from addnorm.audit.observe import Observe
from addnorm.audit.space import Space
from addnorm.audit.static import StaticAnalysis
from addnorm.audit.tracked import Tracked
from addnorm.errors import InputError


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
