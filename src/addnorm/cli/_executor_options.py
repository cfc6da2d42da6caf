"""Options `--executor.FIELD VALUE` of `addnorm run`."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, get_type_hints

from addnorm.errors import InputError

if TYPE_CHECKING:
    from addnorm.study.executor import ExecutorSpec

_PREFIX = "--executor."


def expanded(arguments: Sequence[str]) -> list[str]:
    """Write `--executor.at-once 4` as `--executor-set at_once=4`, which the parser of options knows.

    Raises:
        InputError: a field without a value.

    Example:
        >>> expanded(["mine.yaml", "--executor.at-once", "4", "--executor.gpus=1"])
        ['mine.yaml', '--executor-set', 'at_once=4', '--executor-set', 'gpus=1']
    """
    result: list[str] = []
    rest = iter(arguments)
    for argument in rest:
        if not argument.startswith(_PREFIX):
            result.append(argument)
            continue
        name, equals, value = argument.removeprefix(_PREFIX).partition("=")
        given = value if equals else next(rest, None)
        if not name or given is None:
            raise InputError(f"{argument}: expected a field and its value. For example: {_PREFIX}at-once 4")
        result += ["--executor-set", f"{name.replace('-', '_')}={given}"]
    return result


def with_fields(spec: "ExecutorSpec", settings: Sequence[str]) -> Any:
    """An executor's settings with fields of the command line over them.

    Args:
        spec: the settings below.
        settings: `FIELD=VALUE` each; values are YAML, those of texts are taken as they are.

    Raises:
        InputError: no such field, or a wrong value; the message has the path of every problem.
    """
    from addnorm.study.decoding import decode
    from addnorm.study.encoding import encode
    from addnorm.study.strict_yaml import read_yaml

    if not settings:
        return spec
    hints = get_type_hints(type(spec))
    content = encode(spec)
    for setting in settings:
        name, equals, text = setting.partition("=")
        if not equals:
            raise InputError(f"--executor-set: expected FIELD=VALUE, got {setting!r}. For example: at_once=4")
        # 12:30:00 and 0123 are texts here and numbers in YAML.
        is_text = hints.get(name) in (str, str | None)
        content[name] = text if is_text else read_yaml(text, f"{_PREFIX}{name}")
    return decode(type(spec), content, path="--executor")
