"""The estimate of an audit's memory and time: what it counts, and what it leaves to the audit."""

import json

import pytest
import torch
from torch import nn

import addnorm
from addnorm.cli import audit as command
from addnorm.cli import main
from addnorm.outside.targets import resolve
from addnorm.redundancy.execution import cost
from addnorm.redundancy.execution.cost import audit_cost, number_of_biases
from addnorm.redundancy.execution.memory import model_bytes, rewrite_bytes

SMALL = {"num_hidden_layers": 3, "hidden_size": 8, "num_attention_heads": 2, "intermediate_size": 12, "vocab_size": 50}


@pytest.fixture(autouse=True)
def _small_ones_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cost, "_SMALL", 0)


def test_small_activations_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    model = nn.Linear(4, 6)
    assert audit_cost(model, torch.zeros(1, 3, 4), biases=6).bytes == model_bytes(model)


class Tokens(nn.Module):
    """A class token before the data, which moves a bias's map apart along the tokens."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.token = nn.Linear(2, width), nn.Parameter(torch.zeros(1, 1, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([self.token.expand(len(x), -1, -1), self.first(x)], dim=1)


def test_activations_are_counted_and_grow_with_the_input() -> None:
    model = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 2))
    costs = [audit_cost(model, torch.zeros(1, length, 4), biases=8) for length in (10, 20)]
    # Results of 6, 6 and 2 numbers a token; 64 gradients of the largest, twice.
    grown = 8 * 10 * (6 + 6 + 2) + 8 * 2 * 64 * 10 * 6
    assert costs[1].bytes - costs[0].bytes == grown
    # In place of the rewrite, which comes later and is smaller.
    assert costs[0].bytes == model_bytes(model) - rewrite_bytes(model) + grown
    assert costs[1].seconds > costs[0].seconds


def test_a_map_that_differs_between_tokens_is_counted() -> None:
    x = torch.zeros(2, 9, 2)
    narrow, wide = (audit_cost(Tokens(width), x, biases=2000).bytes - resting(Tokens(width)) for width in (8, 16))
    # Three maps of 16 coordinates at 10 tokens, which are freed before gradients are computed.
    assert (narrow, wide) == (8 * 3 * 8 * 10 * 8, 8 * 3 * 16 * 10 * 16)
    plain = audit_cost(Tokens(16), x, biases=1000).bytes - resting(Tokens(16))
    assert plain == 8 * 2 * (9 + 10) * 16 + 8 * 2 * 64 * 2 * 10 * 16  # no map; 64 gradients at once
    many = audit_cost(nn.Linear(4, 6), torch.zeros(1, 10, 4), biases=2000).bytes - resting(nn.Linear(4, 6))
    assert many == 8 * 10 * 6 + 8 * 2 * 10 * 6  # one by one


def test_a_rewrite_is_counted_where_activations_are_smaller() -> None:
    model = nn.Linear(40, 60)
    assert audit_cost(model, torch.zeros(1, 1, 40), biases=2000).bytes == model_bytes(model)
    assert model_bytes(model) - resting(model) == rewrite_bytes(model) == (4 + 5) * 41 * 60


def resting(model: nn.Module) -> int:
    return model_bytes(model) - rewrite_bytes(model)


def test_a_call_that_fails_has_no_cost() -> None:
    assert audit_cost(nn.Linear(4, 2), torch.zeros(1, 3), biases=2) is None
    assert number_of_biases(nn.Linear(4, 2)) == 2


def test_progress_names_the_stages() -> None:
    stages: list[tuple[str, int, int]] = []
    model = nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.Linear(4, 2))
    addnorm.audit(model, torch.randn(2, 3), on_progress=lambda *each: stages.append(each))
    graph = [(done, total) for stage, done, total in stages if stage == "operations of the graph"]
    assert [done for done, _ in graph] == list(range(1, graph[0][1] + 1))
    assert stages[-1] == ("numerical method", 1, 1)


def test_activations_that_do_not_fit_reduce_the_configuration(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "_LONG_S", 0.0)
    sizes = SMALL | {"max_position_embeddings": 16}
    target = resolve("transformers:BertModel", config=sizes)
    full = audit_cost(target.model, target.inputs, biases=number_of_biases(target.model)).bytes
    assert full > 2 * model_bytes(target.model)
    options = ["audit", "transformers:BertModel", "--config", json.dumps(sizes)]
    assert main([*options, "--methods", "static", "--memory", f"{(full - 1) / 1e9:.12f}"]) == 0
    printed = capsys.readouterr()
    assert "reduced configuration of 2 layers" in printed.out
    assert "audit of transformers:BertModel, in a reduced configuration of 2 layers" in printed.err
    assert main([*options, "--memory", "0.00001"]) == 2
