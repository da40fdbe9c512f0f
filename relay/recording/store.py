"""The recordings of a home: where they are, what their names say, which of them must go.

    HOME/state/recordings/TEAM/
        NAME-YYYYmmddTHHMMSS-SESSION.cast            the first part of a session's recording
        NAME-YYYYmmddTHHMMSS-SESSION.2.cast          goes on where that became too large
        NAME-YYYYmmddTHHMMSS-SESSION[.N].events.jsonl      beside each: the journal's entries

The time is that of the session's beginning, UTC; SESSION the first eight characters of its id.
"""

from __future__ import annotations

import fcntl
import os
import re
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

CAST, EVENTS = ".cast", ".events.jsonl"

SESSION = 8
"""Characters of a session's id in the name of its recordings."""

_DAY = 86_400
_TIME = "%Y%m%dT%H%M%S"
_NAME = re.compile(
    r"(?P<name>.+)-(?P<time>\d{8}T\d{6})-(?P<session>[^-.]{1,8})(?:\.(?P<part>\d{1,6}))?\.cast"
)


@dataclass(frozen=True, slots=True)
class Stored:
    """One recorded part of a session. began: seconds since the epoch, of the session; part: from 1 on."""

    path: Path
    team: str
    name: str
    session: str
    began: float
    part: int

    @property
    def events(self) -> Path:
        """The journal's entries beside it; it may not exist."""
        return events_of(self.path)

    @property
    def size(self) -> int:
        """Bytes of both files."""
        return sum(_size(path) for path in (self.path, self.events))

    @property
    def in_use(self) -> bool:
        """Whether a living session writes it."""
        try:
            fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(fd)
        return False

    def remove(self) -> None:
        """Delete both files; what is gone already is no matter."""
        for path in (self.events, self.path):
            with suppress(OSError):
                path.unlink()


def path_of(folder: Path, team: str, name: str, session: str, began: float, part: int = 1) -> Path:
    """Where part `part` of a recording lies; `folder` is Home.recordings, `began` seconds since the epoch."""
    when = datetime.fromtimestamp(began, UTC).strftime(_TIME)
    number = "" if part == 1 else f".{part}"
    return folder / team / f"{name}-{when}-{session[:SESSION]}{number}{CAST}"


def events_of(cast: Path) -> Path:
    """The file of the journal's entries beside the recording `cast`."""
    return cast.with_name(cast.name.removesuffix(CAST) + EVENTS)


def recordings(folder: Path) -> list[Stored]:
    """All parts in `folder` (Home.recordings), oldest first; none if it does not exist."""
    found = (parsed for path in folder.glob(f"*/*{CAST}") if (parsed := parse(path)) is not None)
    return sorted(found, key=lambda each: (each.began, each.part, each.path))


def parse(path: Path) -> Stored | None:
    """What the name of a recording says, None if it is not one of relay's."""
    match = _NAME.fullmatch(path.name)
    if match is None:
        return None
    try:
        began = datetime.strptime(match["time"], _TIME).replace(tzinfo=UTC).timestamp()
    except ValueError:
        return None
    return Stored(path, path.parent.name, match["name"], match["session"], began, int(match["part"] or 1))


def sweep(folder: Path, *, days: float, total: int, now: float | None = None) -> int:
    """Delete what is older than `days`, then the oldest until all take at most `total` bytes; how many parts.

    A part's age is that of its last change.  The parts of a session that runs all stay.
    """
    now = time.time() if now is None else now
    found = recordings(folder)
    sessions: dict[tuple[str, str], list[Stored]] = {}
    for part in found:
        sessions.setdefault((part.team, part.session), []).append(part)

    @cache
    def runs(session: tuple[str, str]) -> bool:
        return any(part.in_use for part in sessions[session])

    size = sum(part.size for part in found)
    removed = 0
    for part in found:
        old = now - _changed(part.path) > days * _DAY
        if (old or size > total) and not runs((part.team, part.session)):
            size -= part.size
            part.remove()
            removed += 1
    return removed


def latest(folder: Path, team: str, name: str) -> Iterator[Stored]:
    """The parts of the newest recording of `name` in `team`, first to last; none if there is none."""
    own = [p for p in recordings(folder) if (p.team, p.name.casefold()) == (team, name.casefold())]
    if own:
        yield from sorted((p for p in own if p.session == own[-1].session), key=lambda each: each.part)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _changed(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0
