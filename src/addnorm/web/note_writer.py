"""Writing of notes: the only thing that a page writes.

A request must send the key of a form that this server has rendered. Another site cannot read the form, because its scripts may
not read answers of this server, and so cannot make a visitor's browser write. Browsers that say where a request comes from are
believed too.
"""

import hmac
import secrets
from typing import Literal
from urllib.parse import parse_qs

from starlette.requests import Request

from addnorm.errors import InputError
from addnorm.reporting.snapshot import Snapshot
from addnorm.store.notes import add_note, add_tag, remove_note, remove_tag
from addnorm.web.security import is_loopback

Notes = Literal["local", "always", "never"]
"""Pages on which visitors may write notes: those served to this machine alone, all or none."""
_MOST_BYTES = 128 * 1024


class Forbidden(Exception):
    """A request to write that does not come from a form of this server."""


class NoteWriter:
    """Takes notes and tags from the forms of one server."""

    def __init__(self) -> None:
        self.key = secrets.token_urlsafe(24)
        """Each form sends it."""

    @classmethod
    def at(cls, host: str, notes: Notes) -> "NoteWriter | None":
        """A writer for a server at that address; None if visitors may not write there."""
        return cls() if notes == "always" or (notes == "local" and is_loopback(host)) else None

    async def form(self, request: Request) -> dict[str, str]:
        """The fields of the form.

        Raises:
            Forbidden: the request does not come from a form of this server.
            InputError: too much text.
        """
        # The default is our own: browsers before 2023 and programs send nothing. They are held by the key alone,
        # which is enough; the header only refuses earlier.
        if request.headers.get("sec-fetch-site", "same-origin") != "same-origin":
            raise Forbidden
        content = b""
        async for part in request.stream():
            content += part
            # Counted while it arrives: `Content-Length` may be absent or wrong, and a body must not fill the memory
            # before it is refused.
            if len(content) > _MOST_BYTES:
                raise InputError(f"a note: expected at most {_MOST_BYTES // 1024} KiB, got more. Nothing was written.")
        fields = parse_qs(content.decode("utf-8", "replace"), keep_blank_values=True)
        form = {name: values[-1] for name, values in fields.items()}
        if not hmac.compare_digest(form.get("key", "").encode(), self.key.encode()):
            raise Forbidden
        return form

    def write(self, snapshot: Snapshot, form: dict[str, str]) -> None:
        """Write what a form asks for.

        Raises:
            InputError: no such model, or a text that is empty or too long.
            DiskFull, JobError: it cannot be written.
        """
        variant = form.get("variant") or None
        if variant is not None and variant not in snapshot.variants:
            raise InputError(f"no model {variant!r}.")
        act, text = form.get("act"), form.get("text", "")
        if act == "note":
            add_note(snapshot.path, text, variant=variant)
        elif act == "tag":
            add_tag(snapshot.path, text, variant=variant)
        elif act == "remove-note":
            remove_note(snapshot.path, form.get("id", ""))
        elif act == "remove-tag":
            remove_tag(snapshot.path, text, variant=variant)
        else:
            raise InputError(f"expected one of note, tag, remove-note and remove-tag, got {act!r}.")
