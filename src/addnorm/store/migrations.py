"""The index's tables, version by version.

The version is SQLite's `user_version`, which is set in the migration's own transaction.
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
)
"""What to do to come from version i to version i + 1."""


def version(database: sqlite3.Connection) -> int:
    """The version that the database has; 0 for a new one."""
    return int(database.execute("PRAGMA user_version").fetchone()[0])


def migrate(database: sqlite3.Connection) -> None:
    """Bring the database to the newest version. One that is newer than that is emptied: its rows can be read anew.

    Raises:
        sqlite3.Error: the database is as it was before.
    """
    if version(database) == len(MIGRATIONS):
        return
    with transaction(database):
        found = version(database)
        if found > len(MIGRATIONS):
            _empty(database)
            found = 0
        for statements in MIGRATIONS[found:]:
            for statement in statements:
                database.execute(statement)
        database.execute(f"PRAGMA user_version = {len(MIGRATIONS)}")


@contextmanager
def transaction(database: sqlite3.Connection) -> Iterator[None]:
    """A write transaction: all of the block, or nothing of it."""
    database.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        if database.in_transaction:  # SQLite has rolled back by itself after some errors, a full disk for one
            database.execute("ROLLBACK")
        raise
    database.execute("COMMIT")


def _empty(database: sqlite3.Connection) -> None:
    made = database.execute("SELECT type, name FROM sqlite_master WHERE type IN ('table', 'view')").fetchall()
    for kind, name in made:
        if not name.startswith("sqlite_"):
            quoted = name.replace('"', '""')
            database.execute(f'DROP {kind} "{quoted}"')
