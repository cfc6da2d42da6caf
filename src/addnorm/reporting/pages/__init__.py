"""A study's pages: view models made from its files, templates, and words in two languages. Never imports torch.

The live page (`addnorm.web`) and the one-file report render the same sections from the same snapshots.
"""

from addnorm.reporting.pages.reader import Reader
from addnorm.reporting.pages.render import PAGES, Pages, View
from addnorm.reporting.pages.snapshot import RunView, Snapshot
from addnorm.words import LANGUAGES, phrases, preferred

__all__ = ["LANGUAGES", "PAGES", "Pages", "Reader", "RunView", "Snapshot", "View", "phrases", "preferred"]
