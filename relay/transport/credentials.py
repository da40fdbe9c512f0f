"""The credentials of agents on brokers, one file (0600) each, created on first use.

The password is the only stored secret.  The client id is a secret too (any client that connects with it can
take over or wipe the agent's mailbox), and is derived from the password: it is the same in every home with
the same login, so a broker keeps one mailbox for one agent, wherever it runs.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from relay import names
from relay.dataclass import asdict, dataclass, field, replace
from relay.errors import BrokerError, InvalidName
from relay.storage.files import write_private
from relay.transport.endpoint import Endpoint
from relay.transport.topics import level


@dataclass(frozen=True, slots=True)
class Credentials:
    """The credentials of one agent. team and name are levels (see `topics.level`)."""

    team: str
    name: str
    password: str = field(repr=False)

    @property
    def user(self) -> str:
        return f"{self.team}/{self.name}"

    @property
    def client_id(self) -> str:
        """The agent's mailbox on a broker with these credentials."""
        mailbox = f"relay/v1/{self.team}/{self.name}".encode()
        # 128 bits: nobody can guess it without the password, or derive the password from it.
        return f"relay-{hmac.new(self.password.encode(), mailbox, hashlib.sha256).hexdigest()[:32]}"


@dataclass(frozen=True, slots=True)
class Login:
    """The login of one connection to a broker.

    client_id: the agent's mailbox, or a random one.
    keep:      the broker keeps mail for `client_id` while it is offline.
    farewell:  (topic, payload) that the broker publishes, and retains if `retained`, when the connection
               breaks.
    """

    client_id: str = field(repr=False)
    keep: bool = False
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    farewell: tuple[str, bytes] | None = None
    retained: bool = True


def anybody() -> str:
    """Return a client id that nobody has."""
    return f"relay-{secrets.token_hex(16)}"


def for_endpoint(endpoint: Endpoint, credentials: Credentials) -> Login:
    """Return the login of the agent with `credentials` at `endpoint`, with the client id of its mailbox.

    A login in the endpoint's URL, which all its users share, takes precedence over the agent's own.  Anybody
    can guess the client id of a login without a password.
    """
    if endpoint.user is None:
        return Login(credentials.client_id, user=credentials.user, password=credentials.password)
    shared = replace(credentials, password=endpoint.password or "")
    return Login(shared.client_id, user=endpoint.user, password=endpoint.password)


class CredentialStore:
    """The directory of credentials. Hold the broker's election lock to change or remove any."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def get(self, team: str, name: str) -> Credentials:
        """Return the credentials of `name` in `team`; the first process that asks creates them."""
        path = self._path(team, name)
        if not path.exists():
            self.put(Credentials(level(team), level(name), secrets.token_urlsafe(24)), replace=False)
        return _read(path)

    def find(self, team: str, name: str) -> Credentials | None:
        path = self._path(team, name)
        return _read(path) if path.exists() else None

    def remove(self, team: str, name: str) -> None:
        self._path(team, name).unlink(missing_ok=True)

    def all(self) -> Iterator[Credentials]:
        """Yield the credentials of everyone, in a stable order."""
        yield from map(_read, sorted(self._directory.glob("*.json")))

    def put(self, credentials: Credentials, *, replace: bool = True) -> None:
        """Store `credentials`; replace: even if that agent has some."""
        path = self._path(credentials.team, credentials.name)
        try:
            write_private(path, json.dumps(asdict(credentials)), replace=replace)
        except FileExistsError:
            pass  # another process was faster
        except OSError as error:
            raise BrokerError(
                f"cannot write credentials to {path}: {error.strerror}. Free some space, or make it writable."
            ) from None

    def _path(self, team: str, name: str) -> Path:
        return self._directory / f"{level(team)}.{level(name)}.json"


def parse(value: Any) -> Credentials:
    """Return the credentials in a decoded JSON object. Raise ValueError if there are none."""
    match value:
        case {"team": str(team), "name": str(name), "password": str(password)} if password:
            if _is_level(team, "team") and (name == names.PERSON or _is_level(name, "name")):
                return Credentials(team, name, password)
            raise ValueError("team or name is not a valid one")
    raise ValueError("team, name or password is missing")


def _is_level(text: str, what: str) -> bool:
    try:
        return level(names.validate(text.replace("~", "."), what)) == text
    except InvalidName:
        return False


def _read(path: Path) -> Credentials:
    try:
        return parse(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, RecursionError) as error:
        raise BrokerError(f"the credentials in {path} cannot be read ({error}). Delete that file.") from None
