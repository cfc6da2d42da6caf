"""Commands in printed text, quoted for a shell, so that they can be pasted in the folder where they were printed."""

import shlex
from collections.abc import Iterable
from pathlib import Path


def plugin_options(plugins: Iterable[str]) -> list[str]:
    """Options with which a command loads the user's own code, as words of `command_line`."""
    return [word for path in plugins for word in ("--plugin", path)]


def command_line(*words: str | Path) -> str:
    """A command for a POSIX shell, with each word quoted where it has to be.

    A path that begins with a dash gets `./` before it, and a value that does is joined to its option by `=`: either would be
    read as an option.

    Args:
        *words: the program and its arguments; paths as `Path`.

    Example:
        >>> command_line("addnorm", "rank", Path("runs/my study"))
        "addnorm rank 'runs/my study'"
        >>> command_line("addnorm", "run", "study.yaml", "--set", "-x", "--out", Path("-out"))
        'addnorm run study.yaml --set=-x --out ./-out'
    """
    given: list[str] = []
    for word in words:
        text = str(word)
        if text.startswith("-") and isinstance(word, Path):
            text = f"./{text}"
        elif text.startswith("-") and not text.startswith("--") and given and given[-1].startswith("--"):
            text = f"{given.pop()}={text}"
        given.append(text)
    return shlex.join(given)
