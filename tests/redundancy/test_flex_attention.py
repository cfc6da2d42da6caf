"""flex_attention on the CPU, which has no backward pass there: the static method alone, equal to fused attention where a
score_mod only adds to scores, and without a claim on it where it does more."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
from torch.nn.functional import scaled_dot_product_attention

import addnorm
from addnorm.cli import main
from sampled import sampled

pytestmark = [pytest.mark.compiled, pytest.mark.filterwarnings("ignore")]  # torch warns of what is not compiled
Attention = Callable[[Tensor, Tensor, Tensor], Tensor]
WIDTH, LENGTH = 16, 5


class Layer(nn.Module):
    """A norm and attention of two heads."""

    def __init__(self, attention: Attention, kv_heads: int = 2) -> None:
        super().__init__()
        self.attention, self.kv_heads = attention, kv_heads
        self.norm = nn.LayerNorm(WIDTH)
        self.q, self.o = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.k, self.v = nn.Linear(WIDTH, 8 * kv_heads), nn.Linear(WIDTH, 8 * kv_heads)

    def forward(self, x: Tensor) -> Tensor:
        h = self.norm(x)
        q, k, v = (
            linear(h).unflatten(-1, (heads, 8)).transpose(1, 2)
            for linear, heads in ((self.q, 2), (self.k, self.kv_heads), (self.v, self.kv_heads))
        )
        return self.o(self.attention(q, k, v).transpose(1, 2).flatten(2))


def fused(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return scaled_dot_product_attention(q, k, v, enable_gqa=True)


def flex(**options: Any) -> Attention:
    return lambda q, k, v: flex_attention(q, k, v, enable_gqa=True, **options)  # type: ignore[return-value]


def distance(score: Tensor, batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
    return score + (key - query) * 0.5 - head


def audited(attention: Attention, kv_heads: int = 2, methods: str = "both") -> addnorm.Audit:
    torch.manual_seed(0)
    model = Layer(attention, kv_heads).eval()
    return addnorm.audit(model, torch.randn(2, LENGTH, WIDTH), methods=methods)  # type: ignore[arg-type]


def counts(audit: addnorm.Audit) -> dict[str, tuple[str, int, int]]:
    return {each.parameter: (each.verdict, each.redundant_dof, each.absorbable_dof) for each in audit.findings}


def causal() -> Any:
    return create_block_mask(lambda b, h, query, key: query >= key, None, None, LENGTH, LENGTH, device="cpu")


@pytest.mark.parametrize(
    ("options", "kv_heads"),
    sampled(
        4,
        [
            ((lambda: {"score_mod": distance, "block_mask": causal()}), 2),
            (dict, 2),
            (dict, 1),
            ((lambda: {"scale": 0.3}), 2),
        ],
    ),
)
def test_it_is_fused_attention_to_the_static_method(options: Callable[[], dict[str, Any]], kv_heads: int) -> None:
    given = options()
    result = audited(flex(**given), kv_heads)
    assert result.methods == "static"
    assert counts(result) == counts(audited(fused, kv_heads, methods="static"))
    assert result.finding("k.bias").verdict == "redundant"
    assert any("does not support backward on CPU" in note for note in result.notes)
    assert any("every query may attend" in each for each in result.assumptions) == ("block_mask" in given)


def softcapped(score: Tensor, *places: Tensor) -> Tensor:
    return torch.tanh(score)


def reversed_difference(score: Tensor, *places: Tensor) -> Tensor:
    return 1.0 - score


def doubled(score: Tensor, *places: Tensor) -> Tensor:
    return score + score


def with_sums(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    out, sums = flex_attention(q, k, v, return_lse=True)
    return out + sums[..., None]


@pytest.mark.parametrize(
    "attention",
    sampled(4, [flex(score_mod=softcapped), flex(score_mod=reversed_difference), flex(score_mod=doubled), with_sums]),
)
def test_other_functions_of_a_score_hold_the_keys(attention: Attention) -> None:
    assert audited(attention).finding("k.bias").redundant_dof == 0


def test_the_command_exits_with_0(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    (tmp_path / "flexible.py").write_text(
        "import torch\nfrom torch import nn\nfrom torch.nn.attention.flex_attention import flex_attention\n"
        "class M(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.k = nn.Linear(8, 8)\n"
        "    def forward(self, x):\n        q = x[:, None]\n        return flex_attention(q, self.k(x)[:, None], q)\n"
        "def build():\n    return M().eval(), torch.randn(1, 4, 8)\n"
    )
    monkeypatch.chdir(tmp_path)
    assert main(["audit", "flexible.py:build"]) == 0
    out = capsys.readouterr().out
    assert "k.bias" in out
    assert "only the static method ran" in " ".join(out.split())
