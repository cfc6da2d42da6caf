"""Rankings as a notebook shows them, and `addnorm.rank`, which returns them."""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import wraps
from html import escape
from typing import TYPE_CHECKING, ParamSpec

from addnorm.statistics import Ranking
from addnorm.statistics.conclusion import conclusion
from addnorm.store.rank import rank as plain_rank
from addnorm.words import phrases

if TYPE_CHECKING:
    from matplotlib.figure import Figure


# The sections of pages draw a ranking; its methods import them, since most rankings are read by programs.
@dataclass(frozen=True, kw_only=True, repr=False)
class StudyRanking(Ranking):
    """A `Ranking` that a notebook shows as a table, that draws its figure, and whose `print` is the text of `addnorm rank`.

    Every ranking is one: of a study, of a table, of a data frame. `others` holds those by further metrics.

    Example:
        >>> ranking = addnorm.open_runs("runs/first").rank()
        >>> ranking["summed"].tier.label == addnorm.rank("runs/first")["summed"].tier.label
        True
        >>> ranking.plot().axes[0].get_xlabel()
        'held-out loss, nats per token (lower is better)'
    """

    @classmethod
    def of(cls, ranking: Ranking) -> "StudyRanking":
        """The same ranking as one that a notebook shows."""
        content = {field.name: getattr(ranking, field.name) for field in fields(Ranking)}
        return cls(**{**content, "others": tuple(map(cls.of, ranking.others))})

    def plot(self, language: str = "en") -> "Figure":
        """Draw the mean loss of each variant with its interval and the losses of its runs, best on top.

        Args:
            language: of the labels, `en` or `zh`.

        Returns:
            A matplotlib figure; `figure.savefig("ranking.pdf")` writes it. Notebooks show it after `%matplotlib inline`.
        """
        from addnorm.reporting.sections import ranking as tables

        return tables.figure(tables.figure_rows(self, phrases(language)), language)

    def __str__(self) -> str:
        from addnorm.reporting.sections import ranking as tables

        return "\n".join(tables.text(each.to_json()) for each in (self, *self.others))

    def _repr_html_(self) -> str:
        answer = "".join(f"<p>{escape(sentence)}</p>" for sentence in conclusion(self))
        return answer + "".join(each._table_html() for each in (self, *map(StudyRanking.of, self.others)))

    def _table_html(self) -> str:
        from addnorm.reporting.formats.measured import RankingFormats, missing_verdicts
        from addnorm.reporting.formats.table import ResultTable
        from addnorm.reporting.sections import ranking as tables

        content = self.to_json()
        shown = RankingFormats.of(content)
        words = {"mean": shown.name.lower() if shown.in_nats else shown.name, "accuracy": "accuracy, %"}
        means = (replace(column, words=words.get(column.key, column.words)) for column in tables.means(content).columns)
        table = ResultTable([*means, *tables.differences(content).columns[1:]], content["variants"])
        notes = "".join(f"<li>{escape(note)}</li>" for note in (*content["warnings"], *missing_verdicts(content)))
        about = (
            f"{escape(shown.title)}; differences in {escape(shown.small_unit)}, all intervals together with "
            f"{100 * self.confidence:g} % confidence; margin ±{self.margin:g}{' nats' if shown.in_nats else ''}."
        )
        return (
            f"<p>{about}{' PROVISIONAL: runs have yet to end.' if self.provisional else ''}</p>"
            f"{table.html()}{f'<ul>{notes}</ul>' if notes else ''}"
        )


P = ParamSpec("P")


def _drawn(function: Callable[P, Ranking]) -> Callable[P, StudyRanking]:
    @wraps(function)
    def ranked(*args: P.args, **options: P.kwargs) -> StudyRanking:
        return StudyRanking.of(function(*args, **options))

    return ranked


rank = _drawn(plain_rank)
"""`addnorm.rank`: the store ranks, and the result draws itself."""
