"""What the sessions of one agent have acted on: a file that outlives each of them, a JSON line an entry.

    {"place": "terminal:512", "digest": "9f...", "queue": "@relay"}     acting on a directive begins
    {"done": "terminal:512"}                                            it has ended
    {"note": "transcript", ...}                                         what the next session must know

A killed process loses nothing that it has written.  The file is not synced: a machine that dies takes the
agent with it, and nobody goes on.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from relay.place import Place

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Begun:
    """A directive on which an earlier session has begun to act.

    done: it has also ended that. repeats: if it has not, nothing has come of it, and it is acted on again.
    """

    digest: str
    queue: str
    done: bool = False
    repeats: bool = False


class Progress:
    """The progress of one agent's sessions.

    earlier: what earlier sessions began, by place; the reader takes out what it recognizes.
    notes:   their notes, oldest first.
    """

    def __init__(self, path: Path, *, resumed: bool) -> None:
        self._path = path
        self._fd = -1
        self.earlier: dict[str, Begun] = {}
        self.notes: list[dict[str, Any]] = []
        if resumed:
            self._read()

    def begin(self, place: Place, digest: str, queue: str) -> None:
        """Note that acting on a directive begins."""
        self._write({"place": str(place), "digest": digest, "queue": queue})

    def done(self, place: Place) -> None:
        """Note that acting on a directive has ended."""
        self._write({"done": str(place)})

    def forget(self, source: str, before: int) -> None:
        """Forget what was begun in `source` at an offset up to `before`: it is not read again."""
        for place in list(self.earlier):
            named, _, offset = place.rpartition(":")
            if named == source and int(offset.partition(".")[0]) <= before:
                del self.earlier[place]

    def note(self, kind: str, **fields: Any) -> None:
        """Leave a note to later sessions."""
        self._write({"note": kind, **fields})

    def close(self, *, remove: bool) -> None:
        """Close the file, and `remove` it when no session follows."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        if remove:
            self._path.unlink(missing_ok=True)

    def _read(self) -> None:
        try:
            lines = self._path.read_bytes().split(b"\n")
        except OSError:
            return
        for line in lines:
            try:
                entry = json.loads(line)
                if "place" in entry:
                    self.earlier[entry["place"]] = Begun(entry["digest"], entry["queue"])
                elif (begun := self.earlier.get(entry.get("done", ""))) is not None:
                    begun.done = True
                elif "note" in entry:
                    self.notes.append(entry)
            except (ValueError, TypeError, KeyError):
                continue  # cut off by a kill

    def _write(self, entry: dict[str, Any]) -> None:
        try:
            if self._fd < 0:
                self._path.parent.mkdir(mode=0o700, exist_ok=True)
                self._fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            os.write(self._fd, b"\n" + json.dumps(entry).encode())
        except OSError as error:
            _log.warning("what was begun cannot be noted: %s", error)  # only a second fault would miss it


def digest_of(namespace: str, target: str, body: str) -> str:
    """Return a short digest of a directive."""
    text = json.dumps([namespace, target, body])
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
