"""Say which biases of a model cannot matter, why, and what takes over the others; remove them with a certificate.

For example:
    addnorm audit transformers:BertModel --config '{"num_hidden_layers": 2}'
    addnorm audit mine:model --training
    addnorm audit runs/first
    addnorm audit checkpoints/bert --strip smaller.safetensors
    addnorm audit --diff checkpoints/before checkpoints/after

Exit codes: 0 fine, also where one method alone could not decide about a parameter, which is said; 1 the two methods contradict
each other, a certificate failed, or --diff found two different models; 2 the input is wrong.
"""

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from addnorm.cli._text import print_json
from addnorm.errors import InputError

if TYPE_CHECKING:
    from torch import nn

    from addnorm.redundancy import Audit, Certificate
    from addnorm.targets import Target


@dataclass(frozen=True)
class Options:
    target: Annotated[str | None, tyro.conf.Positional] = None
    """module:function or file.py:function that returns a model (and its inputs); the folder of a run, of a study
    (all its models, kept for its page as audit.json), or of a Transformers checkpoint; or transformers:CLASS."""
    config: str | None = None
    """JSON table of configuration fields, for transformers:CLASS."""
    inputs: Path | None = None
    """JSON file that describes the example inputs, in place of derived ones; see docs/guide/audit.md."""
    observe: Literal["logits", "softmax", "loss"] = "logits"
    """What must not change: the output itself, its softmax, or the loss that the model returns."""
    training: bool = False
    """Look at training mode (batch statistics, dropout) instead of evaluation."""
    methods: Literal["both", "static", "numeric"] = "both"
    """Both methods, which judge each other, or one of them."""
    track: str = "bias"
    """What is looked at: `bias`, `bias+tables`, `scalars`, or a regular expression over parameter names."""
    diff: tuple[str, str] | None = None
    """Two targets: are they equal up to what cannot matter?"""
    memory: float | None = None
    """GB that the analysis may take, half of what is left if not given. A Transformers model that needs more is analysed on a
    smaller configuration of its class."""
    strip: Path | None = None
    """Write the model without what cannot matter (safetensors), and certify that it still computes the same. From a smaller
    configuration the rewrite is carried over to the real size, and certified there."""
    sarif: Path | None = None
    """Also write SARIF 2.1.0, for code hosts and editors."""
    html: Path | None = None
    """Also write one HTML file that needs nothing else."""
    plugin: tuple[str, ...] = ()
    """Files with mechanisms of your own that a run's model is made of."""
    json: bool = False
    """Print JSON."""


def command(options: Options) -> int:
    if (options.target is None) == (options.diff is None):
        raise InputError("an audit is of one TARGET, or --diff of two. See addnorm audit --help for what a target is.")
    for path in (options.strip, options.sarif, options.html):
        _require_writable(path)
    if options.diff is not None:
        return _diff(options, *options.diff)
    if (Path(str(options.target)) / "study.json").is_file():
        return _audit_study(options, Path(str(options.target)))
    return _audit(options, str(options.target))


def _audit_study(options: Options, folder: Path) -> int:
    from addnorm.cli._progress import ProgressReport
    from addnorm.cli._redundant_biases import redundant_biases
    from addnorm.targets.study import audit_study

    about_one = replace(options, target=None, plugin=(), json=False)
    if about_one != Options():
        raise InputError(
            f"{folder} is a study: all its models are audited at their real size by the static method, in evaluation mode. "
            "Only --plugin and --json go with that; for the rest give one run's folder."
        )
    with ProgressReport("models", shown=not options.json) as progress:
        found = audit_study(
            folder,
            plugins=options.plugin,
            on_done=lambda variant, done, total: progress.done(done, total, variant),
        )
    if options.json:
        print_json(found)
    else:
        print(redundant_biases(found["variants"]))
    return 0


def _audit(options: Options, name: str) -> int:
    import addnorm
    from addnorm.reporting.audit import certificate as certificates
    from addnorm.reporting.audit import table as tables

    target, memory = _within(options, name)
    found = addnorm.audit(
        target.model,
        target.inputs,
        observe=options.observe,
        training=options.training,
        methods=options.methods,
        track=options.track,
    )
    said: dict[str, Any] = {**found.to_json(), "target": target.to_json(), "track": options.track}
    said["notes"] = [_size_told(options, target, memory), *said["notes"]]
    said["where"] = _where(target.model)
    certified = True
    if options.strip is not None:
        stripped, certificate = _rewritten(options, name, target, found)
        certified = certificate.passed
        said["certificate"] = certificate.to_json()
        _write_weights(stripped, options.strip, said["certificate"])
    _write_reports(options, said)
    if options.json:
        print_json(said)
    else:
        screen = _screen()
        print(tables.text(said, **screen), end="")
        if options.strip is not None:
            print(f"\n{certificates.text(said['certificate'], str(options.strip), width=screen['width'])}")
    return 0 if found.agreed and certified else 1


