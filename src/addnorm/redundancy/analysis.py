"""`addnorm.audit`: run the methods on a model and put what they say side by side."""

import platform
import sys
import time
import warnings
from typing import Any, Literal, get_args

import torch
from torch import nn

from addnorm.errors import InputError, UnknownName
from addnorm.redundancy.execution.cases import Cases
from addnorm.redundancy.execution.checks import check_model
from addnorm.redundancy.execution.copies import PROCESS, device_of
from addnorm.redundancy.execution.fresh_inputs import cast, runs
from addnorm.redundancy.execution.generic_weights import generic
from addnorm.redundancy.execution.inputs import Inputs, bind
from addnorm.redundancy.execution.memory import gb, left_bytes, model_bytes
from addnorm.redundancy.execution.observation import Observe
from addnorm.redundancy.execution.tracked_parameters import LARGEST_TABLE, Tracked, follow
from addnorm.redundancy.finding import Finding
from addnorm.redundancy.graph import method as static
from addnorm.redundancy.graph.joint_space import Space
from addnorm.redundancy.graph.method import NotExported, StaticAnalysis
from addnorm.redundancy.numeric.judgement import (
    COUNTED_ALONE,
    COUNTED_BESIDE,
    Judgement,
    count_null,
    find_dead,
    try_claim,
)
from addnorm.redundancy.numeric.probe import NotDifferentiable, Probe
from addnorm.redundancy.result import Audit, class_name
from addnorm.redundancy.rewriting.folds import folds
from addnorm.redundancy.subject import Subject, changes
from addnorm.redundancy.verdicts import compare, disagreements, finding, joint_disagreement, joint_null, strongest

Methods = Literal["both", "static", "numeric"]

FOLDED = 4096
"""Scalars up to which every finding says what the parameter folds into: each is a small system of equations."""


def audit(
    model: nn.Module,
    inputs: Any,
    *,
    observe: Observe = "logits",
    training: bool = False,
    methods: Methods = "both",
    track: str = "bias",
) -> Audit:
    """Find which additive parameters of a model cannot matter, alone or together.

    The static method propagates moves of all parameters through the exported graph and collects what blocks them; the
    numerical method moves them and looks. Where they disagree, the verdict is `undecided`. The model is not modified; the
    process's random state, default dtype and modes are as before afterwards.

    Args:
        model: any module whose parameters are on one device. It is looked at on the CPU, on copies in float64.
        inputs: a tensor, a tuple of positional or a dict of keyword inputs that the model accepts.
        observe: what must not change: `logits` (the output itself), `softmax` of it, or the `loss` that the model returns.
        training: look at training mode (batch statistics, dropout) instead of evaluation.
        methods: `both`, or one of them alone.
        track: `bias` (whatever is only ever added), `bias+tables` (embeddings and position tables too), `scalars`, or a
            regular expression over parameter names.

    Raises:
        InputError: the model cannot be audited (no such parameters, NaN, several devices) or the inputs do not fit it.
        UnknownName: no such observation or method.

    Warns:
        UserWarning: it takes more memory than the machine has left.

    Memory: about 26 bytes for every number of a float32 model, itself included (`memory.needed_bytes`). Cost: one
    export; for up to 1024 tracked scalars about as many gradients, above that a few.
    """
    started = time.perf_counter()
    check_options(observe, methods)
    _check_kinds(training, track)
    check_model(model)
    given = bind(inputs)
    tight = _tight(model)
    if tight:
        warnings.warn(tight, stacklevel=2)
    with PROCESS, torch.autocast(device_of(model).type, enabled=False), torch.inference_mode(False):
        tracked = follow(model, given, track=track)
        if not tracked.entries:
            raise InputError(_nothing(model, track, tracked))
        said: StaticAnalysis | None = None
        notes = [
            *([tight] if tight else []),
            *([_unreached(tracked)] if tracked.unused else []),
            *_large_tables(tracked),
        ]
        seconds: dict[str, float] = {}
        if methods != "numeric":
            begun = time.perf_counter()
            try:
                said = static.analyse(model, given, tracked=tracked, observe=observe, training=training)
            except NotExported as error:
                notes.append(f"the model does not export, so the numerical method speaks alone: {error}")
            seconds["static"] = time.perf_counter() - begun
        begun = time.perf_counter()
        copied = generic(model, torch.float64).train(training)
        judged: Judgement | None = None
        taken: tuple[int, ...] = ()
        if said is not None and not runs(copied, cast(given, torch.float64), observe):
            # The model did run when its parameters were followed, so what fails is the number format.
            notes.append("the model does not run in float64, so the static method speaks alone")
        elif methods != "static" or said is None:
            try:
                judged, taken = _judged(copied, given, tracked, observe, said.space if said else None, notes)
            except NotDifferentiable as error:
                if said is None:
                    raise
                notes.append(
                    f"the numerical method cannot look at the model, so the static method speaks alone: {error}"
                )
            seconds["numeric"] = time.perf_counter() - begun
        space = said.space if said else judged.space if judged else None
        findings = _findings(copied, tracked, said, judged, space, _at_lengths(given, taken))
    version = sys.modules["addnorm"].__version__  # imported long since; importing it here would import what it exports
    seconds["total"] = time.perf_counter() - started
    return Audit(
        model=class_name(model),
        findings=findings,
        joint_null=joint_null(space, judged),
        size=tracked.size,
        assumptions=(*(said.assumptions if said else ()), f"inputs have {_at_lengths(given, taken)}"),
        observe=observe,
        training=training,
        methods="both" if said and judged else "static" if said else "numeric",
        notes=tuple(notes),
        disagreements=disagreements(findings) + joint_disagreement(said.space, judged) if said and judged else (),
        numeric_joint_null=judged.joint if judged else None,
        versions={"addnorm": version, "torch": torch.__version__, "python": platform.python_version()},
        seconds={name: round(value, 3) for name, value in seconds.items()},
        subject=Subject(
            model=model,
            inputs=given,
            tracked=tracked,
            observe=observe,
            training=training,
            verdicts=space,
            static=said,
            versions=changes(model),
        ),
    )


