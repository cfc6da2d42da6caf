"""A visitor's view of a page: which page, in which language, of which model, with which curves."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from addnorm.errors import InputError

if TYPE_CHECKING:
    from addnorm.reporting.figures import Drawn

METRICS = (
    "train.loss", "eval.loss", "eval.accuracy", "eval.perplexity", "train.grad_norm", "train.learning_rate",
    "train.tokens_per_s",
)  # fmt: skip
"""Metrics that curves can show."""
MODEL_PAGE = "model"
"""The page of one model. It is not in the navigation: a model's name links to it."""


@dataclass(frozen=True, kw_only=True)
class Selection:
    """The curves that a visitor asked for."""

    metric: str = "train.loss"
    mode: Literal["mean", "seeds"] = "mean"
    variants: tuple[str, ...] = ()
    log: Literal["linear", "log"] = "linear"
    first: int = 0
    last: int | None = None
    """None for the last step."""

    def __post_init__(self) -> None:
        if self.metric not in METRICS:
            raise InputError(f"no curve {self.metric!r}. Known: {', '.join(METRICS)}.")


@dataclass(frozen=True, kw_only=True)
class Listing:
    """How a visitor wants a list of models."""

    query: str = ""
    """Words that a model's name, settings or state must contain."""
    sort: str = ""
    """A column; empty for the list's own order."""
    group: str = ""
    """Path of a setting, or another name that the list offers; empty for its own groups."""


@dataclass(frozen=True, kw_only=True)
class ReportFiles:
    """Files that belong to a report."""

    html: Path
    figures: tuple["Drawn", ...]


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
    is_live: bool = True
    """False in a report, where curves cannot be requested again."""
    peek_problem: str | None = None
    """Reason why this look at the results could not be recorded."""
    report: ReportFiles | None = None
    """Set while a report is written."""
