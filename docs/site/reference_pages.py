"""Reference: a page per public module, every name of its `__all__` with signature, arguments, errors and example."""

import importlib
from pathlib import Path
from typing import Any

from reference import MODULES, constant, is_code


def write(folder: Path) -> dict[str, str]:
    """Write the pages. Returns them for the navigation."""
    folder.mkdir(parents=True)
    navigation = {"Public interface": "docs/reference.md"}
    for name, about in MODULES.items():
        module = importlib.import_module(name)
        parts = [_entry(name, each, getattr(module, each)) for each in module.__all__]
        (folder / f"{name}.md").write_text(f"# `{name}`\n\n{about}\n\n{''.join(parts)}", encoding="utf-8")
        navigation[name] = f"reference/{name}.md"
    return navigation


def _entry(module: str, name: str, value: Any) -> str:
    heading = f"## `{name}` {{ #{name.strip('_')} }}\n\n"
    # The public name may be imported lazily, which the generator, which reads files, cannot follow.
    home = f"{value.__module__}.{value.__qualname__}" if is_code(value) else f"{constant(module, name)[0]}.{name}"
    return f"{heading}::: {home}\n\n"
