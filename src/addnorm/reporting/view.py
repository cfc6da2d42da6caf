"""A visitor's view of a page: which page, in which language, of which model, with which curves."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Literal

from addnorm.errors import InputError
from addnorm.reporting.figure import ReportFiles

METRICS = (
    "train.loss", "eval.loss", "eval.accuracy", "eval.perplexity", "train.grad_norm", "train.learning_rate",
    "train.tokens_per_s",
)  # fmt: skip
"""Metrics that curves can show."""
MODEL_PAGE = "model"
"""The page of one model. It is not in the navigation: a model's name links to it."""
CHECKPOINTS_PAGE = "checkpoints"
"""The page of measured checkpoints: the first one of a folder without a study."""
CHECKPOINT_PAGE = "checkpoint"
"""The page of one measured checkpoint, to which its name links."""
LOG_PAGE = "log"
"""The page of one run's log. Lists of runs link to it."""
OF_ONE = (MODEL_PAGE, CHECKPOINT_PAGE)
"""Pages of one model or checkpoint."""
UNLISTED = (*OF_ONE, LOG_PAGE)
"""Pages that the navigation leaves out."""
_LAST_PLACE = 99_999

AXES = ("step", "tokens", "time", "flops")
"""Quantities on the x axis of curves: training steps, tokens, seconds of training without pauses, or FLOPs."""
SMOOTHING = (0.0, 0.6, 0.9, 0.97)
"""Weights of the exponential mean that a visitor may choose; 0 for the line itself."""


@dataclass(frozen=True, kw_only=True)
class Selection:
    """The curves that a visitor asked for."""

    metrics: tuple[str, ...] = ("train.loss",)
    """One chart each."""
    mode: Literal["mean", "seeds"] = "mean"
    variants: tuple[str, ...] = ()
    log: Literal["linear", "log"] = "linear"
    x: str = "step"
    """One of `AXES`."""
    versus: str = ""
    """The variant whose values are subtracted; empty to show the values themselves."""
    smooth: float = 0.0
    y: Literal["robust", "all"] = "robust"
    """Limits of y: without the start and outliers, or with everything."""
    first: float = 0.0
    """In units of x."""
    last: float | None = None
    """None for the end."""

    def __post_init__(self) -> None:
        for metric in self.metrics:
            if metric not in METRICS:
                raise InputError(f"no curve {metric!r}. Known: {', '.join(METRICS)}.")

    @property
    def is_log(self) -> bool:
        """True for a logarithmic y axis; differences have none."""
        return self.log == "log" and not self.versus


@dataclass(frozen=True, kw_only=True)
class Listing:
    """Search, order and groups that a visitor wants of a list of models, and the models that it leaves out.

    Example:
        >>> Listing(hide="0-2.7").hidden
        frozenset({0, 1, 2, 7})
        >>> Listing.of_hidden([7, 1, 0, 2]).hide
        '0-2.7'
    """

    query: str = ""
    """Words that a model's name, settings or state must contain."""
    sort: str = ""
    """A column; empty for the list's own order."""
    group: str = ""
    """Path of a setting, or another name that the list offers; empty for its own groups."""
    hide: str = ""
    """Places of hidden models in the study's order, as an address holds them: `0-5.9`. Anything else hides nothing."""

    @property
    def hidden(self) -> frozenset[int]:
        """Places of the hidden models."""
        places: set[int] = set()
        for part in self.hide.split("."):
            first, _, last = part.partition("-")
            if first.isdecimal() and (last or first).isdecimal() and len(part) < 16:
                places |= set(range(int(first), min(int(last or first), _LAST_PLACE) + 1))
        return frozenset(places)

    def without_hidden(self) -> dict[str, str]:
        """Texts of this list for an address, with every model in it."""
        return {name: value for name, value in vars(self).items() if value and name != "hide"}

    @classmethod
    def of_hidden(cls, places: Iterable[int]) -> "Listing":
        """A list without the models in these places."""
        runs: list[list[int]] = []
        for place in sorted(set(places)):
            if runs and place == runs[-1][1] + 1:
                runs[-1][1] = place
            else:
                runs.append([place, place])
        return cls(hide=".".join(f"{a}-{b}" if b > a else f"{a}" for a, b in runs))


@dataclass(frozen=True, kw_only=True)
class LogWindow:
    """The part of a run's log that a visitor asked for. The words to search for are those of the `Listing`."""

    run: str = ""
    """Name of the run."""
    until: int | None = None
    """Byte of the log at which the shown part ends; None for its end."""


@dataclass(frozen=True, kw_only=True)
class View:
    """One visitor's view of a page."""

    page: str
    language: str = "en"
    link: Callable[..., str]
    """Address of a page by name, with its query."""
    variant: str | None = None
    """The model that the page is about, or whose scalars alone are asked for."""
    selection: Selection = field(default_factory=Selection)
    listing: Listing = field(default_factory=Listing)
    log: LogWindow = field(default_factory=LogWindow)
    note_key: str | None = None
    """Key that a form must send to write notes; None where they can only be read."""
    is_live: bool = True
    """False in a report, where curves cannot be requested again."""
    peek_problem: str | None = None
    """Reason why this look at the results could not be recorded."""
    report: ReportFiles | None = None
    """Set while a report is written."""
