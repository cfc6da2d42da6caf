"""What one run's learned scalars show, and its form in `addnorm explain --json`."""

from dataclasses import dataclass
from typing import Any

from addnorm.insight.learned import Direction, Entry, Lockstep, verdict


@dataclass(frozen=True, kw_only=True)
class Explained:
    """What one run's learned scalars show."""

    run: str
    variant: str
    seed: int | None
    mechanism: str
    """The residual's and the scores' kinds."""
    formula: str
    """Theirs, from their docstrings."""
    decay_factor: float
    """Π(1 - lr_t · wd) over the steps done: what decay leaves of a number that decays. 1 where nothing decays."""
    steps: int
    entries: tuple[Entry, ...]
    directions: tuple[Direction, ...]
    """Redundant directions."""
    too_few_steps: tuple[str, ...]
    """Mechanisms whose redundant directions cannot be told yet."""
    pairs: tuple[Lockstep, ...]
    """Pairs that moved in lockstep."""

    def verdicts(self) -> list[str]:
        """One verdict per entry."""
        redundant = {place for direction in self.directions for place in direction.entries}
        redundant |= {place for pair in self.pairs for place in pair.entries}
        return [verdict(entry, redundant=place in redundant) for place, entry in enumerate(self.entries)]

    def name(self, place: int) -> str:
        """An entry as messages print it."""
        entry = self.entries[place]
        return f"{entry.parameter}[{', '.join(map(str, entry.index))}]"

    def to_json(self) -> dict[str, Any]:
        """The run's entry in `addnorm explain --json`."""
        verdicts = self.verdicts()
        return {
            "run": self.run,
            "variant": self.variant,
            "seed": self.seed,
            "mechanism": self.mechanism,
            "formula": self.formula,
            "decay_factor": self.decay_factor,
            "steps": self.steps,
            "scalars": [
                {
                    "parameter": entry.parameter,
                    "layer": entry.layer,
                    "index": list(entry.index),
                    "effective": entry.effective,
                    "init": entry.init,
                    "final": entry.final,
                    "decay_only": entry.decay_only,
                    "decay_share": entry.decay_share,
                    "snr": entry.snr,
                    "verdict": said,
                }
                for entry, said in zip(self.entries, verdicts, strict=True)
            ],
            "lockstep": [
                {
                    "parameters": [self.name(place) for place in pair.entries],
                    "difference_init": pair.init,
                    "difference_final": pair.final,
                    "difference_decay_only": pair.decay_only,
                }
                for pair in self.pairs
            ],
            "directions": [
                {
                    "parameters": [self.name(place) for place in direction.entries],
                    "coefficients": list(direction.coefficients),
                }
                for direction in self.directions
            ],
            "too_few_steps": list(self.too_few_steps),
            "undriven": [self.name(place) for place, said in enumerate(verdicts) if said == "undriven"],
        }
