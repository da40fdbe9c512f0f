"""Fake agents that tests control, and what relay reports about them."""

from __future__ import annotations

import functools
import json
import os
import re
import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from support import Relay, wait_until

REMOTE = Path(__file__).parent.parent / "fakes" / "agent_remote.py"

Entry = dict[str, Any]


class FakeAgent:
    """One wrapped agent (tests/fakes/agent_remote.py) with its own session."""

    def __init__(self, relay: Relay, name: str, *, team: str = "") -> None:
        self.relay = relay
        self.name = name
        self.team = team or relay.team or "default"
        self.folder = relay.home / "fakes" / self.team / name
        self.folder.mkdir(parents=True, exist_ok=True)  # an earlier agent of that name may have used it

    def command(self, *arguments: str) -> list[str | Path]:
        """Return what to wrap; `arguments` are for the fake program itself."""
        return [sys.executable, "-S", REMOTE, self.folder, *arguments]

    def wrap(
        self,
        *arguments: str,
        options: tuple[str | Path, ...] = (),
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        named: bool = True,
    ) -> FakeAgent:
        """Start it detached and wait until it runs. named: with -n; otherwise relay chooses the name."""
        self.relay(
            "wrap",
            "-d",
            *(("-n", self.name) if named else ()),
            "-t",
            self.team,
            *options,
            *self.command(*arguments),
            cwd=cwd,
            env=env,
        )
        wait_until(lambda: (self.folder / "strings").exists() and (self.folder / "received").exists())
        return self

    def say(self, text: str, end: str = "\n") -> None:
        """Make the agent print `text`."""
        self._pull({"say": text + end})

    def exit(self, code: int = 0) -> None:
        self._pull({"exit": code})

    @property
    def received(self) -> str:
        """Return what the agent has read from its terminal so far."""
        path = self.folder / "received"
        return path.read_bytes().decode("utf-8", "surrogateescape") if path.exists() else ""

    def receives(self, words: str) -> str:
        """Wait until the agent has read `words`; return all that it has read."""
        wait_until(
            lambda: words in self.received, message=lambda: f"{words!r} in {self.received!r}\n{self.log()}"
        )
        return self.received

    def texts(self) -> list[tuple[str, str]]:
        """Return the one-line texts that it has received, in order: (sender, text), without the time."""
        return re.findall(
            r"^\[relay [\w-]{4,8} (?:from )?([^\]]*?)(?:, [\d:]{8})?\] (.*) \[/relay [\w-]{4,8}\]$",
            self.received,
            re.MULTILINE,
        )

    def receives_exactly(self, *texts: tuple[str, str]) -> None:
        """Wait until it has read as many texts, and compare them. relay may see their echo earlier."""
        wait_until(
            lambda: len(self.texts()) >= len(texts), message=lambda: f"{self.received!r}\n{self.log()}"
        )
        assert self.texts() == list(texts)

    def events(self, event: str = "") -> list[Entry]:
        """Return this agent's journal entries, all or of one kind."""
        entries = events(self.relay, self.name, event)
        return [e for e in entries if e["name"] == self.name and event in ("", e["event"])]

    def notice(self, words: str) -> str:
        """Wait for a notice with `words` to this agent's user; return all of it."""
        found = wait_until(
            lambda: [
                text
                for e in self.events()
                for text in (e.get("text", ""), e.get("problem", ""))
                if words in text
            ],
            message=lambda: f"{words!r}\n{self.log()}",
        )
        return str(found[0])

    def state(self) -> str:
        """Return its state in `relay ps`."""
        (row,) = [row for row in ps(self.relay) if row["name"] == self.name and row["team"] == self.team]
        return str(row["state"])

    def ended(self) -> bool:
        return bool(self.events("session_end"))

    def log(self) -> str:
        """Return the journal and the session log, for a failed assertion."""
        session = self.relay.home / "state" / "session.log"
        return self.relay("events").stdout + (session.read_text() if session.exists() else "")

    def _pull(self, what: Entry) -> None:
        def sent() -> bool:
            try:
                strings.sendto(json.dumps(what).encode(), str(self.folder / "strings"))
            except (ConnectionRefusedError, FileNotFoundError):
                return False  # it was restarted, and does not listen yet
            return True

        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as strings:
            wait_until(sent, message=self.log)


class SharedAgent(FakeAgent):
    """An agent that the tests of a module use one after the other."""

    _earlier: frozenset[str] = frozenset()

    def forget(self) -> None:
        """Have it forget what earlier tests sent to it, once that is settled."""

        def settled() -> bool:
            own = [m["state"] for m in messages(self.relay, "--to", self.name)]
            return {"injected", "rejected", "expired"} >= set(own)

        wait_until(settled, message=self.log)
        self._earlier = frozenset(m["id"] for m in messages(self.relay))
        os.truncate(self.folder / "received", 0)

    def messages(self) -> list[Entry]:
        """Return all messages in its home that were sent since."""
        return [m for m in messages(self.relay) if m["id"] not in self._earlier]

    def states(self) -> list[str]:
        return [str(m["state"]) for m in self.messages()]


def events(relay: Relay, *words: str) -> list[Entry]:
    """Return the journal, oldest entry first. words: only its lines with all of them."""
    path = relay.home / "state" / "events.jsonl"
    try:
        found = path.stat()
    except FileNotFoundError:
        return []
    entries = _events(path, words, found.st_ino, found.st_size)
    if relay.team is None:
        return list(entries)
    return [e for e in entries if e["time"] >= relay.began and e["session"] not in relay.earlier]


@functools.lru_cache(maxsize=32)
def _events(path: Path, words: tuple[str, ...], *_: int) -> list[Entry]:
    """Read the file anew only once it has another inode or size: tests poll it."""
    lines = path.read_text().splitlines()
    return [json.loads(line) for line in lines if all(word in line for word in words)]


def ps(relay: Relay) -> list[Entry]:
    return list(json.loads(relay("ps", "--json").stdout))


def messages(relay: Relay, *arguments: str) -> list[Entry]:
    return list(json.loads(relay("messages", "--json", *arguments).stdout))


def project(relay: Relay, config: str, *, trust: bool = True) -> Path:
    """Return a project folder with a relay.config.py, trusted by default."""
    folder = relay.home / "project"
    folder.mkdir(exist_ok=True)
    (folder / "relay.config.py").write_text(config)
    if trust:
        relay("trust", cwd=folder)
    return folder


def settings(relay: Relay, text: str) -> None:
    """Write the user's relay.toml."""
    path = relay.home / "config" / "relay.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
