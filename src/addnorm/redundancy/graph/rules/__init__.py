"""What each operation does to a shift. One file per family; a rule's docstring is its proof. The table is read off
the folder.
"""

import importlib
import pkgutil
from functools import cache

from addnorm.redundancy.graph.rule import RULES, Rule


@cache
def rules() -> dict[str, Rule]:
    """Operation name -> rule, of all files of this folder."""
    for found in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{found.name}")
    return RULES
