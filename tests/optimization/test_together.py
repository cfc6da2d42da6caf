"""Updates of a whole group at once, as on a GPU, are the updates of one parameter after the other."""

import pytest
import torch
from torch import nn

import addnorm
from addnorm.catalogue import ROOMS
from addnorm.optimization.optimizers._per_tensor import PerTensor

KINDS = [
    kind
    for kind in ROOMS["optimizer"].kinds()
    if isinstance(
        ROOMS["optimizer"].spec_class(kind)().build([{"params": [nn.Parameter(torch.zeros(2, 2))], "role": "matrix"}]),
        PerTensor,
    )
]


def test_there_are_several() -> None:
    assert {"lion", "tiger", "schedule_free", "muon"} <= set(KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_a_group_at_once_moves_as_its_parameters_one_by_one(kind: str) -> None:
    spec = ROOMS["optimizer"].spec_class(kind)()
    models, optimizers = [], []
    for _ in range(2):
        model = addnorm.preset("base", vocab=11, width=16, depth=2, heads=2, kv_heads=1, hidden=24, max_seq=8).build()
        model.double()
        models.append(model)
        optimizers.append(spec.build(spec.groups(model)))
    one_by_one, together = optimizers
    generator = torch.Generator().manual_seed(0)
    for step in range(4):
        for one, other in zip(models[0].parameters(), models[1].parameters(), strict=True):
            one.grad = torch.randn(one.shape, generator=generator, dtype=one.dtype)
            other.grad = one.grad.clone()
        if step == 1:  # a parameter that joins later has counted fewer steps than its group
            next(models[0].parameters()).grad = next(models[1].parameters()).grad = None
        one_by_one.step()
        with torch.no_grad():
            for group in together.param_groups:
                together.begin(group)
                trained = [parameter for parameter in group["params"] if parameter.grad is not None]
                grads, states = [p.grad for p in trained], [together.state[p] for p in trained]
                together.update_together(trained, grads, group, states)
    start = addnorm.preset("base", vocab=11, width=16, depth=2, heads=2, kv_heads=1, hidden=24, max_seq=8).build()
    for one, other, first in zip(*(model.parameters() for model in models), start.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)
        assert not torch.equal(one, first.double())
