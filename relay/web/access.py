"""Who may use the server: tokens that open a session of a browser, and the sessions that are open.

A token is in the address that `relay web` prints: behind the `#`, which browsers do not send. The page
exchanges it for a cookie. The server keeps only hashes of both.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager

from relay.errors import NotAllowed, RelayError

TOKEN_SECONDS = 60.0
"""Seconds within which a token must be used."""

CLICK_SECONDS = 60.0
"""Seconds within which a confirmed click must be followed by what it allows."""

WRONG, LOCKED_SECONDS = 5, 60.0
"""Wrong tokens, within so many seconds, after which none is accepted for as long."""

MOST_SESSIONS = 16
"""Open sessions; the one that was used longest ago gives way."""

Agent = tuple[str, str]
"""The keys of an agent's team and name."""


PRINTED, OPENED = "printed", "opened"
"""How a token is handed over: on the terminal, or on the command line of a browser, which others see."""


class TooMany(RelayError):
    """More than the server allows; try again later."""


class BrowserSession:
    """One browser that has given a token."""

    def __init__(self) -> None:
        self.used = time.monotonic()
        self._clicks: dict[Agent, tuple[float, bool]] = {}
        self._closers: list[Callable[[], object]] = []
        self._over = False

    def confirm(self, agent: Agent, *, takeover: bool) -> None:
        """Note that the user has confirmed to control the terminal of `agent`."""
        self._clicks[agent] = time.monotonic() + CLICK_SECONDS, takeover

    def take_click(self, agent: Agent) -> bool:
        """Use the confirmation for `agent` up, and return its `takeover`. Raise NotAllowed without one."""
        until, takeover = self._clicks.pop(agent, (0.0, False))
        if time.monotonic() >= until:
            raise NotAllowed("taking control needs a confirmation in the page, at most a minute ago.")
        return takeover

    @contextmanager
    def closes(self, closer: Callable[[], object]) -> Iterator[None]:
        """Have `closer` called if the session ends during the block."""
        self._closers.append(closer)
        try:
            if self._over:  # since the request was let in
                closer()
            yield
        finally:
            self._closers.remove(closer)

    def close(self) -> None:
        self._over = True
        for closer in [*self._closers]:
            closer()


class Access:
    """The tokens and sessions of one run of the server.

    cookie: the name of its cookies. It is this run's own, as browsers share cookies between ports.
    """

    def __init__(self) -> None:
        self.cookie = f"relay-{secrets.token_hex(8)}"
        self._tokens: dict[str, tuple[bytes, float]] = {}
        self._wrong: list[float] = []
        self._locked = 0.0
        self._sessions: dict[bytes, BrowserSession] = {}

    def new_token(self, way: str) -> str:
        """Return a new token. An earlier one that was to be handed over in the same `way` is void."""
        token = secrets.token_urlsafe(32)
        self._tokens[way] = _hash(token), time.monotonic() + TOKEN_SECONDS
        return token

    def open(self, token: str, ways: Collection[str]) -> str:
        """Use up a token of one of these ways, and return the cookie of a new session.

        Raise NotAllowed for another one, and TooMany after WRONG of them.
        """
        now, given = time.monotonic(), _hash(token)
        if now < self._locked:
            raise TooMany("too many wrong tokens. Wait a minute, then take a new address from `relay web`.")
        for way, (right, until) in self._tokens.items():
            if secrets.compare_digest(given, right) and way in ways and now < until:
                del self._tokens[way]
                return self._begin()
        self._wrong = [*(at for at in self._wrong if at > now - LOCKED_SECONDS), now]
        if len(self._wrong) >= WRONG:
            self._locked, self._wrong = now + LOCKED_SECONDS, []
        raise NotAllowed(
            "this address has been used, or is too old. Enter in the terminal of `relay web` prints another."
        )

    def _begin(self) -> str:
        if len(self._sessions) >= MOST_SESSIONS:
            oldest = min(self._sessions, key=lambda each: self._sessions[each].used)
            self._sessions.pop(oldest).close()
        cookie = secrets.token_urlsafe(32)
        self._sessions[_hash(cookie)] = BrowserSession()
        return cookie

    def session(self, cookie: str) -> BrowserSession | None:
        found = self._sessions.get(_hash(cookie))
        if found is not None:
            found.used = time.monotonic()
        return found

    def close(self, session: BrowserSession) -> None:
        """End a session, and what is open in it."""
        self._sessions = {key: each for key, each in self._sessions.items() if each is not session}
        session.close()

    def close_all(self) -> None:
        for each in [*self._sessions.values()]:
            self.close(each)


def _hash(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "replace")).digest()
