r"""A layer window: the scores of the last few layers are averaged.

    s_{m,i} = 1/(c sqrt(d_k)) for the last c = min(window, m) layers, 0 before

Why: an example. `sum` and `mean` join the scores of all earlier layers, this one only those of the nearest.

Source: none.
"""

from dataclasses import dataclass

from addnorm.errors import InputError
from addnorm.reduction import Reduction
from addnorm.scores import Scores, ScoresSpec
from addnorm.shape import Shape


@dataclass(frozen=True, kw_only=True)
class Window(ScoresSpec):
    """Mean over a layer window."""

    window: int = 2
    """Number of layers whose scores join, including the current one; 1 is the ordinary Transformer."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.window < 1:
            raise InputError(f"window: expected at least 1, got {self.window}.")

    @classmethod
    def reduces_to(cls) -> tuple[Reduction, ...]:
        return (
            Reduction(settings={"window": 1}, to={"scores": "own"}),
            Reduction(given={"depth": 2}, to={"scores": "mean"}),
        )

    def build(self, shape: Shape) -> "WindowScores":
        return WindowScores(shape, self.window)


class WindowScores(Scores):
    def __init__(self, shape: Shape, window: int) -> None:
        super().__init__()
        self.scale, self.window = shape.head_dim**-0.5, window

    def terms(self, layer: int) -> int:
        return min(self.window, layer + 1)

    def weights(self, layer: int) -> tuple[float, ...]:
        count = self.terms(layer)
        return (self.scale / count,) * count
