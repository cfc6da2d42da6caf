"""Equivalence of two models: entry by entry, up to the null space, and by their outputs."""

from collections.abc import Callable

import pytest
import torch
import toys
from torch import Tensor, nn
from toys import WIDTH, data, seeded, tokens

import addnorm
from addnorm.redundancy import Audit
from addnorm.redundancy.agreement.unit_order import reordered
from addnorm.reporting.audit.certificate import difference
from sampled import sampled


@pytest.fixture(autouse=True)
def numeric(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Audit]:
    """One method is enough here, and one audit of a model for all that it is compared with."""
    known: dict[tuple[object, ...], Audit] = {}

    def audit(model: nn.Module, inputs: object, **options: object) -> Audit:
        versions = tuple(parameter._version for parameter in model.parameters())
        given = {"observe": "logits", "training": False} | options
        key = (model, versions, id(inputs), *given.values())
        if key not in known:
            known[key] = addnorm.audit(model, inputs, **options | {"methods": "numeric"})
        return known[key]

    monkeypatch.setattr("addnorm.redundancy.equivalence.audit", audit)
    return audit


def changed(build: Callable[[], nn.Module], change: Callable[[nn.Module], None]) -> nn.Module:
    """The same model again, after a change."""
    model = build()
    with torch.no_grad():
        change(model)
    return model


def shaken(*names: str, by: float, seed: int = 1) -> Callable[[nn.Module], None]:
    """A relative change of every entry of some parameters at random signs; of all matrices if none is named."""

    def shake(model: nn.Module) -> None:
        generator = torch.Generator().manual_seed(seed)
        for name, parameter in model.named_parameters():
            if name in names or (not names and parameter.dim() > 1):
                signs = 2 * torch.randint(0, 2, parameter.shape, generator=generator) - 1
                parameter.copy_((parameter.double() * (1 + by * signs)).to(parameter.dtype))

    return shake


def encoder_layer() -> nn.Module:
    return seeded(lambda: nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)).eval().bfloat16()


def test_a_moved_matrix_is_a_difference_in_bfloat16() -> None:
    """Every entry of the matrix moves by 0.02, about a tenth of its size; sixteen units of the largest entry are 0.125."""

    def move(model: nn.Module) -> None:
        signs = 2 * torch.randint(0, 2, (32, 16), generator=torch.Generator().manual_seed(1)) - 1
        model.linear1.weight.add_(0.02 * signs)

    model, x = encoder_layer(), data(2, 5, 16).bfloat16()
    equivalence = addnorm.equivalent(model, changed(encoder_layer, move), x)
    assert not equivalence
    assert equivalence.parameter == "linear1.weight"
    assert equivalence.difference > 2 * equivalence.bound
    assert equivalence.outputs.difference > 2 * equivalence.outputs.bound
    assert addnorm.equivalent(model, encoder_layer(), x).moved == 0


def bert() -> nn.Module:
    transformers = pytest.importorskip("transformers")
    config = transformers.BertConfig(
        vocab_size=24,
        hidden_size=8,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=12,
        max_position_embeddings=16,
    )
    return seeded(transformers.BertForMaskedLM, config).eval().bfloat16()


def test_noise_on_every_matrix_is_a_difference_in_bfloat16(numeric: Callable[..., Audit]) -> None:
    model, ids = bert(), tokens(2, 5, vocab=24)
    equivalence = addnorm.equivalent(model, changed(bert, shaken(by=0.08)), ids)
    assert not equivalence
    assert equivalence.outputs.difference > equivalence.outputs.bound
    stripped, certificate = numeric(model, ids).strip()
    assert certificate.passed
    assert addnorm.equivalent(model, stripped, ids)


