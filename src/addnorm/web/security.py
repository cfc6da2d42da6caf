"""Access control and security headers.

- The `Host` header must be a name of this server. Otherwise another site whose name resolves to 127.0.0.1 (DNS rebinding) could
  read the study through the visitor's browser.
- Addresses other than loopback need a token. It arrives once in the address and is stored in a cookie that scripts cannot read;
  a redirect removes it from the address, so that it stays neither in the history nor in a screenshot.
- Only GET and HEAD are allowed, and POST to `/notes` where notes may be written (see `addnorm.web.note_writer`).
- The browser may load only files of this server, run no inline script, and show the page in no other site's frame. Templates
  escape names from a study; the policy prevents a name that was not escaped from running as a script.
"""

import hashlib
import hmac
import ipaddress
import socket
from collections.abc import Iterable
from http.cookies import CookieError, SimpleCookie

from starlette.datastructures import Headers, MutableHeaders, QueryParams
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from addnorm.words import phrases, preferred

# What each header is for, and what would be possible without it:
#
# - Content-Security-Policy: names of variants, notes and messages of errors come from files that others may have
#   written. Templates escape them. If one is forgotten, the browser still runs no script that is not a file of this
#   server, sends forms nowhere else and resolves no address against a `<base>` that was slipped in. Templates have
#   therefore no inline script, no `style=` and no `onclick`; tests/whole_page.py refuses them.
# - nosniff: a log or a CSV that looks like HTML stays what its type says.
# - no-referrer: an address may hold names of unpublished models, or for one request the token.
# - Cross-Origin-*: another site that is open in the browser can neither hold this window nor load an answer as its
#   image or script.
# - frame-ancestors and X-Frame-Options (for old browsers): nobody lays a transparent copy of the form for notes under
#   a button.
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; object-src 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Frame-Options": "DENY",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
}
_COOKIE = "addnorm"
_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_EVERYWHERE = ("0.0.0.0", "::")


def is_loopback(host: str) -> bool:
    """True if only this machine can reach an address to listen on."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def hosts_of(host: str) -> frozenset[str]:
    """The names by which a server that listens on `host` may be called."""
    if host in _EVERYWHERE:
        return frozenset((*_LOOPBACK, socket.gethostname().lower(), socket.getfqdn().lower()))
    return frozenset((*_LOOPBACK, host.lower())) if is_loopback(host) else frozenset((host.lower(),))


class Guard:
    """Middleware that refuses forbidden requests and adds the headers to every response.

    Args:
        app: the application.
        hosts: names of the server.
        any_address: whether any IP address is accepted as host, for a server that listens on all addresses. An address,
            unlike a name, cannot be made to resolve to this machine by a third party.
        token: secret that a visitor must send; None on loopback.
        can_write: whether notes may be written.
    """

    def __init__(
        self, app: ASGIApp, *, hosts: Iterable[str], any_address: bool, token: str | None, can_write: bool
    ) -> None:
        self.app, self.hosts, self.any_address, self.token = app, frozenset(hosts), any_address, token
        self.can_write = can_write

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                if "cache-control" not in headers:
                    headers["Cache-Control"] = "no-store"
            await send(message)

        # Refusals go through `send_guarded` too: an error page without the policy would be the one page to attack.
        answer = self._refusal(scope)
        await (answer or self.app)(scope, receive, send_guarded)

    def _refusal(self, scope: Scope) -> Response | None:
        """The response to a forbidden request; None for an allowed one."""
        headers = Headers(scope=scope)
        if not self._is_our_host(headers.get("host", "")):
            return PlainTextResponse("addnorm: this server is not known by that name.\n", status_code=421)
        # The path is matched by its end, since the site of one study may lie under a prefix. The route decides
        # whether it exists; here only the method is let through. That a form is ours is proved by its key
        # (`addnorm.web.note_writer`), not by this.
        is_note = self.can_write and scope["method"] == "POST" and str(scope["path"]).endswith("/notes")
        if scope["method"] not in ("GET", "HEAD") and not is_note:
            return PlainTextResponse(
                "addnorm: this page can only be read.\n", status_code=405, headers={"Allow": "GET, HEAD"}
            )
        return None if self.token is None else self._without_token(self.token, scope, headers)

    def _is_our_host(self, header: str) -> bool:
        # DNS rebinding: evil.example resolves to its own server first and to 127.0.0.1 on the second request. The
        # browser then takes this server for evil.example and lets its scripts read every page. Its requests carry
        # `Host: evil.example`, which a browser does not let scripts forge, so the name is what is checked. An address
        # of digits is safe: it cannot be re-resolved.
        name = header.lower()
        if name.startswith("["):
            name = name[1:].partition("]")[0]
        elif name.count(":") == 1:
            name = name.partition(":")[0]
        if name in self.hosts:
            return True
        if not self.any_address:
            return False
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True

    def _without_token(self, token: str, scope: Scope, headers: Headers) -> Response | None:
        query = QueryParams(scope["query_string"])
        # Three ways to show the token: once in the address (which a terminal prints and people click), in a cookie
        # afterwards, and as a bearer for programs. Comparisons take the same time wherever texts differ, so that the
        # token cannot be guessed letter by letter. The cookie holds a hash: whoever reads a browser's cookies does
        # not learn what opens other servers with that token. SameSite=strict: requests that another site starts come
        # without the cookie.
        given = query.get("token")
        if given is not None and hmac.compare_digest(given.encode(), token.encode()):
            rest = [(name, value) for name, value in query.multi_items() if name != "token"]
            answer = RedirectResponse(f"{_path(scope)}{'?' if rest else ''}{QueryParams(rest)}", status_code=303)
            answer.set_cookie(_COOKIE, _cookie_of(token), httponly=True, samesite="strict", max_age=30 * 86400)
            return answer
        bearer = headers.get("authorization", "").removeprefix("Bearer ")
        if hmac.compare_digest(bearer.encode(), token.encode()):
            return None
        if hmac.compare_digest(_sent_cookie(headers).encode(), _cookie_of(token).encode()):
            return None
        words = phrases(preferred(headers.get("accept-language", "")))
        return PlainTextResponse(
            f"addnorm: {words('page.no_token')}\n", status_code=401, headers={"WWW-Authenticate": "Bearer"}
        )


def _path(scope: Scope) -> str:
    # A path that begins with two slashes would be read as another host's address.
    return "/" + str(scope["path"]).lstrip("/")


def _cookie_of(token: str) -> str:
    return hashlib.sha256(b"addnorm page cookie " + token.encode()).hexdigest()


def _sent_cookie(headers: Headers) -> str:
    try:
        cookie = SimpleCookie(headers.get("cookie", "")).get(_COOKIE)
    except CookieError:
        return ""
    return cookie.value if cookie is not None else ""
