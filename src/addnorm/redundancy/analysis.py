"""`addnorm.audit`: run both methods on a model, compare their counts, and describe every parameter."""

import platform
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal, get_args

import torch
from torch import nn

from addnorm.errors import InputError, UnknownName
from addnorm.redundancy.execution.checks import check_call, check_inputs, check_model, require_finite
from addnorm.redundancy.execution.copies import PROCESS_LOCK, copy_of, device_of, plain_copy, seeded
from addnorm.redundancy.execution.fresh_inputs import cast
from addnorm.redundancy.execution.generic_weights import generic
from addnorm.redundancy.execution.inputs import Inputs, bind, cloned
from addnorm.redundancy.execution.memory import gb, left_bytes, model_bytes
from addnorm.redundancy.execution.observation import Observe, ObservedNames, observed_names
from addnorm.redundancy.execution.tracked_parameters import LARGEST_TABLE, TrackedParameters, track_parameters
from addnorm.redundancy.graph import static_analysis
from addnorm.redundancy.graph.null_space import NullSpace
from addnorm.redundancy.graph.static_analysis import NotExported, StaticAnalysis
from addnorm.redundancy.numeric import numerical_analysis
from addnorm.redundancy.numeric.numerical_analysis import COUNTED_ALONE, COUNTED_WITH_PROOF, NumericalAnalysis
from addnorm.redundancy.numeric.probe import NotDifferentiable
from addnorm.redundancy.result import Audit, class_name
from addnorm.redundancy.rewriting.audited_model import AuditedModel, parameter_versions
from addnorm.redundancy.rewriting.folds import Folds
from addnorm.redundancy.verdict.comparison import compare, joint_disagreement, joint_null, joint_unproved
from addnorm.redundancy.verdict.drift import drift_notes
from addnorm.redundancy.verdict.finding import Finding
from addnorm.redundancy.verdict.wording import disagreements, finding, strongest
from addnorm.version import __version__

Methods = Literal["both", "static", "numeric"]

_KINDS = {"bias": "biases", "bias+tables": "biases and no tables", "scalars": "learned scalars"}
"""Words for the values of `track` that are no regular expressions."""
_LARGEST_FOLDED = 4096
"""Largest number of scalars for which findings list folds: each fold solves a small system of equations."""


