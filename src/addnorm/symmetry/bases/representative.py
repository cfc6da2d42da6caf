"""`canonicalised`, `quantise_ready_model` and `equal_up_to`: a model's representative among those that compute the same."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import nn

from addnorm.errors import InputError
from addnorm.redundancy.execution.checks import check_inputs, check_model
from addnorm.redundancy.execution.copies import PROCESS_LOCK
from addnorm.redundancy.execution.inputs import Inputs, bind
from addnorm.redundancy.execution.observation import Observe
from addnorm.redundancy.graph.export import NotExported, Program, export
from addnorm.symmetry.bases.additive import Additive
from addnorm.symmetry.bases.additive_search import additive_freedom
from addnorm.symmetry.bases.canonical import settle
from addnorm.symmetry.bases.certificate import BasisCertificate, require_finite, rewritten
from addnorm.symmetry.bases.change import Weights, factor_of, fold_gains, move_at_random, spanned
from addnorm.symmetry.bases.parts import RowRange, in_parts, with_parts
from addnorm.symmetry.bases.propagation import cells
from addnorm.symmetry.bases.quantising import WeightError, errors, output_error, quantise_ready
from addnorm.symmetry.bases.rows import TradedRows, traded_rows
from addnorm.symmetry.bases.simplified import simplified
from addnorm.symmetry.bases.solution import Cells
from addnorm.symmetry.families import EMBEDDING_POSITION

NO_RULE = "read by an operation without a rule"
ZEROS = "gain with a zero"
SHORT = "basis that too few numbers span"
_SAME = 1e-6
"""Largest relative difference of canonical weights that count as equal: stored weights are rounded."""


@dataclass(frozen=True, kw_only=True)
class Representative:
    """A model that computes the same with other weights."""

    model: nn.Module
    sizes: dict[str, int]
    """Directions by family, of those that this analysis knows at any size."""
    certificate: BasisCertificate
    stays: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Parameters whose freedom of a family is not used up, by family."""
    choice: str = ""
    """The candidate whose outputs change least under 4-bit weights."""
    before: WeightError | None = None
    after: WeightError | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the content of `addnorm audit --canonical --json`."""
        errors = (
            {"choice": self.choice, "before": self.before.to_json(), "after": self.after.to_json()}
            if (self.before is not None and self.after is not None)
            else {}
        )
        stays = {name: list(each) for name, each in self.stays.items()}
        return {"families": self.sizes, "stays": stays, "certificate": self.certificate.to_json(), **errors}


@dataclass(frozen=True, kw_only=True)
class WeightDistance:
    """Distance of two models' weights."""

    as_stored: float
    """Root mean square of the difference, relative to that of the first's weights."""
    canonical: float
    """The same of their canonical representatives."""
    families: tuple[str, ...]
    """The families whose freedom the representatives have used up."""
    apart: tuple[str, ...]
    """Parameters whose canonical numbers differ by more than rounding."""

    @property
    def equal(self) -> bool:
        """True if the models are equal up to the families."""
        return not self.apart

    def to_json(self) -> dict[str, Any]:
        """Return its entry in JSON."""
        return {
            "equal": self.equal,
            "as_stored": self.as_stored,
            "canonical": self.canonical,
            "families": list(self.families),
            "apart": list(self.apart),
        }


@dataclass(frozen=True, kw_only=True)
class Freedom:
    """The changes of basis and the additive freedom of a graph."""

    cells: Cells
    additive: Additive
    zeros: frozenset[str] = frozenset()
    """Gains with a zero."""
    settled: Cells
    """Those of the cells that have a canonical element."""
    short: tuple[str, ...] = ()
    """Parameters on both sides of the other cells, which one of the sides does not span."""
    parts: Mapping[str, RowRange] = field(default_factory=dict)
    """Parameters that are read in parts, by the names of the parts."""
    rows: Sequence[TradedRows] = ()
    """Constants that rows of tables trade which are only read together."""

    def sizes(self) -> dict[str, int]:
        """The number of directions, by family."""
        return self._with_rows({**self.cells.sizes(), **self.additive.sizes()})

    def used(self) -> dict[str, int]:
        """The number of directions that the canonical representative uses up, by family."""
        return self._with_rows({**self.settled.sizes(), **self.additive.sizes()})

    def _with_rows(self, sizes: dict[str, int]) -> dict[str, int]:
        centred = {each.parameter for each in self.additive.means}
        traded = sum(each.size(centred) for each in self.rows)
        return sizes | ({EMBEDDING_POSITION.name: sizes.get(EMBEDDING_POSITION.name, 0) + traded} if traded else {})

    def staying(self) -> dict[str, tuple[str, ...]]:
        """Parameters whose freedom is not used up, by family; also those of which no rule knows whether they have any."""
        unread = tuple(sorted(self.cells.unruled() - self.zeros))
        made = {**self.additive.staying(), NO_RULE: unread, ZEROS: tuple(sorted(self.zeros)), SHORT: self.short}
        return {family: names for family, names in made.items() if names}

    def settle(self, weights: Weights) -> None:
        """Change weights into their canonical representative, in place."""
        weights = with_parts(weights, self.parts)
        fold_gains(self.cells, weights)
        for each in self.rows:
            each.settle(weights)
        self.additive.settle(weights)
        settle(self.settled, weights)

    def move_at_random(self, weights: Weights, seed: int) -> None:
        """Move along every direction of every family, in place."""
        weights = with_parts(weights, self.parts)
        fold_gains(self.cells, weights)
        generator = torch.Generator().manual_seed(seed)
        self.additive.move_at_random(weights, generator)
        for each in self.rows:
            each.move_at_random(weights, generator)
        move_at_random(self.cells, weights, seed)


