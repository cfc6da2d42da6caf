"""A data set of the Hugging Face hub, one document per row.

Why: published results name their corpus by its hub name.

Source: https://huggingface.co/docs/datasets (needs `pip install "addnorm[hf]"`, and a network the first time).
"""

import importlib
from collections.abc import Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from addnorm.data.corpora import CorpusSpec, Document
from addnorm.data.corpora._split import is_held_out, require_share
from addnorm.errors import InputError, did_you_mean


@dataclass(frozen=True, kw_only=True)
class HuggingFace(CorpusSpec):
    """Spec of a data set of the hub. Rows without text are left out.

    Raises:
        InputError: a field is out of range.
    """

    name: str
    """Name on the hub, for instance `Salesforce/wikitext`, or anything else that `datasets.load_dataset` takes."""
    config: str | None = None
    """The data set's configuration, for instance `wikitext-103-raw-v1`."""
    revision: str | None = None
    """Commit of the data set; None takes the newest, which may change."""
    split: str = "train"
    """Split to train on."""
    held_out_split: str | None = None
    """Split to evaluate on; None holds out a share of the rows of `split` instead."""
    held_out: float = 0.05
    """Share of the rows kept for evaluation. Unused with `held_out_split`."""
    text_field: str = "text"
    """Name of the column that holds the text."""

    def __post_init__(self) -> None:
        require_share(self.held_out)
        if self.held_out_split == self.split:
            raise InputError(f"split and held_out_split must differ: both are '{self.split}'.")

    def documents(self) -> Iterator[Document]:
        """All rows in the data set's order.

        Raises:
            InputError: `datasets` is not installed, the data set cannot be loaded, or has no such column.
        """
        library = _datasets()
        for name, text in self._rows(library, self.split):
            yield Document(name, text, self.held_out_split is None and is_held_out(name, self.held_out))
        if self.held_out_split is not None:
            for name, text in self._rows(library, self.held_out_split):
                yield Document(name, text, True)

    def _rows(self, library: ModuleType, split: str) -> Iterator[tuple[str, str]]:
        try:
            rows = library.load_dataset(self.name, self.config, split=split, revision=self.revision)
        except Exception as error:  # no network, no such name, no such split: each with a class of its own
            raise InputError(
                f"corpus hf: '{self.name}' (config {self.config}, split {split}) cannot be loaded: "
                f"{type(error).__name__}: {error}"
            ) from error
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
            "corpus 'hf' needs the package datasets, which is not installed: pip install \"addnorm[hf]\""
        ) from error
