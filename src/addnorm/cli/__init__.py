"""The command line: one file per command, found by its name.

A command file has a docstring (its help), a frozen dataclass `Options`, `command(options) -> exit code`, and where it has
short forms of options, `expanded(arguments) -> arguments`. Files with a leading underscore are shared by commands. Exit codes:
0 success, 1 the job failed or is not finished, 2 wrong input, 130 Ctrl-C. Wrong input prints one message and no traceback.
"""

import importlib
import io
import os
import sys
from collections.abc import Sequence
from contextlib import redirect_stderr
from pathlib import Path

from addnorm.errors import AddnormError, InputError, UnknownName, missing_extra
from addnorm.words import LANGUAGES, environment_language, phrases, speaking, spoken, translated

_ORDER = (
    "list", "new", "plan", "run", "status", "watch", "rank", "trend", "noise", "judge", "explain", "inspect", "extrapolate",
    "scale-check", "generate", "audit", "port", "report", "export", "reindex", "doctor",
)  # fmt: skip


def commands() -> dict[str, str]:
    """Name of every command with the first line of its docstring, in the order of their use. Imports no command."""
    summaries = {}
    for path in sorted(Path(__file__).parent.glob("*.py")):
        if not path.stem.startswith("_"):
            with path.open(encoding="utf-8") as file:  # one line: to parse all files would take every command 0.02 s
                summaries[path.stem.replace("_", "-")] = file.readline().removeprefix("r").strip('"\n')
    order = [name for name in _ORDER if name in summaries]
    return {name: summaries[name] for name in (*order, *(name for name in summaries if name not in _ORDER))}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command. Returns the exit code."""
    arguments = sys.argv[1:] if arguments is None else [*arguments]
    language = environment_language(os.environ)
    try:
        arguments, language = _without_language(arguments, language)
        with speaking(language):
            return _dispatch(arguments)
    except AddnormError as error:
        text = error.args[0] if error.args and isinstance(error.args[0], str) else str(error)
        print(f"addnorm: {translated(text, phrases(language))}", file=sys.stderr)
        return 2 if isinstance(error, InputError) else 1
    except KeyboardInterrupt:  # `run` handles Ctrl-C itself while it trains
        stopped = "stopped. All files are complete; give the same command again."
        print(f"addnorm: {translated(stopped, phrases(language))}", file=sys.stderr)
        return 130
    except ModuleNotFoundError as error:
        advice = missing_extra(error)
        if advice is None:
            raise
        print(f"addnorm {arguments[0]}: {translated(advice, phrases(language))}", file=sys.stderr)
        return 1
    except BrokenPipeError:  # the output's reader has ended, as in `addnorm list | head`
        # Python flushes its streams at exit and would complain about the broken pipe once more.
        sys.stderr.close()
        return 0


def _dispatch(arguments: Sequence[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help"):
        print(_overview())
        return 0
    if arguments[0] == "--version":
        from addnorm import __version__

        print(f"addnorm {__version__}")
        return 0
    name, rest = arguments[0], [*arguments[1:]]  # no list(): `addnorm.cli.list` hides the builtin here
    # Checked against the files, not by trying the import: an ImportError inside a command must not read like an unknown
    # name.
    if name not in commands():
        raise UnknownName("command", name, commands())
    _require_no_empty_word(rest)
    # Only the command that was asked for is imported, and torch only inside `command`: `addnorm --help` and `addnorm
    # status` do not wait for it. `commands()` therefore reads docstrings without importing.
    module = importlib.import_module(f"addnorm.cli.{name.replace('-', '_')}")
    if {"-h", "--help"} & {*rest}:
        from addnorm.cli._help import command_help

        print(command_help(name, module.__doc__ or "", module.Options))
        return 0
    import tyro

    words = getattr(module, "expanded", tuple)(rest)
    boxed = io.StringIO()
    try:
        with redirect_stderr(boxed):
            options = tyro.cli(
                module.Options,
                args=words,
                prog=f"addnorm {name}",
                description=module.__doc__,
                config=(tyro.conf.OmitArgPrefixes, tyro.conf.PositionalMetavarFromFieldName, tyro.conf.DisallowNone),
            )
    # Caught, because `main` is called in notebooks and tests too, where an exit would end the process.
    except SystemExit as stop:
        from addnorm.cli._help import require_readable

        require_readable(name, module.Options, words)
        print(boxed.getvalue(), file=sys.stderr, end="")
        return int(stop.code or 0)
    code: int = module.command(options)
    return code


def _without_language(arguments: Sequence[str], language: str) -> tuple[list[str], str]:
    """Take `--lang` out of the arguments, wherever it stands; a command that has the option itself keeps it.

    Returns:
        The other arguments and the language: the option's, else the given one.

    Raises:
        InputError: the option has no value, or an unknown one.
    """
    kept: list[str] = []
    rest = iter(arguments)
    for argument in rest:
        if argument != "--lang" and not argument.startswith("--lang="):
            kept.append(argument)
            continue
        value = next(rest, "") if argument == "--lang" else argument.removeprefix("--lang=")
        if not value:
            raise InputError(f"--lang: expected {' or '.join(LANGUAGES)}, got nothing.")
        language = phrases(value).language
    if kept[:1] == ["report"] and len(kept) < len(arguments):
        kept.append(f"--lang={language}")
    return kept, language


def _require_no_empty_word(words: Sequence[str]) -> None:
    """Refuse an empty value, which no option means: as a path it would be the working folder.

    Raises:
        InputError: a word or the value of an option is empty.
    """
    for place, word in enumerate(words):
        option = word.removesuffix("=") if word.startswith("--") else ""
        if not word or word == f"{option}=":
            option = option or next(
                (before for before in words[place - 1 : place] if before.startswith("--")), "an argument"
            )
            raise InputError(
                f"{option}: expected a value, got an empty one, as an unset variable of the shell gives it. Give a value, or "
                "leave the option out."
            )


def _overview() -> str:
    summaries = commands()
    width = max(map(len, summaries))
    t = spoken()
    rows = (f"  {name:<{width}}  {t.translation(f'command.{name}', text)}" for name, text in summaries.items())
    return t("help.text", commands="\n".join(rows))
