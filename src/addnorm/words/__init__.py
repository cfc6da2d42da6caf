"""The catalogue of sentences and words in English and Chinese: for messages, pages, figures and statistics.

One folder per language holds TOML files; a phrase's key is its table and its name (`totals.runs`). English is complete. A
phrase without a translation is shown in English. Texts that stand where a thing is defined (a mechanism's docstring, the
caption of a figure) are English there and have only their translation here; see `Phrases.translation`.
"""

from addnorm.words.catalogue import LANGUAGES, Phrases, phrases, preferred
from addnorm.words.sentence import Sentence, listed, say

__all__ = ["LANGUAGES", "Phrases", "Sentence", "listed", "phrases", "preferred", "say"]
