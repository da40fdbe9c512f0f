"""Whom a name belongs to: one run of an agent, or the agent that `-n` names in a folder.

Mail is written for the owner that the name has at that moment. What waits for a run ends with it; what waits
for the agent of a folder waits until that name runs in that folder again. Nobody else ever gets it.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
from dataclasses import dataclass
from pathlib import Path

RUN, _FOLDER = "run/", "folder/"


@dataclass(frozen=True, slots=True)
class Owner:
    """id: what the ledgers and hosts of a team know it by. folder: its path; "" for a run."""

    id: str
    folder: str = ""

    @classmethod
    def of_run(cls, id: str) -> Owner:
        """The run `id` of an agent: from `relay wrap` to the agent's end, with every `relay restart`."""
        return cls(RUN + id)

    @classmethod
    def of_folder(cls, folder: Path) -> Owner:
        """The agent with a name of its own in `folder`, of which other hosts learn a digest only."""
        return cls(_FOLDER + hashlib.sha256(os.fsencode(folder)).hexdigest()[:16], str(folder))


def is_run(owner: str) -> bool:
    """Return True if mail for the owner with this id ends with it."""
    return owner.startswith(RUN)


def addressee(db: sqlite3.Connection, team: str, key: str) -> tuple[str | None, bool]:
    """Return whom the name `key` of `team` belongs to (None: not known), and whether that has ended."""
    row = db.execute("SELECT owner, ended FROM owners WHERE team = ? AND key = ? AND latest", (team, key))
    owner, ended = row.fetchone() or (None, 0)
    return owner, bool(ended)
