"""The stored recordings of a home: their names and folders, finding them, deleting old ones.

    HOME/state/recordings/TEAM/
        NAME-YYYYmmddTHHMMSS-SESSION.cast            the first part of a session's recording
        NAME-YYYYmmddTHHMMSS-SESSION.2.cast          the next one: that was full, or another session followed
        NAME-YYYYmmddTHHMMSS-SESSION[.N].events.jsonl   beside each: the journal's entries
        NAME-YYYYmmddTHHMMSS-SESSION.log.jsonl       what the agent said (relay.recording.agent_log)

The time is when the session began, in UTC; SESSION is the first eight characters of its id.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from relay.dataclass import dataclass
from relay.errors import RecordingError
from relay.names import same, suggest
from relay.storage.journal import rotated
from relay.storage.locks import is_held

CAST, EVENTS, LOG = ".cast", ".events.jsonl", ".log.jsonl"

SESSION = 8
"""How many characters of a session's id are in the names of its files."""

_DAY = 86_400
_TIME = "%Y%m%dT%H%M%S"
_STEM = r"(?P<name>.+)-(?P<time>\d{8}T\d{6})-(?P<session>[^-.]{1,8})"
_NAME = re.compile(_STEM + r"(?:\.(?P<part>\d{1,6}))?\.cast")
_LOG_NAME = re.compile(_STEM + r"\.log\.jsonl")


@dataclass(frozen=True, slots=True)
class _StoredFile:
    """A file of one session, as known from its name alone.

    folder:  its team's. file: its name there.
    session: the first characters of the session's id.
    began:   when the session began, in seconds since the epoch.
    """

    folder: Path
    file: str
    name: str
    session: str
    began: float

    @property
    def path(self) -> Path:
        return self.folder / self.file

    @property
    def team(self) -> str:
        return self.folder.name

    @property
    def files(self) -> tuple[Path, Path]:
        """The file, and the one that belongs to it; either may not exist. Deleted in reverse order."""
        raise NotImplementedError

    @property
    def size(self) -> int:
        """Bytes of both files."""
        return sum(map(_size, self.files))

    @property
    def changed(self) -> float:
        """When the file last changed, in seconds since the epoch; 0 if it does not exist."""
        with suppress(OSError):
            return self.path.stat().st_mtime
        return 0.0

    def remove(self) -> None:
        for path in reversed(self.files):
            with suppress(OSError):
                path.unlink()


def _size(path: Path) -> int:
    with suppress(OSError):
        return path.stat().st_size
    return 0


@dataclass(frozen=True, slots=True)
class StoredPart(_StoredFile):
    """One file of a session's recording, with the journal's entries next to it. part: from 1 on."""

    part: int

    @property
    def events(self) -> Path:
        """The file with the journal's entries next to it, which may not exist."""
        return events_of(self.path)

    @property
    def files(self) -> tuple[Path, Path]:
        return self.path, self.events

    @property
    def cast_size(self) -> int:
        """Bytes of the asciicast; 0 if it does not exist."""
        return _size(self.path)

    @property
    def in_use(self) -> bool:
        """True while a living session writes it."""
        return is_held(self.path)


@dataclass(frozen=True, slots=True)
class StoredLog(_StoredFile):
    """The log of what an agent said in one session, and the full one before it."""

    @property
    def files(self) -> tuple[Path, Path]:
        return self.path, rotated(self.path)


@dataclass(frozen=True, slots=True)
class SessionRecording:
    """The recording of one session: its parts, at least one; the first ones may have been deleted."""

    parts: tuple[StoredPart, ...]

    @property
    def first(self) -> StoredPart:
        """The first existing part, which names the session."""
        return self.parts[0]

    @property
    def paths(self) -> list[Path]:
        return [part.path for part in self.parts]

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(part.size for part in self.parts)

    @property
    def in_use(self) -> bool:
        """True while a living session writes it."""
        return any(part.in_use for part in self.parts)


def path_of(folder: Path, team: str, name: str, session: str, began: float, part: int = 1) -> Path:
    """Return the path of a part; `folder` is Home.recordings, `began` seconds since the epoch."""
    number = "" if part == 1 else f".{part}"
    return folder / team / f"{_stem(name, session, began)}{number}{CAST}"


def log_path_of(folder: Path, team: str, name: str, session: str, began: float) -> Path:
    """Return the path of a session's log; the arguments are those of `path_of`."""
    return folder / team / f"{_stem(name, session, began)}{LOG}"


def _stem(name: str, session: str, began: float) -> str:
    when = datetime.fromtimestamp(began, UTC).strftime(_TIME)
    return f"{name}-{when}-{session[:SESSION]}"


def events_of(cast: Path) -> Path:
    """Return the path of the journal's entries next to the recording `cast`."""
    return cast.with_name(cast.name.removesuffix(CAST) + EVENTS)


def parse(path: Path) -> StoredPart | None:
    """Return the part that `path` names, None if relay does not use such a name."""
    return _part(path.parent, path.name)


def parse_log(path: Path) -> StoredLog | None:
    """Return the log that `path` names, None if relay does not use such a name."""
    return _log(path.parent, path.name)


