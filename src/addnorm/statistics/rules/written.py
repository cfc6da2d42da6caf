"""A rule as it is written down, read strictly: an unknown field, or a value that does not fit, is an error with its path."""

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields, replace
from pathlib import Path
from typing import Any

from addnorm.errors import InputError, UnknownName, did_you_mean
from addnorm.fields import FieldError, check_fields
from addnorm.statistics.measure import Direction
from addnorm.statistics.rules.conditions import Condition, EffectiveSpeedup, Improvement, Projection, Threshold
from addnorm.strict_yaml import read_yaml_file

KINDS: dict[str, type[Condition]] = {
    "threshold": Threshold,
    "improvement": Improvement,
    "speedup": EffectiveSpeedup,
    "projection": Projection,
}
SHIPPED = Path(__file__).parent / "shipped"
_FIELDS = ("name", "source", "unit", "better", "conditions")


@dataclass(frozen=True, kw_only=True)
class WrittenRule:
    """Conditions that have to hold together."""

    name: str
    conditions: tuple[Condition, ...]
    source: str = ""
    """Address of the page that the rule stands on."""
    unit: str = ""
    """Of the metric that the rule speaks of."""
    better: Direction = "lower"

    @property
    def sizes(self) -> int:
        """Fewest sizes of the models."""
        return max(condition.sizes for condition in self.conditions)

    @property
    def runs(self) -> int:
        """Fewest runs of the variant at each size."""
        return max(condition.runs for condition in self.conditions)

    @property
    def compares(self) -> bool:
        """True if a reference is needed."""
        return any(condition.compares for condition in self.conditions)

    @property
    def boundary(self) -> float:
        """Improvement at which the claim is just untrue."""
        return max(condition.boundary for condition in self.conditions)

    def mirrored(self) -> "WrittenRule":
        """The same rule for negated numbers, of which lower is better."""
        conditions = [
            replace(each, target=0.0 - each.target) if isinstance(each, Threshold) else each for each in self.conditions
        ]
        return replace(self, conditions=tuple(conditions), better="lower")

    @staticmethod
    def of(content: Any, where: str) -> "WrittenRule":
        """The rule of a mapping.

        Args:
            content: as a YAML file holds it.
            where: the file, for messages.

        Raises:
            InputError: a field is missing, unknown, or has a wrong value.

        Example:
            >>> rule = {"name": "mine", "conditions": [{"kind": "threshold", "target": 3.28, "runs": 2}]}
            >>> WrittenRule.of(rule, "mine.yaml").conditions[0].target
            3.28
        """
        if not isinstance(content, Mapping):
            raise InputError(f"{where}: expected a rule with {', '.join(_FIELDS)}, got {content!r}.")
        _require_known(content, _FIELDS, f"{where}: $")
        for name in ("name", "conditions"):
            if name not in content:
                raise InputError(f"{where}: $.{name}: expected this field, got none.")
        conditions = content["conditions"]
        if not isinstance(conditions, list) or not conditions:
            raise InputError(f"{where}: $.conditions: expected a list of conditions, got {conditions!r}.")
        read = [_condition(each, f"{where}: $.conditions[{place}]") for place, each in enumerate(conditions)]
        try:
            rule = WrittenRule(**{**content, "conditions": tuple(read)})
            check_fields(rule, "$")
        except FieldError as error:
            raise InputError(f"{where}: {error}") from None
        several = {each.several_sizes for each in read}
        if len(several) > 1:
            raise InputError(
                f"{where}: $.conditions: expected conditions that all speak of one mean, or all of several sizes, got both. "
                "Write two rules."
            )
        if rule.better == "higher" and several == {True}:
            raise InputError(
                f"{where}: $.better: expected lower where conditions speak of a law of the loss, got 'higher'. A speedup and a "
                "projection are computed from losses."
            )
        return rule


def _condition(content: Any, path: str) -> Condition:
    if not isinstance(content, Mapping) or "kind" not in content:
        raise InputError(f"{path}: expected a condition with its kind ({', '.join(KINDS)}), got {content!r}.")
    kind = content["kind"]
    if kind not in KINDS:
        raise InputError(
            f"{path}.kind: expected one of {', '.join(KINDS)}, got {kind!r}.{did_you_mean(kind, list(KINDS))}"
        )
    cls = KINDS[kind]
    known = [field.name for field in fields(cls)]
    _require_known(content, ["kind", *known], path)
    missing = [field.name for field in fields(cls) if field.default is MISSING and field.name not in content]
    if missing:
        raise InputError(f"{path}: expected a field {missing[0]!r} in a condition of kind {kind!r}, got none.")
    values: dict[str, Any] = {
        name: tuple(v) if isinstance(v, list) else v for name, v in content.items() if name != "kind"
    }
    values = {name: float(v) if type(v) is int and name not in ("runs", "sizes") else v for name, v in values.items()}
    try:
        unchecked = object.__new__(cls)
        for field in fields(cls):
            object.__setattr__(unchecked, field.name, values.get(field.name, field.default))
        check_fields(unchecked, path)
        return cls(**values)
    except FieldError as error:
        raise InputError(f"{path}.{error.field}: {error.problem}") from None


def _require_known(content: Mapping[Any, Any], known: list[str] | tuple[str, ...], path: str) -> None:
    for name in content:
        if name not in known:
            raise InputError(f"{path}.{name}: expected one of {', '.join(known)}.{did_you_mean(name, known)}")


def shipped_rules() -> tuple[str, ...]:
    """Names of the rules that come with addnorm."""
    return tuple(sorted(path.stem for path in SHIPPED.glob("*.yaml")))


def read_rule(name: str | Path) -> WrittenRule:
    """Read a shipped rule by its name, or a file.

    Raises:
        InputError: no such file, or a wrong field.
        UnknownName: neither a file nor a shipped rule.

    Example:
        >>> read_rule("modded-nanogpt").conditions[0].p
        0.01
    """
    path = Path(name)
    if path.suffix not in (".yaml", ".yml"):
        if str(name) not in shipped_rules():
            raise UnknownName("rule", str(name), shipped_rules())
        path = SHIPPED / f"{name}.yaml"
    return WrittenRule.of(read_yaml_file(path), str(name))
