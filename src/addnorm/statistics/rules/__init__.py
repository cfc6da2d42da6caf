"""Written rules: what a contest or a laboratory demands of a change, and how often chance alone satisfies it.

A rule is a list of conditions, all of which have to hold. It is data: a mapping as a YAML file holds it, with the fields of the
condition's class. `check` evaluates it for a table, and simulates it at the table's noise.
"""

from addnorm.statistics.rules.check import Design, PassRate, RuleCheck, check_rule
from addnorm.statistics.rules.conditions import Condition, Evaluated, SizeLosses
from addnorm.statistics.rules.written import KINDS, SHIPPED, WrittenRule, read_rule, shipped_rules

__all__ = [
    "KINDS",
    "SHIPPED",
    "Condition",
    "Design",
    "Evaluated",
    "PassRate",
    "RuleCheck",
    "SizeLosses",
    "WrittenRule",
    "check_rule",
    "read_rule",
    "shipped_rules",
]