def _part(folder: Path, file: str) -> StoredPart | None:
    match = _NAME.fullmatch(file)
    if match is None or (began := _began(match["time"])) is None:
        return None
    return StoredPart(folder, file, match["name"], match["session"], began, int(match["part"] or 1))


def _log(folder: Path, file: str) -> StoredLog | None:
    match = _LOG_NAME.fullmatch(file)
    if match is None or (began := _began(match["time"])) is None:
        return None
    return StoredLog(folder, file, match["name"], match["session"], began)


def _began(time: str) -> float | None:
    try:
        return datetime.fromisoformat(f"{time}Z").timestamp()
    except ValueError:
        return None


def _teams(folder: Path, team: str | None = None) -> list[Path]:
    """Return the folders of the teams in `folder`, or of one team."""
    with suppress(OSError):
        return [each for each in folder.iterdir() if team is None or same(each.name, team)]
    return []


def _files(folder: Path, team: str | None, end: str) -> Iterator[tuple[Path, str]]:
    """Yield the folder and the name of each file that ends with `end`; of one team if given."""
    for each in _teams(folder, team):
        with suppress(OSError):
            # Thousands of names, few of which become a Path.
            yield from ((each, file) for file in os.listdir(each) if file.endswith(end))  # noqa: PTH208


def recordings(folder: Path, name: str | None = None, team: str | None = None) -> list[SessionRecording]:
    """Return the recordings in `folder` (Home.recordings), newest last; of one agent or team if given."""
    sessions: dict[tuple[str, str, str, float], list[StoredPart]] = {}
    found = (parsed for each in _files(folder, team, CAST) if (parsed := _part(*each)) is not None)
    own = (each for each in found if name is None or same(each.name, name))
    for part in sorted(own, key=lambda each: (each.began, each.part, each.team, each.file)):
        sessions.setdefault((part.team, part.name, part.session, part.began), []).append(part)
    return [SessionRecording(tuple(parts)) for parts in sessions.values()]


def logs(folder: Path, name: str | None = None, team: str | None = None) -> list[StoredLog]:
    """Return the logs in `folder` (Home.recordings), newest last; of one agent or team if given."""
    found = (parsed for each in _files(folder, team, LOG) if (parsed := _log(*each)) is not None)
    own = (each for each in found if name is None or same(each.name, name))
    return sorted(own, key=lambda each: (each.began, each.changed, each.team, each.file))


def log_of(folder: Path, team: str, session: str) -> Path | None:
    """Return the path of the log that a session of `team` began; `folder` is Home.recordings."""
    found = _files(folder, team, f"-{session[:SESSION]}{LOG}")
    return next((of_team / file for of_team, file in found), None)


def find(folder: Path, name: str, team: str | None = None, session: str | None = None) -> SessionRecording:
    """Return an agent's newest recording, or that of a session, by its id's start. Raise RecordingError."""
    own = recordings(folder, name, team)
    found = [each for each in own if session is None or session.startswith(each.first.session)]
    found = found or [each for each in own if each.first.session.startswith(session or "")]
    if found:
        return found[-1]
    if own:
        known = ", ".join(each.first.session for each in own[-5:])
        raise RecordingError(
            f"{own[-1].first.name} has no recording of session {session!r}. "
            f"`relay replay` lists them: {known}."
        )
    meant = suggest(name, {each.first.name for each in recordings(folder, None, team)})
    hint = f"Did you mean {meant!r}? " if meant else ""
    raise RecordingError(
        f"there is no recording of {name!r}{'' if team is None else f' in the team {team!r}'}. {hint}"
        "`relay replay` lists the recordings; the `record` setting decides whether sessions are recorded."
    )


def sweep(folder: Path, *, days: float, total: int, now: float | None = None) -> int:
    """Delete parts older than `days`, then the oldest until all take at most `total` bytes; return how many.

    A part's age counts from its last change. Recordings in use stay whole. Logs, which are small, go last.
    """
    oldest = (time.time() if now is None else now) - days * _DAY
    if not _is_due(folder, oldest, total):
        return 0
    found, said = recordings(folder), logs(folder)
    used = {(each.first.team, each.first.name, each.first.session) for each in found if each.in_use}
    size = sum(each.size for each in found) + sum(each.size for each in said)
    removed = 0
    for recording in found:
        for part in recording.parts:
            if part.changed < oldest or size > total:
                if recording.in_use:
                    break
                size -= part.size
                part.remove()
                removed += 1
    for log in said:
        if (log.team, log.name, log.session) not in used and (log.changed < oldest or size > total):
            size -= log.size
            log.remove()
            removed += 1
    return removed


def _is_due(folder: Path, oldest: float, total: int) -> bool:
    """Return True if a file last changed before `oldest`, or all have more than `total` bytes."""
    size = 0
    for team in _teams(folder):
        with suppress(OSError), os.scandir(team) as entries:
            for entry in entries:
                with suppress(FileNotFoundError):  # another session has just deleted it
                    found = entry.stat(follow_symlinks=False)
                    size += found.st_size
                    if found.st_mtime < oldest or size > total:
                        return True
    return False
