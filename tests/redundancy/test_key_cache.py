"""Keys of a cache before and after the canonical form, against sums by hand."""

import json
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention

from addnorm.cli import main
from addnorm.errors import InputError
from addnorm.redundancy.rewriting.key_cache import cached_keys

SOURCE = """
import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(8, 8) for _ in range(4))

    def forward(self, x):
        return self.o(scaled_dot_product_attention(self.q(x), self.k(x), self.v(x)))


def walked():
    torch.manual_seed(0)
    model = Attention().eval()
    with torch.no_grad():
        model.k.bias.copy_(torch.tensor([100.0] + [0.0] * 7))
    return model, torch.randn(2, 6, 8)


def none():
    return nn.Linear(2, 2), torch.ones(1, 2)
"""


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("cache_models.py").write_text(SOURCE, encoding="utf-8")


class Keys(nn.Module):
    """Keys that are the inputs, moved by a bias."""

    def __init__(self, bias: float) -> None:
        super().__init__()
        self.bias, self.scale = nn.Parameter(torch.tensor([bias, 0.0])), nn.Parameter(torch.ones(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return scaled_dot_product_attention(x * self.scale, x + self.bias, x)


def test_sizes_and_errors_are_those_by_hand() -> None:
    x = torch.tensor([[[1.0, 1.0], [-1.0, -1.0]]])
    (keys,) = cached_keys(Keys(126.0), Keys(0.0), x)
    assert (keys.before.largest, keys.before.center, keys.before.spread) == (127.0, 126.0, 1.0)
    assert (keys.after.largest, keys.after.center, keys.after.spread) == (1.0, 0.0, 1.0)
    assert keys.after.int8 == keys.after.int4 == 0.0
    # 127 and 1 have a scale of 1, 125 and -1 one of 125/127: -1 is stored as -0.984.
    error = 1 - 125 / 127
    assert keys.before.int8 == pytest.approx((error**2 / 4) ** 0.5)
    # In 4 bits the scales are 127/7 and 125/7, so that 1 and -1 are stored as 0.
    assert keys.before.int4 == pytest.approx((2 / 4) ** 0.5)


def test_a_bias_that_walked_costs_digits_that_the_canonical_form_returns(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", "cache_models.py:walked", "--kv-cache", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["kv_cache"]
    assert row["before"]["center"] > 90
    assert row["after"]["center"] < 5
    assert row["before"]["spread"] == pytest.approx(row["after"]["spread"], rel=1e-3)
    assert row["before"]["int8"] > 10 * row["after"]["int8"]
    assert main(["audit", "cache_models.py:walked", "--kv-cache"]) == 0
    assert "own biases -> canonical form" in capsys.readouterr().out


def test_a_model_without_keys_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", "cache_models.py:none", "--kv-cache"]) == 2
    assert "scaled_dot_product_attention, got none" in capsys.readouterr().err
    with pytest.raises(InputError, match="sdpa"):
        cached_keys(nn.Linear(2, 2), nn.Linear(2, 2), torch.ones(1, 2))


def test_keys_of_one_token_have_no_spread() -> None:
    with pytest.raises(InputError, match="differ between tokens"):
        cached_keys(Keys(1.0), Keys(0.0), torch.ones(1, 1, 2))
