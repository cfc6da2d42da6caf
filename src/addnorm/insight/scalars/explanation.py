"""The learned scalars of one run, and their form in `addnorm explain --json`."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from addnorm.insight.scalars.coefficients import formula, mechanism
from addnorm.insight.scalars.directions import Lockstep, RedundantDirection
from addnorm.insight.scalars.scalar import LearnedScalar, ScalarVerdict, verdict
from addnorm.model.spec import ModelSpec


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """The learned scalars of one run."""

    run: str
    variant: str
    seed: int | None
    """None for published values."""
    model: ModelSpec
    decay_factor: float
    """Π(1 - lr_t · wd) over the steps done: the share of a number that weight decay leaves; 1 without weight decay."""
    steps: int
    scalars: tuple[LearnedScalar, ...]
    directions: tuple[RedundantDirection, ...]
    """Redundant directions."""
    too_few_steps: tuple[str, ...]
    """Mechanisms whose redundant directions the steps so far do not determine."""
    pairs: tuple[Lockstep, ...]
    """Pairs that moved in lockstep."""
    gauges: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Groups of scalars of which other parameters can absorb every change, and the families of `addnorm.symmetries` that do."""

    def verdicts(self) -> list[ScalarVerdict]:
        """One verdict per scalar."""
        groups: tuple[RedundantDirection | Lockstep, ...] = (*self.directions, *self.pairs)
        redundant = {member for group in groups for member in group.members}
        return [verdict(scalar, redundant=position in redundant) for position, scalar in enumerate(self.scalars)]

    def to_json(self) -> dict[str, Any]:
        """The run's entry in `addnorm explain --json`."""
        verdicts = self.verdicts()
        return {
            "run": self.run,
            "variant": self.variant,
            "seed": self.seed,
            "mechanism": mechanism(self.model),
            "formula": formula(self.model),
            "decay_factor": self.decay_factor,
            "steps": self.steps,
            "scalars": [
                {
                    "parameter": scalar.parameter,
                    "layer": scalar.layer,
                    "index": list(scalar.index),
                    "effective": scalar.effective,
                    "init": scalar.init,
                    "final": scalar.final,
                    "decay_only": scalar.decay_only,
                    "decay_share": scalar.decay_share,
                    "snr": scalar.snr,
                    "verdict": judged,
                }
                for scalar, judged in zip(self.scalars, verdicts, strict=True)
            ],
            "lockstep": [
                {
                    "parameters": self._names(pair),
                    "difference_init": pair.init,
                    "difference_final": pair.final,
                    "difference_decay_only": pair.decay_only,
                }
                for pair in self.pairs
            ],
            "directions": [
                {"parameters": self._names(direction), "coefficients": list(direction.coefficients)}
                for direction in self.directions
            ],
            "gauges": list(self.gauges),
            "absorbed_by": {group: list(families) for group, families in self.gauges.items()},
            "too_few_steps": list(self.too_few_steps),
            "undriven": [
                scalar.name for scalar, judged in zip(self.scalars, verdicts, strict=True) if judged == "undriven"
            ],
        }

    def _names(self, group: RedundantDirection | Lockstep) -> list[str]:
        return [self.scalars[member].name for member in group.members]
