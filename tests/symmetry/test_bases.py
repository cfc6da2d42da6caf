"""Changes of basis at any size: counts, random moves, the canonical representative, and what low-bit weights lose."""

import json
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import addnorm
from addnorm.cli import main
from addnorm.model.transformer import Transformer
from addnorm.redundancy.execution.generic_weights import generic
from addnorm.symmetry.bases.canonical import settle
from addnorm.symmetry.bases.certificate import BasisCertificate
from addnorm.symmetry.bases.change import Weights, move_at_random
from addnorm.symmetry.bases.quantising import rounded
from addnorm.symmetry.bases.representative import (
    canonicalised,
    cells_of,
    equal_up_to,
    freedom_of,
    quantise_ready_model,
    random_moves,
)
from addnorm.symmetry.bases.solution import Cells
from sampled import sampled

SIZES = {"vocab": 11, "width": 8, "depth": 2, "heads": 2, "kv_heads": 1, "hidden": 5, "max_seq": 16}
TOKENS = torch.tensor([[0, 1, 2, 3, 4, 5, 6, 7, 8], [9, 10, 3, 1, 4, 1, 5, 9, 2]])
LLAMA = {
    "gain into the next matrix": 40,
    "basis of queries and keys": 8,
    "basis of values": 32,
    "scale of a unit": 10,
    "basis of the stream": 28,
}


def llama(**fields: object) -> nn.Module:
    return generic(addnorm.preset("llama", **{**SIZES, **fields}).build(seed=0).eval(), torch.float64)


@pytest.fixture(scope="module")
def model() -> nn.Module:
    return llama()


@pytest.fixture(scope="module")
def cells(model: nn.Module) -> Cells:
    return cells_of(model, TOKENS)


def canonical(cells: Cells, weights: Weights) -> Weights:
    made = {name: each.clone() for name, each in weights.items()}
    settle(cells, made)
    return made


def weights_of(model: nn.Module) -> dict[str, Tensor]:
    return {name: each.detach() for name, each in model.named_parameters()}


def test_counts_are_those_of_the_jacobian(cells: Cells) -> None:
    assert cells.sizes() == LLAMA


def test_counts_at_full_size_read_no_weight() -> None:
    with torch.device("meta"):
        spec = addnorm.preset("llama", vocab=1000, width=256, depth=3, heads=4, kv_heads=2, hidden=700, max_seq=16)
        whole = Transformer(spec).eval()
    made = cells_of(whole, torch.zeros(1, 4, dtype=torch.int64, device="meta")).sizes()
    assert made == {
        "gain into the next matrix": 7 * 256,
        "basis of queries and keys": 3 * 2 * 64,
        "basis of values": 3 * 2 * 64**2,
        "scale of a unit": 3 * 700,
        "basis of the stream": 256 * 255 // 2,
    }


def test_a_random_move_of_all_families_changes_weights_and_no_output(model: nn.Module) -> None:
    moved = random_moves(model, TOKENS)
    assert moved.certificate.passed
    assert moved.certificate.exact < 1e-12
    before, after = weights_of(model), weights_of(moved.model)
    assert all(float((before[name] - after[name]).abs().max()) > 1e-3 for name in before)


def test_a_wrong_move_fails_its_certificate() -> None:
    given = {"integers_changed": 0, "inputs": 1, "lengths": ()}
    assert BasisCertificate(exact=1e-13, stored=1e-6, rounding=1e-6, **given).passed
    assert not BasisCertificate(exact=1e-6, stored=1e-6, rounding=1e-6, **given).passed
    assert not BasisCertificate(exact=1e-13, stored=1e-3, rounding=1e-6, **given).passed