class Small(nn.Module):
    """Small weights before a norm that divides their size out."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.norm, self.head = nn.Linear(4, 6, bias=False), nn.RMSNorm(6, eps=1e-30), nn.Linear(6, 3)
        with torch.no_grad():
            self.up.weight.mul_(1e-6)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.norm(self.up(x)))


def small_weights() -> nn.Module:
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        return Small()


def test_small_weights_before_a_norm_are_compared_at_their_own_size() -> None:
    """Half of every entry is 5e-7, less than sixteen units of a number of size one."""
    x = data(3, 4)
    model = small_weights()
    equivalence = addnorm.equivalent(model, changed(small_weights, shaken("up.weight", by=0.5)), x)
    assert not equivalence
    assert equivalence.parameter == "up.weight"
    assert equivalence.moved < 1e-6
    assert equivalence.outputs.difference > 0.1
    nearly = addnorm.equivalent(model, changed(small_weights, shaken("up.weight", by=1e-7)), x)
    assert not nearly
    assert (nearly.parameter, nearly.bound) == ("up.weight", 0)


@pytest.mark.parametrize("dtype", sampled(2, [torch.bfloat16, torch.float32]))
def test_a_fold_is_bounded_by_its_own_rounding(dtype: torch.dtype, numeric: Callable[..., Audit]) -> None:
    """A stripped model is the same; with one entry of an absorbing bias off by thirty times its rounding it is not."""
    model, x = seeded(toys.PostNorm).to(dtype), data(2, 4, WIDTH).to(dtype)
    stripped, certificate = numeric(model, x).strip()
    assert certificate.passed
    equivalence = addnorm.equivalent(model, stripped, x)
    assert equivalence
    assert 0 < equivalence.difference <= equivalence.bound
    name = "first.bias"
    assert name in certificate.changed
    with torch.no_grad():
        bias = dict(stripped.named_parameters())[name]
        bias[0] += 30 * torch.finfo(dtype).eps * float(bias.abs().max())
    assert not addnorm.equivalent(model, stripped, x)


def test_an_entry_of_another_size_is_not_excused_by_the_largest() -> None:
    """One bias is a thousand times larger than the others, in a model whose biases are not redundant."""

    def build() -> nn.Module:
        model = seeded(lambda: nn.Sequential(nn.Linear(WIDTH, 5), nn.Tanh(), nn.Linear(5, 3)))
        with torch.no_grad():
            model[2].bias[0] = 1e4
        return model

    def move(model: nn.Module) -> None:
        model[2].bias[1] += 1e-3

    equivalence = addnorm.equivalent(build(), changed(build, move), data(4, WIDTH))
    assert not equivalence
    assert (equivalence.parameter, equivalence.parameters_agree) == ("2.bias", False)


def test_a_matrix_may_not_differ_by_a_unit_in_the_last_place() -> None:
    def build() -> nn.Module:
        return seeded(lambda: nn.Sequential(nn.Linear(WIDTH, 5), nn.Tanh(), nn.Linear(5, 3)))

    def move(model: nn.Module) -> None:
        model[0].weight[0, 0] = torch.nextafter(model[0].weight[0, 0], torch.tensor(torch.inf))

    equivalence = addnorm.equivalent(build(), changed(build, move), data(4, WIDTH))
    assert (equivalence.equivalent, equivalence.parameter, equivalence.bound) == (False, "0.weight", 0)


def feed_forward(model: nn.Module) -> tuple[Tensor, Tensor, Tensor]:
    return model.up.weight, model.up.bias, model.down.weight


def test_permuted_units_are_the_same_model_in_another_order() -> None:
    def permute(model: nn.Module) -> None:
        order = torch.randperm(2 * WIDTH, generator=torch.Generator().manual_seed(3))
        up, bias, down = feed_forward(model)
        up.copy_(up[order])
        bias.copy_(bias[order])
        down.copy_(down[:, order])

    def build() -> nn.Module:
        return seeded(toys.PostNorm)

    equivalence = addnorm.equivalent(build(), changed(build, permute), data(2, 4, WIDTH))
    assert equivalence
    assert set(equivalence.reordered) == {"up.weight", "up.bias", "down.weight"}
    assert equivalence.difference <= equivalence.bound
    assert equivalence.outputs.agreed
    assert "differ only by the order of units or heads, in up.weight" in difference(equivalence.to_json(), "a", "b")


def test_permuted_heads_are_the_same_model_in_another_order() -> None:
    def permute(model: nn.Module) -> None:
        order = torch.arange(WIDTH).reshape(2, -1).flip(0).flatten()
        for linear in (model.q, model.k, model.v):
            linear.weight.copy_(linear.weight[order])
            linear.bias.copy_(linear.bias[order])
        model.o.weight.copy_(model.o.weight[:, order])
        model.k.bias.add_(2.0)

    def build() -> nn.Module:
        return seeded(toys.Attention)

    equivalence = addnorm.equivalent(build(), changed(build, permute), data(2, 4, WIDTH))
    assert equivalence
    assert {"q.weight", "k.weight", "v.weight", "o.weight", "q.bias"} <= set(equivalence.reordered)


def test_a_permutation_that_is_no_symmetry_is_a_difference() -> None:
    """The rows of one matrix alone are permuted, so that the outputs differ."""

    def permute(model: nn.Module) -> None:
        model.up.weight.copy_(model.up.weight.flip(0))

    def build() -> nn.Module:
        return seeded(toys.PostNorm)

    other = changed(build, permute)
    assert reordered(other, build())[1] == ("up.weight", "up.bias")
    equivalence = addnorm.equivalent(build(), other, data(2, 4, WIDTH))
    assert not equivalence
    assert equivalence.reordered == ()
    assert "are different models: " in difference(equivalence.to_json(), "a", "b")


def test_an_unknown_relation_is_not_called_a_different_model() -> None:
    """A unit of relu scaled by two, and its outgoing weights by a half: the same function, by a relation that is not tested."""

    def build() -> nn.Module:
        return seeded(lambda: nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2)))

    def scale(model: nn.Module) -> None:
        model[0].weight[0].mul_(2)
        model[0].bias[0].mul_(2)
        model[2].weight[:, 0].div_(2)

    equivalence = addnorm.equivalent(build(), changed(build, scale), data(4, 4))
    assert not equivalence
    assert equivalence.outputs.agreed
    sentence = difference(equivalence.to_json(), "a", "b")
    assert "give the same outputs where tested" in sentence
    assert "different models" not in sentence


def test_integer_buffers_and_integer_outputs_count() -> None:
    class Chosen(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.score = nn.Linear(4, 3)
            self.register_buffer("order", torch.arange(3))

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            return self.score(x), self.order[self.score(x).argmax(-1)]

    def flip(model: nn.Module) -> None:
        model.order.copy_(model.order.flip(0))

    def build() -> nn.Module:
        return seeded(Chosen)

    model, x = build(), data(4, 4)
    equivalence = addnorm.equivalent(model, changed(build, flip), x)
    assert not equivalence
    assert equivalence.parameter == "order"
    assert equivalence.outputs.difference == 0
    assert equivalence.outputs.integers_changed > 0
    assert addnorm.equivalent(model, build(), x)


@pytest.mark.parametrize("training", [False, True])
def test_running_means_count_as_shifts_of_their_norm(training: bool) -> None:
    """A bias before a batch norm may move into the running mean; a mean alone is a difference in evaluation mode only."""
    image = data(5, 2, 4, 4)

    def build() -> nn.Module:
        return seeded(toys.Convolved)

    def move(model: nn.Module) -> None:
        model.conv.bias.add_(0.5)
        model.norm.running_mean.add_(0.5)

    def drift(model: nn.Module) -> None:
        model.norm.running_mean.add_(0.5)

    model = build()
    assert addnorm.equivalent(model, changed(build, move), image, training=training)
    assert bool(addnorm.equivalent(model, changed(build, drift), image, training=training)) == training


class Chain(nn.Module):
    """Maps with biases that matter, and numbers that are not stored."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second, self.third = (nn.Linear(4, 4) for _ in range(3))
        for at in range(4):
            self.register_buffer(f"mark{at}", torch.zeros(1), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = self.third(torch.tanh(self.second(torch.tanh(self.first(x)))))
        return made


@pytest.mark.parametrize("worst", ["first", "second", "third"])
def test_the_largest_difference_is_named_and_the_order_is_that_of_the_model(worst: str) -> None:
    model, other = Chain().eval(), Chain().eval()
    with torch.no_grad():
        for name in ("first", "second", "third"):
            other.get_submodule(name).bias[0] += 1000.0 if name == worst else 10.0
        for at in range(4):
            other.get_buffer(f"mark{at}").fill_(1.0)
    found = addnorm.equivalent(model, other, torch.randn(2, 3, 4, generator=torch.Generator().manual_seed(0)))
    assert not found.equivalent
    assert found.parameter == f"{worst}.bias"
    assert found.unstored == ("mark0", "mark1", "mark2", "mark3")
