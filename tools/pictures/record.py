"""Records the sessions of the pictures: real ones, of small programs that act a story, in homes of their own.

Nothing is kept of this machine: a recording's header is replaced, and no path is drawn.
"""

from __future__ import annotations

import time
from pathlib import Path

import pexpect

from relay.recording.asciicast import Cast, Header
from tools.pictures.stage import AGENT, RELAY, STORIES, fresh_home, read, until

_PANE = (54, 9)  # columns and rows of each of two agents
_LIST = (96, 7)  # columns and rows of `relay ps --watch`
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
    with fresh_home() as fleet, fresh_home() as watcher:
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
        watch = ["env", f"RELAY_HOME={fleet.path}", *RELAY, "ps", "--watch", "--interval", "0.2"]
        child = watcher.spawn(_LIST, "wrap", "-n", "Watch", *watch)
        watcher.wait_for("Watch")
        start.touch()
        until(lambda: fleet.said("Ben", "npm install"), [child])
        read(child, 4)
        watcher("stop", "--all")
        child.expect(pexpect.EOF)
        fleet("down")
        _copy(watcher.recording("Watch"), out / "fleet.cast", "relay ps --watch")


def _copy(source: Path, target: Path, title: str, first: float = 0.0) -> None:
    """Write the output of `source` into `target`, from `first` seconds on, with a header that says no more.

    What is drawn once the program has left its screen is left out.
    """
    cast = Cast(source, strict=True)
    events = [event for event in cast if event.kind == "o"]
    last = next((at for at, event in enumerate(events) if _LEFT in event.data), len(events))
    header = Header(cast.header.columns, cast.header.rows, title=title)
    lines = [event._replace(time=event.time - events[0].time + first).line() for event in events[:last]]
    target.write_bytes(b"".join([header.line(), *lines]))
