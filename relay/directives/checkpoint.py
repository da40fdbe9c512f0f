"""A checkpoint of the reader of an agent's output, for a session that continues after the ring has wrapped.

While the ring holds all of the output, the next session reads it from the beginning instead.
"""

from __future__ import annotations

import json
import logging
import math
import time
from pathlib import Path
from typing import Any

from relay.dataclass import asdict, dataclass
from relay.place import Place
from relay.shim.ring import SIZE
from relay.storage.files import write_private
from relay.storage.progress import Progress

BYTES, SECONDS = 1 << 20, 0.5
"""Minimum bytes of the ring, and seconds, between two checkpoints."""

VERSION = 7
"""The version of what `state` holds. A checkpoint with another version is not used."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The reader and its screen after all records before a position of the ring.

    offset: bytes of output by then.
    screen: the bytes that draw it (VirtualScreen.repaint), one character each.
    state:  the rest (OutputPipeline.state).
    """

    position: int
    offset: int
    columns: int
    rows: int
    screen: str
    state: dict[str, Any]
    version: int = VERSION

    @property
    def begins(self) -> tuple[Place, bool]:
        """(the place up to which nothing is read again, whether that place itself is)."""
        if (form := self.state["grammar"]["block"]) is None:
            return Place(*self.state["reader"]["place"]), False
        # The form will end again, with directives at the places of its lines.
        return Place(*(form["lines"][0][2] if form["lines"] else form["place"])), True

    def save(self, path: Path) -> None:
        """Write it over an older one. Log a failure: only a second fault would need the file."""
        try:
            write_private(path, json.dumps(asdict(self)))
        except OSError as error:
            _log.warning("the checkpoint cannot be written: %s", error)

    @classmethod
    def load(cls, path: Path) -> Checkpoint | None:
        try:
            saved = cls(**json.loads(path.read_text(encoding="utf-8")))
            return saved if saved.version == VERSION else None
        except (OSError, ValueError, TypeError):
            return None


class Checkpoints:
    """The checkpoints of one agent, at `path`. progress: what earlier sessions have acted on."""

    def __init__(self, path: Path, progress: Progress) -> None:
        self._path = path
        self._progress = progress
        self._saved = (0, 0.0)  # the position and the time of the last one
        self._waits: list[tuple[int, bool]] = []
        self._first_turn = math.inf  # the position at which it is still to begin
        self._turn_ends: list[int] = []

    def due(self, position: int) -> bool:
        """Return True if another one is due at `position` of the ring."""
        long_ago = time.monotonic() - self._saved[1] >= SECONDS
        return long_ago and position - self._saved[0] >= BYTES

    def save(self, checkpoint: Checkpoint) -> None:
        """Write `checkpoint` over an older one."""
        self._saved = checkpoint.position, time.monotonic()
        checkpoint.save(self._path)
        if self._progress.large and checkpoint.position > SIZE:
            # The ring no longer holds what is before that, should the checkpoint not be used after all.
            last, but_last = checkpoint.begins
            before = {"offset": checkpoint.offset - SIZE, "position": checkpoint.position - SIZE}
            self._progress.compact(last, but_last=but_last, **before)

    def load(self, oldest: int) -> Checkpoint | None:
        """Return the last one if the ring, from `oldest` on, still holds all the output after it."""
        saved = Checkpoint.load(self._path)
        if saved is None or saved.position < oldest:
            return None
        last, but_last = saved.begins
        self._progress.forget(last, but_last=but_last)
        self._waits = [wait for wait in self._waits if wait[0] >= saved.position]
        return saved

    def waited(self, position: int, sure: bool) -> None:
        """Note for later sessions that the program waited at `position` of the ring."""
        self._progress.note("waited", at=position, sure=sure)

    def first_turn(self, position: int) -> None:
        """Note for later sessions that the agent's first turn began at `position` of the ring."""
        self._progress.note("first_turn", at=position)

    def turn_drawn(self, position: int) -> None:
        """Note for later sessions that the screen has shown the end of a turn at `position` of the ring."""
        self._progress.note("turn_drawn", at=position)

    def expect(self, last: tuple[int, bool]) -> None:
        """Expect what earlier sessions noted, and the `last` wait, which is noted in the ring."""
        noted = {(note["at"], note["sure"]) for note in self._progress.notes if note["note"] == "waited"}
        self._waits = sorted(noted | ({last} if last[0] else set()))
        began = (note["at"] for note in self._progress.notes if note["note"] == "first_turn")
        self._first_turn = next(began, math.inf)
        self._turn_ends = [note["at"] for note in self._progress.notes if note["note"] == "turn_drawn"]

    @property
    def next_expected(self) -> float:
        """The position of the next expected wait, or beginning or end of a turn; infinity: none."""
        return min([at for at, _ in self._waits[:1]] + self._turn_ends[:1] + [self._first_turn])

    def begins_by(self, position: int) -> bool:
        """Return True, once, if the first turn began at or before `position`."""
        begins = self._first_turn <= position
        if begins:
            self._first_turn = math.inf
        return begins

    def turn_ends_by(self, position: int) -> bool:
        """Return True, once, if a turn ended at or before `position`."""
        found = [at for at in self._turn_ends if at <= position]
        del self._turn_ends[: len(found)]
        return bool(found)

    def waits_until(self, position: int) -> list[bool]:
        """Remove the waits expected up to `position`; return for each whether it was sure."""
        found = [sure for at, sure in self._waits if at <= position]
        del self._waits[: len(found)]
        return found

    def remove(self) -> None:
        """Remove the file: no session follows."""
        self._path.unlink(missing_ok=True)
