"""torch.nn's own modules: degrees of freedom derived by hand (notation: `derived`)."""

import pytest
import torch
from derived import D, Dofs, F, assert_derived, generic, noise
from torch import nn

pytestmark = pytest.mark.compiled

SEQUENCE = noise(3, 6, D)


def encoder_layer(**changes: bool) -> nn.Module:
    return generic(nn.TransformerEncoderLayer(D, 2, F, dropout=0.0, batch_first=True, **changes))


def test_post_norm_encoder_layer():
    """The input is data, so q is held (db_q = 0). k: d. W_o db_v + db_o = c ones: d + 1. First norm w, W_1 w + db_1 =
    0 and w + db_2 = c ones: d + 1. The last norm's bias is what comes out. 3d + 2; in the fused bias alone k (d) and v
    along W_o^-1 ones (1), with o all of v."""
    rows = {
        "self_attn.in_proj_bias": (3 * D, D + 1, 2 * D),
        "self_attn.out_proj.bias": (D, 1, D),
        "norm1.bias": (D, 0, D),
        "linear1.bias": (F, 0, D),
        "linear2.bias": (D, 1, D),
        "norm2.bias": (D, 0, 0),
    }
    assert_derived(encoder_layer(), SEQUENCE, 3 * D + 2, rows)


def test_pre_norm_encoder_layer():
    """The stream itself comes out, so both branches' shifts must cancel: the attention's is c ones (a norm reads it),
    and the second bias is - c ones. Of 7d + f: q d, branch d - 1, first matrix f, second bias d go: 4d + 1. Alone
    neither o nor the second bias may move."""
    rows = {
        "self_attn.in_proj_bias": (3 * D, D, 3 * D),
        "self_attn.out_proj.bias": (D, 0, D),
        "norm1.bias": (D, 0, D),
        "norm2.bias": (D, 0, D),
        "linear1.bias": (F, 0, D),
        "linear2.bias": (D, 0, 1),
    }
    assert_derived(encoder_layer(norm_first=True), SEQUENCE, 4 * D + 1, rows)


class SelfAttention(nn.Module):
    """nn.MultiheadAttention of a sequence on itself."""

    def __init__(self, **settings: bool) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(D, 2, batch_first=True, **settings)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.attention(x, x, x, need_weights=False)[0]
        return out


@pytest.mark.parametrize(
    ("settings", "joint", "fused", "out"),
    [
        ({}, 2 * D, (3 * D, D, 2 * D), (D, 0, D)),  # k: d; W_o db_v + db_o = 0: d
        ({"add_zero_attn": True}, 0, (3 * D, 0, 0), (D, 0, 0)),  # the zero key and value do not move with the others
    ],
    ids=["plain", "zero-key"],
)
def test_multihead_attention(settings: dict[str, bool], joint: int, fused: Dofs, out: Dofs):
    rows = {"attention.in_proj_bias": fused, "attention.out_proj.bias": out}
    assert_derived(generic(SelfAttention(**settings)), SEQUENCE, joint, rows)


def test_multihead_attention_with_a_learned_key():
    """A learned key and value stand in front and do not move with the others' biases: k and v are held, and with them
    o; unless the learned ones move as well: then k along with its learned key d, v with its learned value and o d."""
    model = generic(SelfAttention(add_bias_kv=True))
    rows = {"attention.in_proj_bias": (3 * D, 0, 0), "attention.out_proj.bias": (D, 0, 0)}
    assert_derived(model, SEQUENCE, 0, rows, track=r"(in_proj_bias|out_proj\.bias)$")
    rows = {
        "attention.in_proj_bias": (3 * D, 0, 2 * D),
        "attention.out_proj.bias": (D, 0, D),
        "attention.bias_k": (D, 0, D),
        "attention.bias_v": (D, 0, D),
    }
    assert_derived(model, SEQUENCE, 2 * D, rows, track=r"(in_proj_bias|out_proj\.bias|bias_k|bias_v)$")


def test_lstm_has_two_biases_where_one_is_enough():
    """Each gate adds both biases to one sum: only b_ih + b_hh counts, so 4 hidden per layer, none alone."""
    hidden = 5
    rows = {"bias_?h_l?": (4 * hidden, 0, 4 * hidden)}
    assert_derived(generic(nn.LSTM(D, hidden, num_layers=2, batch_first=True)), SEQUENCE, 2 * 4 * hidden, rows)


def test_gru_needs_the_second_bias_of_its_candidate():
    """Reset and update gates add both biases to one sum: 2 hidden. The candidate multiplies the second one by the reset
    gate."""
    hidden = 5
    rows = {"bias_?h_l0": (3 * hidden, 0, 2 * hidden)}
    assert_derived(generic(nn.GRU(D, hidden, batch_first=True)), SEQUENCE, 2 * hidden, rows)


class ResidualBlock(nn.Module):
    """Two convolutions with biases, each before a batch norm, and a shortcut."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, padding=1)
        self.first_norm = nn.BatchNorm2d(channels)
        self.second = nn.Conv2d(channels, channels, 3, padding=1)
        self.second_norm = nn.BatchNorm2d(channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(self.first_norm(self.first(x)))
        return torch.relu(x + self.second_norm(self.second(y)))


IMAGES = noise(4, 6, 4, 4)


@pytest.mark.parametrize("training", [False, True], ids=["running-statistics", "batch-statistics"])
def test_convolutions_before_batch_norms(training: bool):
    """With running statistics a batch norm is linear per channel: its bias takes over the convolution's, c per pair,
    and neither is free alone. With the batch's own statistics it subtracts the convolution's bias: c alone, and its own
    is held by the ReLU."""
    c = 6
    alone = c if training else 0
    rows = {
        "first.bias": (c, alone, c),
        "first_norm.bias": (c, 0, c - alone),
        "second.bias": (c, alone, c),
        "second_norm.bias": (c, 0, c - alone),
    }
    assert_derived(generic(ResidualBlock(c)), IMAGES, 2 * c, rows, training=training)


@pytest.mark.parametrize(("groups", "free"), [(2, 2), (1, 1), (6, 6)], ids=["groups", "all-channels", "instance"])
def test_convolution_before_a_group_norm(groups: int, free: int):
    """Within a group the norm forgives a common shift: one direction per group. Its own bias is held by the ReLU, the
    last bias is what comes out."""
    c = 6
    model = nn.Sequential(nn.Conv2d(c, c, 3, padding=1), nn.GroupNorm(groups, c), nn.ReLU(), nn.Conv2d(c, 2, 1))
    rows = {"0.bias": (c, free, free), "1.bias": (c, 0, 0), "3.bias": (2, 0, 0)}
    assert_derived(generic(model), IMAGES, free, rows)
