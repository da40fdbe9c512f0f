"""An agent's own list of sessions, in which it finds the other agents of its team and writes to them.

Agents such as Claude Code and Qwen Code keep a folder with a record of each of their sessions: a name, a
process, and the socket where it takes messages, as lines of JSON. relay adds records of its own that name the
control sockets of the team's agents; relay.features.peers passes on what arrives there.

A record is relay's if its socket is one of this home's sessions. relay touches no other record.
"""

from __future__ import annotations

import json
import os
import re
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from relay.agents.door import Site
from relay.agents.transcript_lines import dict_of, object_in, text_of
from relay.storage.files import open_regular, write_private

_RECORD = re.compile(r"(\d+)\.json", re.ASCII)
_LARGEST = 1 << 16  # bytes of a record
_LONGEST = 103  # bytes of a socket's path that every agent can connect to


class Peer(NamedTuple):
    """Another agent. pid: of its shim, which lives as long as it does; socket: where its session listens."""

    name: str
    pid: int
    socket: str


class PeerMessage(NamedTuple):
    """A message of an agent to a peer. id: the agent's own, the same if it sends the message again."""

    id: str
    text: str


class PeerList(ABC):
    """The list of one running agent. folder: of the records. Linux only: they say when a process started.

    address: the key of a record's socket. id: that of a message's id.
    format: the key and the value by which a record names the format that relay knows.
    """

    address: ClassVar[str]
    id: ClassVar[str]
    format: ClassVar[tuple[str, int]]

    def __init__(self, site: Site, folder: Path) -> None:
        self._site = site
        self._folder = folder
        self._sockets = Path(site.socket).parents[1]
        self._own: Path | None = None
        self._shown: set[Path] = set()

    @property
    def shown(self) -> int:
        return len(self._shown)

    def closed(self) -> str:
        """Return why relay adds nobody to the list, for `relay explain`; "" if it does."""
        own = self._own_record()
        if not text_of(own.get(self.address)):
            return "its session has no messaging socket"
        key, known = self.format
        if own.get(key) == known and self.usable(own):
            return ""
        return f"its own record does not have {key} {known}, which relay knows"

    @abstractmethod
    def usable(self, own: Mapping[str, Any]) -> bool:
        """Return True if `own`, the agent's own record, has what `details` needs."""

    @abstractmethod
    def details(self, own: Mapping[str, Any], ticks: str) -> dict[str, Any]:
        """Return what a record has only in this format. ticks: when the peer's process started."""

    def message(self, frame: Mapping[str, Any]) -> PeerMessage | None:
        """Return the message in a line that the agent has sent to a peer's socket; None for another line."""
        id, content = text_of(frame.get(self.id)), text_of(dict_of(frame.get("message")).get("content"))
        return PeerMessage(id, self.body(content)) if frame.get("type") == "user" and id and content else None

    def body(self, content: str) -> str:
        """Return what the agent has written, without what it adds itself."""
        return content

    def complete(self) -> bool:
        """Return False if a record has gone, as at the end of another agent with the same list."""
        return all(path.exists() for path in self._shown)

    def show(self, peers: Iterable[Peer]) -> None:
        """Make these the peers in the list, and remove those that have ended from it."""
        records: dict[Path, dict[str, Any]] = {}
        own = {} if self.closed() else self._own_record()
        for peer in peers if own else ():
            with suppress(OSError):
                if len(peer.socket.encode()) <= _LONGEST:
                    records[self._folder / f"{peer.pid}.json"] = self._record(peer, own)
        for path, found in self._ours():
            wanted = records.get(path)
            if not self._same(found, wanted) and (wanted or path in self._shown or not _lives(found)):
                path.unlink(missing_ok=True)
        self._shown = {path for path, record in records.items() if self._write(path, record)}

    def _record(self, peer: Peer, own: Mapping[str, Any]) -> dict[str, Any]:
        """Return the record of `peer` for the agent whose record is `own`. Raise OSError if it has ended."""
        ticks = start_ticks(peer.pid)
        boot = re.search(rb"btime (\d+)", Path("/proc/stat").read_bytes())  # seconds since the epoch
        started = int(boot[1]) + int(ticks) / os.sysconf("SC_CLK_TCK") if boot else 0
        key, known = self.format
        return {
            "pid": peer.pid,
            "procStart": ticks,
            "sessionId": str(uuid.uuid5(uuid.NAMESPACE_OID, f"{peer.pid} {ticks} {peer.socket}")),
            "cwd": str(Path(f"/proc/{peer.pid}/cwd").readlink()),
            "name": peer.name,
            "startedAt": int(started * 1000),
            key: known,
            self.address: peer.socket,
            **self.details(own, ticks),
        }

    def _write(self, path: Path, record: dict[str, Any]) -> bool:
        """Write a record; return False if that fails, or another one has the name."""
        try:
            write_private(path, json.dumps(record), replace=False)
        except FileExistsError:
            return self._same(_read(path), record)
        except OSError:
            return False
        return True

    def _same(self, found: Mapping[str, Any], record: Mapping[str, Any] | None) -> bool:
        """Return True if both are of the same peer, whichever agent's session has written them."""
        keys = ("pid", "procStart", "name", self.address)
        return record is not None and all(found.get(key) == record[key] for key in keys)

    def _ours(self) -> Iterator[tuple[Path, dict[str, Any]]]:
        for path in self._records():
            record = _read(path)
            if Path(text_of(record.get(self.address))).parent.parent == self._sockets:
                yield path, record

    def _records(self) -> list[Path]:
        return [path for path in self._folder.glob("*.json") if _RECORD.fullmatch(path.name)]

    def _own_record(self) -> dict[str, Any]:
        """Return the record that the agent itself has written; {} if there is none."""
        if self._own is not None and (record := _read(self._own)):
            return record
        self._own = next((path for path in self._records() if self._site.owns(int(path.stem))), None)
        return {} if self._own is None else _read(self._own)


def start_ticks(pid: int) -> str:
    """Return when a process started, in clock ticks since the boot. Raise OSError if it has ended."""
    stat = Path(f"/proc/{pid}/stat").read_bytes()
    state, *numbers = stat.rpartition(b")")[2].decode().split()  # fields 3, 4, ... of proc_pid_stat(5)
    if state in {"Z", "X"}:
        raise ProcessLookupError(pid)
    return numbers[18]


def _lives(record: Mapping[str, Any]) -> bool:
    """Return True if the process of a record of ours is still the one that it was written for."""
    try:
        return text_of(record.get("procStart")).rpartition(":")[2] == start_ticks(int(record["pid"]))
    except (OSError, KeyError, TypeError, ValueError, OverflowError):
        return False


def _read(path: Path) -> dict[str, Any]:
    try:
        with open(open_regular(path), "rb") as file:
            return object_in(file.read(_LARGEST))
    except OSError:
        return {}
