"""Find the redundant biases of a model, with reasons; remove them with a certificate.

For example:
    addnorm audit transformers:BertModel --config '{"num_hidden_layers": 2}'
    addnorm audit mine:model --training
    addnorm audit runs/first
    addnorm audit checkpoints/bert --strip smaller.safetensors
    addnorm audit --diff checkpoints/before checkpoints/after

Exit codes: 0 success, also where a parameter is undecided or unproved; 1 a move refutes a proof, a certificate failed, or
--diff did not find the two models equivalent; 2 wrong input.
"""

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from addnorm.cli._text import PluginOption, config_table, print_json, print_line, refuse
from addnorm.errors import InputError
from addnorm.words import translated

if TYPE_CHECKING:
    from torch import nn

    from addnorm.outside.targets import Target
    from addnorm.redundancy import Audit, Certificate
    from addnorm.redundancy.execution.cost import AuditCost

_LONG_S = 10.0
"""Estimated time from which an audit is announced."""


@dataclass(frozen=True)
class Options(PluginOption):
    target: Annotated[str | None, tyro.conf.Positional] = None
    """module:function or file.py:function that returns a model (and its inputs); the folder of a run, of a study (all its
    models; the result is written to audit.json for its page), or of a Transformers checkpoint; transformers:CLASS; or a file
    that --strip wrote."""
    config: str | None = None
    """JSON table of configuration fields, for transformers:CLASS."""
    inputs: Path | None = None
    """JSON file that describes the example inputs, in place of derived inputs; see `addnorm list guide/audit`."""
    observe: Literal["logits", "softmax", "loss"] = "logits"
    """The quantity that must not change: the output, its softmax, or the loss that the model returns."""
    training: bool = False
    """Audit training mode (batch statistics, dropout) instead of evaluation mode; also with --all."""
    methods: Literal["both", "static", "numeric"] = "both"
    """Use both methods, which check each other, or one of them."""
    track: str = "bias"
    """Parameters to audit: `bias`, `bias+tables`, `scalars`, or a regular expression over parameter names."""
    diff: tuple[str, str] | None = None
    """Compare two targets: are they equal up to redundant parameters?"""
    memory: float | None = None
    """Memory limit of the analysis in GB; half of the free memory if not given. A Transformers model that needs more is
    analysed in a reduced configuration of its class."""
    strip: Path | None = None
    """Write the model without redundant parameters, and certify that it computes the same: a file (smaller.safetensors), or
    for a Transformers model a folder that its class loads. If the analysis used a reduced configuration, the rewrite is
    transferred to the full weights and certified there."""
    keep_float32_biases: bool = False
    """With --strip, for a model in bfloat16 or float16: store the biases that absorb others in float32."""
    force: bool = False
    """With --strip: write the file although its certificate failed."""
    kv_cache: bool = False
    """Also measure the keys of each attention call as a cache stores them, before and after the canonical form: their size
    per channel, and their error in 8 and 4 bits."""
    all: bool = False
    """Count the directions of all parameters that change no output, by family: both methods for models of up to 5000 numbers,
    changes of basis and additive freedom on the graph at full size for others."""
    canonical: Path | None = None
    """Write the canonical representative (gains folded, removable constants zero, bases balanced, stream and units ordered),
    with a certificate: a file, or for a Transformers model a folder that its class loads."""
    quantise_ready: Path | None = None
    """Write the representative whose outputs change least under 4-bit weights among those that only change bases, with a
    certificate."""
    text: Path | None = None
    """With --quantise-ready: a UTF-8 text on which the losses before and after are measured, in the tokens of the checkpoint
    or run, else as bytes; or token ids in a .json file. A study's run needs none: it has held-out text of its own."""
    sarif: Path | None = None
    """Also write SARIF 2.1.0, for code hosts and editors."""
    html: Path | None = None
    """Also write a self-contained HTML file."""


