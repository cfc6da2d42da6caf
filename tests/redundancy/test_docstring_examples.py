"""The examples in the docstrings of the public functions and methods run and print what they show."""

import doctest

import pytest

import addnorm
from addnorm import Audit

pytestmark = pytest.mark.compiled

DOCUMENTED = {
    "audit": addnorm.audit,
    "equivalent": addnorm.equivalent,
    "lint": addnorm.lint,
    "Audit.strip": Audit.strip,
    "Audit.transfer": Audit.transfer,
    "Audit.canonicalize": Audit.canonicalize,
}


@pytest.mark.parametrize("name", DOCUMENTED)
def test_the_example_runs(name: str) -> None:
    examples = doctest.DocTestFinder(recurse=False).find(DOCUMENTED[name], name, globs={})
    assert sum(len(each.examples) for each in examples) > 1
    runner = doctest.DocTestRunner()
    for each in examples:
        runner.run(each)
    assert runner.summarize(verbose=False).failed == 0
