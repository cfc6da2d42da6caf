"""`addnorm.symmetries`: run both methods, confirm every claim, and count the families."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from addnorm.errors import InputError
from addnorm.redundancy.algebra.rank import svd
from addnorm.redundancy.execution.cases import Cases
from addnorm.redundancy.execution.checks import check_inputs, check_model
from addnorm.redundancy.execution.copies import PROCESS_LOCK, device_of
from addnorm.redundancy.execution.fresh_inputs import like, tensors
from addnorm.redundancy.execution.inputs import Inputs, bind
from addnorm.redundancy.execution.observation import Observe
from addnorm.redundancy.graph.export import NotExported, Program, export
from addnorm.redundancy.result import class_name
from addnorm.symmetry.actions.equations import IllConditioned
from addnorm.symmetry.actions.look_ups import inputs_by_rows
from addnorm.symmetry.actions.whole_sums import with_joined_maps
from addnorm.symmetry.counting import LARGEST
from addnorm.symmetry.families import COUNTED, STREAM_SCALE
from addnorm.symmetry.moves import SAME, Comparison
from addnorm.symmetry.numeric.jacobian import MORE_CASES, Jacobian, generic_point, jacobian, scope
from addnorm.symmetry.numeric.null_space import (
    CLAIM,
    NullDirections,
    confirmed,
    effects,
    is_reached,
    leaving_still,
    null_space,
    orthonormal,
    reached,
    unexplained,
)
from addnorm.symmetry.result import Family, Member, Near, Symmetries, Unexplained
from addnorm.symmetry.structure import Direction, Structure, columns_of, structure
from addnorm.symmetry.subject import Subject

_NEAR = 1e-2
"""Largest relative singular value of a near-symmetry that is reported."""
_CLEAR = 1e3
"""Smallest gap of a clear count."""
_MOST_SETS = 12
"""Sets of parameters by which unexplained directions are told apart."""
_MOST_MOVES = 400
"""Number of directions up to which every finite move is tried."""
_MORE_INPUTS = 4
"""Inputs whose equations are added where a claim fails at others than the given ones."""


def symmetries(
    model: nn.Module,
    inputs: Any,
    *,
    observe: Observe = "logits",
    points: int = 2,
    training: bool = False,
    on_progress: Callable[[str, int, int], None] | None = None,
) -> Symmetries:
    """Count the directions of all parameters that change no output, and name them.

    The numerical method computes the null space of the Jacobian of all outputs at generic weights, in float64. The
    structural method solves, over the exported graph, for linear actions on activations that cancel everywhere, and sorts
    the solutions into families. Every claimed direction is confirmed against the Jacobian, and carried to a finite
    distance and compared at inputs and lengths that neither method used; what fails is `refuted` and not counted. The
    model, the process's random state, its default dtype and its modes are not changed.

    Example:
        >>> import torch, addnorm
        >>> spec = addnorm.preset("llama", vocab=11, width=4, depth=1, heads=1, kv_heads=1, hidden=3, max_seq=9)
        >>> found = addnorm.symmetries(spec.build(seed=0).eval(), torch.arange(18).reshape(2, 9) % 11)
        >>> found
        <Symmetries of Transformer: 41 of 200 directions change nothing, 41 explained>
        >>> {each.name: each.size for each in found.families}["basis of queries and keys"]
        4

    Args:
        model: any module with at most 5000 floating-point numbers in its parameters. A larger class is analysed in a reduced
            configuration.
        inputs: a tensor, a tuple of positional or a dict of keyword inputs. Rows of tables that are read at no drawn input
            count as unread; so integer inputs should use all rows.
        observe: the output that must not change: `logits` (the output itself), its `softmax`, or the `loss`.
        points: number of generic points; the number of directions must agree at all of them.
        training: True counts in training mode, with batch statistics and dropout, False in evaluation mode, whatever the
            model's own mode is.
        on_progress: is called with a stage, and the number of its parts done and of all.

    Returns:
        The counts, the families, and what is left unexplained, by parameters.

    Raises:
        InputError: the model cannot be analysed (NaN, several devices, too many parameters), or the inputs do not fit.

    Source: the families are standard; that they are all there is has been measured, not proven, for each model.
    """
    started = time.perf_counter()
    progress = on_progress or (lambda stage, done, total: None)
    check_model(model)
    bound = bind(inputs)
    check_inputs(bound)
    if not isinstance(points, int) or points < 1:
        raise InputError(f"expected a positive number of `points`, got {points!r}.")
    columns = columns_of(model)
    count = sum(each.stop - each.start for each in columns.values())
    if not 0 < count <= LARGEST:
        raise InputError(
            f"expected a model with 1 to {LARGEST} floating-point numbers in its parameters, got {count} in "
            f"{class_name(model)}. Analyse a configuration of the same class with two layers and small widths, such as 8."
        )
    notes: list[str] = []
    seconds: dict[str, float] = {}
    with PROCESS_LOCK, torch.autocast(device_of(model).type, enabled=False), torch.inference_mode(False):
        point = generic_point(model, training=training)
        cases = Cases.of(point, bound, observe)
        if not cases.fresh:
            notes.append("the model takes no inputs but the given ones, so the counts hold at these alone")
        program = None
        made: Structure | None = None
        # A graph of the longest inputs reads every row of a table that any of the inputs reads.
        longest = max(cases.templates, key=lambda each: sum(leaf.numel() for leaf in tensors(each.example)))
        read: tuple[Inputs, ...] = (like(longest.example, bound),)
        drawn = tuple(like(each, bound) for each in inputs_by_rows(longest)) if cases.fresh else ()
        try:
            progress("structural method", 0, 1)
            program = with_joined_maps(export(model, read[0], observe=observe, training=training))
            if program.states:
                # What one call writes and the next reads is neither an input, of which all values count, nor a parameter.
                raise InputError(
                    "expected calls that stand alone, got a model that reads what an earlier call wrote to "
                    f"{program.states[0]}. Put it into evaluation mode, or have it leave that buffer as it is; addnorm audit "
                    "judges its biases."
                )
            made = structure(program, point, *read, drawn=drawn)
        except NotExported as error:
            notes.append(f"the model does not export, so only the numerical method ran: {error}")
        except IllConditioned as error:
            notes.append(f"the structural method gave up: {error}")
        seconds["structural"] = time.perf_counter() - started
        derivative, space = _numerical(point, cases, observe, points, model, progress, notes)
        seconds["numerical"] = time.perf_counter() - started - seconds["structural"]
        refuted: list[str] = []
        families: tuple[Family, ...] = ()
        near: tuple[Near, ...] = ()
        claimed = torch.zeros(count, 0, dtype=torch.float64)
        if made is not None and program is not None:

            def checked(one: Structure) -> tuple[Direction, ...]:
                kept = _confirmed(one, derivative, space, columns, refuted)
                return _carried(one, kept, point, cases, observe, columns, refuted, progress, notes)

            directions = checked(made)
            if refuted and cases.fresh and any(not each.is_floating_point() for each in tensors(read[0])):
                # Integers that are more than rows of a table, such as a flag that these inputs lack, stand in the equations
                # as numbers, so that what holds at one input need not hold at another.
                read += drawn[:_MORE_INPUTS]
                try:
                    made = structure(program, point, *read, drawn=drawn)
                    refuted.clear()
                    directions = checked(made)
                except IllConditioned as error:
                    notes.append(f"the structural method gave up at further inputs: {error}")
            claimed = made.tangents(directions)
            nearly = _nearly(made, program, point, notes)
            if nearly is not None:
                unseen = _unseen(nearly, claimed, space, derivative)
                unseen = _carried(nearly, unseen, point, cases, observe, columns, [], progress, notes)
                directions += unseen
                claimed = torch.cat([claimed, nearly.tangents(unseen)], 1)
                near = _near(nearly, claimed, space, derivative, columns)
            families = _families(directions, claimed, space, columns)
        # Of nearly equal singular values the claims and the measured space may differ slightly, at the same number.
        left = max(0, space.size - sum(each.size for each in families))
        rest = unexplained(space, claimed.clone())[:, :left]
        notes += scope(point, cases, observe, derivative, columns, left)
        seconds["total"] = time.perf_counter() - started
    return Symmetries(
        model=class_name(model),
        training=training,
        parameters=count,
        unread=int(space.unread.sum()),
        redundant=space.size,
        families=families,
        unexplained=_localised(rest, space, columns),
        gap=space.gap,
        near=near,
        refuted=tuple(refuted),
        notes=tuple(notes),
        seconds={name: round(value, 3) for name, value in seconds.items()},
        subject=Subject(
            model=model,
            program=program,
            inputs=bound,
            read=read,
            drawn=drawn,
            observe=observe,
            training=training,
            null=space.basis,
            unread=space.unread,
            columns=columns,
        ),
    )


def _nearly(made: Structure, program: Program, point: nn.Module, notes: list[str]) -> Structure | None:
    """The directions that small constants break, too; None, with a note, where they cannot be told."""
    try:
        return structure(program, point, nearly=True, propagation=made.propagation)
    except IllConditioned as error:
        notes.append(f"near-symmetries are not known: {error}")
        return None


def _numerical(
    point: nn.Module,
    cases: Cases,
    observe: Observe,
    points: int,
    model: nn.Module,
    progress: Callable[[str, int, int], None],
    notes: list[str],
) -> tuple[Jacobian, NullDirections]:
    progress("numerical method", 0, points)
    derivative = jacobian(point, cases, observe)
    space = null_space(derivative.matrix, derivative.unread)
    if space.gap < _CLEAR and derivative.cases < MORE_CASES and cases.fresh:
        wider = jacobian(point, cases, observe, fewest_cases=MORE_CASES)
        clearer = null_space(wider.matrix, wider.unread)
        if clearer.gap > space.gap:
            derivative, space = wider, clearer
    sizes = [space.size]
    for seed in range(1, points):
        progress("numerical method", seed, points)
        other = generic_point(model, seed=seed, training=point.training)
        again = jacobian(other, cases, observe, fewest_cases=derivative.cases)
        sizes.append(null_space(again.matrix, again.unread).size)
    if len(set(sizes)) > 1:
        notes.append(f"the number of directions differs between generic points: {', '.join(map(str, sizes))}")
    if derivative.matrix.shape[0] < derivative.matrix.shape[1]:
        notes.append(
            f"the inputs give {derivative.matrix.shape[0]} outputs for {derivative.matrix.shape[1]} numbers, so the count says "
            "no more than: on these inputs"
        )
    if space.gap < _CLEAR:
        notes.append(f"no clear gap separates the directions from the others ({space.gap:.1e})")
    return derivative, space


def _names(tangent: Tensor, columns: Mapping[str, slice], unread: Tensor) -> tuple[str, ...]:
    seen = torch.where(unread, 0.0, tangent.abs())
    largest = float(seen.max()) if len(seen) else 0.0
    return tuple(name for name, at in columns.items() if largest and float(seen[at].max()) > 1e-9 * largest)


def _confirmed(
    made: Structure, derivative: Jacobian, space: NullDirections, columns: Mapping[str, slice], refuted: list[str]
) -> tuple[Direction, ...]:
    """The directions that the Jacobian confirms, without those that move unread numbers alone."""
    tangents = made.tangents(made.directions)
    tangents[space.unread] = 0
    moves = tangents.abs().max(0).values > 0 if tangents.shape[1] else torch.zeros(0, dtype=torch.bool)
    effect = effects(derivative.matrix, tangents)
    kept = []
    for at in torch.nonzero(moves).flatten().tolist():
        direction = made.directions[at]
        if float(effect[at]) < CLAIM:
            kept.append(direction)
        else:
            where = ", ".join(_names(tangents[:, at], columns, space.unread))
            refuted.append(f"{direction.family}: {where}: moves the output by {float(effect[at]):.1e} to first order")
    return tuple(kept)


def _carried(
    made: Structure,
    directions: tuple[Direction, ...],
    point: nn.Module,
    cases: Cases,
    observe: Observe,
    columns: Mapping[str, slice],
    refuted: list[str],
    progress: Callable[[str, int, int], None],
    notes: list[str],
) -> tuple[Direction, ...]:
    """The directions whose finite moves leave the outputs equal; of many, a sample of each family is tried."""
    step = max(1, -(-len(directions) // _MOST_MOVES))
    comparison = Comparison.of(point, cases, observe)
    weights = {name: each.detach() for name, each in point.named_parameters()}
    kept, families = [], [each.family for each in directions]
    for at, direction in enumerate(directions):
        if at % 25 == 0:
            progress("finite moves", at, len(directions))
        if families[:at].count(direction.family) % step == 0:
            difference = comparison.moved(made.propagation, weights, direction, 0.3)[1]
            if not difference < SAME:
                tangent = made.tangents((direction,))[:, 0]
                where = ", ".join(_names(tangent, columns, torch.zeros_like(tangent, dtype=torch.bool)))
                refuted.append(f"{direction.family}: {where}: a finite move changes the output by {difference:.1e}")
                continue
        kept.append(direction)
    if step > 1:
        notes.append(f"every direction was confirmed to first order, one of {step} in every family by a finite move")
    return tuple(kept)


def _families(
    directions: Sequence[Direction], tangents: Tensor, space: NullDirections, columns: Mapping[str, slice]
) -> tuple[Family, ...]:
    """Count each family by the directions that those before it do not span, and its members in the same way."""
    spanned = torch.zeros(tangents.shape[0], 0, dtype=torch.float64)
    families = []
    for name in (rule.name for rule in COUNTED):
        groups: dict[tuple[str, ...], list[int]] = {}
        for at, direction in enumerate(directions):
            if direction.family == name:
                groups.setdefault(_names(tangents[:, at], columns, space.unread), []).append(at)
        members = []
        for parameters, numbers in sorted(groups.items(), key=lambda each: len(each[0])):
            basis = orthonormal(space, tangents[:, numbers].clone())
            new = basis - spanned @ (spanned.T @ basis)
            left, values, _ = svd(new - spanned @ (spanned.T @ new))
            left = left[:, values > 1e-7]
            spanned = torch.cat([spanned, left], 1)
            if left.shape[1]:
                members.append(Member(parameters=parameters, size=left.shape[1]))
        if members:
            families.append(Family(name=name, size=sum(each.size for each in members), members=tuple(members)))
    return tuple(families)


def _unseen(nearly: Structure, claimed: Tensor, space: NullDirections, derivative: Jacobian) -> tuple[Direction, ...]:
    """Directions that a small constant breaks by less than float64 can tell, one for each that the exact ones lack."""
    tangents = nearly.tangents(nearly.directions)
    tangents[space.unread] = 0
    null = confirmed(derivative.matrix, tangents)
    known, kept = orthonormal(space, claimed.clone()), []
    for at in torch.nonzero(null & (tangents.abs().max(0).values > 0)).flatten().tolist() if len(null) else ():
        own = tangents[:, at] * space.scale
        rest = own - known @ (known.T @ own)
        rest = rest - known @ (known.T @ rest)
        is_new = float(rest.norm()) > 1e-6 * float(own.norm())
        # The measured null space has the last word on what float64 tells apart.
        if is_new and float((space.basis.T @ rest).norm()) > (1 - 1e-6) * float(rest.norm()):
            known = torch.cat([known, (rest / rest.norm())[:, None]], 1)
            kept.append(replace(nearly.directions[at], family=STREAM_SCALE.name))
    return tuple(kept)


def _near(
    nearly: Structure, claimed: Tensor, space: NullDirections, derivative: Jacobian, columns: Mapping[str, slice]
) -> tuple[Near, ...]:
    """Directions that only a small constant breaks, apart from the exact ones."""
    tangents = nearly.tangents(nearly.directions)
    known = orthonormal(space, claimed.clone())
    scaled = derivative.matrix / space.scale
    near = []
    for at, direction in enumerate(nearly.directions):
        own = tangents[:, at] * space.scale
        own[space.unread] = 0
        rest = own - known @ (known.T @ own)
        rest = rest - known @ (known.T @ rest)
        if float(rest.norm()) < 1e-7 * float(own.norm()):
            continue
        rest /= rest.norm()
        known = torch.cat([known, rest[:, None]], 1)
        value = float((scaled @ rest).norm()) / float(space.values[0])
        if value < _NEAR:
            names = _names(rest / space.scale, columns, space.unread)
            near.append(Near(family=direction.family, parameters=names, singular_value=value))
    return tuple(near)


def _localised(rest: Tensor, space: NullDirections, columns: Mapping[str, slice]) -> tuple[Unexplained, ...]:
    """Sets of parameters, as small as greedy removal finds, that can move alone in a way which the claims do not span."""
    localised: list[Unexplained] = []
    # All in coordinates of the null space, whose dimension is far below the number of parameters. What leaves the removed
    # parameters as they are is narrowed step by step: solved for anew, each step would cost that dimension cubed.
    unclaimed = space.basis.T @ rest
    moved = {name: space.basis[at] for name, at in columns.items()}
    moved = {name: each for name, each in moved.items() if float(each.square().sum()) > 1e-18}
    while left := unclaimed.shape[1]:
        inside, names = torch.eye(space.size, dtype=torch.float64), []
        for name, rows in moved.items():
            narrower = leaving_still(inside, rows)
            if is_reached(unclaimed, narrower):
                inside = narrower
            else:
                names.append(name)
        new, others = reached(unclaimed, inside)
        if not new.shape[1] or len(localised) == _MOST_SETS:
            localised.append(Unexplained(parameters=tuple(names), size=left))
            break
        localised.append(Unexplained(parameters=tuple(names), size=new.shape[1]))
        unclaimed = others
    return tuple(localised)