def command(options: Options) -> int:
    if (options.target is None) == (options.diff is None):
        raise InputError("expected one TARGET, or two with --diff. `addnorm audit --help` describes targets.")
    writes = options.canonical is not None or options.quantise_ready is not None
    if options.strip is None and ((options.force and not writes) or options.keep_float32_biases):
        raise InputError(
            "expected --strip FILE beside --force or --keep-float32-biases, got neither a file nor a rewrite."
        )
    if options.text is not None and options.quantise_ready is None:
        raise InputError("expected --quantise-ready OUT beside --text, got the text alone.")
    for path in (options.strip, options.canonical, options.quantise_ready, options.sarif, options.html):
        _require_writable(path, folder=path not in (options.sarif, options.html))
    if options.diff is not None:
        refuse(
            options,
            "--diff",
            "methods",
            "track",
            "strip",
            "keep_float32_biases",
            "kv_cache",
            "all",
            "canonical",
            "quantise_ready",
            "sarif",
            "html",
        )
        return _diff(options, *options.diff)
    if options.all or options.canonical is not None or options.quantise_ready is not None:
        from addnorm.cli._audit.bases import about_all_parameters

        return about_all_parameters(options, Options(), _resolved, _screen()["width"])
    if (Path(str(options.target)) / "study.json").is_file():
        return _audit_study(options, Path(str(options.target)))
    return _audit(options, str(options.target))


def _audit_study(options: Options, folder: Path) -> int:
    from addnorm.cli._plan_tables import redundant_biases
    from addnorm.cli._progress import ProgressReport
    from addnorm.outside.targets.study import audit_study

    options_for_one_model = replace(options, target=None, plugin=(), json=False)
    if options_for_one_model != Options():
        raise InputError(
            f"{folder} is a study, whose models are all audited at full size by the static method, in evaluation mode: "
            "expected no options but --plugin and --json. For others give the folder of one run."
        )
    with ProgressReport("models", shown=not options.json) as progress:
        audits = audit_study(
            folder,
            plugins=options.plugin,
            on_done=lambda variant, done, total: progress.done(done, total, variant),
        )
    if options.json:
        print_json(audits)
    else:
        print(redundant_biases(audits["variants"]))
    return 0


def _audit(options: Options, name: str) -> int:
    import addnorm
    from addnorm.cli._progress import ProgressReport
    from addnorm.outside.targets.checkpoint_folder import every_name, require_checkpoint_class, write_checkpoint
    from addnorm.reporting.audit import certificate as certificates
    from addnorm.reporting.audit import table as tables

    target, cost = _resolve_within_memory(options, name)
    _announce(target, cost)
    with ProgressReport("parts", shown=not options.json) as progress:
        audit = addnorm.audit(
            target.model,
            target.inputs,
            observe=options.observe,
            training=options.training,
            methods=options.methods,
            track=options.track,
            on_progress=lambda stage, done, total: progress.done(done, total, stage),
        )
    content: dict[str, Any] = {**audit.to_json(), "target": target.to_json(), "track": options.track}
    content["notes"] = [_size_note(options, target, cost.bytes), *content["notes"]]
    content["where"] = _where(target.model)
    certified = True
    if options.strip is not None:
        if _is_folder(options.strip):
            require_checkpoint_class(target.model, options.strip)
        original, stripped, certificate = _rewritten(options, name, target, audit)
        certified = certificate.passed
        content["certificate"] = certificate.to_json()
        if (certified or options.force) and _is_folder(options.strip):
            absent = [*certificate.removed, *certificate.zeroed]
            source = Path(name) if target.kind == "checkpoint" else None
            write_checkpoint(stripped, original, every_name(original, absent), options.strip, source)
        elif certified or options.force:
            certificate.save(stripped, options.strip, target=name, config=options.config or "", force=True)
    if options.kv_cache:
        content["kv_cache"] = _key_cache(target, audit)
    _write_reports(options, content)
    if options.json:
        print_json(content)
    else:
        screen = _screen()
        print(tables.text(content, **screen), end="")
        if options.kv_cache:
            print(f"\n{tables.key_cache(content['kv_cache'])}", end="")
        if options.strip is not None:
            written = certified or options.force
            shown = certificates.text(
                content["certificate"],
                str(options.strip),
                width=screen["width"],
                written=written,
                given_up=content["joint_null"],
            )
            print(f"\n{shown}")
    return 0 if audit.agreed and certified else 1


