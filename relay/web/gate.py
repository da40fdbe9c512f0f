"""What every request must show before it reaches the API. Nothing here depends on what is asked for.

    whose process ─ Host ─ Origin ─ for a change: POST or DELETE, JSON, X-Relay ─ cookie

A page of another server cannot set the header X-Relay without leave (CORS), and gets none. A name that
resolves to this machine is no Host of this server (DNS rebinding).
"""

from __future__ import annotations

import json
import logging
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import cookie_parser
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from relay.home import Home
from relay.storage.journal import Journal
from relay.web.access import Access
from relay.web.connections import STATE, Connections, TcpConnection
from relay.web.peers import TcpPeer, Whose

_log = logging.getLogger(__name__)

MAX_BODY = 256 << 10
"""Bytes of a request's body."""

SESSION = "session"
"""The key of the BrowserSession in an ASGI scope's state."""

PEER = "peer"
"""The key of the TcpPeer in an ASGI scope's state."""

_API, _LOGIN = "/api/", "/api/session"

_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
    "connect-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)

_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


class Refused(Exception):
    """A request that is not served. status: of HTTP."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status

    def response(self) -> Response:
        """Return what to answer; the connection is closed, as more of the request may be on its way."""
        response = json_response({"error": str(self), "type": "NotAllowed"}, self.status)
        response.headers["Connection"] = "close"
        return response


def json_response(value: Any, status: int = 200) -> Response:
    """Return a response with `value` as JSON, in ASCII: a path may be no UTF-8."""
    return Response(json.dumps(value), status, media_type="application/json")


class Gate:
    """Lets only requests through to `app` that may reach it; those to the API with their session."""

    def __init__(self, app: ASGIApp, home: Home, port: int, access: Access, connections: Connections) -> None:
        self._app = app
        self._home = home
        self._hosts = {f"127.0.0.1:{port}", f"localhost:{port}"}
        self._access = access
        self._connections = connections

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        sends = _with_headers(send, scope["path"].startswith(_API))
        try:
            await self._check(scope)
        except Refused as refused:
            if scope["type"] == "websocket":
                await receive()
                await send({"type": "websocket.close"})  # the status is 403
                return
            await refused.response()(scope, receive, sends)
            return
        try:
            await self._app(scope, receive, sends)
        except Exception:  # noqa: BLE001 (logged; the server lives on)
            _log.exception("relay web has failed to answer %s", scope["path"])

    async def _check(self, scope: Scope) -> None:
        headers, path = Headers(scope=scope), scope["path"]
        reads = scope["type"] == "http" and scope["method"] in {"GET", "HEAD"}
        connection: TcpConnection = scope["state"][STATE]
        known = connection.looked_up
        peer = await connection.peer()
        if not known and peer.whose is Whose.AGENT:
            self._note(peer)
        if self._connections.exceeds(peer):
            raise Refused(503, "this process has too many connections.")
        public = reads and not path.startswith(_API)
        if peer.whose is Whose.AGENT and not public:
            raise Refused(403, f"an agent may not use relay web. {peer.why}")
        self._check_origin(scope, headers, reads=reads, public=public)
        if public:
            return
        if scope["type"] == "http" and not reads:
            _check_change(scope, headers)
        scope["state"][PEER] = peer
        if path == _LOGIN and not reads and scope["method"] == "POST":
            return
        session = self._access.session(cookie_parser(headers.get("cookie", "")).get(self._access.cookie, ""))
        if session is None:
            raise Refused(401, "log in first: open the address that `relay web` prints.")
        connection.trusted = True
        scope["state"][SESSION] = session
        if peer.whose is Whose.UNKNOWN and not reads and path != _LOGIN and scope["type"] == "http":
            raise Refused(
                403,
                "relay cannot tell whose process this connection is from, so it may only look (docs/WEB.md).",
            )

    def _check_origin(self, scope: Scope, headers: Headers, *, reads: bool, public: bool) -> None:
        if not scope["raw_path"].startswith(b"/"):
            raise Refused(400, "the request's target must be a path.")
        hosts, origins = headers.getlist("host"), headers.getlist("origin")
        if len(hosts) != 1 or hosts[0].lower() not in self._hosts:
            raise Refused(403, "this server is reached as 127.0.0.1 or localhost, with its port, only.")
        needed = not reads
        if len(origins) > 1 or ((origins or needed) and origins[:1] != [f"http://{hosts[0].lower()}"]):
            raise Refused(403, "this request is from a page of another server.")
        if not public and headers.get("sec-fetch-site", "same-origin") not in {"same-origin", "none"}:
            raise Refused(403, "this request is from a page of another server.")

    def _note(self, peer: TcpPeer) -> None:
        Journal(self._home.journal, "", peer.agent).write("refused", operation="web", pid=peer.pid)


def _check_change(scope: Scope, headers: Headers) -> None:
    if scope["method"] not in {"POST", "DELETE"}:
        raise Refused(405, "use GET, POST or DELETE.")
    if headers.get("x-relay") != "1":
        raise Refused(403, "a change needs the header `X-Relay: 1`.")
    if scope["method"] == "POST" and headers.get("content-type", "").lower() not in {
        "application/json",
        "application/json; charset=utf-8",
    }:
        raise Refused(415, "a change is sent as application/json.")
    length = headers.get("content-length", "0")
    if not length.isdecimal() or int(length) > MAX_BODY:
        raise Refused(413, f"a request has at most {MAX_BODY >> 10} KB.")


def _with_headers(send: Send, api: bool) -> Send:
    async def sends(message: Message) -> None:
        if message["type"] in {"http.response.start", "websocket.http.response.start"}:
            headers = MutableHeaders(scope=message)
            for name, value in _HEADERS.items():
                headers[name] = value
            headers["Cache-Control"] = "no-store" if api else "no-cache"
        await send(message)

    return sends
