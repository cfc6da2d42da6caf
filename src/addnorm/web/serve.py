"""The server: its address is known before it runs, in this thread or in another one."""

import contextlib
import secrets
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import uvicorn

from addnorm.errors import InputError, JobError
from addnorm.reporting.reader import is_site, reader_of
from addnorm.reporting.reading.run_table import TableChoices, is_table, refuse_choices
from addnorm.web.app import application
from addnorm.web.home import home_application
from addnorm.web.live import Live
from addnorm.web.note_writer import Notes, NoteWriter
from addnorm.web.security import is_loopback
from addnorm.web.studies import Studies, holds_studies

PORT = 8321


@dataclass(frozen=True)
class Page:
    """A page that is ready to be served."""

    url: str
    """Address to open, with the token if there is one."""
    server: uvicorn.Server
    live: Live | Studies
    listening: socket.socket

    def serve(self) -> None:
        """Serve until Ctrl-C, or until `server.should_exit` is set."""
        self.server.run(sockets=[self.listening])


def page(
    folder: Path,
    *,
    host: str = "127.0.0.1",
    port: int | None = None,
    token: str | None = None,
    notes: Notes = "local",
    table: TableChoices | None = None,
) -> Page:
    """Get the page of a study ready, of all studies of a folder, or of a table of runs.

    Args:
        folder: the study's folder, one that holds folders of studies, or a table of runs.
        host: address to listen on. One that other machines can reach has a token, made here if none is given.
        port: None for 8321, or any free one if that is taken.
        token: what visitors must know.
        notes: where visitors may write notes: served to this machine alone (`local`), always or never.
        table: choices about a table of runs.

    Raises:
        InputError: no study, no measured checkpoints and no table there, a choice about no table, or no such address.
        JobError: the port is taken.
    """
    if token is None and not is_loopback(host):
        token = secrets.token_urlsafe(24)
    live: Live | Studies
    has_table = not is_site(folder) and (folder.is_file() or is_table(folder)) and not holds_studies(folder)
    if has_table or is_site(folder):
        live = Live(reader_of(folder, table))
        app = application(folder, host=host, token=token, live=live, notes="never" if has_table else notes)
    else:
        refuse_choices(folder, table)
        live = Studies(folder, NoteWriter.at(host, notes))
        app = home_application(folder, host=host, token=token, studies=live)
    listening = _listen(host, port)
    shown = host if ":" not in host else f"[{host}]"
    if host in ("0.0.0.0", "::"):
        shown = socket.gethostname()
    url = f"http://{shown}:{listening.getsockname()[1]}/" + (f"?token={token}" if token is not None else "")
    config = uvicorn.Config(app, log_level="warning", access_log=False, lifespan="on", timeout_graceful_shutdown=1)
    return Page(url=url, server=uvicorn.Server(config), live=live, listening=listening)


@contextlib.contextmanager
def serving(ready: Page) -> Iterator[None]:
    """Serve the page in a thread while the block runs."""
    thread = threading.Thread(target=ready.serve, name="addnorm server", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ready.live.stop()  # first, so that no open page keeps the server waiting
        ready.server.should_exit = True
        thread.join(timeout=5)


def _listen(host: str, port: int | None) -> socket.socket:
    try:
        family, kind, proto, _, address = socket.getaddrinfo(
            host, PORT if port is None else port, type=socket.SOCK_STREAM
        )[0]
    except (OSError, OverflowError) as error:
        raise InputError(f"--host: expected an address of this machine, got {host!r} ({error}).") from error
    tries = [address[1]] if port is not None else [address[1], 0]
    for number in tries:
        made = socket.socket(family, kind, proto)
        try:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            made.bind((address[0], number, *address[2:]))
            made.listen(128)
        except OSError as error:
            made.close()
            refused = error
        else:
            return made
    if port is None:
        raise JobError(f"could not listen on {host} ({refused.strerror}).") from refused
    raise JobError(
        f"port {port} of {host} is not free ({refused.strerror}). Give another --port, or none."
    ) from refused