def freedom_of(model: nn.Module, inputs: Any, *others: nn.Module, observe: Observe = "logits") -> Freedom:
    """Return the freedom of a model of any size, and of others of its class; its weights may be on the meta device.

    Raises:
        InputError: the model does not export.
    """
    exported = _exported(model, inputs, observe)
    rows = traded_rows(exported, model, bind(inputs), observe)
    program, parts = in_parts(exported)
    program = simplified(program)
    bases = cells(program)
    stay = {name for each in (model, *others) for name in _gains_with_a_zero(bases, each, parts)}
    bases = cells(program, stay) if stay else bases
    shapes = {
        program.parameters[node.name]: node.meta["val"].shape
        for node in program.nodes
        if node.op == "placeholder" and node.name in program.parameters
    }
    folded = {each.parameter for each in bases.absorbed if not each.offset}
    additive = additive_freedom(
        program, folded, {name for each in (model, *others) for name in _with_a_zero(each, parts)}
    )
    settled, short = spanned(bases, shapes, additive.zeros)
    return Freedom(
        cells=bases,
        additive=additive,
        settled=settled,
        short=short,
        zeros=frozenset(stay | additive.graph.zeros_met),
        parts=parts,
        rows=rows,
    )


def _held(model: nn.Module, parts: Mapping[str, RowRange]) -> Weights:
    held = with_parts({name: each.detach() for name, each in model.named_parameters()}, parts)
    return {name: each for name, each in held.items() if not each.is_meta}


def _gains_with_a_zero(bases: Cells, model: nn.Module, parts: Mapping[str, RowRange]) -> set[str]:
    held = _held(model, parts)
    gains = [each for each in (*bases.folded, *bases.absorbed) if each.parameter in held]
    return {each.parameter for each in gains if bool((factor_of(each, held) == 0).any())}


def _with_a_zero(model: nn.Module, parts: Mapping[str, RowRange]) -> set[str]:
    return {name for name, each in _held(model, parts).items() if each.dim() < 2 and bool((each == 0).any())}


def cells_of(model: nn.Module, inputs: Any, *, observe: Observe = "logits") -> Cells:
    """Return the cells of a model of any size; its weights may be on the meta device.

    Raises:
        InputError: the model does not export.
    """
    return cells(simplified(in_parts(_exported(model, inputs, observe))[0]))


def _exported(model: nn.Module, inputs: Any, observe: Observe) -> Program:
    """Export a model, with one name for every weight.

    Raises:
        InputError: the model does not export, or changes its own weights.
    """
    bound = bind(inputs)
    try:
        with PROCESS_LOCK:
            program = export(model, bound, observe=observe, training=False)
    except NotExported as error:
        raise InputError(f"expected a model that exports, got one that does not: {error}") from error
    if program.rewritten:
        # A checkpoint of what a call has left would be changed once more after it is loaded.
        raise InputError(
            f"expected a model that leaves its weights as they are, got one whose first call changes {program.rewritten[0]}. "
            "Switch that off first (RWKV: rescale_every=0 in its configuration)."
        )
    # A tied weight has several names: all its uses are those of the first, under which the weights are held.
    first = {id(each): name for name, each in model.named_parameters()}
    named = {name: first[id(each)] for name, each in model.named_parameters(remove_duplicate=False)}
    parameters = {node: named.get(name, name) for node, name in program.parameters.items()}
    return replace(program, parameters=parameters)


