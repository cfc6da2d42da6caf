"""Sinks that read what the queries read: the sink's matrix takes over the bias of the keys.

With q = W_q x + c and a sink S x, a move b of a head's keys adds q . b / √d to every score of a row and nothing to the sink. A
softmax forgives what is added to all of them, so the sink has to follow: S <- S + W_qᵀ b / √d, if c . b = 0. Hence head_dim
free directions per head without a bias of the queries, and head_dim - 1 with one."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import nn
from toys import seeded

from addnorm import audit, preset
from addnorm.bias import Biases
from addnorm.catalogue import ROOMS
from addnorm.testing.contract import shrunk

WIDTH, HEADS, DIM, SEQ = 8, 2, 4, 6


class SinkAttention(nn.Module):
    """Attention whose sink joins as a further score, as the shipped class writes it."""

    def __init__(self, *, query_bias: bool, reads: str, kv_heads: int = HEADS) -> None:
        super().__init__()
        self.reads, self.kv_heads = reads, kv_heads
        self.query = nn.Linear(WIDTH, HEADS * DIM, bias=query_bias)
        self.key = nn.Linear(WIDTH, kv_heads * DIM)
        self.value = nn.Linear(WIDTH, kv_heads * DIM, bias=False)
        self.sink = nn.Linear(WIDTH, HEADS, bias=False)
        self.out = nn.Linear(HEADS * DIM, WIDTH, bias=False)

    def forward(self, x):
        split = [p(x).unflatten(-1, (-1, DIM)).transpose(1, 2) for p in (self.query, self.key, self.value)]
        q, k, v = split[0], *(each.repeat_interleave(HEADS // self.kv_heads, 1) for each in split[1:])
        if self.reads == "normed queries":
            q = q / q.norm(dim=-1, keepdim=True)
        scores = q @ k.mT * DIM**-0.5
        seen = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).tril()
        scores = scores.masked_fill(~seen, float("-inf"))
        read = {"the same": x, "normed queries": x, "another": torch.tanh(x)}[self.reads]
        sinks = self.sink(read).transpose(1, 2).unsqueeze(-1)
        weights = torch.cat([scores, sinks], -1).softmax(-1)[..., :-1]
        return self.out((weights @ v).transpose(1, 2).flatten(-2))


def double(build: Callable[[], nn.Module]) -> nn.Module:
    return seeded(build).double().eval()


def null_dimension(model: nn.Module, names: list[str], x: torch.Tensor) -> int:
    """Directions of the parameters along which the Jacobian of all outputs, in float64, is zero."""
    parameters = dict(model.named_parameters())

    def of(*given: torch.Tensor) -> torch.Tensor:
        return torch.func.functional_call(model, parameters | dict(zip(names, given, strict=True)), (x,))

    parts = torch.autograd.functional.jacobian(of, tuple(parameters[name].detach() for name in names))
    jacobian = torch.cat(
        [part.reshape(-1, parameters[name].numel()) for part, name in zip(parts, names, strict=True)], 1
    )
    values = torch.linalg.svdvals(jacobian)
    return int((values < 1e-12 * values[0]).sum())


@pytest.mark.parametrize(
    ("settings", "free"),
    [
        ({"query_bias": False, "reads": "the same"}, HEADS * DIM),
        ({"query_bias": True, "reads": "the same"}, HEADS * (DIM - 1)),
        ({"query_bias": False, "reads": "another"}, 0),
        ({"query_bias": False, "reads": "normed queries"}, 0),
        ({"query_bias": False, "reads": "the same", "kv_heads": 1}, DIM),
        ({"query_bias": True, "reads": "the same", "kv_heads": 1}, DIM - 2),
    ],
)
def test_the_sink_takes_over_the_bias_of_the_keys(settings: dict, free: int) -> None:
    """Both heads of one key head share its bias, so that each bias of a query head is a condition on it."""
    model = double(lambda: SinkAttention(**settings))
    x = torch.randn(3, SEQ, WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    assert null_dimension(model, ["sink.weight", "key.bias"], torch.cat([x, 2 * x.flip(1)])) == free
    found = audit(model, x, track=r"sink|key\.bias")
    assert (found.joint_null, found.numeric_joint_null, found.disagreements) == (free, free, ())
    of_keys = found.finding("key.bias")
    assert (of_keys.redundant_dof, of_keys.absorbable_dof) == (0, free)


def test_the_direction_is_the_derived_one_and_its_removal_is_certified() -> None:
    model = double(lambda: SinkAttention(query_bias=False, reads="the same"))
    x = torch.randn(3, SEQ, WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    smaller, certificate = audit(model, x, track=r"sink|key\.bias").strip()
    assert certificate.passed
    removed = dict(smaller.named_parameters())
    bias = model.key.bias.detach()
    taken = (model.query.weight.detach().unflatten(0, (HEADS, DIM)) * bias.view(HEADS, DIM, 1)).sum(1) * DIM**-0.5
    assert "key.bias" not in removed or not removed["key.bias"].any()
    # Without the bias a row's scores are lower by q . b / √d, so that the sink must be lower by as much.
    torch.testing.assert_close(removed["sink.weight"], model.sink.weight - taken, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("queries", [False, True])
def test_our_own_sink(queries: bool) -> None:
    """Under an RMS norm; a layer norm's output lies in a plane, so that a sink can also be a constant."""
    sizes = {"vocab": 13, "width": WIDTH, "depth": 1, "heads": HEADS, "kv_heads": HEADS, "hidden": 12}
    parts = {"position": ROOMS["position"].make("none"), "sink": ROOMS["sink"].make("query")}
    spec = shrunk(preset("llama", bias=replace(Biases.all(False), q=queries, k=True)), **sizes, **parts)
    tokens = torch.randint(13, (3, SEQ), generator=torch.Generator().manual_seed(3))
    found = audit(seeded(spec.build).eval(), tokens, track=r"sink|qk_bias\.k")
    free = HEADS * (DIM - 1) if queries else HEADS * DIM
    assert (found.joint_null, found.numeric_joint_null, found.disagreements) == (free, free, ())
    assert found.strip()[1].passed
