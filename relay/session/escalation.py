"""What is done when the agent asks for a decision: the person hears of it, wherever they look.

    the terminal    bell, and a title until the question is over
    the desktop     a notification
    the bus         a message to whom the settings name (escalate_to)
    relay ps        the state `prompting` (relay.state.states)

Everything the agent has drawn is untrusted: it is shown in visible characters, and quoted to other agents.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from relay.storage.journal import Journal
from relay.text import one_line, visible

REPEAT = 60.0
"""Seconds in which the same question, drawn anew, is not told again."""

MOMENT = 1.0
"""Seconds in which all that is asked is one question, which its hooks told before it was drawn, and in which
a person who sees it may answer before it is told beyond the terminal."""

COOLDOWN = 10.0
"""Seconds between two notifications, and two messages; a message to an agent costs a turn of its model."""

MAX_LINES, MAX_LINE = 12, 200
"""Lines of a question that are passed on, and characters of each."""

BELL = b"\a"
_SAVE_TITLE, _RESTORE_TITLE = b"\x1b[22;0t", b"\x1b[23;0t"  # xterm ctlseqs, XTWINOPS


_Asked = tuple[str, tuple[str, ...]]
"""The kind of a question, and its rows."""


class Show(Protocol):
    def __call__(self, data: bytes, undo: bytes | None = None) -> None: ...


class Timer(Protocol):
    def cancel(self) -> object: ...


class Escalation:
    """Told by the session of each prompt (`prompting`) and of its end (`over`).

    action:  "escalate", or "none": then nothing is done.
    to:      a name on the bus that is told, or "".
    drawn:   the rows of the question as it is drawn now, () where it cannot be told from the rest.
    show:    writes to the person's terminal what moves no cursor (`Forwarder.aside`).
    title:   the title that the agent has set, "" if none.
    notify:  shows (title, text) on the desktop.
    send:    sends (receiver, text) over the bus, in the agent's name.
    later:   calls a function after some seconds of `clock`.
    """

    def __init__(
        self,
        name: str,
        *,
        action: str,
        to: str,
        drawn: Callable[[], Sequence[str]],
        show: Show,
        title: Callable[[], str],
        notify: Callable[[str, str], object],
        send: Callable[[str, str], object],
        journal: Journal,
        clock: Callable[[], float],
        later: Callable[[float, Callable[[], None]], Timer],
    ) -> None:
        self._name = name
        self._action = action
        self._to = to
        self._drawn = drawn
        self._show = show
        self._title = title
        self._notify = notify
        self._send = send
        self._journal = journal
        self._clock = clock
        self._later = later
        self._asked: _Asked | None = None  # what stands now
        self._shown: tuple[_Asked, float] | None = None  # the last that was shown in the terminal, and when
        self._told: tuple[_Asked, float] | None = None  # the last that was told beyond it
        self._rang_at = -MOMENT
        self._free_at = 0.0  # when the next may be told beyond the terminal
        self._timer: Timer | None = None

    def prompting(self, kind: str, lines: Sequence[str]) -> None:
        """The agent asks; `lines` say what, where the screen does not."""
        if self._action != "escalate":
            return
        said = [one_line(line, MAX_LINE) for line in self._drawn() or lines if line.strip()]
        shown = tuple(said[-MAX_LINES:])
        if self._asked is None:
            self._show(_SAVE_TITLE, _RESTORE_TITLE)
        self._asked = (kind, shown)
        self._show(_set_title(f"{self._name} asks: {_KINDS.get(kind, kind)}"))
        now = self._clock()
        if not self._is_recent(self._shown):
            self._shown = (self._asked, now)
            self._journal.write("escalated", kind=kind, lines=list(shown), to=self._to or None)
            if now >= self._rang_at + MOMENT:
                self._rang_at = now
                self._show(BELL)
        if self._timer is None and not self._is_recent(self._told):
            self._timer = self._later(max(MOMENT, self._free_at - now), self._tell)

    def over(self) -> None:
        """The question has gone: it was answered, or the agent has ended."""
        self._cancel()
        if self._asked is None:
            return
        self._asked = None
        self._show(_RESTORE_TITLE, b"")
        if own := self._title():
            self._show(_set_title(own))

    def _tell(self) -> None:
        """Tell the desktop and the bus what is asked now."""
        self._timer = None
        if self._asked is None:
            return
        now = self._clock()
        self._told, self._free_at = (self._asked, now), now + COOLDOWN
        kind, lines = self._asked
        what = _KINDS.get(kind, kind)
        self._notify(f"{self._name} asks: {what}", "\n".join(lines))
        if self._to:
            quoted = "".join(f"\n> {line}" for line in lines)
            self._send(
                self._to, f"{self._name} waits for a decision ({what}), which a person must take:{quoted}"
            )

    def _is_recent(self, told: tuple[_Asked, float] | None) -> bool:
        """Whether what is asked now is what was `told`, not long ago."""
        return told is not None and told[0] == self._asked and self._clock() < told[1] + REPEAT

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


_KINDS = {
    "permission": "permission",
    "plan_approval": "approval of a plan",
    "question": "a question",
    "other": "a decision",
}


def _set_title(title: str) -> bytes:
    """OSC 2, with nothing in it that could end it early."""
    return b"\x1b]2;" + visible(title).encode() + b"\x1b\\"
