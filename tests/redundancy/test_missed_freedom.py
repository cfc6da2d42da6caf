"""Freedom that the static method is known to miss: it counts fewer directions, the numerical method counts them, and
the verdict is `unproved`. A case that becomes exact leaves this list; one that appears elsewhere joins it. Others are
in test_blocks.py (`PESSIMISTIC`) and test_numeric.py."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from toys import Behind

import addnorm

pytestmark = pytest.mark.compiled

D = 6


def normed(x: Tensor) -> Tensor:
    """Keys that lie in the plane of entries with sum zero, to which a query may move at right angles."""
    return F.layer_norm(x, (D,))


def attended(query: Tensor, key: Tensor) -> Tensor:
    return (query @ key.mT).softmax(-1)


@torch.library.custom_op("missed_freedom::softmax", mutates_args=())
def opaque(scores: Tensor) -> Tensor:
    """A softmax that no rule can see into, although it has the name of one that has a rule."""
    return scores.softmax(-1)


@opaque.register_fake
def _(scores: Tensor) -> Tensor:
    return torch.empty_like(scores)


def _gradient(ctx: Any, gradient: Tensor) -> Tensor:
    (weights,) = ctx.saved_tensors
    return weights * (gradient - (gradient * weights).sum(-1, keepdim=True))


opaque.register_autograd(_gradient, setup_context=lambda ctx, inputs, output: ctx.save_for_backward(output))


Mixed = Callable[..., Tensor]
"""Functions of one or two projections of the input, and of the input."""

CASES: dict[str, tuple[int, Mixed, int, int]] = {
    # Moves by a and b shift S + S^T by constants along a row wherever W_k^T a + W_h^T b = 0: d directions.
    "scores and their transpose": (2, lambda h, k, x: (h @ k.mT + (h @ k.mT).mT).softmax(-1), 0, D),
    # Without a small constant in the divisor, the shares of the values sum to one; no rule compares expressions.
    "values divided by the sum of their shares": (
        1,
        lambda h, x: (x.exp() @ (x.exp().mT @ h) / (x.exp() @ x.exp().sum(1)[..., None])) - h[:, :1],
        0,
        D,
    ),
    "keys and their mirror image": (2, lambda q, r, x: (q @ x.mT + r @ x.flip(-1).mT).tanh(), 0, D),
    "an opaque operation": (2, lambda k, v, x: opaque(x @ k.mT) @ v.tanh(), 0, D),
    # One direction of the query each: what is at right angles to every key.
    "a plane, its axes permuted": (1, lambda h, x: attended(h, normed(x).roll(1, -1)), 0, 1),
    "a plane, its axes scaled": (1, lambda h, x: attended(h, normed(x) * torch.arange(1.0, 1 + D).to(x)), 0, 1),
    "a plane and a key of zeros": (1, lambda h, x: attended(h, F.pad(normed(x), (0, 0, 1, 0))), 0, 1),
}


@pytest.mark.parametrize("name", CASES)
def test_a_freedom_that_is_missed_leaves_the_verdict_open(name: str) -> None:
    projections, mixed, static, true = CASES[name]
    torch.manual_seed(0)
    model, x = Behind(mixed, projections).eval(), torch.randn(3, 5, D)
    assert addnorm.audit(model, x, methods="numeric").joint_null == true
    audit = addnorm.audit(model, x)
    assert audit.joint_null == static
    assert audit.numeric_joint_null == true
    missed = audit.finding("maps.0.bias")
    assert (missed.verdict, missed.redundant_dof) == ("unproved", 0)
    assert audit.agreed
    assert any(f"at the inputs tested {true} change nothing" in note for note in audit.notes)
