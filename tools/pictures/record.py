"""Records the sessions of the pictures: real ones, of small programs that act a story, in homes of their own.

Nothing is kept of this machine: a recording's header is replaced, and no path is drawn.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import pexpect

from relay.recording.asciicast import Cast, CastEvent, Header
from tools.pictures.stage import AGENT, STORIES, fresh_home, until

_PANE = (54, 9)  # columns and rows of each of two agents
_LIST = (96, 20)  # columns and rows of `relay top`
_FLEET = ("Lead", "Ann", "Ben", "Cleo", "Dan")
_LEFT = "\x1b[?1049l"  # a full-screen program leaves its screen (xterm ctlseqs, DECRST)


def record(out: Path) -> None:
    """Write the recordings of all pictures into the folder `out`."""
    out.mkdir(parents=True, exist_ok=True)
    _record_two_agents(out)
    _record_fleet(out)


def _record_two_agents(out: Path) -> None:
    with fresh_home() as home:
        start = home.path / "start"
        children = []
        for name in ("Bob", "Alice"):
            story = STORIES / f"{name.lower()}.txt"
            clock = home.path / f"{name}.clock"
            command = [*AGENT, str(story), "--clock", str(clock), "--after", str(start)]
            children.append(home.spawn(_PANE, "wrap", "-n", name, *command))
            home.wait_for(name)
        start.touch()
        until(lambda: home.said("Alice", "Merged"), children)
        time.sleep(0.5)  # what was said last is recorded
        home("stop", "--all")
        for child in children:
            child.expect(pexpect.EOF)
        begun = {name: float((home.path / f"{name}.clock").read_text()) for name in ("Alice", "Bob")}
        for name, first in begun.items():
            _copy(home.recording(name), out / f"{name.lower()}.cast", name, first - min(begun.values()))


def _record_fleet(out: Path) -> None:
    with fresh_home() as fleet:
        start = fleet.path / "start"
        lines = ["[fleet]", 'team = "shop"', "start_interval = 0"]
        for name in _FLEET:
            command = [*AGENT, str(STORIES / f"{name.lower()}.txt"), "--after", str(start)]
            lines += [f"[agents.{name}]", f"run = {command!r}"]
        (fleet.path / "relay.toml").write_text("\n".join(lines) + "\n")
        fleet("trust", "relay.toml")
        fleet("up")
        for name in _FLEET:
            fleet.wait_for(name)
        child = fleet.spawn(_LIST, "top")
        events = _Events(child)
        until(lambda: b"5 agents" in events.seen())
        start.touch()
        until(lambda: events.seen() and fleet.said("Ben", "npm install"))
        events.read(2)
        child.send("\x1b[H")  # Home: the agent that needs the user
        events.read(3)
        child.send("q")
        events.read(1)
        fleet("down")
        _write(out / "fleet.cast", Header(*_LIST, title="relay top"), events.found)


class _Events:
    """What `child` prints, with the seconds since the first of it."""

    def __init__(self, child: pexpect.spawn) -> None:
        self.found: list[CastEvent] = []
        self._child = child
        self._began = 0.0

    def seen(self) -> bytes:
        """Return all that it has printed so far."""
        self.read(0)
        return b"".join(event.encoded for event in self.found)

    def read(self, seconds: float) -> None:
        """Read for so long."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                data = self._child.read_nonblocking(65536, max(0.0, deadline - time.monotonic()))
                now = time.monotonic()
                self._began = self._began or now
                self.found.append(CastEvent(now - self._began, "o", data.decode("utf-8", "surrogateescape")))
            except (pexpect.TIMEOUT, pexpect.EOF):
                pass
            if time.monotonic() >= deadline:
                return


def _copy(source: Path, target: Path, title: str, first: float = 0.0) -> None:
    """Write the output of `source` into `target`, from `first` seconds on, with a shorter header."""
    cast = Cast(source, strict=True)
    events = [event for event in cast if event.kind == "o"]
    moved = [event._replace(time=event.time - events[0].time + first) for event in events]
    _write(target, Header(cast.header.columns, cast.header.rows, title=title), moved)


def _write(target: Path, header: Header, events: Sequence[CastEvent]) -> None:
    """Write a recording, without what is drawn once the program has left its screen."""
    last = next((at for at, event in enumerate(events) if _LEFT in event.data), len(events))
    target.write_bytes(b"".join([header.line(), *(event.line() for event in events[:last])]))