@pytest.mark.parametrize("copies", [5, pytest.param(100, marks=pytest.mark.thorough)])
def test_copies_that_differ_by_random_moves_have_one_representative(
    model: nn.Module, cells: Cells, copies: int
) -> None:
    weights = weights_of(model)
    expected = canonical(cells, weights)
    for seed in range(copies):
        moved = {name: each.clone() for name, each in weights.items()}
        move_at_random(cells, moved, seed)
        assert float((moved["head.weight"] - weights["head.weight"]).norm()) > 0.1
        made = canonical(cells, moved)
        for name, each in expected.items():
            assert float((made[name] - each).norm()) < 1e-9 * float(each.norm()), (seed, name)


@pytest.mark.parametrize("copies", [2, pytest.param(100, marks=pytest.mark.soak)])
@pytest.mark.parametrize("name", sampled(2, ["Qwen2", "GPT2", "GPTNeoX", "Phi", "Starcoder2"]))
def test_copies_of_other_architectures_have_one_representative(name: str, copies: int) -> None:
    transformers = pytest.importorskip("transformers")
    sizes = {"num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 16, "vocab_size": 11}
    config = getattr(transformers, f"{name}Config")
    known = {*config().to_dict(), *config.attribute_map}
    sizes |= {"hidden_size": 8, "intermediate_size": 5, "num_hidden_layers": 2, "tie_word_embeddings": False}
    settings = config(**{key: each for key, each in sizes.items() if key in known})
    cls = getattr(transformers, "GPT2LMHeadModel" if name == "GPT2" else f"{name}ForCausalLM")
    model = generic(cls(settings).eval(), torch.float64)
    cells, weights = cells_of(model, {"input_ids": TOKENS}), weights_of(model)
    expected = canonical(cells, weights)
    for seed in range(copies):
        moved = {key: each.clone() for key, each in weights.items()}
        move_at_random(cells, moved, seed)
        assert max(float((moved[key] - each).norm() / each.norm()) for key, each in weights.items()) > 0.1
        made = canonical(cells, moved)
        for key, each in expected.items():
            assert float((made[key] - each).norm()) <= 1e-9 * float(each.norm()), (seed, key)


def test_the_representative_computes_the_same_and_has_gains_of_one(model: nn.Module) -> None:
    made = canonicalised(model, TOKENS)
    assert made.certificate.passed
    gains = [each for name, each in made.model.named_parameters() if "norm" in name]
    assert len(gains) == 5
    assert all(torch.equal(each, torch.ones_like(each)) for each in gains)


def test_two_models_are_equal_up_to_the_families_or_apart(model: nn.Module) -> None:
    moved = random_moves(model, TOKENS).model
    same = equal_up_to(model, moved, TOKENS)
    assert same.equal
    assert same.as_stored > 0.1 > 1e-9 > same.canonical
    assert set(same.families) == set(LLAMA)
    with torch.no_grad():
        moved.get_parameter("head.weight")[0, 0] += 0.1
    changed = equal_up_to(model, moved, TOKENS)
    assert not changed.equal
    assert "head.weight" in changed.apart


def test_units_of_a_relu_are_ordered() -> None:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(3, 6), nn.ReLU(), nn.Linear(6, 2)).double()
    inputs = torch.randn(20, 3, dtype=torch.float64)
    order = torch.tensor([4, 0, 5, 1, 3, 2])
    other = nn.Sequential(nn.Linear(3, 6), nn.ReLU(), nn.Linear(6, 2)).double()
    with torch.no_grad():
        other[0].weight.copy_(3 * network[0].weight[order])
        other[0].bias.copy_(3 * network[0].bias[order])
        other[2].weight.copy_(network[2].weight[:, order] / 3)
        other[2].bias.copy_(network[2].bias)
    assert equal_up_to(network, other, inputs).equal


def test_quantise_ready_never_has_a_larger_output_error() -> None:
    small = addnorm.preset("llama", **{**SIZES, "width": 16, "hidden": 24}).build(seed=0).eval()
    with torch.no_grad():
        small.get_parameter("layers.0.attention.input_norm.weight")[3] = 30.0
        small.get_parameter("layers.0.attention.body.query.weight")[:, 3] /= 30.0
    made = quantise_ready_model(small, TOKENS)
    assert made.certificate.passed
    assert made.before is not None
    assert made.after is not None
    assert made.after.outputs[4] <= made.before.outputs[4]
    assert made.choice != "as it is"


