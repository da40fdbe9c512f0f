"""The owners of the names in a ledger; settles the mail for a run that is over.

An owner is one run of an agent, or the agent that `-n` names in a folder.  Mail is for the owner that the
name has when it is sent.  Mail for a run ends with the run; mail for a folder's agent waits until that name
runs in that folder again.  Nobody else ever gets it.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from pathlib import Path

from relay.dataclass import dataclass
from relay.message import State
from relay.messaging.ledger_database import NEXT_TURN, LedgerDatabase, advance, keys

RUN, _FOLDER = "run/", "folder/"
_NAME = "team = ? AND key = ?"
_WAITING = "'held', 'queued', 'sent', 'stored'"
TYPING = "the receiver ended while it was being typed"
_OTHERS = "team = ?1 AND to_key = ?2 AND owner <> ?3 AND state IN"


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
        import hashlib  # OpenSSL, 3 ms

        path = os.fsencode(folder)  # which need not be UTF-8
        return cls(_FOLDER + hashlib.sha256(path).hexdigest()[:16], path.decode("utf-8", "replace"))


def is_run(owner: str) -> bool:
    """Return True if the owner with this id is a run, so its mail ends with it."""
    return owner.startswith(RUN)


class NameOwners:
    """The current or last owner of each name. Names may have any spelling."""

    def __init__(self, db: LedgerDatabase) -> None:
        self._db = db

    def take(self, team: str, name: str, owner: Owner, *, here: bool = True, begins: bool = False) -> None:
        """Record that `name` belongs to `owner`; a run that had the name before is over.

        Messages without an owner (from before owners were recorded) are for `owner` from now on.

        here:   the owner is an agent of this home.
        begins: the agent has just been started: if it is a run, waiting messages are older, and not for it.
        """
        its = keys(team, name)
        same = f"SELECT 1 FROM owners WHERE {_NAME} AND owner = ? AND here = ? AND latest AND NOT ended"
        if self._db.rows(same, *its, owner.id, here):
            return
        with self._db.transaction() as db:
            known = [id for (id,) in db.execute(f"SELECT owner FROM owners WHERE {_NAME}", its)]
            for former in known:
                if is_run(former) and former != owner.id:
                    _give_up(db, its, name, former)
                    silent = "team = ? AND to_key = ? AND owner = ? AND state = 'stored' AND NOT here"
                    why = f"it had arrived, and {name} has ended on its host without confirming it"
                    advance(db, silent, (*its, former), State.UNCERTAIN, why)
            if begins and is_run(owner.id) and owner.id not in known:
                _give_up(db, its, name, None)
            # Nothing asks for former owners but the folders of this home: `others` names them.
            db.execute(f"DELETE FROM owners WHERE {_NAME} AND folder = ''", its)
            db.execute(f"UPDATE owners SET latest = 0 WHERE {_NAME}", its)
            db.execute(
                "INSERT OR REPLACE INTO owners VALUES (?, ?, ?, ?, ?, ?, 1, 0)",
                (*its, owner.id, name, owner.folder, here),
            )
            nobodys = f"team = ? AND to_key = ? AND owner IS NULL AND state IN ({_WAITING})"
            db.execute(f"UPDATE messages SET owner = ? WHERE {nobodys}", (owner.id, *its))

    def end(self, team: str, name: str, owner: str) -> None:
        """Record that the run `owner` of `name` is over; settle its waiting mail, and end its memberships."""
        its = keys(team, name)
        with self._db.transaction() as db:
            ended = f"UPDATE owners SET ended = 1 WHERE {_NAME} AND owner = ? AND latest AND NOT ended"
            if is_run(owner) and db.execute(ended, (*its, owner)).rowcount:
                _give_up(db, its, name, owner)

    def of(self, team: str, name: str) -> tuple[str | None, bool]:
        """Return the owner of `name` (None: not known), and whether it was a run that is over."""
        with self._db.reading() as db:
            return addressee(db, *keys(team, name))

    def end_gone(self, is_alive: Callable[[str, str], bool]) -> None:
        """End the runs of this home whose agents are gone. is_alive: called with (team, name)."""
        runs = "SELECT team, name, owner FROM owners WHERE here AND latest AND NOT ended AND owner LIKE ?"
        for team, name, owner in self._db.rows(runs, f"{RUN}%"):
            if not is_alive(team, name):
                self.end(team, name, owner)

    def ended(self, team: str) -> set[str]:
        """Return the names (names.key) in `team` whose last owner was a run that is over."""
        query = "SELECT key FROM owners WHERE team = ? AND ended"
        return {key for (key,) in self._db.rows(query, *keys(team))}

    def others(self, team: str, name: str, owner: str) -> list[tuple[str, int]]:
        """Return the folders whose agent `name`, except `owner`, has waiting messages, and how many.

        "": the folder is on another host.
        """
        return self._db.rows(
            "SELECT ifnull(folder, ''), count(*) FROM "
            f"(SELECT owner AS whose FROM messages WHERE {_OTHERS} ({_WAITING}) "
            "AND (state <> 'stored' OR here)) "
            "LEFT JOIN owners ON team = ?1 AND key = ?2 AND owner = whose GROUP BY whose ORDER BY 1",
            *keys(team, name),
            owner,
        )


def addressee(db: sqlite3.Connection, team: str, key: str) -> tuple[str | None, bool]:
    """Return the owner of the name `key` of `team` (None: not known), and whether it has ended."""
    row = db.execute("SELECT owner, ended FROM owners WHERE team = ? AND key = ? AND latest", (team, key))
    owner, ended = row.fetchone() or (None, 0)
    return owner, bool(ended)


def _give_up(db: sqlite3.Connection, its: tuple[str, ...], name: str, owner: str | None) -> None:
    """Settle all messages that wait for `owner` of `name`. its: the keys of team and name."""
    mail = "team = ? AND to_key = ? AND owner IS ?"
    # Each gets a turn, even if earlier messages are missing, so its sender gets a receipt.
    db.execute(
        "UPDATE messages SET state = iif(injecting, ?4, ?5), "
        f"detail = iif(injecting, ?6, ?7), turn = ifnull(turn, {NEXT_TURN}) "
        "WHERE team = ?1 AND to_key = ?2 AND owner IS ?3 AND state = 'stored' AND here",
        (*its, owner, State.UNCERTAIN, State.REJECTED, TYPING, f"{name} has ended"),
    )
    pending = f"{mail} AND state IN ('held', 'queued', 'sent')"
    advance(db, pending, (*its, owner), State.EXPIRED, f"{name} has ended")
    if owner is not None:
        db.execute("DELETE FROM pairs WHERE team = ? AND to_key = ? AND origin LIKE ?", (*its, f"%/{owner}%"))
        db.execute(f"DELETE FROM members WHERE {_NAME}", its)
