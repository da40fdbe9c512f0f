"""The transcripts of one run of an agent, named before it begins."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from relay.dataclass import asdict, dataclass
from relay.storage.files import open_regular

MARKED = 4 << 10
"""Bytes at the beginning of a file that are searched for a mark."""


@dataclass(frozen=True, slots=True)
class Named:
    """The transcripts of one run.

    kind:    the kind of agent that writes them (relay.agents.kinds).
    pattern: of their absolute paths (glob).
    since:   the beginning of the run, as agents write times: older texts are not from this run.
    mark:    text in the first line of each; "" if there is none.
    ours:    relay makes the agent write it, and may shorten it.
    session: the agent's id for the session that they record; "" if it has none.
    """

    kind: str
    pattern: str
    since: str
    mark: str = ""
    ours: bool = False
    session: str = ""

    def fields(self) -> dict[str, str | bool]:
        return asdict(self)

    def find(self) -> list[str]:
        """Return the paths of the files that exist now."""
        found = Path("/").glob(self.pattern.lstrip("/"))
        return [str(path) for path in sorted(found) if self._is_marked(path)]

    def _is_marked(self, path: Path) -> bool:
        if not self.mark:
            return True
        try:
            with open(path, "rb", buffering=0, opener=open_regular) as file:
                return self.mark.encode() in file.read(MARKED).partition(b"\n")[0]
        except OSError:
            return False


def iso(seconds: float) -> str:
    """Return a time as the agents write it, whose texts compare like times: 2026-11-22T06:12:53.205Z."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
