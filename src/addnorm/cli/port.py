"""Compare two implementations of one architecture, and name the first place where their streams differ.

Parameters are paired by the values that they hold, so that names, fused and transposed matrices do not matter; the numbers of
FIRST are copied to SECOND where they differ. Compared in float64: logits, gradients, cached decoding, padding on the left. Use
a small configuration: the work grows with the number of parameters.

For example:
    addnorm port transformers:LlamaForCausalLM port.py:build --config '{"hidden_size": 32, "intermediate_size": 64,
        "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 64}'
    addnorm port original.py:build port.py:build --map norm.weight=final.gain
    addnorm port checkpoints/tiny port.py:build --json

Exit codes: 0 equal; 1 different; 2 wrong input.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from addnorm.cli._text import PluginOption, config_table, print_json
from addnorm.errors import InputError

if TYPE_CHECKING:
    from addnorm.outside.targets import Target

_CLASS = "transformers:"
_LARGEST = 20_000_000
"""Most parameters of a model that is compared: one pass of both for many of them."""


@dataclass(frozen=True)
class Options(PluginOption):
    first: Annotated[str, tyro.conf.Positional]
    """module:function or file.py:function that returns a model and its inputs; transformers:CLASS; the folder of a run, of an
    exported model, or of a Transformers checkpoint."""
    second: Annotated[str, tyro.conf.Positional]
    """The other implementation, given in the same ways."""
    config: str | None = None
    """JSON table of configuration fields, for each transformers:CLASS."""
    inputs: Path | None = None
    """JSON file that describes the inputs of both, in place of those of FIRST; see `addnorm list guide/audit`."""
    map: Annotated[tuple[str, ...], tyro.conf.UseAppendAction] = ()
    """A pair of parameters as FIRST=SECOND, where the pair that was found is wrong."""


def command(options: Options) -> int:
    mapping = _mapping(options.map)
    config = config_table(options.config)
    names = (options.first, options.second)
    if config is not None and not any(name.startswith(_CLASS) for name in names):
        raise InputError(
            f"--config: expected a transformers:CLASS among the two models, got {' and '.join(names)}, which have "
            "configurations of their own. Leave it out."
        )
    import addnorm
    from addnorm.words import spoken

    first, second = (_resolved(options, name, config) for name in names)
    result = addnorm.equal_to(first.model, second.model, _inputs(first), mapping=mapping)
    if options.json:
        print_json({"first": first.to_json(), "second": second.to_json(), **result.to_json()})
    else:
        print(result.in_words(spoken()))
    return 0 if result else 1


def _resolved(options: Options, name: str, config: dict[str, Any] | None) -> "Target":
    """The model of a name.

    Raises:
        InputError: it does not exist, or is too large for a comparison.
    """
    from addnorm.outside.targets import resolve
    from addnorm.outside.targets.input_spec import read_input_spec

    given = read_input_spec(options.inputs) if options.inputs is not None else None
    of_class = config if name.startswith(_CLASS) else None
    target = resolve(name, config=of_class, inputs=given, plugins=options.plugin)
    count = sum(each.numel() for each in target.model.parameters())
    if count > _LARGEST:
        raise InputError(
            f"{name}: expected a model of at most {_LARGEST // 10**6} M parameters, because each may take a pass of both "
            f"models, got {count / 1e6:.3g} M. Use a small configuration of the same architecture (--config)."
        )
    return target


def _inputs(first: "Target") -> Any:
    """The inputs of the first model: its token ids alone where it has them, since the other may call them differently."""
    import torch

    given = first.inputs
    if isinstance(given, dict) and isinstance(given.get("input_ids"), torch.Tensor):
        return given["input_ids"]
    return given


def _mapping(pairs: tuple[str, ...]) -> dict[str, str]:
    """Names of parameters of the first model with those of the second.

    Raises:
        InputError: a pair is not written as FIRST=SECOND, or a name stands twice.
    """
    named: dict[str, str] = {}
    for pair in pairs:
        ours, equals, theirs = pair.partition("=")
        if not (equals and ours and theirs):
            raise InputError(
                f"--map: expected two names of parameters as FIRST=SECOND, got {pair!r}. Write --map norm.weight=final.gain."
            )
        if ours in named:
            raise InputError(f"--map: expected one partner of {ours}, got {named[ours]} and {theirs}. Leave one out.")
        named[ours] = theirs
    return named
