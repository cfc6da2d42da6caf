"""Stored products give the same model as sums that every layer computes for itself."""

from itertools import pairwise as neighbours

import pytest
import torch
from comparing import PROBLEM_SETTINGS, assert_same_function, gradients, make, tiny

from addnorm.catalogue import ROOMS
from addnorm.errors import InputError
from addnorm.kernels.grouped_attention import (
    DistanceBias,
    ProductBuffers,
    SeparateLayers,
    StoredProducts,
    problem_of,
    stored_bytes,
)
from addnorm.kernels.grouped_attention.kept_scores import stored as passes
from addnorm.model import forward_context
from addnorm.model.forgetting import Forgetting
from addnorm.model.forward_context import sums_all_layers
from addnorm.testing.laws import some_tokens, subject

PAIRS = ["free", "weighted", "weighted_power"]
DEPTH = 5


def sides(**changes):
    stored = subject(tiny(attention="stored", **changes))
    streamed = subject(tiny(attention="streaming", **changes))
    streamed.load_state_dict(stored.state_dict())
    return stored, streamed


def test_kinds_of_a_weight_per_pair_of_layers_are_known() -> None:
    shape = tiny(depth=3).shape
    scores = {kind: make("scores", kind).build(shape) for kind in ROOMS["scores"].kinds()}
    summing = {kind for kind, of in scores.items() if sums_all_layers(of, 3)}
    assert summing == {*PAIRS, "signed", "sum", "mean", "root_mean", "power"}


@pytest.mark.plain  # the shapes are those of the models below
@pytest.mark.parametrize("scores", [*PAIRS, "signed", "sum", "power"])
@pytest.mark.parametrize("position", ["rope", "t5"])
def test_stored_and_streamed_scores_agree(scores: str, position: str) -> None:
    stored, streamed = sides(scores=make("scores", scores), position=make("position", position), depth=3)
    assert_same_function(stored, streamed, streamed)


@pytest.mark.parametrize(
    "changes",
    [{"objective": "masked"}, {"kv_heads": 1}, {"position": make("position", "alibi")}, {"windows": (2,)}],
    ids=["masked", "one key head", "distance bias", "window"],
)
def test_they_agree_for_other_models(changes: dict[str, object]) -> None:
    stored, streamed = sides(scores=make("scores", "weighted"), depth=3, **changes)
    assert_same_function(stored, streamed, streamed)


@pytest.mark.parametrize("setting", PROBLEM_SETTINGS)
@pytest.mark.parametrize("bias", ["none", "matrix", "distance"])
@pytest.mark.parametrize("by_head", [False, True], ids=["one weight", "weights by head"])
def test_every_gradient_is_that_of_the_reference(setting: str, bias: str, by_head: bool) -> None:
    """Weights of any sign and size, zero among them."""
    generator = torch.Generator().manual_seed(0)

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, dtype=torch.float64, generator=generator)

    def tracked(entries: torch.Tensor) -> torch.Tensor:
        leaves.append(entries.requires_grad_())
        return entries

    queries, keys = [draw(2, 4, 9, 4) for _ in range(DEPTH)], [draw(2, 2, 9, 4) for _ in range(DEPTH)]
    values = [draw(2, 2, 9, 3) for _ in range(DEPTH)]
    weights = [draw(*[4] * by_head, layer + 1) for layer in range(DEPTH)]
    weights[1][..., 0], weights[2][..., 1], weights[3][..., 2] = 0.0, -2e3, 1e-8
    leaves: list[torch.Tensor] = []
    for leaf in (*queries, *keys, *values, *weights):
        tracked(leaf)
    added: torch.Tensor | DistanceBias | None = None
    if bias == "matrix":
        added = tracked(draw(1, 4, 9, 9))
    elif bias == "distance":
        added = DistanceBias(values=tracked(draw(1, 4, 17))[0], first=-8)
    found = []
    for attention in (SeparateLayers("reference", keep=False), StoredProducts(ProductBuffers(), depth=DEPTH)):
        loss = torch.zeros((), dtype=torch.float64)
        for layer, value in enumerate(values):
            last = layer + 1
            problem = problem_of(
                queries[:last], keys[:last], value, weights[layer], bias=added, **PROBLEM_SETTINGS[setting]
            )
            loss = loss + (attention.attend(problem, next_terms=last + 1) * last).square().sum()
        found.append(torch.autograd.grad(loss, leaves))
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)


