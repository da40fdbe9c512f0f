"""Events at the two terminals of a session: the agent's and the user's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from relay.eventbus import Event
from relay.place import Place


@dataclass(frozen=True, slots=True)
class OutputRead(Event):
    """The agent has written `data`; `place` is where it ends. position: in the ring."""

    data: bytes
    place: Place
    position: int


@dataclass(frozen=True, slots=True)
class OutputSkipped(Event):
    """The agent has written `size` bytes that were dropped, as the session was too far behind."""

    size: int


@dataclass(frozen=True, slots=True)
class KeysTyped(Event):
    """The user has typed `data` into the agent's terminal. position: in the ring."""

    data: bytes
    position: int


@dataclass(frozen=True, slots=True)
class KeyChosen(Event):
    """The user has pressed a key between two agents: r (restart it now) or q (quit)."""

    key: str


@dataclass(frozen=True, slots=True)
class KeysWritten(Event):
    """A session has written `data` into the agent's terminal, by one order. position: in the ring."""

    data: bytes
    position: int


@dataclass(frozen=True, slots=True)
class KeysHeldBack(Event):
    """The user's keys stay in their terminal (ShimLink.reserve); all typed before has been published."""


@dataclass(frozen=True, slots=True)
class ScreenChanged(Event):
    """The agent's screen may show something else."""


@dataclass(frozen=True, slots=True)
class TerminalLent(Event):
    """Another terminal or pipe is attached to the agent from now on, or none. watched: it is a terminal."""

    watched: bool


@dataclass(frozen=True, slots=True)
class TitleWanted(Event):
    """Show `text` as the title of the user's terminal instead of the agent's; empty: the agent's again."""

    text: str


@dataclass(frozen=True, slots=True)
class TerminalResized(Event):
    """The agent's terminal has another size."""

    columns: int
    rows: int


@dataclass(frozen=True, slots=True)
class OutputQuiet(Event):
    """The agent has written nothing for a moment: check again what depends on silence."""


@dataclass(frozen=True, slots=True)
class ReadingFailed(Event):
    """The output can no longer be analysed; it is still forwarded."""

    reason: str


@dataclass(frozen=True, slots=True)
class TerminalLost(Event):
    """The lent terminal has gone; `what` says which kind: "terminal" or "pipe"."""

    what: str


@dataclass(frozen=True, slots=True)
class DetachRequested(Event):
    """The user has pressed the detach keys, or must be detached: where does their shell continue?"""


@dataclass(frozen=True, slots=True)
class OutputHeld(Event):
    """Output is paused until a terminal is repainted. id: of the repaint; anew: it shows nothing yet."""

    id: int
    anew: bool


@dataclass(frozen=True, slots=True)
class OutputEnded(Event):
    """The agent's terminal is closed: it has written its last, and that has been shown."""


@dataclass(frozen=True, slots=True)
class AgentSuspended(Event):
    """The agent stays stopped, and all that it wrote before has been shown."""


@dataclass(frozen=True, slots=True)
class AgentResumed(Event):
    """The agent, which was stopped, runs again."""


@dataclass(frozen=True, slots=True)
class AgentExited(Event):
    """The agent's process has ended. code: its exit code, 128+N for signal N."""

    code: int


@dataclass(frozen=True, slots=True)
class Notify(Event):
    """Show the user one line: where it spoils nothing, or when the terminal is given back.

    source: the handler or rule whose words these are; "" for relay's own.
    keep:   write it to the journal, too.
    """

    text: str
    level: Literal["info", "warning", "error"] = "info"
    source: str = ""
    keep: bool = True

    @property
    def line(self) -> str:
        """The text, with its source."""
        return f"{self.source}: {self.text}" if self.source else self.text


@dataclass(frozen=True, slots=True)
class WithdrawNotice(Event):
    """Forget a notice that is no longer true, if the user has not been shown it."""

    text: str


@dataclass(frozen=True, slots=True)
class NotifyDesktop(Event):
    """Show a notification on the user's desktop."""

    title: str
    text: str
