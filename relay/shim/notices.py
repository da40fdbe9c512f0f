"""Notices for the user: shown where they disturb nothing, or kept until the terminal is free.

A notice gets its own line, between two lines of a program that prints and reads lines.  It never shares a row
with a prompt or half-typed input (the echo is output, too), and never appears on a full-screen program.
"""

from __future__ import annotations

from relay.shim.pty import flags

TYPE_CHECKING = False
if TYPE_CHECKING:
    from relay.shim.forward import Forwarder

MAX_PENDING = 20
"""Maximum number of notices kept while they would garble the screen."""

BELL = b"\a"
"""Rung for a notice that must wait; `relay explain` shows it."""


def said(*texts: str) -> bytes:
    """Return `texts` as relay's lines for a terminal."""
    return "".join(f"relay: {text}\r\n" for text in texts).encode()


class PendingNotices:
    """The notices of one agent. pending: the newest MAX_PENDING that have not been shown.

    unread: how many items in the user's inbox are unread.
    """

    def __init__(self, forwarder: Forwarder) -> None:
        self._lines = False
        self._forwarder = forwarder
        self.pending: list[str] = []
        self.unread = 0

    def add(self, text: str) -> None:
        """Show one line: now, at the next end of a line, or when the terminal is given back (`take`)."""
        self.pending = [*self.pending, text][-MAX_PENDING:]
        self._show()
        if self.pending:
            self._forwarder.user.aside(BELL)

    def note(self, *, lines: bool) -> None:
        """Record whether the agent has only printed lines in the output that its session has read."""
        self._lines = lines
        self._watch()

    def forget(self, text: str) -> None:
        self.pending = [each for each in self.pending if each != text]
        self._watch()

    def count_unread(self, number: int) -> None:
        self.unread = number

    def take(self) -> list[str]:
        """Return the pending notices, which the caller shows."""
        taken, self.pending = self.pending, []
        self._watch()
        return taken

    def _show(self) -> None:
        if self.pending and self._spoils_nothing():
            self._forwarder.user.show(said(*self.take()))
        self._watch()

    def _watch(self) -> None:
        """Call `_show` at the end of each line while notices are pending."""
        self._forwarder.user.line_ended = self._show if self.pending and self._lines else None

    def _spoils_nothing(self) -> bool:
        forwarder, user = self._forwarder, self._forwarder.user
        if user.paused or forwarder.background or forwarder.held:
            return False  # the shell owns the terminal now, or a repaint is due
        return self._lines and user.watched and user.at_line_start and flags(forwarder.pty.attributes())[0]
