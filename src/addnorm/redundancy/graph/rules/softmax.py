"""Softmax and what is a function of it: a shift that is the same along the axis cancels."""

from dataclasses import replace
from math import inf, isinf

import torch

from addnorm.redundancy.graph.reshaping import picked, reshaped
from addnorm.redundancy.graph.rule import Site, rule
from addnorm.redundancy.graph.shift import Shift, spread, still
from addnorm.redundancy.graph.value import Out, Value


@rule("softmax", "_softmax", "_safe_softmax", "special_softmax", always=True, axial=True)
def softmax(site: Site, value: Value, dim: int, *_: object, **__: object) -> Out:
    """softmax(x + c 1) = softmax(x), so a shift constant along the axis has no effect; the rows sum to one."""
    site.unchanged(value) if value.seen_by_softmax else site.level(value, [dim])
    return Out(still(site.shape), sums={dim % len(site.shape): torch.ones((1,) * len(site.shape), dtype=torch.float64)})


@rule("log_softmax", "_log_softmax", axial=True)
def log_softmax(site: Site, value: Value, dim: int, *_: object, **__: object) -> Out:
    """log_softmax(x + c 1) = log_softmax(x); entries that were filled in do move against the others then, so none may
    be.
    """
    site.unchanged(value) if value.masked else site.level(value, [dim])
    return site.still()


@rule("logsumexp", axial=True)
def logsumexp(site: Site, value: Value, dim: list[int], keepdim: bool = False) -> Out:
    """logsumexp(x + c 1) = logsumexp(x) + c."""
    if value.masked:
        site.unchanged(value)
        return site.still()
    value = site.level(site.settled(value), dim)
    return Out(first_entries(value.shift, dim, site.shape))


def first_entries(shift: Shift, axes: list[int], shape: tuple[int, ...]) -> Shift:
    """A shift that is constant along some axes, these axes reduced to one entry or removed."""
    for axis in axes:
        shift = picked(shift, axis % len(shift.shape), torch.tensor([0]))
    return reshaped(shift, shape)


@rule("cross_entropy_loss")
def cross_entropy(
    site: Site, value: Value, target: Value, weight: Value | None = None, *_: object, **__: object
) -> Out:
    """A function of log_softmax over the classes. Targets are class numbers, or known or unknown shares: all multiply
    log_softmax.
    """
    site.unchanged(target, weight)
    classes = 0 if len(value.shape) == 1 else 1
    site.unchanged(value) if value.masked else site.level(value, [classes])
    return site.still()


@rule("amax", "max", "topk", "sort", "amin", "min", "argmax", "argmin", "argsort", "cummax", axial=True)
def largest(site: Site, value: Value, *args: object, **kwargs: object) -> list[Out]:
    """max(x + c 1) = max(x) + c, and the places stay. Two operands, or no axis: nothing may move."""
    dim = (
        args[1] if site.op == "topk" and len(args) > 1 else args[0] if args and site.op != "topk" else kwargs.get("dim")
    )
    if site.op in ("topk", "sort", "argsort") and dim is None:
        dim = -1
    if isinstance(dim, bool) or not isinstance(dim, int | list) or (isinstance(dim, list) and not dim):
        site.unchanged(value, *(each for each in args if isinstance(each, Value)))
        return site.all_still()
    axes = [dim] if isinstance(dim, int) else list(dim)
    if value.seen_by_softmax or (value.masked and site.op in ("min", "amin", "argmin")):
        site.unchanged(value)
        return site.all_still()
    value = site.level(value, axes)
    outs = site.all_still()
    if not site.op.startswith("arg"):
        one = value.shift
        axes = [axis % len(value.shape) for axis in axes]
        for axis in axes:
            one = picked(one, axis, torch.tensor([0]))
        kept = len(site.shape) == len(value.shape)
        after = [axis for axis in range(len(value.shape)) if kept or axis not in axes]
        loose = tuple(each.turned({axis: at for at, axis in enumerate(after)}) for each in value.loose)
        masked = None
        if kept and site.op in ("amax", "amin", "max", "min"):
            # One entry of moves that are equal along the axes: the same moves.
            loose = tuple(replace(each, path=old.path) for each, old in zip(loose, value.loose, strict=True))
        elif value.masked is not None:
            masked = value.masked.elsewhere()
        shift = spread(one, site.shape) if kept else reshaped(one, site.shape)
        outs[0] = Out(shift, loose, masked=masked, fact="maximum" if site.op in ("amax", "max") else "")
    return outs


@rule("eq", "ne", "gt", "ge", "lt", "le", "isinf", "isneginf", "isposinf", "isfinite", "isnan")
def compare(site: Site, value: Value, *others: object) -> Out:
    """Comparing with infinity: what is finite stays so, and what is infinite too. Any other comparison may jump.

    A maximum is minus infinity only if a row is masked throughout."""
    if site.op.startswith("is") or (len(others) == 1 and isinstance(others[0], float) and isinf(others[0])):
        if (site.op != "eq" or others[0] != -inf) and site.op != "isneginf":
            return site.still()
        return replace(site.still(), fact="nowhere" if value.fact == "maximum" else f"endless {value.name}")
    site.unchanged(value, *(each for each in others if isinstance(each, Value)))
    return site.still()
