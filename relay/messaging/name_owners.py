"""The owners of the names in a ledger; settles the mail for a run that is over."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable

from relay.message import State
from relay.messaging.ledger_database import NEXT_TURN, LedgerDatabase, advance, keys
from relay.messaging.owner import RUN, Owner, addressee, is_run

_NAME = "team = ? AND key = ?"
_WAITING = "'held', 'queued', 'sent', 'stored'"
_TYPING = "the receiver ended while it was being typed"
_OTHERS = "team = ?1 AND to_key = ?2 AND owner <> ?3 AND state IN"


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

    def runs(self) -> list[tuple[str, str, str]]:
        """Return team, name and owner of every run of this home that is not known to have ended."""
        query = "SELECT team, name, owner FROM owners WHERE here AND latest AND NOT ended AND owner LIKE ?"
        return self._db.rows(query, f"{RUN}%")

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


def end_gone(owners: NameOwners, is_alive: Callable[[str, str], bool]) -> None:
    """End the runs of this home whose agents are gone. is_alive: called with (team, name)."""
    for team, name, owner in owners.runs():
        if not is_alive(team, name):
            owners.end(team, name, owner)


def _give_up(db: sqlite3.Connection, its: tuple[str, ...], name: str, owner: str | None) -> None:
    """Settle all messages that wait for `owner` of `name`. its: the keys of team and name."""
    mail = "team = ? AND to_key = ? AND owner IS ?"
    # Each gets a turn, even if earlier messages are missing, so its sender gets a receipt.
    db.execute(
        "UPDATE messages SET state = iif(injecting, ?4, ?5), "
        f"detail = iif(injecting, ?6, ?7), turn = ifnull(turn, {NEXT_TURN}) "
        "WHERE team = ?1 AND to_key = ?2 AND owner IS ?3 AND state = 'stored' AND here",
        (*its, owner, State.UNCERTAIN, State.REJECTED, _TYPING, f"{name} has ended"),
    )
    pending = f"{mail} AND state IN ('held', 'queued', 'sent')"
    advance(db, pending, (*its, owner), State.EXPIRED, f"{name} has ended")
    if owner is not None:
        db.execute("DELETE FROM pairs WHERE team = ? AND to_key = ? AND origin LIKE ?", (*its, f"%/{owner}%"))
        db.execute(f"DELETE FROM members WHERE {_NAME}", its)
