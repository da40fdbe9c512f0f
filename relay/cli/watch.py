"""`relay ps --watch`: the list of agents, kept up to date on the screen.

Looks (a thread) ─ sessions ─→ frame(): rows of text ─→ Canvas.show: what has changed
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Sequence

from relay.cli.agent_state import COLOURS, duration, state
from relay.columns import columns_of, fit
from relay.control.needs import ATTACH, Need, by_urgency, need
from relay.control.sessions import SessionInfo
from relay.terminal.canvas import Canvas
from relay.terminal.render import clip
from relay.text import count, one_line

_RESET = "\x1b[0m"
_TICK = 1.0  # seconds between two redraws for the clock alone
_HEADER = ("NAME", "TEAM", "AGENT", "STATE", "FOR", "TOKENS", "COST", "LAST LINE")
_MOST = (16, 10, 9, 26, 4, 6, 9)  # maximum width of each, except the last
_FROM = {"TEAM": 60, "COST": 90, "AGENT": 100, "TOKENS": 110}  # least terminal width; others always show
_LAST_LINE = 300  # characters of the last line to consider


def watch(
    look: Callable[[], list[SessionInfo]], interval: float, unread: Callable[[], int], *, coloured: bool
) -> int:
    """Show the list until the user leaves; return the exit code: 0, or 128 plus the signal that ended it.

    look: lists the agents; its exceptions propagate. interval: seconds between two calls of it.
    unread: counts what is unread in the user's inbox.
    """
    looks = Looks(look, interval)
    canvas = Canvas(0, 1)
    looks.start()
    try:
        with canvas:
            while not canvas.killed:
                sessions = looks.take()
                shown = frame(sessions, time.time(), *canvas.size, coloured=coloured, unread=unread())
                canvas.show(shown, None)
                for key in canvas.keys(min(_TICK, interval), looks.news):
                    if key in {"q", "ctrl-]"}:
                        return 0
                    if key == "interrupt":
                        canvas.killed = signal.SIGINT
                    elif key == "suspend":
                        canvas.suspend()
    finally:
        looks.stop()
    return 128 + canvas.killed


class Looks(threading.Thread):
    """Lists the sessions repeatedly, in a thread: one that hangs is slow to answer.

    news: a file descriptor that becomes readable with each new list.
    """

    def __init__(self, look: Callable[[], list[SessionInfo]], interval: float) -> None:
        super().__init__(daemon=True)
        self.news, self._write = os.pipe()
        for fd in (self.news, self._write):
            os.set_blocking(fd, False)
        self._look = look
        self._interval = interval
        self._over = threading.Event()
        self._found: list[SessionInfo] | Exception | None = None

    def run(self) -> None:
        while not self._over.is_set():
            try:
                self._found = self._look()
            except Exception as error:  # noqa: BLE001 (raised again by `take`)
                self._found = error
            try:
                os.write(self._write, b"!")
            except BlockingIOError:
                pass  # it is readable anyway
            self._over.wait(self._interval)

    def take(self) -> list[SessionInfo] | None:
        """Return the latest list, None before the first. Raise the error of the last look, if any."""
        try:
            os.read(self.news, 1 << 10)
        except BlockingIOError:
            pass  # it is redrawn for the clock
        found = self._found
        if isinstance(found, Exception):
            raise found
        return found

    def stop(self) -> None:
        self._over.set()


def frame(
    sessions: Sequence[SessionInfo] | None,
    now: float,
    columns: int,
    rows: int,
    *,
    coloured: bool,
    unread: int = 0,
) -> list[str]:
    """Return at most `rows` rows of `columns` columns. now: since the epoch. sessions: None if unknown.

    unread: how many items in the user's inbox are unread.
    """
    found = by_urgency(sessions or ())
    shown = found if len(found) <= rows - 2 else found[: max(rows - 3, 1)]
    cells = [_cells(session, now) for session in shown]
    keep = _columns(found, columns)
    wide = [max(map(columns_of, column)) for column in zip(_HEADER, *cells, strict=True)]
    widths = [min(wide[at], _MOST[at]) for at in keep]
    lines = [clip(_summary(sessions, found, unread), columns)]
    if shown:
        lines.append(clip(_row(_HEADER, keep, widths), columns))
    for session, cell in zip(shown, cells, strict=True):
        lines.append(clip(_row(cell, keep, widths, COLOURS[need(session)] if coloured else ""), columns))
    if len(shown) < len(found):
        lines.append(clip(f"… and {count(len(found) - len(shown), 'other')}", columns))
    return lines[: max(rows, 1)]


def _columns(found: Sequence[SessionInfo], columns: int) -> list[int]:
    """Return the indexes of the columns to show before LAST LINE: the less useful ones give way."""
    useless = set() if len({session.team.casefold() for session in found}) > 1 else {"TEAM"}
    if all(session.tokens is None for session in found):
        useless |= {"TOKENS", "COST"}
    shown = (name not in useless and columns >= _FROM.get(name, 0) for name in _HEADER[:-1])
    return [at for at, show in enumerate(shown) if show]


def _summary(sessions: Sequence[SessionInfo] | None, found: Sequence[SessionInfo], unread: int) -> str:
    mail = f", {unread} unread: `relay inbox`" if unread else ""
    if sessions is None:
        return "looking ...   q quits"
    if not found:
        return f"No agent is running. Start one with `relay wrap COMMAND`{mail}.   q quits"
    asking = sum(need(session) in ATTACH for session in found)
    others = sum(need(session) in {Need.UNRESPONSIVE, Need.HELD} for session in found)
    if not asking and not others:
        return f"{count(len(found), 'agent')}, none needs you{mail}   q quits"
    verb = "needs" if asking + others == 1 else "need"
    command = "next" if asking else "inbox"
    return f"{count(len(found), 'agent')}, {asking + others} {verb} you: `relay {command}`{mail}   q quits"


def _cells(session: SessionInfo, now: float) -> tuple[str, ...]:
    tokens = "?" if session.tokens is None else _brief(session.tokens)
    cost = "?" if session.tokens is None or session.cost is None else f"${session.cost:,.2f}"
    short = (session.name, session.team, session.agent, state(session), duration(session, now), tokens, cost)
    last = one_line(session.question or session.last_line, _LAST_LINE)
    return (*(one_line(cell, 80) for cell in short), last)


def _brief(number: int) -> str:
    """Return a number in six columns at most: 950, 12.3k, 1.2M."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= size * 0.99995:  # what rounds to 1000.0 of the next smaller unit
            return f"{number / size:.1f}{unit}"
    return str(number)


def _row(cells: Sequence[str], keep: Sequence[int], widths: Sequence[int], colour: str = "") -> str:
    parts = []
    for at, room in zip(keep, widths, strict=True):
        cell = fit(cells[at], room)
        parts.append(f"{colour}{cell}{_RESET}" if colour and at in {0, 3} else cell)
    return "  ".join([*parts, cells[-1]]).rstrip()
