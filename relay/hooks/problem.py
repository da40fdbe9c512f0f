"""A fault of a handler, as the user and the journal get it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

ProblemKind = Literal["raised", "timed_out", "blocked", "exited", "bad_result", "printed", "not_sent"]


@dataclass(frozen=True, slots=True)
class Problem:
    """A fault of a handler; the session goes on.

    handler: its name, with what it handles: `deploy (@deploy)`.
    what:    what happened and what to do, without the handler's name: `raised ValueError: no such host`.
    path, line: where, if it is known; 1-based.
    """

    handler: str
    kind: ProblemKind
    what: str
    path: Path | None = None
    line: int | None = None

    def __str__(self) -> str:
        line = f":{self.line}" if self.line else ""
        where = f"{self.path.name}{line}: " if self.path else ""
        return f"{where}the handler {self.handler} {self.what}"
