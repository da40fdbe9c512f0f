"""Events at the two terminals of a session: the agent's and the user's."""

from __future__ import annotations

from typing import ClassVar, Literal

from relay.eventbus import Event
from relay.place import Place
from relay.text import one_line

NOTICE_LENGTH = 300
"""Characters of a notice that are shown."""


class OutputRead(Event):
    """The agent has written `data`; `place` is where the data ends. position: in the ring."""

    data: bytes
    place: Place
    position: int


class OutputRestored(Event):
    """The virtual screen shows all output that earlier sessions have read."""


class OutputSkipped(Event):
    """The agent has written `size` bytes that were dropped because the session was too far behind."""

    size: int


class KeysTyped(Event):
    """The user has typed `data` into the agent's terminal. position: in the ring."""

    data: bytes
    position: int


class KeyChosen(Event):
    """The user has pressed a key between two agents: r (restart it now) or q (quit)."""

    key: str


class KeysWritten(Event):
    """A session has written `data` into the agent's terminal with one order. position: in the ring."""

    data: bytes
    position: int


class KeysHeldBack(Event):
    """The user's keys stay in their terminal (ShimLink.reserve); all earlier keys have been published."""


class ScreenChanged(Event):
    """The agent's screen may have changed."""


class AttachmentChanged(Event):
    """The terminal or pipe attached to the agent has changed, or was detached. watched: it is a terminal."""

    lasting: ClassVar[bool] = True

    watched: bool


class TitleWanted(Event):
    """Show `text` as the title of the user's terminal instead of the agent's; empty: restore the agent's."""

    text: str


class TerminalResized(Event):
    """The agent's terminal was resized."""

    columns: int
    rows: int


class OutputQuiet(Event):
    """The agent has written nothing for a moment: recheck what depends on silence."""


class ReadingFailed(Event):
    """The output can no longer be analysed; it is still forwarded."""

    lasting: ClassVar[bool] = True

    reason: str


class TerminalLost(Event):
    """The attached terminal has gone; `what` is its kind: "terminal" or "pipe"."""

    what: str


class DetachRequested(Event):
    """The user has pressed the detach keys, or must be detached: report how to restore their terminal."""


class OutputHeld(Event):
    """Output is paused until a terminal is repainted. id: of the repaint; blank: it shows nothing yet."""

    id: int
    blank: bool


class OutputEnded(Event):
    """The agent's terminal is closed, and all of its output has been shown."""

    lasting: ClassVar[bool] = True


class AgentSuspended(Event):
    """The agent stays stopped, and all of its output until then has been shown."""


class AgentResumed(Event):
    """The stopped agent runs again."""


class AgentExited(Event):
    """The agent's process has ended. code: its exit code, 128+N for signal N."""

    lasting: ClassVar[bool] = True

    code: int


class Notify(Event):
    """Show the user one line: where it disturbs nothing, or when the terminal is given back.

    source: the handler or rule that wrote the text; "" for relay's own.
    keep:   write the line to the journal, too, and into the user's inbox until somebody has seen it.
    listed: the inbox has it anyway, as an item of its own.
    """

    text: str
    level: Literal["info", "warning", "error"] = "info"
    source: str = ""
    keep: bool = True
    listed: bool = False

    @property
    def line(self) -> str:
        """The text, with its source."""
        return f"{self.source}: {self.text}" if self.source else self.text

    @property
    def shown(self) -> str:
        return one_line(self.line if self.level == "info" else f"{self.level}: {self.line}", NOTICE_LENGTH)


class MistakeFound(Event):
    """A file that was read again has a mistake. WithdrawNotice: it no longer has it."""

    text: str


class WithdrawNotice(Event):
    """Drop a notice that is no longer true, unless the user has already seen it."""

    text: str
