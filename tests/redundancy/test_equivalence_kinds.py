"""Differences that equivalent models may have: rounding of what a rewrite touches, and nothing else."""

import copy
from collections.abc import Callable
from types import SimpleNamespace

import pytest
import torch
import toys
from torch import Tensor, nn
from torch.nn import functional
from toys import WIDTH, data, seeded, tokens

import addnorm
from addnorm.redundancy.agreement.rounding import explain_by_rounding, half_unit
from addnorm.reporting.audit.certificate import difference
from sampled import sampled

_INTEGERS = {torch.float32: torch.int32, torch.bfloat16: torch.int16, torch.float16: torch.int16}


def stepped(model: nn.Module, units: int, *names: str, seed: int = 4) -> nn.Module:
    """A copy in which every number of some parameters (of all if none is named) is moved by up to `units` in the last
    place."""
    other, generator = copy.deepcopy(model), torch.Generator().manual_seed(seed)
    for name, parameter in other.named_parameters():
        steps = torch.randint(-units, units + 1, parameter.shape, generator=generator)
        if name in names or not names:
            whole = _INTEGERS[parameter.dtype]
            parameter.data = (parameter.data.view(whole) + steps.to(whole)).view(parameter.dtype)
    return other


def changed(model: nn.Module, change: Callable[[nn.Module], object]) -> nn.Module:
    other = copy.deepcopy(model)
    with torch.no_grad():
        change(other)
    return other


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_a_fine_tuned_copy_is_another_model(dtype: torch.dtype) -> None:
    model, x = seeded(toys.PostNorm).to(dtype), data(2, 4, WIDTH).to(dtype)
    result = addnorm.equivalent(model, stepped(model, 4), x)
    assert not result
    assert result.bound == 0
    assert not result.outputs.agreed


@pytest.mark.parametrize("name", ["third.weight", "third.bias", "up.weight", "up.bias"])
def test_one_unit_of_one_untouched_parameter_is_a_difference(name: str) -> None:
    """No null vector moves `third.bias`; of `up.bias` no rewrite moves so little."""

    def move(other: nn.Module) -> None:
        entry = other.get_parameter(name).view(-1)[:1]
        entry.copy_(torch.nextafter(entry, torch.tensor([9.0])))

    model = seeded(toys.PostNorm)
    result = addnorm.equivalent(model, changed(model, move), data(2, 4, WIDTH))
    assert (result.equivalent, result.parameter) == (False, name)
    assert result.bound < 1e-3 * result.difference


def test_a_scaled_head_is_another_model_although_its_ratio_is_small() -> None:
    model = nn.Sequential(seeded(nn.Linear, WIDTH, WIDTH), nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 9)).bfloat16()
    other = changed(model, lambda each: each[2].weight.mul_(1.015))
    result = addnorm.equivalent(model, other, data(4, WIDTH).bfloat16())
    assert (result.equivalent, result.parameter) == (False, "2.weight")


def test_swapped_layers_are_another_model() -> None:
    model = nn.Sequential(*(nn.Sequential(seeded(nn.Linear, WIDTH, WIDTH), nn.Tanh()) for _ in range(2)))
    with torch.no_grad():
        model[0][0].weight.add_(0.3)
    assert not addnorm.equivalent(model, nn.Sequential(model[1], model[0]), data(4, WIDTH))