def _key_cache(target: "Target", audit: "Audit") -> list[dict[str, Any]]:
    """The keys of each attention call.

    Raises:
        InputError: the weights are not those of the target, or no keys are seen.
    """
    from addnorm.redundancy.rewriting.key_cache import cached_keys

    if target.shrunk:
        raise InputError(
            f"--kv-cache measures the target's own weights, and {target.name} fits into memory only with {target.shrunk}. "
            "Allow more with --memory."
        )
    return [each.to_json() for each in cached_keys(target.model, audit.canonicalize(), target.inputs)]


def _diff(options: Options, first: str, second: str) -> int:
    import addnorm
    from addnorm.cli._audit.bases import distance, distance_text
    from addnorm.reporting.audit import certificate as certificates

    one, other = _full_size(options, first), _full_size(options, second)
    result = addnorm.equivalent(one.model, other.model, one.inputs, observe=options.observe, training=options.training)
    comparison = result.to_json()
    apart = distance(one, other, options.observe)
    if options.json:
        weights = apart.to_json() if apart is not None else None
        print_json({"a": one.to_json(), "b": other.to_json(), **comparison, "weights": weights})
    else:
        print(translated(certificates.difference(comparison, first, second)))
        if apart is not None:
            print(distance_text(apart, same=bool(result)))
    return 0 if result else 1


def _full_size(options: Options, name: str) -> "Target":
    """Resolve a target at its full size, because a comparison concerns its weights.

    Raises:
        InputError: it does not fit into memory.
    """
    from addnorm.redundancy.execution.memory import gb, needed_bytes

    target, _ = _resolve_within_memory(options, name)
    if target.shrunk:
        raise InputError(
            f"--diff compares the weights of {name} at full size, which takes about {gb(needed_bytes(target.whole))} of "
            "memory. Allow more with --memory."
        )
    return target


def _resolved(options: Options, name: str, memory: int | None = None) -> "Target":
    from addnorm.outside.targets import resolve
    from addnorm.outside.targets.input_spec import read_input_spec

    given = read_input_spec(options.inputs) if options.inputs is not None else None
    return resolve(name, config=config_table(options.config), inputs=given, plugins=options.plugin, memory=memory)


def _resolve_within_memory(options: Options, name: str) -> "tuple[Target, AuditCost]":
    """Resolve the target, and estimate the memory and time that its analysis takes.

    Raises:
        InputError: the analysis takes more than allowed.
    """
    from addnorm.redundancy.execution.memory import budget_bytes, gb, model_bytes, transfer_bytes

    budget = budget_bytes(options.memory)
    target = _resolved(options, name, memory=budget)
    cost = _cost(target)
    if cost.bytes > budget and target.kind in ("transformers class", "checkpoint") and not target.shrunk:
        # The weights fit and the activations do not: a smaller configuration makes both smaller.
        target = _resolved(options, name, memory=min(budget, model_bytes(target.model) - 1))
        cost = _cost(target)
    if cost.bytes > budget:
        raise InputError(
            f"an audit of {name} takes about {gb(cost.bytes)} of memory, {gb(budget)} are allowed. Allow more with --memory "
            f"{cost.bytes / 1e9:.3g}, or give a model of the same structure with fewer layers, or smaller inputs."
        )
    if target.shrunk and options.strip is not None and transfer_bytes(target.whole) > budget:
        raise InputError(
            f"an audit of {name} fits into {gb(budget)} only with {target.shrunk}, and the transfer of its rewrite to the "
            f"full model takes about {gb(transfer_bytes(target.whole))}. Allow more with --memory, or leave out --strip."
        )
    return target, cost


