"""What an agent's sessions have acted on: a file that outlives them, one JSON line per entry.

    {"place": "terminal:512", "digest": "9f...", "queue": "@relay"}     acting on a directive begins
    {"done": "terminal:512", "outcome": "failed"}                       it has ended
    {"count": "missed", "number": 4096}                                 what later sessions will not see again
    {"note": "transcript", ...}                                         what the next session must know

Once the file is LARGE, a new one replaces it, without what nobody reads again (`compact`).  There, an entry
with a place may have "done": true.

Beside it, ID.kept holds a JSON object that replaces the previous one: what matters if the session ends now.

A killed process loses nothing that it has written.  The file is not synced: a machine that dies takes the
agent with it, and no session continues.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

from relay.dataclass import dataclass
from relay.place import Place
from relay.storage.files import write_private

LARGE = 1 << 18
"""Bytes of the file above which it is compacted; the next time at twice the compacted size."""

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Begun:
    """A directive on which an earlier session has begun to act.

    done: that session also finished. repeats: if it did not, the directive had no effect, and is acted on
    again.
    """

    digest: str
    queue: str
    done: bool = False
    repeats: bool = False


class Progress:
    """The progress of one agent's sessions.

    earlier: what earlier sessions began, by place; the reader removes what it recognizes.
    notes:   their notes, oldest first.
    counts:  their directives by step (heard, begun, failed, unknown), and what they counted with `count`.
    kept:    what was last kept; {} if nothing was, or it is incomplete.
    """

    def __init__(self, path: Path, *, resumed: bool) -> None:
        self._path = path
        self._fd = -1
        self._last = -1  # the descriptor of ID.kept
        self._size, self._large = 0, LARGE
        self.kept: dict[str, Any] = {}
        self.earlier: dict[str, Begun] = {}
        self.notes: list[dict[str, Any]] = []
        self.counts: Counter[str] = Counter()
        if resumed:
            self._read()
            self._read_kept()
        else:
            with suppress(OSError):  # as for every write here
                path.unlink(missing_ok=True)  # an earlier agent's of this name, whose last session was killed
                self._kept.unlink(missing_ok=True)

    def begin(self, place: Place, digest: str, queue: str, *, again: str | None = None) -> None:
        """Note that acting on a directive begins. again: the place where an earlier session began it."""
        entry = {"place": str(place), "digest": digest, "queue": queue}
        self._write(entry if again is None else {**entry, "again": again})

    def done(self, place: Place | str, outcome: str | None = None) -> None:
        """Note that acting on a directive has ended. outcome: failed or unknown."""
        entry = {"done": str(place)}
        self._write(entry if outcome is None else {**entry, "outcome": outcome})

    def recognize(self, place: Place, digest: str) -> tuple[str, Begun] | None:
        """Remove the directive that an earlier session began at `place`; return it with its place then.

        If the screen was read at another time, its place may differ: find it by its text. None: no session
        began it.
        """
        key = str(place)
        if key not in self.earlier or self.earlier[key].digest != digest:
            begun = (at for at, each in self.earlier.items() if each.digest == digest)
            key = next((at for at in begun if at.startswith(f"{place.source}:")), "")
        return (key, self.earlier.pop(key)) if key else None

    def count(self, what: str, number: int) -> None:
        """Count what later sessions will not see again."""
        self._write({"count": what, "number": number})

    def forget(self, last: Place, *, but_last: bool = False) -> None:
        """Forget what was begun in the source of `last`, up to that place: it is not read again.

        but_last: except at `last`, where an open form may be read again.
        """
        for place in list(self.earlier):
            source, _, at = place.rpartition(":")
            offset, _, ordinal = at.partition(".")
            if source != last.source or (but_last and place == str(last)):
                continue
            if (int(offset), int(ordinal or 0)) <= (last.offset, last.ordinal):
                del self.earlier[place]

    @property
    def large(self) -> bool:
        """Return True if it is time to `compact`."""
        return self._size > self._large

    def compact(self, last: Place, *, but_last: bool, offset: int, position: int) -> None:
        """Rewrite the file without what no session reads again, and only count that.

        Omit what `forget` would forget and began before `offset`, and waits and the ends of turns before
        `position` of the ring.
        A process that is killed meanwhile leaves the old file or the new one.
        """
        whole = Progress(self._path, resumed=True)
        whole.forget(min(last, Place(last.source, offset)), but_last=but_last)
        counts = whole.counts - Counter(heard=len(whole.earlier), begun=len(whole.earlier))
        entries: list[dict[str, Any]] = [{"count": what, "number": n} for what, n in counts.items()]
        for place, begun in whole.earlier.items():
            done = {"done": True} if begun.done else {}
            entries.append({"place": place, "digest": begun.digest, "queue": begun.queue, **done})
        placed = {"waited", "turn_drawn"}
        entries += (note for note in whole.notes if note["note"] not in placed or note["at"] >= position)
        text = "".join(f"\n{line}" for line in dict.fromkeys(map(json.dumps, entries)))
        self._large = max(LARGE, 2 * self._size)
        try:
            write_private(self._path, text)
        except OSError as error:
            _log.warning("what was begun is noted in an ever larger file: %s", error)
            return
        self._size, self._large = len(text), max(LARGE, 2 * len(text))
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def note(self, kind: str, **fields: Any) -> None:
        """Leave a note to later sessions."""
        self._write({"note": kind, **fields})

    def first(self, kind: str) -> bool:
        """Leave a note of `kind`; return False if an earlier session has left one."""
        if any(note["note"] == kind for note in self.notes):
            return False
        self.note(kind)
        return True

    def keep(self, fields: dict[str, Any]) -> None:
        """Keep `fields` in place of what was kept before."""
        self.kept = fields
        data = json.dumps(fields).encode()
        try:
            if self._last < 0:
                self._last = self._open(self._kept, os.O_RDWR)
            os.pwrite(self._last, data, 0)
            os.ftruncate(self._last, len(data))
        except OSError as error:
            _log.warning("cannot record what is being typed: %s", error)  # then it counts as uncertain

    def close(self, *, remove: bool) -> None:
        """Close the files. remove: delete them, because no session follows."""
        for fd in {self._fd, self._last} - {-1}:
            os.close(fd)
        self._fd = self._last = -1
        if remove:
            for path in self._path.parent.glob(f"{self._path.stem}*"):  # including what a killed session left
                path.unlink(missing_ok=True)

    @property
    def _kept(self) -> Path:
        return self._path.with_suffix(".kept")

    def _read_kept(self) -> None:
        try:
            kept = json.loads(self._kept.read_bytes())
        except (OSError, ValueError):
            return  # nothing was kept, or a kill cut it off
        if isinstance(kept, dict):
            self.kept = kept

    def _read(self) -> None:
        try:
            lines = self._path.read_bytes().split(b"\n")
        except OSError:
            return
        for line in lines:
            try:
                entry = json.loads(line)
                if "place" in entry:
                    self.earlier.pop(entry.get("again"), None)
                    done = entry.get("done") is True
                    self.earlier[entry["place"]] = Begun(entry["digest"], entry["queue"], done)
                elif (begun := self.earlier.get(entry.get("done", ""))) is not None:
                    begun.done = True
                    if "outcome" in entry:
                        self.counts[entry["outcome"]] += 1
                elif "count" in entry:
                    self.counts[entry["count"]] += entry["number"]
                elif "note" in entry:
                    self.notes.append(entry)
            except (ValueError, TypeError, KeyError):
                continue  # cut off by a kill
        self.counts.update(heard=len(self.earlier), begun=len(self.earlier))

    def _write(self, entry: dict[str, Any]) -> None:
        try:
            if self._fd < 0:
                self._fd = self._open(self._path, os.O_WRONLY | os.O_APPEND)
                self._size = os.fstat(self._fd).st_size
            self._size += os.write(self._fd, b"\n" + json.dumps(entry).encode())
        except OSError as error:
            _log.warning("cannot record started work: %s", error)  # it matters only after a second fault

    def _open(self, path: Path, flags: int) -> int:
        path.parent.mkdir(mode=0o700, exist_ok=True)
        return os.open(path, flags | os.O_CREAT | os.O_CLOEXEC, 0o600)


def digest_of(namespace: str, target: str, body: str) -> str:
    text = json.dumps([namespace, target, body])
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