class _Read(nn.Module):
    """Reads a stored and an unstored buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.norm = nn.Linear(4, 4, bias=False), nn.LayerNorm(4)
        self.register_buffer("stored", torch.linspace(0.5, 1, 4))
        self.register_buffer("table", torch.linspace(1, 2, 4), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.linear(x) * self.stored + self.table)


def test_moved_buffers_are_differences() -> None:
    model, x = seeded(_Read).bfloat16(), data(3, 4).bfloat16()
    stored = addnorm.equivalent(model, changed(model, lambda each: each.stored[1].mul_(1.01)), x)
    assert (stored.equivalent, stored.parameter) == (False, "stored")
    table = addnorm.equivalent(model, changed(model, lambda each: each.table[1].mul_(1.01)), x)
    assert (table.equivalent, table.parameters_agree, table.unstored) == (False, True, ("table",))
    assert "that no file holds: table" in difference(table.to_json(), "a", "b")


@pytest.mark.parametrize("stripped", [False, True])
def test_another_epsilon_does_not_hide_in_the_rounding_of_biases(stripped: bool) -> None:
    """A stripped bfloat16 model may differ by 1e-2; this epsilon changes outputs by much less."""
    model, x = seeded(toys.PostNorm).bfloat16(), data(2, 4, WIDTH).bfloat16()
    other = addnorm.audit(model, x, methods="static").strip()[0] if stripped else copy.deepcopy(model)
    assert addnorm.equivalent(model, other, x)
    other.second.eps = 1.001e-5
    result = addnorm.equivalent(model, other, x)
    assert (result.equivalent, result.parameters_agree, result.outputs.same_computation) == (False, True, False)
    assert "compute differently" in difference(result.to_json(), "a", "b")


class _Windowed(nn.Module):
    """Sums over the last tokens of a window."""

    def __init__(self, window: int | None, scale: float = 1.0, kinds: tuple[str, ...] = ()) -> None:
        super().__init__()
        self.linear, self.window, self.scale = seeded(lambda: nn.Linear(4, 4)), window, scale
        self.config = SimpleNamespace(kinds=list(kinds), dtype="float32")
        self.seen: list[Tensor] = []

    def forward(self, x: Tensor) -> Tensor:
        sums = self.linear(x).cumsum(1)
        return self.scale * (
            sums if self.window is None else sums - functional.pad(sums, (0, 0, self.window, 0))[:, : x.shape[1]]
        )


@pytest.mark.parametrize(
    ("first", "second", "names"),
    [
        (_Windowed(64), _Windowed(None), ("window",)),
        (_Windowed(64), _Windowed(48), ("window",)),
        (_Windowed(None, kinds=("full",)), _Windowed(None, kinds=("sliding",)), ("config.kinds",)),
        (_Windowed(64), _Windowed(64), ()),
        (nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.1)), nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.2)), ("1.p",)),
    ],
)
def test_settings_that_differ_without_an_effect_are_said(
    first: nn.Module, second: nn.Module, names: tuple[str, ...]
) -> None:
    """A window beyond the inputs tested: with equal parameters and outputs nothing else tells the two models apart."""
    second.load_state_dict(first.state_dict())
    result = addnorm.equivalent(first.eval(), second.eval(), data(3, 5, 4))
    assert (bool(result), result.settings) == (True, names)
    said = difference(result.to_json(), "a", "b")
    assert ("These settings differ and changed nothing at the lengths tested" in said) == bool(names)


def test_settings_that_differ_with_an_effect_are_its_cause() -> None:
    first, second = _Windowed(2).eval(), _Windowed(2, scale=1.5).eval()
    result = addnorm.equivalent(first, second, data(3, 5, 4))
    assert not result
    assert "they compute differently: these settings differ: scale" in difference(result.to_json(), "a", "b")


def test_a_hook_is_a_difference() -> None:
    model = seeded(toys.PostNorm)
    other = copy.deepcopy(model)
    other.third.register_forward_hook(lambda module, args, output: 1.0001 * output)
    assert not addnorm.equivalent(model, other, data(2, 4, WIDTH))


@pytest.mark.parametrize("dtype", sampled(3, [torch.float32, torch.bfloat16, torch.float16]))
def test_rewrites_of_one_model_are_equivalent_in_every_order(dtype: torch.dtype) -> None:
    """Two rewrites that remove different biases, so that each model lacks one of the other, and the canonical form."""
    model, x = seeded(toys.PostNorm).to(dtype), data(2, 4, WIDTH).to(dtype)

    def without_value(other: nn.Module) -> None:
        v, o = other.attention.v, other.attention.o
        o.bias.copy_(o.bias.double() + o.weight.double() @ v.bias.double())
        v.bias = None

    def without_key(other: nn.Module) -> None:
        other.attention.k.bias = None

    value, key = changed(model, without_value), changed(model, without_key)
    audit = addnorm.audit(model, x, methods="static")
    stripped = audit.strip()[0]
    for one, two in ((value, key), (key, value), (stripped, key), (value, audit.canonicalize()), (stripped, model)):
        result = addnorm.equivalent(one, two, x)
        assert result
        assert result.moved > 0


def test_a_second_strip_and_a_float32_bias_are_equivalent() -> None:
    model, x = seeded(toys.PostNorm).bfloat16(), data(2, 4, WIDTH).bfloat16()
    stripped = addnorm.audit(model, x, methods="static").strip(keep_float32_biases=True)[0]
    assert addnorm.equivalent(model, stripped, x)
    once = addnorm.audit(model, x, methods="static").strip()[0]
    assert addnorm.equivalent(model, addnorm.audit(once, x, methods="static").strip()[0], x)


@pytest.mark.parametrize("units", sampled(3, [4, 1, 64]))
def test_an_update_of_touched_biases_alone_is_a_difference(units: int) -> None:
    """Every bias that absorbs another one. A key bias may drift, since no output depends on it."""
    model, x = seeded(toys.PostNorm).bfloat16(), data(2, 4, WIDTH).bfloat16()
    biases = ["first.bias", "up.bias", "down.bias", "second.bias", "attention.v.bias", "attention.o.bias"]
    assert not addnorm.equivalent(model, stepped(model, units, *biases), x).parameters_agree
    assert not addnorm.equivalent(model, stepped(model, units, "up.bias"), x).parameters_agree
    key = addnorm.equivalent(model, stepped(model, units, "attention.k.bias"), x)
    assert key
    assert key.moved > 0


def test_canonical_forms_of_equivalent_models_are_equivalent() -> None:
    """They differ by single units in the last place."""
    model, x = seeded(toys.PostNorm), data(2, 4, WIDTH)
    audit = addnorm.audit(model, x, methods="static")
    move = audit.subject.null_space.sample(torch.Generator().manual_seed(0))
    other = copy.deepcopy(model)
    other.load_state_dict(
        audit.subject.tracked.moved(other, {name: 0.05 * each for name, each in move.items()}), strict=False
    )
    forms = [audit.canonicalize(), addnorm.audit(other, x, methods="static").canonicalize()]
    result = addnorm.equivalent(*forms, x)
    assert result
    assert 0 < result.moved < 1e-6


def test_permuted_units_with_a_small_update_are_another_model() -> None:
    def permute(other: nn.Module) -> None:
        order = torch.randperm(2 * WIDTH, generator=torch.Generator().manual_seed(3))
        other.up.weight.copy_(other.up.weight[order])
        other.up.bias.copy_(other.up.bias[order])
        other.down.weight.copy_(other.down.weight[:, order])

    model, x = seeded(toys.PostNorm).bfloat16(), data(2, 4, WIDTH).bfloat16()
    permuted = changed(model, permute)
    assert addnorm.equivalent(model, permuted, x).reordered
    for name in ("up.bias", "attention.q.weight"):
        assert not addnorm.equivalent(model, stepped(permuted, 1, name), x)


def test_a_rounded_copy_is_named_as_one() -> None:
    model, x = seeded(toys.PostNorm), data(2, 4, WIDTH)
    half = copy.deepcopy(model).bfloat16()
    result = addnorm.equivalent(model, half, x)
    assert (result.equivalent, result.rounded_to) == (False, "bfloat16")
    assert "rounded to bfloat16" in difference(result.to_json(), "a", "b")
    same_numbers = addnorm.equivalent(half, copy.deepcopy(half).float(), x.bfloat16())
    assert (same_numbers.equivalent, same_numbers.moved) == (True, 0)
    assert addnorm.equivalent(model, stepped(model, 2**18, "up.weight").bfloat16(), x).rounded_to == ""


class _Plain(nn.Module):
    """No parameters at all."""

    def forward(self, x: Tensor) -> Tensor:
        return x.softmax(-1)


@pytest.mark.parametrize(
    "build",
    [
        _Plain,
        lambda: nn.Sequential(nn.RMSNorm(4), nn.Linear(4, 3, bias=False)),
        lambda: nn.BatchNorm1d(4, affine=False),
        lambda: nn.LayerNorm(4),
    ],
)
def test_models_without_biases_are_compared(build: Callable[[], nn.Module]) -> None:
    model, x = build().eval(), data(3, 4)
    other = copy.deepcopy(model)
    assert addnorm.equivalent(model, other, x)
    numbers = [each for each in other.state_dict().values() if each.is_floating_point()]
    if numbers:
        numbers[0].view(-1)[0] += 0.1
        assert not addnorm.equivalent(model, other, x)
    canonical = addnorm.audit(model, x).canonicalize()
    assert addnorm.equivalent(model, canonical, x)


def test_running_means_behind_no_bias_must_be_equal() -> None:
    model = seeded(lambda: nn.Sequential(nn.Conv2d(2, 3, 1, bias=False), nn.BatchNorm2d(3), nn.ReLU())).eval()
    other = changed(model, lambda each: each[1].running_mean.add_(1e-7))
    result = addnorm.equivalent(model, other, data(2, 2, 3, 3))
    assert (result.equivalent, result.parameter) == (False, "1.running_mean")


def test_rounding_is_half_a_unit_of_each_number() -> None:
    halves = half_unit(torch.tensor([1.0, 1.5, 2.0, -3.0, 0.0]), torch.bfloat16)
    assert halves.tolist()[:4] == [2**-8, 2**-8, 2**-7, 2**-7]
    assert 0 < halves[4] < 1e-38


@pytest.mark.parametrize("two", [False, True])
def test_the_bounds_hold_for_rounding_and_are_exceeded_by_four_units(two: bool) -> None:
    """Sums of random null vectors of half as many dimensions as entries, rounded once or in both models."""
    generator = torch.Generator().manual_seed(0)
    basis = torch.linalg.qr(torch.randn(60, 30, generator=generator, dtype=torch.float64)).Q
    for _ in range(50):
        start = torch.randn(60, generator=generator, dtype=torch.float64).bfloat16().double()
        moves = [basis @ torch.randn(30, generator=generator, dtype=torch.float64) for _ in range(2)]
        a = (start + moves[0]).bfloat16().double() if two else start
        b = (start + moves[1]).bfloat16().double()
        halves = (half_unit(a, torch.bfloat16), half_unit(b, torch.bfloat16))
        rounded = explain_by_rounding(basis, (a, b), b - a, halves, size=60)
        assert rounded.difference <= rounded.bound
        steps = torch.randint(-4, 5, (60,), generator=generator) * 2 * halves[1]
        updated = explain_by_rounding(basis, (a, b + steps), b + steps - a, halves, size=60)
        assert updated.difference > updated.bound


def test_tokens_and_untied_heads_are_compared() -> None:
    """A head that one model shares with its embedding and the other one holds apart, equal at first."""

    class Tied(nn.Module):
        def __init__(self, tied: bool) -> None:
            super().__init__()
            self.embedding, self.head = nn.Embedding(7, 4), nn.Linear(4, 7, bias=False)
            self.head.weight = self.embedding.weight if tied else nn.Parameter(self.embedding.weight.detach().clone())

        def forward(self, ids: Tensor) -> Tensor:
            return self.head(self.embedding(ids))

    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        tied = Tied(True)
        apart = Tied(False)
    apart.load_state_dict(tied.state_dict())
    ids = tokens(2, 3)
    assert addnorm.equivalent(tied, apart, ids)
    assert not addnorm.equivalent(tied, stepped(apart, 1, "head.weight"), ids)