def audit(
    model: nn.Module,
    inputs: Any,
    *,
    observe: Observe = "logits",
    training: bool = False,
    methods: Methods = "both",
    track: str = "bias",
    on_progress: Callable[[str, int, int], None] | None = None,
) -> Audit:
    """Determine which additive parameters of a model are redundant, alone or jointly.

    The static method propagates shifts of all parameters through the exported graph and collects the constraints on
    them; the numerical method moves the parameters and measures the output. What moves refute is `undecided`; what is
    free at all tested inputs without a proof is `unproved`. The model, the process's random state, its default dtype and
    its modes are not changed.

    Example:

        >>> import torch, addnorm
        >>> layer = torch.nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True).eval()
        >>> audit = addnorm.audit(layer, torch.randn(2, 5, 8))
        >>> audit.joint_null
        26
        >>> audit.finding("self_attn.in_proj_bias").verdict
        'partly redundant'

    Args:
        model: any module whose parameters are on one device. The analysis runs on the CPU, on copies in float64.
        inputs: a tensor, a tuple of positional or a dict of keyword inputs that the model accepts.
        observe: the output that must not change: `logits` (the output itself), its `softmax`, or the `loss` that the
            model returns.
        training: analyse training mode (batch statistics, dropout) instead of evaluation.
        methods: `both`, or one of them.
        track: `bias` (every parameter that is only added to data), `bias+tables` (also embeddings and position tables),
            `scalars`, or a regular expression over parameter names.
        on_progress: is called with a stage, and the number of its parts done and of all.

    Returns:
        The findings, from which the model can be rewritten; none, with a note, for a model without such parameters.

    Raises:
        InputError: the model cannot be audited (NaN, several devices), no name matches `track`, or the inputs do not fit
            the model.
        UnknownName: unknown observation or method.

    Warns:
        UserWarning: the audit needs more memory than is available.

    Memory: about 26 bytes per parameter of a float32 model, itself included (`memory.needed_bytes`). Cost: one export;
    for up to 1024 tracked scalars about as many gradients, above that a few.
    """
    started = time.perf_counter()
    check_options(observe, methods)
    _check_types(training, track)
    check_model(model)
    bound = bind(inputs)
    check_inputs(bound)
    log = _Log(notes=_memory_notes(model), on_progress=on_progress)
    for note in log.notes:
        warnings.warn(note, stacklevel=2)
    with PROCESS_LOCK, torch.autocast(device_of(model).type, enabled=False), torch.inference_mode(False):
        tracked = _tracked_parameters(model, bound, track, log)
        if not tracked.entries:
            return _nothing(
                _Question(model=model, inputs=bound, tracked=tracked, observe=observe, training=training), log, methods
            )
        question = _Question(model=model, inputs=bound, tracked=tracked, observe=observe, training=training)
        made = cache(lambda: generic(model, torch.float64).train(training))
        static = _run_static(question, made, log) if methods != "numeric" else None
        generic_copy = made()
        names, not_in_float64 = _observed_names(question, generic_copy)
        numerical, lengths = _run_numerical(question, generic_copy, static, methods, log, not_in_float64)
        log.progress("numerical method", 1, 1)
        null_space = static.space if static else numerical.space if numerical else None
        findings = _findings(question, generic_copy, static, numerical, null_space, _sizes_in_words(bound, lengths))
        log.notes.extend(joint_unproved(static.space, numerical) if static and numerical else ())
        log.notes.extend(drift_notes(findings, model))
    log.seconds["total"] = time.perf_counter() - started
    return Audit(
        model=class_name(model),
        findings=findings,
        joint_null=joint_null(null_space, numerical),
        size=tracked.size,
        assumptions=(*(static.assumptions if static else ()), f"inputs have {_sizes_in_words(bound, lengths)}"),
        observe=observe,
        observed=names.observed,
        unobserved=names.omitted,
        training=training,
        methods="both" if static and numerical else "static" if static else "numeric",
        notes=tuple(log.notes),
        disagreements=(
            disagreements(findings) + joint_disagreement(static.space, numerical) if static and numerical else ()
        ),
        numeric_joint_null=numerical.joint if numerical else None,
        versions=_versions(),
        seconds={name: round(value, 3) for name, value in log.seconds.items()},
        subject=_audited_model(question, static, null_space),
    )


@dataclass(frozen=True, kw_only=True)
class _Question:
    """The model, the tracked parameters, and the output that must not change."""

    model: nn.Module
    inputs: Inputs
    tracked: TrackedParameters
    observe: Observe
    training: bool


@dataclass(frozen=True, kw_only=True)
class _Log:
    """Notes about the scope of the methods, and their wall-clock times."""

    notes: list[str]
    seconds: dict[str, float] = field(default_factory=dict)
    on_progress: Callable[[str, int, int], None] | None = None

    def progress(self, stage: str, done: int, total: int) -> None:
        """Report progress to the caller."""
        if self.on_progress is not None:
            self.on_progress(stage, done, total)

    @contextmanager
    def timed(self, name: str) -> Iterator[None]:
        """Record the time spent inside."""
        started = time.perf_counter()
        yield
        self.seconds[name] = time.perf_counter() - started


def check_options(observe: object, methods: object) -> None:
    """Refuse names that the annotations exclude, for callers without a type checker.

    Raises:
        UnknownName: unknown observation or method.
    """
    for kind, name, known in (("observation", observe, get_args(Observe)), ("method", methods, get_args(Methods))):
        if name not in known:
            raise UnknownName(kind, name, known)


def _check_types(training: object, track: object) -> None:
    for name, value, expected in (("training", training, bool), ("track", track, str)):
        if not isinstance(value, expected):
            raise InputError(f"expected `{name}` to be a {expected.__name__}, got {value!r}.")