def _diff(options: Options, first: str, second: str) -> int:
    import addnorm
    from addnorm.reporting.audit import certificate as certificates

    one, other = _own_weights(options, first), _own_weights(options, second)
    result = addnorm.equivalent(one.model, other.model, one.inputs, observe=options.observe, training=options.training)
    found = result.to_json()
    if options.json:
        print_json({"a": one.to_json(), "b": other.to_json(), **found})
    else:
        print(certificates.difference(found, first, second))
    return 0 if result else 1


def _own_weights(options: Options, name: str) -> "Target":
    """A target at its real size: a comparison is about its weights.

    Raises:
        InputError: it does not fit into memory.
    """
    from addnorm.redundancy.execution.memory import gb, needed_bytes

    target, _ = _within(options, name)
    if target.shrunk:
        raise InputError(
            f"--diff compares the weights of {name} at its real size, which takes about {gb(needed_bytes(target.whole))} of "
            "memory. Allow more with --memory."
        )
    return target


def _resolved(options: Options, name: str, memory: int | None = None) -> "Target":
    from addnorm.targets import resolve
    from addnorm.targets.input_spec import read_input_spec

    given = read_input_spec(options.inputs) if options.inputs is not None else None
    return resolve(name, config=_table(options.config), inputs=given, plugins=options.plugin, memory=memory)


def _within(options: Options, name: str) -> "tuple[Target, int]":
    """The target, and what its analysis takes of memory.

    Raises:
        InputError: that is more than may be taken.
    """
    from addnorm.redundancy.execution.memory import budget_bytes, gb, model_bytes, transfer_bytes

    budget = budget_bytes(options.memory)
    target = _resolved(options, name, memory=budget)
    needed = model_bytes(target.model)
    if needed > budget:
        raise InputError(
            f"an audit of {name} takes about {gb(needed)} of memory, and {gb(budget)} are allowed. Allow more with --memory "
            f"{needed / 1e9:.3g}, or give a model of the same structure with fewer layers."
        )
    if target.shrunk and options.strip is not None and transfer_bytes(target.whole) > budget:
        raise InputError(
            f"an audit of {name} fits into {gb(budget)} only with {target.shrunk}, and its rewrite is transferred to the "
            f"whole model, which takes about {gb(transfer_bytes(target.whole))}. Allow more with --memory, or leave out "
            "--strip."
        )
    return target, needed


def _rewritten(options: Options, name: str, target: "Target", found: "Audit") -> "tuple[nn.Module, Certificate]":
    """The model that was asked for, rewritten: from its own audit, or from that of its shrunk self."""
    if not target.shrunk:
        return found.strip()
    whole = _resolved(options, name)
    return found.carry(whole.model, whole.inputs)


def _size_told(options: Options, target: "Target", needed: int) -> str:
    from addnorm.redundancy.execution.memory import gb

    if not target.shrunk:
        return f"analysed at real size, within about {gb(needed)}"
    rewritten = (
        "its rewrite was carried over to the real size and certified there"
        if options.strip is not None
        else "nothing was run at full size"
    )
    return (
        f"analysed on a shrunk configuration of {target.shrunk} with random weights, because the real size does not fit into "
        f"memory; a verdict is meant for every layer of its kind, counts are the shrunk model's, {rewritten}"
    )


def _table(text: str | None) -> Mapping[str, Any] | None:
    """Raises:
    InputError: --config holds no JSON table.
    """
    if text is None:
        return None
    try:
        content = json.loads(text)
    except ValueError as error:
        raise InputError(
            f"--config must be a JSON table such as '{{\"num_hidden_layers\": 2}}', got {text!r}: {error}."
        ) from error
    if not isinstance(content, dict):
        raise InputError(f"--config must be a JSON table such as '{{\"num_hidden_layers\": 2}}', got {text!r}.")
    return content


def _require_writable(path: Path | None) -> None:
    """Before the work, not after it."""
    if path is not None and (path.is_dir() or not path.absolute().parent.is_dir()):
        raise InputError(f"{path} cannot be written: its folder must exist, and it must be no folder itself.")


def _write_weights(model: "nn.Module", path: Path, certificate: Mapping[str, Any]) -> None:
    from safetensors.torch import save_model

    # Whoever loads the file must know which of the class's parameters are meant to be missing.
    told = {key: json.dumps(certificate[key]) for key in ("removed", "zeroed", "changed")}
    save_model(model, str(path), metadata=told)


def _write_reports(options: Options, said: Mapping[str, Any]) -> None:
    from addnorm.reporting.audit.html import html
    from addnorm.reporting.audit.sarif import sarif

    if options.sarif is not None:
        options.sarif.write_text(json.dumps(sarif(said), indent=2, ensure_ascii=False), encoding="utf-8")
    if options.html is not None:
        options.html.write_text(html(said), encoding="utf-8")


def _where(model: "nn.Module") -> str:
    """file:line of the model's class; empty where it has no source."""
    import inspect

    try:
        return f"{inspect.getsourcefile(type(model))}:{inspect.getsourcelines(type(model))[1]}"
    except (OSError, TypeError):
        return ""


def _screen() -> dict[str, Any]:
    """Width and colours of the terminal; a pipe gets plain text of 120 columns."""
    from rich.console import Console

    console = Console(file=sys.stdout)
    return {"width": console.width if console.is_terminal else 120, "colour": console.color_system}
