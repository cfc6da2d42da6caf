"""Biases that are not added as they are: joined with others first, or next to a weight that a hook computes."""

import pytest
import torch
from null_checks import audited, counted, hold
from torch import nn


class Joined(nn.Module):
    """The q and v biases of BEiT and EVA-02, joined with zeros for the keys."""

    def __init__(self, zeros: str) -> None:
        super().__init__()
        self.zeros = zeros
        self.qkv, self.out = nn.Linear(8, 24, bias=False), nn.Linear(8, 8)
        self.q_bias, self.v_bias = nn.Parameter(torch.randn(8)), nn.Parameter(torch.randn(8))
        self.register_buffer("k_bias", torch.zeros(8), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        keys = {
            "buffer": lambda: self.k_bias,
            "made": lambda: torch.zeros_like(self.v_bias, requires_grad=False),
            "data": lambda: x[0, 0] * 0.1,
        }[self.zeros]()
        joined = nn.functional.linear(x, self.qkv.weight, torch.cat((self.q_bias, keys, self.v_bias)))
        q, k, v = (each.unflatten(-1, (2, 4)).transpose(1, 2) for each in joined.chunk(3, -1))
        return self.out(nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


@pytest.mark.parametrize("zeros", ["buffer", "made"])
def test_biases_joined_with_constants_are_found(zeros: str) -> None:
    torch.manual_seed(0)
    case = audited(Joined(zeros).eval(), torch.randn(2, 5, 8))
    assert case.tracked.names == ("q_bias", "v_bias", "out.bias")
    assert case.analysis.space.dim == counted(case) == 8
    hold(case)


def test_what_is_joined_with_data_is_no_bias() -> None:
    assert audited(Joined("data").eval(), torch.randn(2, 5, 8)).tracked.names == ("out.bias",)


class Filled(nn.Module):
    """A buffer made in the call, into which data are written, is data."""

    def __init__(self) -> None:
        super().__init__()
        self.shift, self.head = nn.Parameter(torch.randn(4)), nn.Linear(8, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        room = torch.zeros(len(x), 4)
        room[:, :2] = x[:, :2]
        return self.head(torch.cat([room, self.shift.expand(len(x), 4)], dim=1))


def test_a_tensor_into_which_data_are_written_is_no_constant() -> None:
    assert audited(Filled().eval(), torch.randn(3, 4)).tracked.names == ("head.bias",)


@pytest.mark.parametrize("norm", [nn.utils.weight_norm, nn.utils.parametrizations.weight_norm])
@pytest.mark.filterwarnings("ignore:.*weight_norm. is deprecated:FutureWarning")
def test_a_bias_beside_a_normalised_weight_is_found(norm) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(norm(nn.Conv1d(4, 6, 3)), nn.Conv1d(6, 2, 1)).eval()
    case = audited(model, torch.randn(2, 4, 8))
    assert case.tracked.names == ("0.bias", "1.bias")
    assert case.analysis.space.dim == counted(case) == 6