def canonicalised(
    model: nn.Module, inputs: Any, *, observe: Observe = "logits", freedom: Freedom | None = None
) -> Representative:
    """Return the canonical representative of a model: gains are one, what layer norms remove and constants that later
    parameters take over are zero, both sides of every basis are balanced, the stream's axes and the hidden units are ordered.

    Two models that differ by moves of these families alone have the same, up to rounding. `Representative.stays` names the
    parameters whose freedom is not used. A `freedom` that `freedom_of` has returned for the model is not found again.

    Example:
        >>> import addnorm
        >>> spec = addnorm.preset("llama", vocab=11, width=8, depth=1, heads=2, hidden=5, max_seq=9)
        >>> made = canonicalised(spec.build(seed=0).eval(), torch.arange(18).reshape(2, 9) % 11)
        >>> made.certificate.passed, float(made.model.final_norm.weight.detach().mean())
        (True, 1.0)

    Raises:
        InputError: the model cannot be analysed, or the inputs do not fit.
    """
    freedom, bound = _analysed(model, inputs, observe, freedom)
    made, certificate = rewritten(model, freedom.settle, bound, observe)
    return Representative(model=made, sizes=freedom.used(), certificate=certificate, stays=freedom.staying())


def quantise_ready_model(
    model: nn.Module, inputs: Any, *, observe: Observe = "logits", seed: int = 0
) -> Representative:
    """Return the representative whose outputs change least under 4-bit weights, among a few candidates and the model itself.

    Args:
        model: any module that exports.
        inputs: as for `addnorm.symmetries`.
        observe: the output that must not change.
        seed: of the rotations.

    Raises:
        InputError: the model cannot be analysed, or the inputs do not fit.
    """
    freedom, bound = _analysed(model, inputs, observe)
    error = output_error(model, bound, observe)
    choice, chosen = quantise_ready(
        freedom.cells, _in_float64(model), lambda each: error(each, 4), parts=freedom.parts, seed=seed
    )

    def choose(weights: Weights) -> None:
        for name, each in weights.items():
            each.copy_(chosen[name])

    made, certificate = rewritten(model, choose, bound, observe)
    return Representative(
        model=made,
        sizes=freedom.cells.sizes(),
        certificate=certificate,
        choice=choice,
        before=errors(model, bound, observe),
        after=errors(made, bound, observe),
    )


def random_moves(
    model: nn.Module, inputs: Any, *, observe: Observe = "logits", seed: int = 0, freedom: Freedom | None = None
) -> Representative:
    """Return the model after a random element of every group: a check of all families at full size, in one comparison.

    Raises:
        InputError: the model cannot be analysed, or the inputs do not fit.
    """
    freedom, bound = _analysed(model, inputs, observe, freedom)
    made, certificate = rewritten(model, lambda weights: freedom.move_at_random(weights, seed), bound, observe)
    return Representative(model=made, sizes=freedom.sizes(), certificate=certificate, stays=freedom.staying())


def equal_up_to(
    model: nn.Module, other: nn.Module, inputs: Any, *, observe: Observe = "logits", freedom: Freedom | None = None
) -> WeightDistance:
    """Compare the weights of two models of one class by their canonical representatives.

    Equal weights say nothing of models whose code or buffers differ: `addnorm.equivalent` compares outputs. A
    `freedom`, as `canonicalised` takes it, must be that of both models.

    Raises:
        InputError: they have different parameters, or cannot be analysed.
    """
    freedom, _ = _analysed(model, inputs, observe, freedom, other)
    check_model(other)
    weights, others = _in_float64(model), _in_float64(other)
    if {name: each.shape for name, each in weights.items()} != {name: each.shape for name, each in others.items()}:
        raise InputError(
            "expected two models with the same parameters, got others. Compare models of one configuration."
        )
    as_stored = _distance(weights, others)
    for each in (weights, others):
        freedom.settle(each)
    apart = [
        name
        for name, own in weights.items()
        if float((own - others[name]).norm()) > _SAME * float(own.norm() + others[name].norm())
    ]
    return WeightDistance(
        as_stored=as_stored,
        canonical=_distance(weights, others),
        families=tuple(freedom.used()),
        apart=tuple(apart),
    )


def _distance(one: Weights, other: Weights) -> float:
    square = sum(float((one[name] - other[name]).square().sum()) for name in one)
    size = sum(float(each.square().sum()) for each in one.values())
    return float((square / size) ** 0.5) if size else 0.0


def _analysed(
    model: nn.Module, inputs: Any, observe: Observe, known: Freedom | None = None, *others: nn.Module
) -> tuple[Freedom, Inputs]:
    check_model(model)
    bound = bind(inputs)
    check_inputs(bound)
    return known or freedom_of(model, bound, *others, observe=observe), bound


def _in_float64(model: nn.Module) -> Weights:
    weights = {
        name: each.detach().to("cpu", torch.float64, copy=True)
        for name, each in model.named_parameters()
        if each.is_floating_point()
    }
    require_finite(weights, model)
    return weights
