"""Cases of which `make test` takes some, and `make thorough` or `make soak` the rest."""

from collections.abc import Iterable
from typing import Any

import pytest


def sampled(step: int, cases: Iterable[Any], rest: pytest.MarkDecorator = pytest.mark.thorough) -> list[Any]:
    """All cases; those that are not the first of every `step` have a mark.

    Args:
        step: how many cases there are to each one that `make test` takes.
        cases: values of a parameter, tuples of several, or `pytest.param`.
        rest: the mark of the others.
    """
    return [case if place % step == 0 else _marked(case, rest) for place, case in enumerate(cases)]


def _marked(case: Any, mark: pytest.MarkDecorator) -> Any:
    if hasattr(case, "marks"):  # made by `pytest.param`
        return pytest.param(*case.values, id=case.id, marks=[*case.marks, mark])
    values = case if isinstance(case, tuple) else (case,)
    return pytest.param(*values, marks=mark)
