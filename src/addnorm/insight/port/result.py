"""The result of a comparison of two implementations, and the first place at which they differ."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from addnorm.insight.port.pairing import ParameterPair


@dataclass(frozen=True, kw_only=True)
class PortDifference:
    """The first place at which two implementations have different numbers."""

    check: str
    """`logits`, `gradients`, `cached decoding` or `left padding`."""
    what: str
    """Kind of value: `input`, `output`, `attention weights`, `stream after attention`, `gradient` or `logits`."""
    ours: str
    """Path of the module in the first model (of a gradient: of the parameter); empty for the logits."""
    theirs: str
    """The same in the second model."""
    size: float
    """Largest difference, relative to the largest entry."""
    last_equal: str
    """The last place before it at which both agree; empty if there is none."""
    hint: str = ""
    """Known facts about the cause; empty if nothing is."""

    @property
    def text(self) -> str:
        """The difference in one line."""
        place = f" of {self.ours} and {self.theirs}" if self.ours else ""
        after = f"; equal up to the {self.last_equal}" if self.last_equal else ""
        hint = f" ({self.hint})" if self.hint else ""
        return f"{self.check}: first different at the {self.what}{place}, by {self.size:.2g} relative{hint}{after}."


@dataclass(frozen=True, kw_only=True)
class PortComparison:
    """Result of a comparison of two implementations. True in a boolean context if they are equal."""

    equal: bool
    """True if everything that both models can do agrees, at the given values and with every number moved at random."""
    first_difference: PortDifference | None
    """None if the models are equal."""
    differences: Mapping[str, float]
    """Largest relative difference of each check that was made: `logits`, `gradients`, `cached decoding`, `left padding`."""
    skipped: Mapping[str, str]
    """Checks that were not made, with the reason."""
    pairs: tuple[ParameterPair, ...]
    """The paired parameters."""
    only_ours: tuple[str, ...]
    """Parameters of the first model without a partner."""
    only_theirs: tuple[str, ...]
    """Parameters of the second model without a partner."""
    unequal: tuple[str, ...]
    """Pairs whose numbers differ, although most parameters of both models hold the same; empty if numbers were copied."""
    copied: bool
    """True if the models hold different numbers, so that the first one's were copied to the second before the comparison."""

    def __repr__(self) -> str:
        """One line; `print` shows `text`."""
        skipped = f", {len(self.skipped)} checks skipped" if self.skipped else ""
        if self.first_difference is not None:
            return f"<not equal: {self.first_difference.text}>"
        checks = ", ".join(self.differences)
        return f"<{'equal' if self.equal else 'not equal'} over {len(self.pairs)} parameters: {checks}{skipped}>"

    def __str__(self) -> str:
        return self.text

    def __bool__(self) -> bool:
        return self.equal

    @property
    def text(self) -> str:
        """The result in a few lines."""
        made = ", ".join(f"{name} {size:.1e}" for name, size in self.differences.items())
        lines = ["The two models are equal." if self.equal else f"The two models differ. {self._difference_text}"]
        lines.append(f"Largest relative differences: {made}." if made else "No check was completed.")
        lines += [f"Not compared: {name}: {reason}" for name, reason in self.skipped.items()]
        if self.copied:
            lines.append("The models hold different numbers; those of the first were copied to the second.")
        for names, side in ((self.only_ours, "first"), (self.only_theirs, "second")):
            if names:
                lines.append(f"Only in the {side} model: {', '.join(names)}.")
        if self.unequal:
            lines.append(f"Different numbers: {', '.join(self.unequal)}.")
        return "\n".join(lines)

    @property
    def _difference_text(self) -> str:
        return "" if self.first_difference is None else self.first_difference.text

    def to_json(self) -> dict[str, Any]:
        """Return the result as plain values."""
        found = self.first_difference
        return {
            "equal": self.equal,
            "first_difference": None if found is None else vars(found) | {"text": found.text},
            "differences": dict(self.differences),
            "skipped": dict(self.skipped),
            "pairs": [
                {"ours": pair.ours, "theirs": pair.theirs, "how": pair.how, "transposed": pair.transposed}
                for pair in self.pairs
            ],
            "only_ours": list(self.only_ours),
            "only_theirs": list(self.only_theirs),
            "unequal": list(self.unequal),
            "copied": self.copied,
        }
