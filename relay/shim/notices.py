"""Notices for the user: shown where they disturb nothing, or kept until the terminal is free.

A notice gets its own line, between two lines of a program that prints lines and reads lines.  It never
stands on a row with a prompt or with something half typed, whose echo is output like any other, and never on
a screen that the program draws.
"""

from __future__ import annotations

from relay.shim.pty import flags

TYPE_CHECKING = False
if TYPE_CHECKING:
    from relay.shim.forward import Forwarder

MAX_PENDING = 20
"""Notices kept while they would spoil the screen."""

BELL = b"\a"
"""Rung for a notice that must wait; `relay explain` shows it."""


def said(*texts: str) -> bytes:
    """Return the lines in which relay says `texts` on a terminal."""
    return "".join(f"relay: {text}\r\n" for text in texts).encode()


class PendingNotices:
    """The notices of one agent. pending: those that have not been shown, the newest MAX_PENDING of them."""

    def __init__(self, forwarder: Forwarder) -> None:
        self._lines = False
        self._forwarder = forwarder
        self.pending: list[str] = []

    def add(self, text: str) -> None:
        """Show one line: at once, at the end of a line, or when the terminal is given back (`take`)."""
        self.pending = [*self.pending, text][-MAX_PENDING:]
        self._show()
        if self.pending:
            self._forwarder.user.aside(BELL)

    def note(self, *, lines: bool) -> None:
        """Note whether the agent only prints lines, as far as its session has read."""
        self._lines = lines
        self._watch()

    def forget(self, text: str) -> None:
        """Forget a notice that has not been shown."""
        self.pending = [each for each in self.pending if each != text]
        self._watch()

    def take(self) -> list[str]:
        """Return what is pending, which is shown now."""
        taken, self.pending = self.pending, []
        self._watch()
        return taken

    def _show(self) -> None:
        if self.pending and self._spoils_nothing():
            self._forwarder.user.show(said(*self.take()))
        self._watch()

    def _watch(self) -> None:
        """Have `_show` called at the ends of lines, while that may help."""
        self._forwarder.user.line_ended = self._show if self.pending and self._lines else None

    def _spoils_nothing(self) -> bool:
        forwarder, user = self._forwarder, self._forwarder.user
        if user.paused or forwarder.background or forwarder.held:
            return False  # the terminal is the shell's now, or about to be painted
        return self._lines and user.watched and user.at_line_start and flags(forwarder.pty.attributes())[0]
