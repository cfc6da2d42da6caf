"""Writes docs/reference.md, the list of everything that a user may import: `python docs/reference.py`."""

import ast
import importlib
import inspect
import textwrap
from pathlib import Path
from typing import Any

MODULES = {
    "addnorm": "Models, studies, analyses of finished runs, and the audit of any PyTorch model. `import addnorm` is fast: "
    "torch is imported when a name that needs it is first used.",
    "addnorm.residual": "Base classes of residual connections of the hidden stream.",
    "addnorm.scores": "Base classes of residual connections of the attention scores.",
    "addnorm.values": "Base classes of residual connections of the values.",
    "addnorm.sink": "Base classes of sinks.",
    "addnorm.column": "Base classes of columns, keys and values of earlier layers beside those of the sequence.",
    "addnorm.attended": "Base classes of what becomes of attended values.",
    "addnorm.norm": "Base class of norms.",
    "addnorm.placement": "Base classes of norm placements.",
    "addnorm.block": "Base classes of blocks, and the plan of a layer.",
    "addnorm.bias": "Base classes of q and k biases.",
    "addnorm.position": "Base classes of positions.",
    "addnorm.data.corpora": "Base classes of corpora.",
    "addnorm.data.tokenizers": "Base classes of tokenizers.",
    "addnorm.optimization.optimizers": "Base class of optimizers, and the groups of parameters that they update.",
    "addnorm.optimization.schedules": "Base class of learning-rate schedules.",
    "addnorm.insight.extrapolation.switches": "Base classes of changes at evaluation.",
    "addnorm.notebook": "Results of a study for notebooks and scripts, as `addnorm.open_runs` returns them.",
    "addnorm.hf": "Every model in Hugging Face Transformers; importing the module registers its classes. Needs the extra `hf`.",
    "addnorm.shape": "Sizes that every mechanism is built from.",
    "addnorm.roles": "Roles of parameters, by which weight decay selects them.",
    "addnorm.testing": "The contract that every mechanism keeps, to test your own.",
    "addnorm.errors": "Errors and warnings.",
}
"""Public modules with a description."""

HEAD = """# Public interface

Everything that a user may import, by module. `python docs/reference.py` writes this page; a test
compares it with the code.

A name is **public** if it stands in `__all__` of a module below. Public names are kept: new
versions add to them. So are the commands with their options, the keys of `--json` output, and the
files of runs.

Everything else is **private** and may change in any version: modules that are not on this page,
names outside `__all__`, and names with a leading underscore. Where a private package has an
`__all__`, it lists what other packages of addnorm use. The documented attributes of objects that
public functions return are public.

`help(addnorm.rank)` shows arguments, errors and an example. The words are explained in the
[glossary](glossary.md).
"""


def page() -> str:
    """The text of docs/reference.md."""
    return HEAD + "".join(_section(name, about) for name, about in MODULES.items())


def _section(name: str, about: str) -> str:
    module = importlib.import_module(name)
    rows = "".join(f"| `{each}` | {_summary(name, each)} |\n" for each in module.__all__)
    return f"\n## `{name}`\n\n{textwrap.fill(about, 100)}\n\n| name | meaning |\n|---|---|\n{rows}"


def docstring(module: str, name: str) -> str:
    """The docstring of a public name itself, not an inherited one; of a constant or a type, the string after it."""
    value = getattr(importlib.import_module(module), name)
    if is_code(value):
        return (
            inspect.cleandoc(vars(value).get("__doc__") or "")
            if inspect.isclass(value)
            else inspect.getdoc(value) or ""
        )
    return constant(module, name)[1]


def is_code(value: Any) -> bool:
    """True for a class or a function of addnorm; types of other libraries are constants here."""
    return (inspect.isclass(value) or inspect.isfunction(value)) and value.__module__.startswith("addnorm")


def constant(module: str, name: str) -> tuple[str, str]:
    """The module that defines a constant or a type, and the string after its definition."""
    parsed = ast.parse(inspect.getsource(importlib.import_module(module))).body
    # What is imported when first used stands under `if TYPE_CHECKING`.
    body = [inner for outer in parsed for inner in (outer.body if isinstance(outer, ast.If) else [outer])]
    for place, statement in enumerate(body):
        if isinstance(statement, ast.ImportFrom) and name in {alias.asname or alias.name for alias in statement.names}:
            return constant(str(statement.module), name)
        targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
        if any(isinstance(target, ast.Name) and target.id == name for target in targets):
            match body[place + 1 : place + 2]:
                case [ast.Expr(value=ast.Constant(value=str(text)))]:
                    return module, inspect.cleandoc(text)
            return module, ""
    raise LookupError(f"{module}.{name}: no definition")


def _summary(module: str, name: str) -> str:
    text = " ".join(docstring(module, name).partition("\n\n")[0].split())
    return text.replace("|", "\\|")


if __name__ == "__main__":
    Path(__file__).with_suffix(".md").write_text(page(), encoding="utf-8")
