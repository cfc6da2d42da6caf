"""Rules: the effect of each operation on a shift. One file per family of operations; a rule's docstring is its proof.
The table of rules is built from the folder."""

import importlib
import pkgutil
from functools import cache

from addnorm.redundancy.graph.rule import RULES, Rule


@cache
def rules() -> dict[str, Rule]:
    """Return the rules of all files of this folder by the names of their operations."""
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")
    return RULES
