"""Rows of a table in memory: a pandas or polars data frame, or a sequence of mappings; and of a Parquet file.

A data frame is told by its methods, so that neither library is imported. Rows are read as those of a CSV file with the same
cells: what the library shows as missing (NaN, NA, NaT) is an empty cell there and here. In mappings, as in JSON, a NaN is a
loss that is not finite; so it is in a Parquet file, which has nulls for what is missing (pandas writes its NaN as null).
"""

import importlib
import math
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from addnorm.errors import InputError
from addnorm.statistics.run_tables.columns import Names, RunRow
from addnorm.statistics.run_tables.files import rows_of_object


@runtime_checkable
class _PandasFrame(Protocol):
    columns: Any
    index: Any

    def to_dict(self, orient: str) -> Any: ...
    def reset_index(self) -> Any: ...


@runtime_checkable
class _PolarsFrame(Protocol):
    columns: Any

    def to_dicts(self) -> Any: ...


DataFrame = _PandasFrame | _PolarsFrame
"""A data frame of pandas or polars."""
Records = Sequence[Mapping[str, Any]]
Source = str | Path | DataFrame | Records
"""A place that runs can be read from."""


def is_in_memory(source: object) -> bool:
    """True for a data frame or a sequence of rows; False for a path.

    Raises:
        InputError: anything else.
    """
    if isinstance(source, str | Path):
        return False
    if isinstance(source, DataFrame) or (isinstance(source, Sequence) and not isinstance(source, bytes)):
        return True
    raise InputError(
        f"runs: expected a path, a data frame of pandas or polars, or a list of rows such as "
        f"{{'variant': 'base', 'seed': 0, 'loss': 2.91}}, got {type(source).__name__}."
    )


def read_records(source: DataFrame | Records, names: Names) -> list[RunRow]:
    """Every row, named `row 0`, `row 1`, … in messages.

    Raises:
        InputError: a column is missing or there twice, or a row is no mapping.
    """
    places = ((f"row {place}", record) for place, record in enumerate(_records(source, names)))
    return [row for where, record in places for row in rows_of_object(record, names, where)]


PARQUET = ".parquet"


def read_parquet(path: Path) -> list[tuple[str, dict[str, Any]]]:
    """Place and cells of every row of a Parquet file.

    Raises:
        InputError: pyarrow is not installed, no such file, or not a whole Parquet file.
    """
    try:
        pyarrow, parquet = importlib.import_module("pyarrow"), importlib.import_module("pyarrow.parquet")
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "pyarrow":
            raise
        raise InputError(
            f"{path}: expected the package pyarrow, which reads Parquet files, got none. Install it with: pip install "
            "'addnorm[parquet]', or write the table as CSV."
        ) from None
    try:
        with path.open("rb") as file:
            rows = parquet.ParquetFile(file).read().to_pylist()
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}. Give the path of a table of runs.") from error
    except pyarrow.ArrowException as error:
        reason = str(error).split("\n")[0].rstrip(".")
        raise InputError(f"{path}: expected a whole Parquet file, got an error: {reason}. Write it anew.") from error
    # A decimal is a number of another type; its text has all its digits.
    return [
        (f"{path}, row {place}", {name: str(x) if isinstance(x, Decimal) else x for name, x in row.items()})
        for place, row in enumerate(rows)
    ]


def _records(source: DataFrame | Records, names: Names) -> Iterator[Any]:
    frame: Any = source
    if isinstance(source, _PandasFrame):
        # `pivot`, `groupby` and `set_index` leave variants and seeds in the index.
        if not set(names.required.values()) <= set(frame.columns) and not set(frame.index.names) & set(frame.columns):
            frame = frame.reset_index()
        columns = list(frame.columns)
        for column in names.required.values():
            if columns.count(column) > 1:
                raise InputError(
                    f"data frame: expected one column {column!r}, got {columns.count(column)}. Remove the others."
                )
        rows = frame.to_dict("records")
    elif isinstance(source, _PolarsFrame):
        rows = frame.to_dicts()
    else:
        yield from source
        return
    for row in rows:
        yield {str(name): None if _is_missing(value) else value for name, value in row.items()}


def _is_missing(value: object) -> bool:
    # NaT is a float to nobody and unequal to itself; NA refuses to be a truth value.
    return (
        value is None
        or type(value).__name__ in ("NAType", "NaTType")
        or (isinstance(value, float) and math.isnan(value))
    )
