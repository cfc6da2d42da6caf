"""What a user gives a model that it cannot take, said in words.

In a process of its own: the test session checks annotations before the library's own checks are reached.
"""

import subprocess
import sys

PROGRAM = """
import torch
import addnorm
from addnorm.errors import InputError

sizes = dict(vocab=32, width=16, depth=2, heads=2, hidden=16, max_seq=8)
model = addnorm.preset("llama", **sizes).build()
table = addnorm.preset("llama", **sizes, position="learned").build()
masked = addnorm.preset("bert", **sizes).build()
ids = torch.tensor
six = torch.zeros(1, 6, dtype=torch.int64)


def refused(call, expected):
    try:
        call()
    except InputError as error:
        assert expected in str(error), (expected, str(error))
    else:
        raise AssertionError(f"not refused: {expected}")


def generate(tokens, model=model, **options):
    return addnorm.generate(model, tokens, **{"new_tokens": 2, **options})


for take in (model, generate):
    refused(lambda: take([[1, 2]]), "tokens: expected a tensor [batch, seq] of ids, got a list")
    refused(lambda: take(ids([1, 2])), "tokens must have shape [batch, seq], got [2]")
    refused(lambda: take(ids([[1.0]])), "tokens: expected whole numbers (int64), got torch.float32")
refused(lambda: generate(six[:, :0]), "a prompt of at least one token, got shape [1, 0]")
refused(lambda: generate(six[:0]), "a prompt of at least one token, got shape [0, 6]")
refused(lambda: generate(ids([[5, 32]])), "token ids: expected 0 to 31 (vocab 32), got 5 to 32")
refused(lambda: generate(ids([[-1]])), "token ids: expected 0 to")
refused(lambda: generate(six, new_tokens=-1), "new_tokens: expected a whole number of at least 0, got -1")
refused(lambda: generate(six, new_tokens=1.5), "new_tokens: expected a whole number of at least 0, got 1.5")
refused(lambda: generate(six, top_k=0), "top_k: expected a whole number of at least 1, got 0")
refused(lambda: generate(six, seed=-1), "seed: expected a whole number of at least 0, got -1")
refused(lambda: generate(six, temperature=-0.5), "temperature: expected a finite number of at least 0, got -0.5")
refused(lambda: generate(six, temperature=float("nan")), "temperature: expected a finite number of at least 0, got nan")
refused(lambda: generate(six, masked), "generate: expected a causal model")
refused(lambda: generate(six, torch.nn.Linear(2, 2)), "made by a spec's build(), got a Linear")
assert generate(six, table).shape == (1, 8)
refused(lambda: generate(six, table, new_tokens=4), "expected at most max_seq = 8 positions, got 9")
refused(lambda: table(torch.zeros(1, 9, dtype=torch.int64)), "expected at most max_seq = 8 positions, got 9")
refused(lambda: addnorm.run("residual-scores"), "addnorm.run(addnorm.load_study('residual-scores'))")
try:
    model(ids([[32]]))
except IndexError:
    pass  # documented: ids are not looked at in a forward pass
else:
    raise AssertionError("an id outside the vocabulary passed")
print("all refused")
"""


def test_every_mistake_is_said_in_words() -> None:
    found = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr
    assert found.stdout == "all refused\n"
