"""Placements and norms against blocks written out by hand, in float64, gradients included."""

from collections.abc import Callable

import pytest
import torch
from comparing import assert_same_function, make, tiny
from oracle import Oracle
from torch import Tensor

from addnorm.bias import Biases
from addnorm.model.layer import Branch
from addnorm.testing.laws import some_tokens, subject

pytestmark = pytest.mark.plain  # shapes of the same models are checked in tests/contracts

Block = Callable[[Oracle, Branch, Callable[[Tensor], Tensor], Tensor], Tensor]


def none(o: Oracle, b: Branch, f: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    return x + f(x)


def pre(o: Oracle, b: Branch, f: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    return x + f(o._norm(b.input_norm, x))


def post(o: Oracle, b: Branch, f: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    return o._norm(b.stream_norm, x + f(x))


def sandwich(o: Oracle, b: Branch, f: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    return x + o._norm(b.output_norm, f(o._norm(b.input_norm, x)))


# kind and fields, the block, whether the embedding and the output are normed
PLACEMENTS: list[tuple[str, dict[str, bool], Block, bool, bool]] = [
    ("none", {}, none, False, False),
    ("pre", {}, pre, False, True),
    ("post", {}, post, False, False),
    ("post", {"embedding": True}, post, True, False),
    ("sandwich", {}, sandwich, False, True),
    ("peri", {}, sandwich, True, True),
]


@pytest.mark.parametrize("norm", ["layer", "rms", "batch"])
@pytest.mark.parametrize(("kind", "fields", "block", "embedding", "final"), PLACEMENTS)
def test_placement_is_its_block(
    norm: str, kind: str, fields: dict[str, bool], block: Block, embedding: bool, final: bool
) -> None:
    model = subject(
        tiny(depth=2, placement=make("placement", kind, **fields), norm=make("norm", norm), bias=Biases(norm=True))
    )

    class Bare(Oracle):
        """Branches without norms: the block has them."""

        def norm(self, layer: int, branch: str, x: Tensor) -> Tensor:
            return x

    def by_hand(tokens: Tensor) -> Tensor:
        o = Bare(model)
        x = model.embedding.weight[tokens]
        if embedding:
            x = o._norm(model.embedding_norm, x)
        for i, layer in enumerate(model.layers):

            def attention(h: Tensor, i: int = i) -> Tensor:
                q, k = o.project(i, h)
                return o.attention(i, h, o.softmax(q @ k.transpose(-1, -2) / o.dk**0.5))

            x = block(o, layer.attention, attention, x)
            x = block(o, layer.feedforward, lambda h, i=i: o.feedforward(i, h), x)
        if final:
            x = o._norm(model.final_norm, x)
        return o.linear(model.head, x)

    assert_same_function(model, by_hand)
    norms = [module for module in model.modules() if type(module).__name__ in ("LayerNorm", "RMSNorm", "BatchNorm")]
    sockets = {"none": 0, "pre": 1, "post": 1, "sandwich": 2, "peri": 2}[kind] * 2 * model.spec.depth
    assert len(norms) == sockets + embedding + final


def test_batch_norm_is_its_formula_in_training_and_evaluation() -> None:
    x = torch.randn(3, 5, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) * 2 + 1
    norm = make("norm", "batch", eps=1e-3, momentum=0.25).build(4, shift=True).double()
    with torch.no_grad():
        norm.weight.copy_(torch.tensor([1.0, 2.0, -1.0, 0.5]))
        norm.bias.copy_(torch.tensor([0.0, 1.0, 2.0, 3.0]))
    flat = x.reshape(15, 4)
    mean, var = flat.mean(0), flat.var(0, unbiased=False)
    expected = (x - mean) / torch.sqrt(var + 1e-3) * norm.weight + norm.bias
    torch.testing.assert_close(norm.train()(x), expected, rtol=1e-13, atol=1e-13)
    running_mean, running_var = (
        0.25 * mean,
        0.75 * torch.ones(4, dtype=torch.float64) + 0.25 * flat.var(0, unbiased=True),
    )
    torch.testing.assert_close(norm.running_mean, running_mean, rtol=1e-13, atol=1e-13)
    torch.testing.assert_close(norm.running_var, running_var, rtol=1e-13, atol=1e-13)
    expected = (x - running_mean) / torch.sqrt(running_var + 1e-3) * norm.weight + norm.bias
    torch.testing.assert_close(norm.eval()(x), expected, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("norm", ["layer", "batch"])
@pytest.mark.parametrize("shift", [False, True])
def test_the_shift_follows_its_switch(norm: str, shift: bool) -> None:
    module = make("norm", norm).build(8, shift=shift)
    assert (module.bias is not None) is shift
    assert make("norm", "rms").build(8, shift=shift)._parameters.keys() == {"weight"}


def test_bias_before_batch_norm_in_training_changes_nothing() -> None:
    """Anonymous (n.d.): the batch mean takes it away; before layer norm only its mean component goes."""
    x = torch.randn(2, 6, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    bias = torch.linspace(-1, 2, 8, dtype=torch.float64)
    batch = make("norm", "batch").build(8, shift=True).double().train()
    layer = make("norm", "layer").build(8, shift=True).double()
    rms = make("norm", "rms").build(8, shift=True).double()
    torch.testing.assert_close(batch(x + bias), batch(x), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(layer(x + 3.0), layer(x), rtol=1e-12, atol=1e-12)
    assert (layer(x + bias) - layer(x)).abs().max() > 0.1
    assert (rms(x + 3.0) - rms(x)).abs().max() > 0.1


def test_the_model_in_training_is_the_oracle_with_batch_statistics() -> None:
    model = subject(tiny(norm=make("norm", "batch"))).train()
    tokens = some_tokens(model.spec)
    torch.testing.assert_close(model(tokens), Oracle(model).logits(tokens), rtol=1e-11, atol=1e-11)
