"""A checkpoint of what is on an agent's screen, for a session that goes on when the ring has wrapped around.

As long as the ring holds all of the output, the next session reads it from the beginning instead.
"""

from __future__ import annotations

import json
import logging
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from relay.place import TERMINAL
from relay.storage.files import write_private
from relay.storage.progress import Progress

BYTES, SECONDS = 1 << 20, 0.5
"""Bytes of the ring, and seconds, from one checkpoint to the next at least."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The screen after all records before a position of the ring.

    offset: bytes of output by then. kind: the reader at work (AutoReader.kind).
    screen: what draws it (VirtualScreen.repaint), one character a byte.
    """

    position: int
    offset: int
    columns: int
    rows: int
    kind: Literal["lines", "screen"]
    screen: str

    def save(self, path: Path) -> None:
        """Write it in place of an older one. A failure is logged: only a second fault would miss it."""
        try:
            write_private(path, json.dumps(asdict(self)))
        except OSError as error:
            _log.warning("the checkpoint cannot be written: %s", error)

    @classmethod
    def load(cls, path: Path) -> Checkpoint | None:
        """Return the one at `path`, None without one that can be used."""
        try:
            return cls(**json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            return None


class Checkpoints:
    """The checkpoints of one agent, at `path`. progress: what earlier sessions have acted on."""

    def __init__(self, path: Path, progress: Progress) -> None:
        self._path = path
        self._progress = progress
        self._saved = (0, 0.0)  # the position and the time of the last one

    def due(self, position: int) -> bool:
        """Return True if it is time for another one, at `position` of the ring."""
        long_ago = time.monotonic() - self._saved[1] >= SECONDS
        return long_ago and position - self._saved[0] >= BYTES

    def save(self, checkpoint: Checkpoint) -> None:
        """Write `checkpoint` in place of an older one."""
        self._saved = checkpoint.position, time.monotonic()
        checkpoint.save(self._path)

    def load(self, oldest: int) -> Checkpoint | None:
        """Return the last one if the ring still holds what follows it: it begins at `oldest`.

        What was acted on before it is not read again.
        """
        saved = Checkpoint.load(self._path)
        if saved is None or saved.position < oldest:
            return None
        self._progress.forget(TERMINAL, saved.offset)
        return saved

    def remove(self) -> None:
        """Remove it: no session follows."""
        self._path.unlink(missing_ok=True)