def _tight(model: nn.Module) -> str:
    """A sentence where the audit needs more memory than the machine has left; empty where it does not."""
    needed, left = model_bytes(model), left_bytes()
    if left is None or needed <= left:
        return ""
    return (
        f"an audit of {class_name(model)} takes about {gb(needed)} of memory, and the machine has {gb(left)} left. Audit a "
        "smaller configuration of the class and carry its rewrite over with `Audit.carry`; for Transformers models "
        "`addnorm audit` does both."
    )


def check_options(observe: object, methods: object) -> None:
    """Refuse names that the annotations rule out, for callers that do not check them.

    Raises:
        UnknownName: no such observation or method.
    """
    for what, wanted, known in (("observation", observe, get_args(Observe)), ("method", methods, get_args(Methods))):
        if wanted not in known:
            raise UnknownName(what, wanted, known)


def _check_kinds(training: object, track: object) -> None:
    for name, given, kind in (("training", training, bool), ("track", track, str)):
        if not isinstance(given, kind):
            raise InputError(f"`{name}` is a {kind.__name__}; {given!r} arrived.")


def _judged(
    copied: nn.Module,
    given: Inputs,
    tracked: Tracked,
    observe: Observe,
    claim: Space | None,
    notes: list[str],
) -> tuple[Judgement, tuple[int, ...]]:
    cases = Cases.of(copied, given, observe)
    if not cases.fresh:
        notes.append("the model does not take random inputs of the same kind, so only the given ones were looked at")
    probe = Probe(copied, tracked, observe)
    limit = COUNTED_ALONE if claim is None else COUNTED_BESIDE
    if tracked.size <= limit:
        return count_null(probe, cases, claim), cases.lengths
    notes.append(
        f"{tracked.size} scalars are more than the {limit} up to which the numerical method counts by itself"
        + ("; it tried what the static method claims" if claim else "; it looked for parameters that move nothing")
    )
    return (try_claim(probe, cases, claim) if claim else find_dead(probe, cases)), cases.lengths


def _findings(
    copied: nn.Module,
    tracked: Tracked,
    said: StaticAnalysis | None,
    judged: Judgement | None,
    space: Space | None,
    where: str,
) -> tuple[Finding, ...]:
    found = []
    for place, entry in enumerate(tracked.entries):
        both = compare(entry, place, said.space if said else None, judged)
        folded = space is not None and both.absorbable > both.redundant and tracked.size <= FOLDED
        found.append(
            finding(
                entry,
                both,
                space=space,
                blockers=strongest(said.blockers, entry) if said else (),
                folds=folds(copied, space, entry) if space is not None and folded else (),
                numeric=(judged.redundant[place], judged.absorbable[place]) if judged else (None, None),
                lengths=where,
            )
        )
    return tuple(found)


def _at_lengths(given: Inputs, taken: tuple[int, ...]) -> str:
    own = [
        leaf.shape[1]
        for leaf in (*given.args, *given.kwargs.values())
        if isinstance(leaf, torch.Tensor) and leaf.dim() > 1
    ]
    every = sorted({*own[:1], *taken})
    return f"lengths {', '.join(map(str, every))}" if taken else "the shapes given"


def _unreached(tracked: Tracked) -> str:
    them = "them" if len(tracked.unused) > 1 else "it"
    return f"the given inputs do not reach {', '.join(tracked.unused)}, so nothing is said about {them}"


def _large_tables(tracked: Tracked) -> list[str]:
    """What a count leaves out of tables that are too large to be followed number by number."""
    large = [entry.name for entry in tracked.entries if entry.coordinates == "common row"]
    if not large:
        return []
    return [
        f"of tables with more than {LARGEST_TABLE} numbers ({', '.join(large)}) only adding one row to all rows was looked at: "
        "no row is said to be free or not by itself"
    ]


def _nothing(model: nn.Module, track: str, tracked: Tracked) -> str:
    unused = f" It has {', '.join(tracked.unused)}, which its forward pass never reads." if tracked.unused else ""
    what = {
        "bias": "biases",
        "bias+tables": "biases or tables",
        "scalars": "learned scalars",
    }.get(track, f"parameters whose name matches {track!r}")
    return (
        f"an audit needs {what}, and {class_name(model)} has none.{unused} "
        "Pass track='bias+tables', 'scalars' or a regular expression to look at other parameters."
    )