def _cost(target: "Target") -> "AuditCost":
    """The cost of an audit of the target; of its parameters alone where its inputs do not run, which the audit reports.

    Raises:
        InputError: the model cannot be audited.
    """
    from addnorm.redundancy.execution.checks import check_model
    from addnorm.redundancy.execution.cost import AuditCost, audit_cost, number_of_biases
    from addnorm.redundancy.execution.memory import model_bytes

    check_model(target.model)
    cost = audit_cost(target.model, target.inputs, biases=number_of_biases(target.model))
    return cost or AuditCost(bytes=model_bytes(target.model), seconds=0.0)


def _announce(target: "Target", cost: "AuditCost") -> None:
    """Say on standard error what a long audit will do."""
    from addnorm.redundancy.execution.memory import gb

    if cost.seconds >= _LONG_S:
        count = sum(each.numel() for each in target.model.parameters())
        size = f", in a reduced configuration of {target.shrunk}" if target.shrunk else ""
        print_line(
            f"audit of {target.name}{size}: {count / 1e6:.3g} M parameters, about {cost.seconds:.0f} s on one core and "
            f"{gb(cost.bytes)}"
        )


def _rewritten(
    options: Options, name: str, target: "Target", audit: "Audit"
) -> "tuple[nn.Module, nn.Module, Certificate]":
    """Rewrite the requested model by its own audit, or by the audit of its reduced configuration. Returns it before and
    after."""
    if not target.shrunk:
        return target.model, *audit.strip(keep_float32_biases=options.keep_float32_biases)
    whole = _resolved(options, name)
    return whole.model, *audit.transfer(whole.model, whole.inputs, keep_float32_biases=options.keep_float32_biases)


def _size_note(options: Options, target: "Target", needed: int) -> str:
    from addnorm.redundancy.execution.memory import gb

    if not target.shrunk:
        return f"analysed at full size, within about {gb(needed)}"
    rewritten = (
        "its rewrite was transferred to the full weights and certified there"
        if options.strip is not None
        else "nothing was computed at full size"
    )
    return (
        f"analysed in a reduced configuration of {target.shrunk} with random weights, because the full size does not fit into "
        f"memory; a verdict holds for every layer of its kind, counts are those of the reduced model, {rewritten}"
    )


def _is_folder(path: Path) -> bool:
    """True if --strip writes a folder: an existing one, or a name without an ending."""
    return path.is_dir() or not path.suffix


def _require_writable(path: Path | None, *, folder: bool = False) -> None:
    """Require, before any work is done, that a file (or, if `folder`, a folder) can be written to `path`."""
    if path is not None and ((path.is_dir() and not folder) or not path.absolute().parent.is_dir()):
        raise InputError(
            f"expected a file in an existing folder, got {path}. Make its folder first, or choose another name."
        )
    if path is not None and (path if path.is_dir() else path.parent).joinpath("spec.json").is_file():
        raise InputError(
            f"{path}: expected a place outside of a run's folder, whose weights are what was trained. Choose another name."
        )


def _write_reports(options: Options, content: Mapping[str, Any]) -> None:
    from addnorm.reporting.audit.html import html
    from addnorm.reporting.audit.sarif import sarif
    from addnorm.store import write_atomic

    if options.sarif is not None:
        write_atomic(options.sarif, json.dumps(sarif(content), indent=2, ensure_ascii=False).encode())
    if options.html is not None:
        write_atomic(options.html, html(content).encode())


def _where(model: "nn.Module") -> str:
    """Give file:line of the model's class; empty where its source is not available."""
    import inspect

    try:
        return f"{inspect.getsourcefile(type(model))}:{inspect.getsourcelines(type(model))[1]}"
    except (OSError, TypeError):
        return ""


def _screen() -> dict[str, Any]:
    """Width and colours of the terminal; plain text of 120 columns for a pipe."""
    from rich.console import Console

    console = Console(file=sys.stdout)
    return {"width": console.width if console.is_terminal else 120, "colour": console.color_system}
