"""Vision blocks as timm writes them: degrees of freedom derived by hand (notation: `derived`)."""

from collections.abc import Callable

import pytest
import torch
from derived import D, F, L, assert_derived, generic, noise
from torch import Tensor, nn
from torch.nn import functional as F_

pytestmark = pytest.mark.compiled

LABELS = 3


class Classifier(nn.Module):
    """Patches, blocks, a norm, the mean over positions, a linear head."""

    def __init__(self, block: Callable[[], nn.Module]) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, D, 2, stride=2)
        self.blocks = nn.Sequential(*(block() for _ in range(L)))
        self.norm = nn.LayerNorm(D)
        self.head = nn.Linear(D, LABELS)

    def forward(self, images: Tensor) -> Tensor:
        x = self.blocks(self.patches(images).flatten(2).transpose(1, 2))
        out: Tensor = self.head(self.norm(x).mean(1))
        return out


IMAGES = noise(6, 3, 6, 6)
POSITIONS = 9
# What every such classifier shares: the patches' bias along ones (a layer norm reads it next): 1. The last norm and the
# head share W s + db = 0: d, of which the norm alone has the d - LABELS that W does not see.
ENDS = {
    "patches.bias": (D, 1, 1),
    "norm.bias": (D, D - LABELS, D),
    "head.bias": (LABELS, 0, LABELS),
}


