"""The catalogue of sentences and words in English and Chinese: for messages, pages, figures and statistics.

One folder per language holds TOML files; a phrase's key is its table and its name (`totals.runs`). English is complete. A
phrase without a translation is shown in English. Texts that are part of a definition (a mechanism's docstring, the caption of
a figure) are English there; the catalogue has only their translation. See `Phrases.translation`.
"""

from addnorm.words.catalogue import LANGUAGES, Phrases, phrases, preferred
from addnorm.words.command import command_line, plugin_options
from addnorm.words.sentence import Sentence, listed, point_name, say
from addnorm.words.spoken import environment_language, speaking, spoken, translated

__all__ = [
    "LANGUAGES",
    "Phrases",
    "Sentence",
    "command_line",
    "environment_language",
    "listed",
    "phrases",
    "plugin_options",
    "point_name",
    "preferred",
    "say",
    "speaking",
    "spoken",
    "translated",
]
