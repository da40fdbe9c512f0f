"""Held accounts, which have reached a limit or are not logged in. One file per account.

    state/accounts/NAME.json

The agent that notices writes the file; all agents of the account on this machine read it before a nudge,
their first prompt, and a restart.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

from relay.dataclass import asdict, dataclass, fields
from relay.errors import HomeError
from relay.home import Home, private_directory
from relay.storage.files import write_private
from relay.storage.locks import locked
from relay.supervision.restart import words

_LONGEST = 120  # bytes of the account's name in the file name; hash and suffix keep it below NAME_MAX (255)


@dataclass(frozen=True, slots=True)
class AccountHold:
    """The reason why an account is held.

    The man page shows these lines (`make man`). Times are in seconds since the epoch;
    relay.supervision.restart.words has the classes in words.

    account: the account.
    cls:    the class of the failure, such as `usage_limit`.
    reason: the agent's own words.
    by:     the agent that reported it.
    at:     when it was reported.
    until:  when it ends by itself; None for when a turn succeeds, or you release it.
    """

    account: str
    cls: str
    reason: str
    by: str
    at: float
    until: float | None = None

    def active(self, now: float) -> bool:
        return self.until is None or now < self.until

    def __str__(self) -> str:
        """Return the hold in words: "the account work is held: not logged in (reported by Alice)"."""
        until = "" if self.until is None else time.strftime(" until %m-%d %H:%M", time.localtime(self.until))
        return f"the account {self.account} is held{until}: {words(self.cls)} (reported by {self.by})"


class Accounts:
    """The holds of a home's accounts. Every method may block; none raises for a damaged file."""

    def __init__(self, home: Home, clock: Callable[[], float] = time.time) -> None:
        self._folder = home.state / "accounts"
        self._clock = clock

    def get(self, account: str) -> AccountHold | None:
        """Return the hold of an account; None if it is not held now."""
        found = _read(self._path(account))
        return found if found is not None and found.active(self._clock()) else None

    def all(self) -> list[AccountHold]:
        """Return the active holds, sorted by account."""
        found = [hold for path in self._folder.glob("*.json") if (hold := _read(path)) is not None]
        now = self._clock()
        return sorted((hold for hold in found if hold.active(now)), key=lambda hold: hold.account)

    def hold(self, new: AccountHold) -> bool:
        """Hold an account; return False if it is already held for at least as long.

        Raise HomeError if the file cannot be written.
        """
        path = self._path(new.account)
        private_directory(path.parent)
        with locked(path.with_suffix(".lock")):
            held = self.get(new.account)
            if held is not None and (
                held.until is None or (new.until is not None and new.until <= held.until)
            ):
                return False
            try:
                write_private(path, json.dumps(asdict(new), ensure_ascii=False, indent=1) + "\n")
            except OSError as error:
                raise HomeError(f"cannot write {path}: {error.strerror}.") from None
        return True

    def release(self, account: str, *, since: float | None = None) -> AccountHold | None:
        """Remove the hold of an account, and return it; None if the account is not held.

        since: keep a hold that is newer (seconds since the epoch). Raise HomeError if the removal fails.
        """
        path = self._path(account)
        if (held := self.get(account)) is None:
            return None
        with locked(path.with_suffix(".lock")):
            held = self.get(account)
            if held is None or (since is not None and held.at > since):
                return None
            try:
                path.unlink(missing_ok=True)
            except OSError as error:
                raise HomeError(f"cannot remove {path}: {error.strerror}.") from None
        return held

    def _path(self, account: str) -> Path:
        name = quote(account, safe="")
        if len(name) > _LONGEST:
            name = f"{name[:_LONGEST]}~{hashlib.sha256(account.encode()).hexdigest()}"
        return self._folder / f"{name}.json"


_FIELDS = {each.name for each in fields(AccountHold)}


def _read(path: Path) -> AccountHold | None:
    try:
        values = json.loads(path.read_bytes())
        held = AccountHold(**{name: value for name, value in values.items() if name in _FIELDS})
        float(held.at), float(held.until or 0)
    except (OSError, ValueError, TypeError, AttributeError, RecursionError):
        return None
    return held
