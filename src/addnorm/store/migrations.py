"""Schema of the index, version by version.

The version is SQLite's `user_version`, which is set in the transaction of the migration.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        """CREATE TABLE points (
            run TEXT NOT NULL,
            attempt INTEGER NOT NULL,
            metric TEXT NOT NULL,
            step INTEGER NOT NULL,
            value REAL,
            PRIMARY KEY (run, attempt, metric, step)
        ) WITHOUT ROWID""",
        """CREATE TABLE sources (
            run TEXT NOT NULL PRIMARY KEY,
            head TEXT NOT NULL,
            end_byte INTEGER NOT NULL
        ) WITHOUT ROWID""",
    ),
    # The last `eval.loss` was on other text than the others: all points are read again.
    ("DELETE FROM points", "DELETE FROM sources"),
)
"""Statements that migrate version i to version i + 1."""


def version(database: sqlite3.Connection) -> int:
    """Version of the database; 0 for a new one."""
    return int(database.execute("PRAGMA user_version").fetchone()[0])


def migrate(database: sqlite3.Connection) -> None:
    """Migrate the database to the newest version. A database of a later version is emptied: its rows can be read again.

    Raises:
        sqlite3.Error: the migration failed and the database is unchanged.
    """
    if version(database) == len(MIGRATIONS):
        return
    with transaction(database):
        # Asked again within the transaction: another process may have migrated since the look above.
        present = version(database)
        if present > len(MIGRATIONS):
            _empty(database)
            present = 0
        for statements in MIGRATIONS[present:]:
            for statement in statements:
                database.execute(statement)
        database.execute(f"PRAGMA user_version = {len(MIGRATIONS)}")


@contextmanager
def transaction(database: sqlite3.Connection) -> Iterator[None]:
    """Write transaction: the whole block takes effect, or nothing of it."""
    # IMMEDIATE takes the write lock now. A plain BEGIN takes it with the first write, and a process that has read
    # before then fails with SQLITE_BUSY at once, however long it was told to wait.
    database.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        if database.in_transaction:  # SQLite rolls back by itself after some errors, such as a full disk
            database.execute("ROLLBACK")
        raise
    database.execute("COMMIT")


def _empty(database: sqlite3.Connection) -> None:
    tables = database.execute("SELECT type, name FROM sqlite_master WHERE type IN ('table', 'view')").fetchall()
    for kind, name in tables:
        if not name.startswith("sqlite_"):
            quoted = name.replace('"', '""')
            database.execute(f'DROP {kind} "{quoted}"')
