"""Generation: the cache changes nothing, the seed decides, and wrong input is told what is wrong."""

import copy

import pytest
import torch

from addnorm import generate, preset
from addnorm.errors import InputError
from addnorm.model.presets import PRESETS
from addnorm.model.transformer import Transformer
from addnorm.testing.contract import shrunk
from addnorm.testing.laws import some_tokens, subject
from sampled import sampled

CAUSAL = [name for name, make in PRESETS.items() if make().objective == "causal"]


def toy(name: str = "base", **changes: object) -> Transformer:
    return subject(shrunk(preset(name), **changes))


# Every mechanism decodes with a cache in tests/contracts, where its shapes are checked too.
@pytest.mark.plain
@pytest.mark.parametrize("name", sampled(4, CAUSAL))
def test_greedy_with_the_cache_is_greedy_by_full_passes(name: str) -> None:
    model = toy(name)
    prompt = some_tokens(model.spec)[:, :4]
    slow = prompt
    with torch.no_grad():
        for _ in range(5):
            slow = torch.cat([slow, model(slow)[:, -1:].argmax(dim=-1)], dim=1)
    assert torch.equal(generate(model, prompt, new_tokens=5), slow)


def test_the_seed_decides_and_the_global_generator_does_not() -> None:
    model = toy()
    prompt = some_tokens(model.spec)[:, :4]

    def sample(seed: int) -> torch.Tensor:
        return generate(model, prompt, new_tokens=10, temperature=1.0, seed=seed)

    first = sample(1)
    torch.rand(3)
    assert torch.equal(sample(1), first)
    assert not torch.equal(sample(2), first)


def test_top_one_is_greedy_and_no_tokens_is_the_prompt() -> None:
    model = toy()
    prompt = some_tokens(model.spec)[:, :4]
    greedy = generate(model, prompt, new_tokens=5)
    assert torch.equal(generate(model, prompt, new_tokens=5, temperature=1.0, top_k=1), greedy)
    assert torch.equal(generate(model, prompt, new_tokens=0), prompt)
    assert greedy.dtype == torch.int64
    assert torch.equal(greedy[:, :4], prompt)


def test_top_k_samples_from_the_k_likeliest_only() -> None:
    model = toy()
    prompt = some_tokens(model.spec)[:, :4]
    with torch.no_grad():
        allowed = model(prompt)[:, -1].topk(3, dim=-1).indices
    drawn = torch.stack(
        [generate(model, prompt, new_tokens=1, temperature=5.0, top_k=3, seed=s)[:, -1] for s in range(16)]
    )
    for row in range(2):
        assert set(drawn[:, row].tolist()) == set(allowed[row].tolist())


def test_sampling_follows_the_models_distribution() -> None:
    model = toy()
    prompt = some_tokens(model.spec)[:1, :4].expand(4000, 4)
    with torch.no_grad():
        expected = torch.softmax(model(prompt[:1])[0, -1] / 2.0, dim=-1)
    drawn = generate(model, prompt, new_tokens=1, temperature=2.0)[:, -1]
    share = torch.bincount(drawn, minlength=len(expected)) / 4000
    # Five standard errors of a share.
    assert ((share - expected).abs() <= 5 * (expected * (1 - expected) / 4000).sqrt()).all()


@pytest.mark.parametrize("training", [True, False])
def test_the_models_mode_is_put_back_and_dropout_is_off(training: bool) -> None:
    model = toy(dropout=preset("base", dropout=0.5).dropout).train(training)
    weights = copy.deepcopy(model.state_dict())
    prompt = some_tokens(model.spec)[:, :4]
    assert torch.equal(generate(model, prompt, new_tokens=5), generate(model, prompt, new_tokens=5))
    assert model.training is training
    assert all(torch.equal(value, weights[name]) for name, value in model.state_dict().items())


def test_the_mode_is_put_back_after_an_error_too() -> None:
    model = toy("gpt2").train()
    with pytest.raises(InputError):
        generate(model, some_tokens(model.spec), new_tokens=99)
    assert model.training


def test_a_position_table_says_where_it_ends() -> None:
    model = toy("gpt2")
    with pytest.raises(InputError) as caught:
        generate(model, some_tokens(model.spec), new_tokens=99)
    assert str(caught.value) == (
        "a learned position table: expected at most max_seq = 16 positions, got 17. Shorten the sequence, build with a "
        "larger max_seq, or use a position without a table (rope, sinusoidal)."
    )
    assert generate(model, some_tokens(model.spec)[:, :1], new_tokens=16).shape == (2, 17)  # the last token is not read


@pytest.mark.parametrize(
    ("name", "prompt", "fields", "message"),
    [
        ("bert", 4, {}, "generate: expected a causal model, got a masked one."),
        ("base", 0, {}, "generate: expected a prompt of at least one token, got shape [2, 0]."),
        ("base", 4, {"temperature": -1.0}, "temperature: expected a finite number of at least 0, got -1.0."),
        ("base", 4, {"top_k": 0}, "top_k: expected a whole number of at least 1, got 0."),
        ("base", 4, {"new_tokens": -2}, "new_tokens: expected a whole number of at least 0, got -2."),
    ],
)
def test_wrong_input_is_told_what_is_wrong(name: str, prompt: int, fields: dict[str, object], message: str) -> None:
    model = toy(name)
    with pytest.raises(InputError) as caught:
        generate(model, some_tokens(model.spec)[:, :prompt], **({"new_tokens": 1} | fields))
    assert message in str(caught.value)
