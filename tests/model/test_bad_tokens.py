"""What a user gives a model that it cannot take, said in words."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch

import addnorm
from addnorm.errors import InputError

# The shape checker would answer before the library's own checks are reached.
pytestmark = pytest.mark.plain

SIZES = {"vocab": 32, "width": 16, "depth": 2, "heads": 2, "hidden": 16, "max_seq": 8}


def refused(call: Callable[[], object], expected: str) -> None:
    with pytest.raises(InputError) as error:
        call()
    assert expected in str(error.value)


def test_every_mistake_is_said_in_words() -> None:
    model = addnorm.preset("llama", **SIZES).build()
    table = addnorm.preset("llama", **SIZES, position="learned").build()
    masked = addnorm.preset("bert", **SIZES).build()
    ids = torch.tensor
    six = torch.zeros(1, 6, dtype=torch.int64)

    def generate(tokens: Any, model: Any = model, **options: Any) -> Any:
        return addnorm.generate(model, tokens, **{"new_tokens": 2, **options})

    for take in (model, generate):
        refused(partial(take, [[1, 2]]), "tokens: expected a tensor [batch, seq] of ids, got a list")
        refused(partial(take, ids([1, 2])), "tokens must have shape [batch, seq], got [2]")
        refused(partial(take, ids([[1.0]])), "tokens: expected whole numbers (int64), got torch.float32")
    refused(lambda: generate(six[:, :0]), "a prompt of at least one token, got shape [1, 0]")
    refused(lambda: generate(six[:0]), "a prompt of at least one token, got shape [0, 6]")
    refused(lambda: generate(ids([[5, 32]])), "token ids: expected 0 to 31 (vocab 32), got 5 to 32")
    refused(lambda: generate(ids([[-1]])), "token ids: expected 0 to")
    refused(lambda: generate(six, new_tokens=-1), "new_tokens: expected a whole number of at least 0, got -1")
    refused(lambda: generate(six, new_tokens=1.5), "new_tokens: expected a whole number of at least 0, got 1.5")
    refused(lambda: generate(six, top_k=0), "top_k: expected a whole number of at least 1, got 0")
    refused(lambda: generate(six, seed=-1), "seed: expected a whole number of at least 0, got -1")
    refused(lambda: generate(six, temperature=-0.5), "temperature: expected a finite number of at least 0, got -0.5")
    refused(
        lambda: generate(six, temperature=float("nan")), "temperature: expected a finite number of at least 0, got nan"
    )
    refused(lambda: generate(six, masked), "generate: expected a causal model")
    refused(lambda: generate(six, torch.nn.Linear(2, 2)), "made by a spec's build(), got a Linear")
    assert generate(six, table).shape == (1, 8)
    refused(lambda: generate(six, table, new_tokens=4), "expected at most max_seq = 8 positions, got 9")
    refused(lambda: table(torch.zeros(1, 9, dtype=torch.int64)), "expected at most max_seq = 8 positions, got 9")
    refused(lambda: addnorm.run("residual-scores"), "addnorm.run(addnorm.load_study('residual-scores'))")
    with pytest.raises(IndexError):  # documented: ids are not looked at in a forward pass
        model(ids([[32]]))
