"""Room of the corpora: sources of a study's text. One file each.

A corpus is a deterministic list of named documents. The name decides whether a document is training or held-out text, so no
document is both. Tokens and hashes depend on the text only, not on dates or paths of files.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass

from addnorm.catalogue import Spec

__all__ = ["CorpusSpec", "Document"]


@dataclass(frozen=True)
class Document:
    """A document of a corpus."""

    name: str
    """Stable and unique within the corpus; it determines the side of the split."""
    text: str
    held_out: bool
    """True if the document is used for evaluation only."""


@dataclass(frozen=True, kw_only=True)
class CorpusSpec(Spec, ABC):
    """Base of every corpus's spec."""

    @abstractmethod
    def documents(self) -> Iterator[Document]:
        """Yield all documents in a fixed order.

        Raises:
            InputError: the corpus cannot be read; the message names the file and a remedy.
        """
