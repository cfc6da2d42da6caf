"""The command line: one file per command, found by its name.

A command file has a docstring (its help), a frozen dataclass `Options` (its options) and `command(options) -> exit code`.
Exit codes: 0 fine, 1 the job failed or is not finished, 2 the input is wrong, 130 Ctrl-C. A user's
mistake prints one message and no traceback.
"""

import ast
import importlib
import sys
from collections.abc import Sequence
from pathlib import Path

from addnorm.errors import AddnormError, InputError, UnknownName

_ORDER = (
    "list",
    "new",
    "plan",
    "run",
    "status",
    "rank",
    "explain",
    "inspect",
    "extrapolate",
    "export",
    "reindex",
    "doctor",
)


def commands() -> dict[str, str]:
    """Every command's name and the first line of its docstring, in the order of a study's life. Imports nothing."""
    found = {}
    for path in sorted(Path(__file__).parent.glob("*.py")):
        if not path.stem.startswith("_"):
            docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
            found[path.stem] = docstring.partition("\n")[0]
    order = [name for name in _ORDER if name in found]
    return {name: found[name] for name in (*order, *(name for name in found if name not in _ORDER))}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command. Returns the exit code."""
    arguments = sys.argv[1:] if arguments is None else [*arguments]
    try:
        return _dispatch(arguments)
    except AddnormError as error:
        print(f"addnorm: {error}", file=sys.stderr)
        return 2 if isinstance(error, InputError) else 1
    except KeyboardInterrupt:  # `run` takes its own Ctrl-C while it trains; this one came before or in another command
        print("addnorm: stopped. Whatever was written is whole; give the same command again.", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader of our output has gone, as in `addnorm list | head`
        sys.stderr.close()
        return 0


def _dispatch(arguments: Sequence[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help"):
        print(_help())
        return 0
    if arguments[0] == "--version":
        from addnorm import __version__

        print(f"addnorm {__version__}")
        return 0
    name, rest = arguments[0], [*arguments[1:]]  # `list` is a command's module here
    if name not in commands():
        raise UnknownName("command", name, commands())
    module = importlib.import_module(f"addnorm.cli.{name}")
    import tyro

    try:
        options = tyro.cli(
            module.Options,
            args=rest,
            prog=f"addnorm {name}",
            description=module.__doc__,
            config=(tyro.conf.OmitArgPrefixes, tyro.conf.PositionalMetavarFromFieldName, tyro.conf.DisallowNone),
        )
    except SystemExit as stop:  # tyro has printed the help (0) or what is wrong with an option (2)
        return int(stop.code or 0)
    code: int = module.command(options)
    return code


def _help() -> str:
    found = commands()
    width = max(map(len, found))
    rows = "\n".join(f"  {name:<{width}}  {summary}" for name, summary in found.items())
    return f"""usage: addnorm COMMAND [options]      addnorm COMMAND --help

How a Transformer's layers are joined: train variants side by side, and know which differences are more than noise.

{rows}

Begin with:
  addnorm plan residual-scores                     what the built-in study would cost here
  addnorm run residual-scores --out runs/first     train it; the same command goes on after an interruption
  addnorm rank runs/first                          what the results allow to say

All commands take --json. Exit codes: 0 fine, 1 the job failed or is not finished, 2 the input is wrong, 130 Ctrl-C."""
