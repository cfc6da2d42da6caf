"""The generic point of a model: no scale of a channel is so small that equations lose their sparse form."""

import pytest
import torch
from null_checks import audited
from torch import Tensor, nn

from addnorm.redundancy.execution.generic_weights import generic

WIDTH = 512
"""Among so many normal numbers the smallest is below a thousandth of the largest."""


class Scaled(nn.Module):
    """A branch with layer scale, joined to the stream before the next norm."""

    def __init__(self, scale: float) -> None:
        super().__init__()
        self.norm, self.last = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 8), nn.Linear(8, WIDTH)
        self.scale = nn.Parameter(torch.full((WIDTH,), scale))

    def forward(self, x: Tensor) -> Tensor:
        return self.last(x + self.scale * self.down(self.up(self.norm(x)).tanh()))


@pytest.mark.parametrize("shape", [(WIDTH,), (WIDTH, 1, 1)])
@pytest.mark.parametrize("scale", [0.0, 1e-6, 1.0])
def test_scales_of_channels_are_of_one_size_and_all_different(scale: float, shape: tuple[int, ...]) -> None:
    model = Scaled(scale)
    model.scale = nn.Parameter(model.scale.detach().reshape(shape))
    for seed in range(20):
        drawn = generic(model, torch.float64, seed=seed).scale.detach()
        assert len(drawn.unique()) == WIDTH
        assert drawn.abs().max() <= 10 * drawn.abs().min()


@pytest.mark.compiled
def test_a_bias_under_layer_scale_depends_on_its_own_coordinates_alone() -> None:
    """The one number that the last norm does not see is solved for channel by channel: no dense map of all channels."""
    torch.manual_seed(0)
    case = audited(Scaled(1e-6), torch.randn(2, 3, WIDTH))
    (map_of_bias,) = case.analysis.space.maps["down.bias"].values()
    assert map_of_bias.width == 1
    assert case.analysis.space.dim == 1 + (WIDTH + 8 - 8)  # and what the first norm adds, the biases of `up` take back
