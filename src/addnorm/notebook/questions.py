"""`addnorm.noise` and `addnorm.judge`, whose results a notebook shows as sentences and tables."""

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from addnorm.statistics.run_noise import RunNoise
from addnorm.store.questions.judge import Judgement
from addnorm.store.questions.judge import judge as plain_judge
from addnorm.store.questions.noise import noise as plain_noise
from addnorm.words import phrases


@dataclass(frozen=True, kw_only=True, repr=False)
class ShownNoise(RunNoise):
    """A `RunNoise` that a notebook shows."""

    def _repr_html_(self) -> str:
        from addnorm.reporting.questions import noise_answer

        return noise_answer(self.to_json(), phrases("en")).html()


@dataclass(frozen=True, kw_only=True, repr=False)
class ShownJudgement(Judgement):
    """A `Judgement` that a notebook shows."""

    def _repr_html_(self) -> str:
        from addnorm.reporting.questions import judge_answer

        return judge_answer(self.to_json(), phrases("en")).html()


P = ParamSpec("P")
Shown = TypeVar("Shown")


def _shown(function: Callable[P, Any], cls: Callable[..., Shown]) -> Callable[P, Shown]:
    @wraps(function)
    def asked(*args: P.args, **options: P.kwargs) -> Shown:
        result = function(*args, **options)
        return cls(**{field.name: getattr(result, field.name) for field in fields(result)})

    return asked


noise = _shown(plain_noise, ShownNoise)
"""`addnorm.noise`."""
judge = _shown(plain_judge, ShownJudgement)
"""`addnorm.judge`."""