def _memory_notes(model: nn.Module) -> list[str]:
    """A sentence if the audit needs more memory than is available."""
    needed, left = model_bytes(model), left_bytes()
    if left is None or needed <= left:
        return []
    return [
        f"an audit of {class_name(model)} needs about {gb(needed)} of memory, and {gb(left)} are available. Audit a smaller "
        "configuration of the class and transfer its rewrite with `Audit.transfer`; for Transformers models `addnorm audit` "
        "does both."
    ]


def _tracked_parameters(model: nn.Module, inputs: Inputs, track: str, log: _Log) -> TrackedParameters:
    """Determine the tracked parameters, and note the ones that are left out.

    Raises:
        InputError: no name matches `track`, a regular expression.
    """
    tracked = track_parameters(model, inputs, track=track)
    if not tracked.entries:
        if track not in _KINDS:
            raise InputError(
                f"expected parameters whose name matches {track!r} in {class_name(model)}, got none that its forward pass "
                "reads. Set `track` (--track of the command) to bias, bias+tables, scalars or another regular expression."
            )
        log.notes.append(f"{class_name(model)} has no {_KINDS[track]}, so there is nothing to audit")
    if tracked.unused:
        log.notes.append(
            f"no given input reaches {', '.join(tracked.unused)}, so nothing is concluded about "
            + ("them" if len(tracked.unused) > 1 else "it")
        )
    if tracked.nonlinear:
        log.notes.append(
            f"{', '.join(tracked.nonlinear)}: added to data, but not as an affine function of real numbers (a product of "
            "parameters, a nonlinear parametrisation, a Python number, complex numbers), so not in the table"
        )
    if tracked.other:
        log.notes.append(
            f"{', '.join(tracked.other)}: used in other ways than by being added to data (joined to them, looked up, "
            "multiplied), so not in the table; to audit a parameter whatever its use, track it by its name"
        )
    large = [entry.name for entry in tracked.entries if entry.coordinates == "common row"]
    if large:
        log.notes.append(
            f"tables with more than {LARGEST_TABLE} numbers ({', '.join(large)}) are analysed only for adding one row to all "
            "rows, not row by row"
        )
    return tracked


def _nothing(question: _Question, log: _Log, methods: Methods) -> Audit:
    """The audit of a model without parameters of the kind asked for."""
    return Audit(
        model=class_name(question.model),
        findings=(),
        joint_null=0,
        size=0,
        assumptions=(),
        observe=question.observe,
        training=question.training,
        methods=methods,
        notes=tuple(log.notes),
        versions=_versions(),
        seconds={"total": 0.0},
        subject=_audited_model(question, None, NullSpace(question.tracked, {})),
    )


def _run_static(question: _Question, generic_copy: Callable[[], nn.Module], log: _Log) -> StaticAnalysis | None:
    """Run the static method; None, with a note, if the model does not export."""
    with log.timed("static"):
        try:
            return static_analysis.analyse(
                question.model,
                question.inputs,
                tracked=question.tracked,
                observe=question.observe,
                training=question.training,
                generic_copy=generic_copy,
                on_node=lambda done, total: log.progress("operations of the graph", done, total),
            )
        except NotExported as error:
            log.notes.append(f"the model does not export, so only the numerical method ran: {error}")
            return None


