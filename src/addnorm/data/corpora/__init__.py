"""Room of the corpora: sources of a study's text. One file each.

A corpus is a deterministic list of named documents. The name decides whether a document is training or held-out text; one
whose text is held out under another name is left out of the training text (`addnorm.data.both_sides`). Tokens and hashes depend
on the text only, not on dates or paths of files.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from addnorm.catalogue import Spec
from addnorm.data.corpora._read import FileText
from addnorm.data.episodes import Episodes

__all__ = ["CorpusSpec", "Document", "FileText"]


@dataclass(frozen=True)
class Document:
    """A document of a corpus.

    Example:
        >>> Document(name="a.txt", text="Once upon a time", held_out=False).read()
        'Once upon a time'
    """

    name: str
    """Stable and unique within the corpus; it determines the side of the split."""
    text: str | FileText
    held_out: bool
    """True if the document is used for evaluation only."""

    def chunks(self) -> Iterator[str]:
        """The text in parts, which need not fit in memory together.

        Raises:
            InputError: a file cannot be read or is not UTF-8.
        """
        return iter((self.text,)) if isinstance(self.text, str) else self.text.chunks()

    def read(self) -> str:
        """The whole text.

        Raises:
            InputError: as `chunks`.
        """
        return "".join(self.chunks())


@dataclass(frozen=True, kw_only=True)
class CorpusSpec(Spec, ABC):
    """Base of every corpus's spec.

    Example:
        >>> class Two(CorpusSpec):
        ...     def documents(self):
        ...         yield Document(name="one", text="for training", held_out=False)
        ...         yield Document(name="two", text="for evaluation", held_out=True)
        >>> [document.held_out for document in Two().documents()]
        [False, True]
    """

    is_local: ClassVar[bool] = True
    """True if the documents are read or computed here, so that `addnorm plan` may read them; False if they are fetched."""

    @property
    def episodes(self) -> Episodes | None:
        """The layout of a task, whose answers alone are scored, and its optimum; None for text, of which all tokens are."""
        return None

    @abstractmethod
    def documents(self) -> Iterator[Document]:
        """Yield all documents in a fixed order.

        Raises:
            InputError: the corpus cannot be read; the message names the file and a remedy.
        """

    def fingerprint(self) -> str | None:
        """A text that changes with the sources, known without reading them, such as sizes and dates of files.

        The tokens of a corpus that has one are kept in the cache (`ADDNORM_CACHE`) and an interrupted preparation is resumed;
        its documents' names are unique by themselves. None if there is no such text.

        Raises:
            InputError: as `documents`.
        """
        return None

    def notes(self) -> Iterator[str]:
        """Sentences on what of the sources is not read, or not as it seems, known without reading them; by default none.

        Raises:
            InputError: as `documents`.
        """
        yield from ()

    def text_bytes(self) -> int | None:
        """About how many bytes of text there are, for the progress; None if that is not known without reading."""
        return None