def test_rounding_keeps_a_row_of_levels() -> None:
    row = torch.tensor([[7.0, -3.0, 0.0, 1.0], [0.0, 0.0, 0.0, 0.0]])
    assert torch.equal(rounded(row, 4), row)
    assert torch.equal(rounded(torch.tensor([[7.0, 0.4]]), 4), torch.tensor([[7.0, 0.0]]))


MODEL = """
import torch, addnorm

def model():
    sizes = {"vocab": 11, "width": 8, "depth": 1, "heads": 2, "hidden": 5, "max_seq": 16}
    return addnorm.preset("llama", **sizes).build(seed=0).eval(), torch.arange(18).reshape(2, 9) % 11

def moved():
    from addnorm.symmetry.bases.representative import random_moves
    return random_moves(*model()).model, model()[1]
"""


def test_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "mine.py"
    file.write_text(MODEL)
    out = tmp_path / "canonical.safetensors"
    assert main(["audit", f"{file}:model", "--canonical", str(out)]) == 0
    printed = capsys.readouterr().out
    assert "canonical: certified" in printed
    assert out.stat().st_size > 1000
    assert main(["audit", f"{file}:model", "--quantise-ready", str(tmp_path / "q.safetensors"), "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert content["written"]
    assert content["after"]["outputs"]["4"] <= content["before"]["outputs"]["4"]
    assert main(["audit", f"{file}:model", "--all", "--canonical", str(out)]) == 2
    assert "one of the three at a time" in capsys.readouterr().err
    main(["audit", "--diff", f"{file}:model", f"{file}:moved"])
    assert "equal up to gain into the next matrix" in capsys.readouterr().out


class NormWithANumber(nn.Module):
    """A number is added behind a norm without a gain; one number is expanded to all outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.up, self.out = nn.Embedding(11, 6), nn.Linear(6, 6), nn.Linear(6, 4)
        self.number = nn.Parameter(torch.randn(1))

    def forward(self, tokens: Tensor) -> Tensor:
        stream = self.table(tokens)
        normed = nn.functional.rms_norm(stream + self.up(stream), [6]) + 1.0
        made: Tensor = self.out(normed) + self.number.expand(4)
        return made


class SquaredUnits(nn.Module):
    """ReLU² beside heads that are multiplied in one batch."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.up, self.down = nn.Embedding(11, 6), nn.Linear(6, 5), nn.Linear(5, 6)
        self.values, self.output, self.head = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 11)

    def forward(self, tokens: Tensor) -> Tensor:
        stream = self.table(tokens)
        batch, length, _ = stream.shape
        values = self.values(stream).view(batch, length, 2, 3).transpose(1, 2).reshape(2 * batch, length, 3)
        weights = torch.ones(2 * batch, length, length, dtype=stream.dtype).tril()
        heads = torch.bmm(weights, values).view(batch, 2, length, 3).transpose(1, 2).reshape(batch, length, 6)
        made: Tensor = self.head(stream + self.output(heads) + self.down(torch.relu(self.up(stream)).square()))
        return made


@pytest.mark.parametrize("module", [NormWithANumber, SquaredUnits])
def test_small_modules_move_without_a_change(module: type[nn.Module]) -> None:
    torch.manual_seed(0)
    model = module().double()
    freedom = freedom_of(model, TOKENS)
    moved = random_moves(model, TOKENS, freedom=freedom)
    assert moved.certificate.exact < 1e-12
    assert canonicalised(model, TOKENS, freedom=freedom).certificate.passed
    assert equal_up_to(model, moved.model, TOKENS, freedom=freedom).equal
    if module is SquaredUnits:
        assert moved.sizes["scale of a unit"] == 5
        assert moved.sizes["basis of values"] == 2 * 3**2
