"""Names the agent in the title of the user's terminal: `Alice: TITLE`, where TITLE is the agent's own.

Before that, it says how many unread items are in the user's inbox: `(2) Alice: TITLE`.

    agent's title, an attached terminal, a question → the title, written beside the agent's output

The agent's own bytes pass unchanged: the terminal shows the title that the agent sets, and relay replaces it
at once. The user's title is saved on the terminal's stack, and restored when the terminal is given back
(XTWINOPS 22 and 23, xterm ctlseqs).
"""

from __future__ import annotations

from relay.eventbus import EventBus, handles
from relay.messaging.events import UnreadCounted
from relay.state.agent_terminal import AgentTerminal
from relay.terminal.events import AttachmentChanged, OutputRead, ScreenChanged, TitleWanted
from relay.terminal.shim_link import ShimLink
from relay.text import one_line

SAVE, RESTORE = b"\x1b[22;0t", b"\x1b[23;0t"

LONGEST = 200
"""Characters of a title that are shown."""

_SETS = (b"\x1b]0;", b"\x1b]2;")  # OSC 0 and 2 (xterm ctlseqs)
_BEGUN = 3  # bytes of a sequence that may end the previous piece


class WindowTitle:
    """The title of the terminals that are attached to the agent `name`."""

    def __init__(self, bus: EventBus, shim: ShimLink, terminal: AgentTerminal, *, name: str) -> None:
        self._bus = bus
        self._shim = shim
        self._terminal = terminal
        self._name = name
        self._wanted = ""
        self._unread = 0
        self._own = ""
        self._tail = b""
        self._watched = False
        self._stale = False

    @handles(AttachmentChanged)
    def attached(self, event: AttachmentChanged) -> None:
        self._watched = self._stale = event.watched
        self._update()

    @handles(OutputRead)
    def output(self, event: OutputRead) -> None:
        seen = self._tail + event.data
        self._tail = seen[-_BEGUN:]
        # The terminal shows the agent's title now, even if it is the same as before.
        if any(sets in seen for sets in _SETS):
            self._stale = True
            if self._watched:
                self._terminal.hurry()  # another title soon follows

    @handles(ScreenChanged)
    def changed(self, _: ScreenChanged) -> None:
        if (own := self._terminal.title()) != self._own:
            self._own, self._stale = own, True
        self._update()

    @handles(TitleWanted)
    def wanted(self, event: TitleWanted) -> None:
        self._wanted, self._stale = event.text, True
        self._update()

    @handles(UnreadCounted)
    def unread(self, event: UnreadCounted) -> None:
        if event.number != self._unread:
            self._unread, self._stale = event.number, True
            self._update()

    def _update(self) -> None:
        if not (self._stale and self._watched):
            return
        self._stale = False
        own = f"{self._name}: {self._own}" if self._own else self._name
        unread = f"({self._unread}) " if self._unread else ""
        title = one_line(unread + (self._wanted or own), LONGEST)
        self._shim.aside(SAVE, RESTORE)  # the shim sends these once to each terminal
        self._shim.aside(b"\x1b]2;" + title.encode() + b"\x1b\\")
