"""A section: one thing that pages and reports show, with all its forms.

A section is one file of `sections/` (or a folder, if it is large) that defines one subclass of `Section`, and the template of
the same name in `sections/templates/`. Pages, live updates, the report, its figures and its tables are derived from these
files; nothing else lists them.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

from addnorm.reporting.figure import Figure
from addnorm.reporting.snapshot import Snapshot, SourceKind
from addnorm.reporting.view import View

Trigger = Literal["runs", "states", "resumes", "ranking", "fault"]
"""A change of a study: a run's status or numbers; the state, attempts or reason of a run; a run of more than one attempt; the
ranking; or a fault in a table of runs."""


# The contract of a section (tests/reporting/test_adding.py adds one in a folder of its own):
#
# `values` is a function of (snapshot, view) and of nothing else that changes. It may keep results between calls, but
# only under a key that names what they were read from (a run and its step, a file). A live page renders a section
# again whenever one of its triggers fires, for every open page, in any of several threads; a section that remembered
# what it showed last would show one visitor's choice to another.
#
# What it reads must be declared. `follows` names changes of runs and of the ranking, `study_files` and `run_files`
# name files. The reader stats exactly the declared files; a file that is read and not declared is shown once and
# never updated, which no page says. Declaring too much only costs a rendering.
#
# `is_measured` must be cheap and must not look at the view: it decides whether the report has the section, whether a
# page counts as a look at results, and whether a change wakes open pages.
#
# `shows_results` is honest bookkeeping, not style. A study that adds seeds after somebody has seen results needs
# stricter statistics, so every way of seeing means, intervals or verdicts over seeds has to say so here.
class Section:
    """One thing that pages and reports show. Its name is that of its file.

    An object serves one site or report and may keep what makes the next rendering cheaper.
    """

    # Orders are spaced (5, 8, 10, 15, …), so that a new section finds a place without renumbering the others.
    # Sections of one order stand in the order of their names.
    order: ClassVar[int]
    """Place among the sections, on every page and in the report."""
    pages: ClassVar[tuple[str, ...]] = ()
    """Pages of the site that show it. A name that no other section uses makes a new page."""
    in_report: ClassVar[Literal["opening", "study", "end", "model"] | None] = "study"
    """Place in the report: before its contents, once for the study, at its end, once for each model after that, or nowhere."""
    follows: ClassVar[frozenset[Trigger]] = frozenset()
    """Changes after which open pages load the section again."""
    study_files: ClassVar[tuple[str, ...]] = ()
    """Files of the study's folder that it is made from; a new one updates open pages."""
    run_files: ClassVar[tuple[str, ...]] = ()
    """The same in every run's folder."""
    shows_results: ClassVar[bool] = False
    """True if seeing it is a look at results over seeds, which is recorded."""
    sources: ClassVar[frozenset[SourceKind]] = frozenset({"study"})
    """Sources that have it: a study, measured checkpoints without a study, a table of runs of other code."""
    absence: ClassVar[str] = ""
    """Name of the phrase `absent.NAME` that says why the report of a table of runs does not have it."""
    # Parts exist because a study of 300 models would otherwise send all cards anew whenever one run logs a step.
    # `changes.py` derives `card-7` from the place of the model in the plan, so `part_values` must number models by
    # `snapshot.variants`, never by rank.
    part: ClassVar[str | None] = None
    """Name of the part that each model has, if parts are updated one by one: `card` for `card-0`, `card-1`, …"""
    figures: ClassVar[Sequence[Figure]] = ()
    """Figures that a report has of it."""
    words: ClassVar[Mapping[str, str]] = {}
    """English phrases by key that the catalogue does not have."""

    @property
    def name(self) -> str:
        """The section's name: its file's, and its template's."""
        return type(self).__module__.rpartition(".")[2]

    def values(self, snapshot: Snapshot, view: View) -> Mapping[str, Any]:
        """Values for the template."""
        raise NotImplementedError(f"section {self.name!r} is shown by pages {self.pages}, but defines no values().")

    def part_values(self, snapshot: Snapshot, view: View, place: int) -> Mapping[str, Any]:
        """Values for the template of one model's part, `_PART.html`."""
        raise NotImplementedError(f"section {self.name!r} has parts {self.part!r}, but defines no part_values().")

    def is_measured(self, snapshot: Snapshot, variant: str | None) -> bool:
        """True if there is something to show. If not, the page names the command to run, and the report omits the section."""
        return True

    def files(self, snapshot: Snapshot) -> Mapping[str, str]:
        """Tables written into the folder of a report by file name, without those of the figures."""
        return {}
