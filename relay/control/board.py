"""The agents as `relay top` and `relay web` show them: in groups, with what waits for you."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import Any

from relay.control import inbox
from relay.control.ended import GONE, ended
from relay.control.sessions import UNRESPONSIVE, SessionInfo, live
from relay.dataclass import dataclass, fields
from relay.home import Home
from relay.messaging.user_inbox import ORDER, Item, in_order
from relay.names import key
from relay.supervision.states import ENDED, Phase

_HEAD = "ref: refs/heads/"
_HASH = 8  # characters of a commit's hash, in place of a branch


class Group(StrEnum):
    """The groups of agents, the most urgent first."""

    NEEDS_YOU = "needs you"
    WORKING = "working"
    WAITING = "waiting"  # for a prompt, a time, or another agent
    DONE = "done"  # ended


NEEDS_YOU = inbox.ATTACH | {"unresponsive", "runaway"}
"""The kinds of items without whose end an agent does not get on."""

_WAITING = frozenset({"ready", "stopped", "unsafe", Phase.BACKOFF, Phase.WAITING, Phase.QUEUED, Phase.HELD})
_DONE = ENDED | {GONE}


@dataclass(frozen=True, slots=True)
class BoardEntry:
    """One agent, or program.

    items: what it has in the inbox. branch: of its folder, or a commit; or "". host: another one; or "".
    """

    agent: SessionInfo
    group: Group
    items: tuple[Item, ...]
    branch: str
    host: str = ""

    @property
    def name(self) -> str:
        """Its name, with its host if that is another one."""
        return f"{self.agent.name}@{self.host}" if self.host else self.agent.name

    @property
    def line(self) -> str:
        """Its question, or else why it needs the user, or else the last line that it said."""
        needs = [each.text for each in self.items if each.kind in NEEDS_YOU]
        return self.agent.question or next(iter(needs), "") or self.agent.last_line or self.agent.reason

    @property
    def unread(self) -> int:
        return sum(not each.read for each in self.items)

    @property
    def runs(self) -> bool:
        return self.agent.state not in _DONE and bool(self.agent.pid or self.agent.terminal_pid)

    @property
    def has_screen(self) -> bool:
        """True if its session can show its terminal."""
        return self.runs and not self.agent.is_program and self.agent.state != UNRESPONSIVE

    def public(self) -> dict[str, Any]:
        """Return the object of `relay ps --json`, and beside it `group`, `line`, `branch`, `unread`."""
        more = {"group": str(self.group), "line": self.line, "branch": self.branch, "unread": self.unread}
        return {**self.agent.public(), **more}


@dataclass(frozen=True, slots=True)
class Board:
    """All entries, the most urgent first, and the whole inbox.

    problem: why a part of it may be missing or out of date; or "". hosts: those of items on others, by id.
    """

    entries: tuple[BoardEntry, ...]
    inbox: tuple[Item, ...]
    problem: str = ""
    hosts: Mapping[str, str] = MappingProxyType({})

    @property
    def unread(self) -> int:
        return sum(not each.read for each in self.inbox)

    def public(self) -> dict[str, Any]:
        """Return the object of `relay top --json`."""
        return {
            "agents": [each.public() for each in self.entries],
            "inbox": [each.public() for each in self.inbox],
        }


def board_from(said: dict[str, Any], host: str) -> Board:
    """Return the board that `host` has described (`Board.public`).

    Raise KeyError, TypeError or ValueError for anything else.
    """
    inbox = tuple(Item(**each) for each in said["inbox"])
    found = []
    for row in said["agents"]:
        known = {each.name: row[each.name] for each in fields(SessionInfo) if each.name in row}
        agent = SessionInfo(pid=row["session_pid"], socket=Path(), **known)
        its = tuple(each for each in inbox if _concerns(each, agent))
        found.append(BoardEntry(agent, Group(row["group"]), its, row["branch"], host))
    return Board(tuple(found), inbox, hosts={each.id: host for each in inbox})


def merged(boards: Sequence[Board], problem: str = "") -> Board:
    hosts = {id: host for each in boards for id, host in each.hosts.items()}
    entries = sorted((entry for each in boards for entry in each.entries), key=_urgency)
    return Board(
        tuple(entries), tuple(in_order(item for each in boards for item in each.inbox)), problem, hosts
    )


def look(home: Home, team: str | None = None) -> Board:
    """Return the agents of `team` (None: of all), and the inbox. Raise LedgerError."""
    running = live(home, team)
    waiting = inbox.items(home, running, team)
    agents = [*running, *ended(home, running, team)]
    return Board(tuple(entries(agents, waiting)), tuple(waiting))


def entries(agents: Sequence[SessionInfo], inbox: Sequence[Item]) -> list[BoardEntry]:
    """Return the agents with what waits for them, the most urgent first."""
    found = []
    for agent in agents:
        its = tuple(each for each in inbox if _concerns(each, agent))
        branch = _branch(Path(agent.cwd)) if agent.cwd else ""
        found.append(BoardEntry(agent, _group(agent, its), its, branch))
    return sorted(found, key=_urgency)


def _concerns(item: Item, agent: SessionInfo) -> bool:
    return key(item.team) == key(agent.team) and key(agent.name) in map(key, item.name.split(", "))


def _group(agent: SessionInfo, items: tuple[Item, ...]) -> Group:
    if agent.state in {UNRESPONSIVE, "prompting"} or any(each.kind in NEEDS_YOU for each in items):
        return Group.NEEDS_YOU
    if agent.state in _DONE:
        return Group.DONE
    return Group.WAITING if agent.state in _WAITING else Group.WORKING


def _urgency(entry: BoardEntry) -> tuple[int, int, float, str, str]:
    agent = entry.agent
    kinds = [ORDER.index(each.kind) for each in entry.items if each.kind in NEEDS_YOU]
    since = math.inf if agent.since is None else agent.since
    return list(Group).index(entry.group), min(kinds, default=0), since, key(agent.team), key(agent.name)


def _branch(folder: Path) -> str:
    """Return what is checked out in `folder`, "" if it is in no repository (gitrepository-layout(5))."""
    for each in (folder, *folder.parents):
        try:
            git = each / ".git"
            if git.is_file():  # of a worktree: "gitdir: PATH"
                git = each / git.read_text("utf-8", "replace").partition(":")[2].strip()
            head = (git / "HEAD").read_text("utf-8", "replace").strip()
        except OSError:
            continue
        return head.removeprefix(_HEAD) if head.startswith(_HEAD) else head[:_HASH]
    return ""
