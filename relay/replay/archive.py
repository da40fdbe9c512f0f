"""Which recordings there are: the parts that the store holds, put together by session."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from relay.errors import RecordingError
from relay.home import Home
from relay.names import same, suggest
from relay.recording import store
from relay.recording.store import Stored
from relay.replay.tape import Tape


@dataclass(frozen=True, slots=True)
class Recorded:
    """The recording of one session. parts: at least one, the first ones may have been thrown away."""

    parts: tuple[Stored, ...]

    @property
    def name(self) -> str:
        return self.parts[0].name

    @property
    def team(self) -> str:
        return self.parts[0].team

    @property
    def session(self) -> str:
        """The first characters of the session's id."""
        return self.parts[0].session

    @property
    def began(self) -> float:
        """Seconds since the epoch."""
        return self.parts[0].began

    @property
    def size(self) -> int:
        """Bytes of all its files."""
        return sum(part.size for part in self.parts)

    @property
    def running(self) -> bool:
        return self.parts[-1].in_use

    @property
    def paths(self) -> list[Path]:
        return [part.path for part in self.parts]

    def public(self) -> dict[str, Any]:
        """The JSON object of `relay replay --json`. seconds and command: None where it cannot be read."""
        try:
            tape = Tape(self.paths)
        except RecordingError:
            seconds, command = None, None
        else:
            seconds, command = round(tape.seconds, 3), tape.command
        return {
            "name": self.name,
            "team": self.team,
            "session": self.session,
            "began": self.began,
            "seconds": seconds,
            "bytes": self.size,
            "running": self.running,
            "command": command,
            "files": [str(path) for path in self.paths],
        }


def recorded(home: Home, name: str | None = None, team: str | None = None) -> list[Recorded]:
    """The recordings of a home, newest last; of one agent or team where given."""
    sessions: dict[tuple[str, str, str, float], list[Stored]] = {}
    for part in store.recordings(home.recordings):
        if (name is None or same(part.name, name)) and (team is None or same(part.team, team)):
            sessions.setdefault((part.team, part.name, part.session, part.began), []).append(part)
    return [Recorded(tuple(parts)) for parts in sessions.values()]


def find(home: Home, name: str, team: str | None = None, session: str | None = None) -> Recorded:
    """The newest recording of an agent, or that of the session whose id begins with `session`."""
    own = recorded(home, name, team)
    found = [each for each in own if session is None or session.startswith(each.session)] or [
        each for each in own if session is not None and each.session.startswith(session)
    ]
    if found:
        return found[-1]
    if own:
        raise RecordingError(
            f"there is no recording of {own[-1].name} of the session {session!a}. "
            f"`relay replay` lists them: {_listed([each.session for each in own])}."
        )
    meant = suggest(name, {each.name for each in recorded(home, None, team)})
    hint = f"Did you mean {meant!a}? " if meant else ""
    raise RecordingError(
        f"there is no recording of {name!a}{'' if team is None else f' in the team {team!a}'}. {hint}"
        "`relay replay` lists the recordings; the setting record says whether sessions are recorded."
    )


def _listed(words: Sequence[str]) -> str:
    return ", ".join(words[-5:])
