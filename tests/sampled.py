"""Cases of which `make test` takes some, and `make thorough` the rest."""

from collections.abc import Iterable
from typing import Any

import pytest


def sampled(step: int, cases: Iterable[Any]) -> list[Any]:
    """All cases; those that are not the first of every `step` are marked `thorough`.

    Args:
        step: how many cases there are to each one that `make test` takes.
        cases: values of a parameter, tuples of several, or `pytest.param`.
    """
    return [case if place % step == 0 else _thorough(case) for place, case in enumerate(cases)]


def _thorough(case: Any) -> Any:
    if hasattr(case, "marks"):  # made by `pytest.param`
        return pytest.param(*case.values, id=case.id, marks=[*case.marks, pytest.mark.thorough])
    values = case if isinstance(case, tuple) else (case,)
    return pytest.param(*values, marks=pytest.mark.thorough)
