"""Sizes reported with a verdict: the present norm of a bias, its largest entry, and the part that cannot matter."""

import pytest
import torch
import toys
from toys import WIDTH, data, seeded

import addnorm
from addnorm.reporting.audit.table import text


def test_a_finding_has_the_size_of_its_bias_and_of_the_part_that_cannot_matter() -> None:
    model = seeded(toys.PostNorm)
    key = torch.tensor([3.0, 0, 0, 0, 0, -4.0])
    down = torch.tensor([2.0, 2, 2, 2, 2, 2]) + torch.tensor([1.0, -1, 0, 0, 0, 0])
    with torch.no_grad():
        model.attention.k.bias.copy_(key)
        model.down.bias.copy_(down)
    audit = addnorm.audit(model, data(2, 4, WIDTH), methods="numeric")
    finding = audit.finding("attention.k.bias")
    assert (finding.norm, finding.largest, finding.idle_norm) == (5.0, 4.0, 5.0)
    finding = audit.finding("down.bias")
    assert finding.directions.kind == "all-ones"
    # (2 + d) splits into 2 (1, ..., 1), of norm 2 sqrt(6), and d, whose sum is zero.
    assert finding.norm == pytest.approx((24 + 2) ** 0.5)
    assert finding.idle_norm == pytest.approx(24**0.5)
    assert audit.finding("third.bias").idle_norm == 0
    lines = text(audit.to_json()).splitlines()
    assert lines[0].split() == ["parameter", "verdict", "size", "free", "absorbable", "norm", "largest", "idle"]
    (row,) = (line for line in lines if line.startswith("attention.k.bias"))
    assert row.split()[-3:] == ["5", "4", "5"]


def test_a_part_that_depends_on_the_weights_is_not_measured() -> None:
    """The redundant directions of a fused bias in a basis are those of generic weights."""
    audit = addnorm.audit(seeded(toys.PostNorm, 1), data(2, 4, WIDTH), methods="numeric")
    finding = audit.finding("attention.q.bias")
    assert finding.directions.kind == "basis"
    assert finding.idle_norm is None
    assert finding.norm is not None
