"""Griffe extension: sections named `Example:` in docstrings are code, as Griffe takes them only under the name `Examples:`."""

import re
from typing import Any

import griffe

_SECTION = re.compile(r"^(Example):{1,2}$", re.M)


class Examples(griffe.Extension):
    """Renames the section in every docstring before it is parsed."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = _SECTION.sub("Examples:", obj.docstring.value)
