"""A data set of the Hugging Face hub, one document per row.

Why: published results refer to their corpus by its hub name.

Source: https://huggingface.co/docs/datasets (needs `pip install "addnorm[hf]"`, and a network for the first use).
"""

import importlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any, ClassVar

from addnorm.data.corpora import CorpusSpec, Document
from addnorm.data.corpora._split import is_held_out, require_held_out
from addnorm.errors import InputError, did_you_mean
from addnorm.fields import require


@dataclass(frozen=True, kw_only=True)
class HuggingFace(CorpusSpec):
    """Spec of a data set of the hub. Rows without text are skipped.

    Raises:
        FieldError: a field is out of range.
    """

    is_local: ClassVar[bool] = False

    name: str
    """Name on the hub, such as `Salesforce/wikitext`, or another argument of `datasets.load_dataset`."""
    config: str | None = None
    """The data set's configuration, such as `wikitext-103-raw-v1`."""
    revision: str | None = None
    """Commit of the data set; None for the newest, which may change."""
    split: str = "train"
    """Split for training."""
    held_out_split: str | None = None
    """Split for evaluation; None holds out a share of the rows of `split`."""
    held_out: float = 0.05
    """Share of the rows for evaluation. Unused with `held_out_split`."""
    text_field: str = "text"
    """Name of the column with the text."""

    def __post_init__(self) -> None:
        require_held_out(self)
        different = self.held_out_split != self.split
        require(self, "held_out_split", different, f"another split than '{self.split}', which is trained on")

    def documents(self) -> Iterator[Document]:
        """Yield all rows in the data set's order.

        Raises:
            InputError: `datasets` is not installed, the data set cannot be loaded, or lacks the column.
        """
        library = _datasets()
        for name, text in self._rows(library, self.split):
            yield Document(name, text, self.held_out_split is None and is_held_out(name, self.held_out))
        if self.held_out_split is not None:
            for name, text in self._rows(library, self.held_out_split):
                yield Document(name, text, True)

    def fingerprint(self) -> str:
        """The library's fingerprints of the splits."""
        library = _datasets()
        return json.dumps([str(self._loaded(library, split)._fingerprint) for split in self._splits()])

    def text_bytes(self) -> int | None:
        """Bytes of the splits in memory-mapped tables, other columns included."""
        library = _datasets()
        return sum(int(self._loaded(library, split).data.nbytes) for split in self._splits())

    def _splits(self) -> tuple[str, ...]:
        return tuple(filter(None, (self.split, self.held_out_split)))

    def _loaded(self, library: ModuleType, split: str) -> Any:
        try:
            return library.load_dataset(self.name, self.config, split=split, revision=self.revision)
        except Exception as error:  # no network, no such name, no such split: each raises another class
            raise InputError(
                f"corpus hf: '{self.name}' (config {self.config}, split {split}) cannot be loaded: "
                f"{type(error).__name__}: {error}"
            ) from error

    def _rows(self, library: ModuleType, split: str) -> Iterator[tuple[str, str]]:
        rows = self._loaded(library, split)
        self._require_column(rows)
        for index, row in enumerate(rows):
            if row[self.text_field].strip():
                yield f"{split}/{index:09d}", row[self.text_field]

    def _require_column(self, rows: Any) -> None:
        columns = list(rows.column_names)
        if self.text_field not in columns:
            raise InputError(
                f"corpus hf: '{self.name}' has no column '{self.text_field}'."
                f"{did_you_mean(self.text_field, columns)} Known: {', '.join(columns)}."
            )


def _datasets() -> ModuleType:
    try:
        return importlib.import_module("datasets")
    except ModuleNotFoundError as error:
        raise InputError(
            'corpus hf: the package datasets is not installed. Install it with: pip install "addnorm[hf]"'
        ) from error