class Mixer(nn.Module):
    """MLP-Mixer: a feed-forward over positions, then one over channels."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(D), nn.LayerNorm(D)
        self.over_positions = nn.Sequential(nn.Linear(POSITIONS, F), nn.GELU(), nn.Linear(F, POSITIONS))
        self.over_channels = nn.Sequential(nn.Linear(D, F), nn.GELU(), nn.Linear(F, D))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.over_positions(self.norm1(x).transpose(1, 2)).transpose(1, 2)
        out: Tensor = x + self.over_channels(self.norm2(x))
        return out


def test_mixer():
    """Over positions, each channel c is mapped by the same W_1 (F x s): row sums r of it times the norm's n_c, plus
    db_1, must be 0 for all c: n = b ones, db_1 = - b r: 1. Its second bias adds one number per position to all
    channels, which every norm forgives: s, alone. Over channels: the norm with the first bias d, the second bias along
    ones 1. L (d + s + 2)."""
    rows = ENDS | {
        "blocks.?.norm1.bias": (D, 0, 1),
        "blocks.?.over_positions.0.bias": (F, 0, 1),
        "blocks.?.over_positions.2.bias": (POSITIONS, POSITIONS, POSITIONS),
        "blocks.?.norm2.bias": (D, 0, D),
        "blocks.?.over_channels.0.bias": (F, 0, D),
        "blocks.?.over_channels.2.bias": (D, 1, 1),
    }
    assert_derived(generic(Classifier(Mixer)), IMAGES, L * (D + POSITIONS + 2) + 1 + D, rows)


class ViTBlock(nn.Module):
    """timm's block: fused qkv, scaled-dot-product attention, layer scale; optionally layer norms on q and k."""

    def __init__(self, *, qk_norm: Callable[[int], nn.Module] = nn.Identity) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(D), nn.LayerNorm(D)
        self.qkv, self.proj = nn.Linear(D, 3 * D), nn.Linear(D, D)
        self.q_norm, self.k_norm = qk_norm(D // 2), qk_norm(D // 2)
        self.scale1, self.scale2 = nn.Parameter(torch.ones(D)), nn.Parameter(torch.ones(D))
        self.fc1, self.fc2 = nn.Linear(D, F), nn.Linear(F, D)

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = self.qkv(self.norm1(x)).unflatten(-1, (3, 2, D // 2)).permute(2, 0, 3, 1, 4)
        mixed = F_.scaled_dot_product_attention(self.q_norm(query), self.k_norm(key), value)
        x = x + self.scale1 * self.proj(mixed.transpose(1, 2).flatten(2))
        return x + self.scale2 * self.fc2(F_.gelu(self.fc1(self.norm2(x))))


def test_layer_scaled_vit_block():
    """Pre-norm with a diagonal behind each branch: its shift, scaled, must be c ones. The diagonal is invertible, so no
    count changes: 4d + 2 per layer; the free directions of o and the second bias are 1/scale instead of ones."""
    rows = ENDS | {
        "blocks.?.norm1.bias": (D, 0, D),
        "blocks.?.qkv.bias": (3 * D, D + 1, 3 * D),
        "blocks.?.proj.bias": (D, 1, D),
        "blocks.?.norm2.bias": (D, 0, D),
        "blocks.?.fc1.bias": (F, 0, D),
        "blocks.?.fc2.bias": (D, 1, 1),
    }
    assert_derived(generic(Classifier(ViTBlock)), IMAGES, L * (4 * D + 2) + 1 + D, rows)


def test_vit_block_with_normed_queries_and_keys():
    """A layer norm per head forgives what is the same on all of a head's entries: for q and k alike, the shift W n + db may
    be c_h ones on each of 2 heads. q: d - 2 conditions. k: its norm's own bias b_k is free (the softmax), what enters the
    norm has d - 2 conditions. q's own norm bias b_q: normed keys are gain_k * x + b_k with x orthogonal to ones, so b_q may
    move along ones / gain_k, whose product with a key is the same for all keys: d/2 - 1 conditions.
    n, q, k, v, o, m, 1, 2, b_q, b_k: of 7d + f + d go q d - 2, k d - 2, b_q d/2 - 1, branch d - 1, f, d - 1: 3d + 7 + d/2."""
    heads = 2
    rows = ENDS | {
        "blocks.?.norm1.bias": (D, 0, D),
        "blocks.?.qkv.bias": (3 * D, 2 * heads + 1, 2 * D + 2 * heads),
        "blocks.?.q_norm.bias": (D // 2, 1, 1),
        "blocks.?.k_norm.bias": (D // 2, D // 2, D // 2),
        "blocks.?.proj.bias": (D, 1, D),
        "blocks.?.norm2.bias": (D, 0, D),
        "blocks.?.fc1.bias": (F, 0, D),
        "blocks.?.fc2.bias": (D, 1, 1),
    }
    model = generic(Classifier(lambda: ViTBlock(qk_norm=nn.LayerNorm)))
    assert_derived(model, IMAGES, L * (3 * D + 7 + D // 2) + 1 + D, rows)


class ConvNeXtBlock(nn.Module):
    """A convolution per channel, a norm, a feed-forward per position, layer scale, and the residual."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(D, D, 3, padding=1, groups=D)
        self.norm = nn.LayerNorm(D)
        self.fc1, self.fc2 = nn.Linear(D, F), nn.Linear(F, D)
        self.scale = nn.Parameter(torch.ones(D))

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(self.conv(x).permute(0, 2, 3, 1))
        return x + (self.scale * self.fc2(F_.gelu(self.fc1(y)))).permute(0, 3, 1, 2)


class ConvNeXt(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, D, 2, stride=2)
        self.stem_norm = nn.LayerNorm(D)
        self.blocks = nn.Sequential(*(ConvNeXtBlock() for _ in range(L)))
        self.norm = nn.LayerNorm(D)
        self.head = nn.Linear(D, LABELS)

    def forward(self, images: Tensor) -> Tensor:
        x = self.stem_norm(self.stem(images).permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        out: Tensor = self.head(self.norm(self.blocks(x).mean((2, 3))))
        return out


def test_convnext():
    """The stem's bias: along ones (1). What shifts the stream before a convolution meets its zero padding, which makes
    a constant shift vary over the image differently in each channel: so the stem norm's bias and the first block's
    second bias are held. In a block: the convolution's bias along ones (1), the norm with the first bias d. The last
    block's second bias, scaled, along ones (1): only the final norm reads it. 1 + L (d + 1) + 1 + d."""
    rows = {
        "stem.bias": (D, 1, 1),
        "stem_norm.bias": (D, 0, 0),
        "blocks.?.conv.bias": (D, 1, 1),
        "blocks.?.norm.bias": (D, 0, D),
        "blocks.?.fc1.bias": (F, 0, D),
        "blocks.0.fc2.bias": (D, 0, 0),
        "blocks.1.fc2.bias": (D, 1, 1),
        "norm.bias": (D, D - LABELS, D),
        "head.bias": (LABELS, 0, LABELS),
    }
    assert_derived(generic(ConvNeXt()), noise(6, 3, 8, 8), 1 + L * (D + 1) + 1 + D, rows)
