"""The owner of a name: one run of an agent, or the agent that `-n` names in a folder.

Mail is for the owner that the name has when it is sent. Mail for a run ends with the run; mail for a folder's
agent waits until that name runs in that folder again. Nobody else ever gets it.
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
    """id: identifies the owner to the ledgers and hosts of a team. folder: to show; "" for a run."""

    id: str
    folder: str = ""

    @classmethod
    def of_run(cls, id: str) -> Owner:
        """Return the run `id`: from `relay wrap` to the agent's end, including every `relay restart`."""
        return cls(RUN + id)

    @classmethod
    def of_folder(cls, folder: Path) -> Owner:
        """Return the agent with its own name in `folder`; other hosts learn only a digest of the path."""
        path = os.fsencode(folder)  # which need not be UTF-8
        return cls(_FOLDER + hashlib.sha256(path).hexdigest()[:16], path.decode("utf-8", "replace"))


def is_run(owner: str) -> bool:
    """Return True if the owner with this id is a run, so its mail ends with it."""
    return owner.startswith(RUN)


def addressee(db: sqlite3.Connection, team: str, key: str) -> tuple[str | None, bool]:
    """Return the owner of the name `key` of `team` (None: not known), and whether it has ended."""
    row = db.execute("SELECT owner, ended FROM owners WHERE team = ? AND key = ? AND latest", (team, key))
    owner, ended = row.fetchone() or (None, 0)
    return owner, bool(ended)
