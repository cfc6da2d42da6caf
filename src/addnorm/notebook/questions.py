"""Answers to questions about runs that a notebook shows as sentences and tables."""

from collections.abc import Callable
from dataclasses import fields
from functools import wraps
from html import escape
from importlib import import_module
from typing import Any, ClassVar, ParamSpec, TypeVar

from addnorm.statistics.run_noise import RunNoise
from addnorm.statistics.trend import Trend
from addnorm.store.questions.downstream import Downstream
from addnorm.store.questions.downstream import downstream as plain_downstream
from addnorm.store.questions.judge import Judgement
from addnorm.store.questions.judge import judge as plain_judge
from addnorm.store.questions.noise import noise as plain_noise
from addnorm.store.questions.rule import RuleResult
from addnorm.store.questions.rule import rule as plain_rule
from addnorm.store.questions.speedup import Worths
from addnorm.store.questions.speedup import speedup as plain_speedup
from addnorm.store.trend import trend as plain_trend
from addnorm.words import phrases


class _Shown:
    """An answer that a notebook shows in the words of its module in `reporting/questions/`."""

    _module: ClassVar[str]
    to_json: Callable[..., dict[str, Any]]

    def _repr_html_(self) -> str:
        # Imported here: whoever computes in a script draws nothing.
        module = import_module(f"addnorm.reporting.questions.{self._module}")
        return str(module.answer(self.to_json(), phrases("en")).html())


class ShownTrend(Trend):
    """A `Trend` that a notebook shows."""

    def _repr_html_(self) -> str:
        from addnorm.reporting.formats.trend_table import text

        return f"<pre>{escape(text(self.to_json()))}</pre>"


class ShownNoise(_Shown, RunNoise):
    _module = "noise"


class ShownJudgement(_Shown, Judgement):
    _module = "judge"


class ShownRuleResult(_Shown, RuleResult):
    _module = "rule"


class ShownDownstream(_Shown, Downstream):
    _module = "downstream"


class ShownWorths(_Shown, Worths):
    _module = "speedup"


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
rule = _shown(plain_rule, ShownRuleResult)
"""`addnorm.rule`."""
downstream = _shown(plain_downstream, ShownDownstream)
"""`addnorm.downstream`."""
speedup = _shown(plain_speedup, ShownWorths)
"""`addnorm.speedup`."""
trend = _shown(plain_trend, ShownTrend)
"""`addnorm.trend`."""