def _run_numerical(
    question: _Question,
    generic_copy: nn.Module,
    static: StaticAnalysis | None,
    methods: Methods,
    log: _Log,
    not_in_float64: str,
) -> tuple[NumericalAnalysis | None, tuple[int, ...]]:
    """Run the numerical method where it is wanted or needed; None, with a note, if the model does not allow it. Also
    returns the other lengths at which it ran."""
    if static is not None and not_in_float64:
        log.notes.append(f"the model does not run in float64, so only the static method ran: {not_in_float64}")
        return None, ()
    if methods == "static" and static is not None:
        return None, ()
    claim = static.space if static is not None else None
    limit = COUNTED_ALONE if claim is None else COUNTED_WITH_PROOF
    size = question.tracked.size
    log.progress("numerical method", 0, 1)
    with log.timed("numeric"):
        try:
            numerical, cases = numerical_analysis.analyse(
                generic_copy, question.inputs, question.tracked, question.observe, claim, limit=limit
            )
        except NotDifferentiable as error:
            if static is None:
                raise
            log.notes.append(f"the numerical method failed on the model, so only the static method ran: {error}")
            return None, ()
    if not cases.fresh:
        log.notes.append("the model rejects random inputs of the same kind, so only the given inputs were tested")
    if size <= limit and not numerical.counted:
        what = "so the numerical method counted no null directions; it tested the claims of the static method by moves"
        log.notes.append(f"gradients of the model contain NaN or infinity, {what}")
    if size > limit:
        log.notes.append(
            f"the numerical method counts null directions only up to {limit} scalars, and the model has {size}; it "
            + ("tested the claims of the static method" if claim else "identified parameters without any effect")
        )
    return numerical, cases.lengths


def _observed_names(question: _Question, generic_copy: nn.Module) -> tuple[ObservedNames, str]:
    """Names of the observed parts of the output, and of the others; and the reason why the copy in float64 does not run, empty
    if it does. If it does not, a copy of the model as it is gives the names."""
    reason = ""
    try:
        output = check_call(generic_copy, cast(question.inputs, torch.float64), question.observe)
    except InputError as error:
        reason = str(error)
        spare = plain_copy(question.model).train(question.training)
        with torch.no_grad(), seeded(0):
            output = spare(*cloned(question.inputs).args, **cloned(question.inputs).kwargs)
        require_finite(output, question.observe)
    return observed_names(output, question.observe), reason


def _findings(
    question: _Question,
    generic_copy: nn.Module,
    static: StaticAnalysis | None,
    numerical: NumericalAnalysis | None,
    null_space: NullSpace | None,
    inputs: str,
) -> tuple[Finding, ...]:
    """Decide, fold and describe each parameter."""
    findings, tracked = [], question.tracked
    values = dict(question.model.named_parameters())
    folded = Folds(generic_copy, null_space) if null_space and tracked.size <= _LARGEST_FOLDED else None
    for index, entry in enumerate(tracked.entries):
        counts = compare(entry, index, static.space if static else None, numerical)
        findings.append(
            finding(
                entry,
                counts,
                space=null_space,
                blockers=strongest(static.blockers, entry) if static else (),
                folds=folded.of(entry) if folded and counts.absorbable > counts.redundant else (),
                numeric=(numerical.redundant[index], numerical.absorbable[index]) if numerical else (None, None),
                value=values[entry.name],
                inputs=inputs,
            )
        )
    return tuple(findings)


def _sizes_in_words(inputs: Inputs, lengths: tuple[int, ...]) -> str:
    """The lengths at which the model was tested."""
    own = [
        leaf.shape[1]
        for leaf in (*inputs.args, *inputs.kwargs.values())
        if isinstance(leaf, torch.Tensor) and leaf.dim() > 1
    ]
    return f"lengths {', '.join(map(str, sorted({*own[:1], *lengths})))}" if lengths else "the shapes given"


def _audited_model(question: _Question, static: StaticAnalysis | None, null_space: NullSpace | None) -> AuditedModel:
    """The input of the rewrites. The null space at the model's own weights is computed when the first rewrite reads
    it."""

    def numerical_null_space() -> NullSpace:
        copied = copy_of(question.model, torch.float64).train(question.training)
        return numerical_analysis.null_space_at_weights(copied, question.inputs, question.tracked, question.observe)

    return AuditedModel(
        model=question.model,
        inputs=question.inputs,
        tracked=question.tracked,
        observe=question.observe,
        training=question.training,
        generic_null_space=null_space,
        compute_null_space=static.own_null_space if static is not None else numerical_null_space,
        versions=parameter_versions(question.model),
    )


def _versions() -> dict[str, str]:
    return {"addnorm": __version__, "torch": torch.__version__, "python": platform.python_version()}
