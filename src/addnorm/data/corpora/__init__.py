"""Room of the corpora: where a study's text comes from.

A corpus is a deterministic list of named documents. Splitting into training and held-out text goes by document name, so
no document is on both sides; tokens and hashes are made from the text, never from file dates or machine paths.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass

from addnorm.catalogue import Spec

__all__ = ["CorpusSpec", "Document"]


@dataclass(frozen=True)
class Document:
    """One text of a corpus."""

    name: str
    """Stable and unique within the corpus; decides on which side of the split the document falls."""
    text: str
    held_out: bool
    """True for evaluation only."""


@dataclass(frozen=True, kw_only=True)
class CorpusSpec(Spec, ABC):
    """Base of every corpus."""

    @abstractmethod
    def documents(self) -> Iterator[Document]:
        """All documents, in a fixed order.

        Raises:
            InputError: the corpus cannot be read; the message names the file and what to do.
        """