@pytest.mark.plain  # counts products, of the shapes above
def test_each_product_is_made_once_per_pass_and_never_again_when_a_layer_is_computed_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A training step of one tile per layer makes one product of queries and keys per layer, checkpointed or not."""
    made = []
    original = passes.Panel.add_products

    def counted(panel: object, total: torch.Tensor, *arguments: object, **options: float) -> torch.Tensor:
        made.append(total.data_ptr())
        return original(panel, total, *arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(passes.Panel, "add_products", counted)
    model = subject(tiny(attention="stored", scores=make("scores", "weighted"), depth=4))
    for recompute in (False, True):
        model.recompute = recompute
        made.clear()
        gradients(model, model(some_tokens(model.spec)))
        assert len(made) == len(set(made)) == 4
        assert all(first < second for first, second in neighbours(made)), "slots lie one after another"


@pytest.mark.parametrize(
    ("kind", "depth", "spare", "expected"),
    [("weighted", 3, 0, True), ("weighted", 3, -1, False), ("weighted", 1, 0, False), ("sum", 3, 0, False)],
)
def test_auto_stores_products_that_fit(
    monkeypatch: pytest.MonkeyPatch, kind: str, depth: int, spare: int, expected: bool
) -> None:
    model = tiny(scores=make("scores", kind), depth=depth, attention="auto").build()
    shape, length = model.spec.shape, 8
    heads = torch.zeros(1, shape.heads, length, shape.head_dim)
    key_heads = torch.zeros(1, shape.kv_heads, length, shape.head_dim)
    needed = stored_bytes(problem_of([heads], [key_heads], key_heads, [1.0], causal=True), depth=depth)
    monkeypatch.setattr(forward_context, "STORED_LIMIT", needed + spare)
    model(torch.zeros(1, length, dtype=torch.int64)).sum().backward()
    assert model.product_buffers.nbytes == (needed if expected else 0)


REFUSED = {
    "own": (
        {"scores": make("scores", "own")},
        "expected scores that every layer sums over all earlier ones, got 'own'",
    ),
    "window over depth": (
        {"scores": make("scores", "weighted", window=2), "depth": 3},
        "expected scores that every layer sums over all earlier ones, got 'weighted'",
    ),
    "one layer": ({"scores": make("scores", "weighted"), "depth": 1}, r"1 layer\(s\)\. Use 'auto' or 'streaming'"),
    "windows that differ": ({"scores": make("scores", "weighted"), "windows": (2, None)}, "expected one window"),
}


@pytest.mark.parametrize(("changes", "message"), REFUSED.values(), ids=REFUSED)
def test_it_is_refused_where_no_layer_could_use_the_products(changes: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=f"^attention: stored.*{message}"):
        tiny(attention="stored", **changes).build()


def test_replayed_layers_are_refused_by_name_and_streamed_by_auto() -> None:
    changes = {"scores": make("scores", "weighted"), "residual": make("residual", "replay")}
    tokens = torch.zeros(1, 4, dtype=torch.int64)
    with pytest.raises(InputError, match="attention: stored: expected a residual that does not replay"):
        tiny(attention="stored", **changes).build()(tokens)
    model = tiny(attention="auto", **changes).build()
    model(tokens)
    assert model.product_buffers.nbytes == 0


def test_gates_of_forgetting_are_refused_by_name_and_streamed_by_auto() -> None:
    changes = {"scores": make("scores", "weighted"), "forgetting": Forgetting()}
    with pytest.raises(InputError, match="attention: stored: expected forgetting null"):
        tiny(attention="stored", **changes).build()
    model = tiny(attention="auto", **changes).build()
    model(torch.zeros(1, 4, dtype=torch.int64))
    assert model.product_buffers.nbytes == 0
