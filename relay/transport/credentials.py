"""Each agent's own credentials on brokers, one file (0600) each, made on first use; and how it logs in.

The password is the only secret that is kept.  The client id is a secret too (whoever connects with it can
take over or wipe the agent's mailbox), and is derived from the password in use: the same on every home that
has the same login, so that a broker keeps one mailbox for one agent, wherever it runs.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import secrets
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from relay import names
from relay.errors import BrokerError, InvalidName
from relay.storage.files import write_private
from relay.transport.endpoint import Endpoint
from relay.transport.topics import level


@dataclass(frozen=True, slots=True)
class Credentials:
    """team and name are levels (see `topics.level`)."""

    team: str
    name: str
    password: str = field(repr=False)

    @property
    def user(self) -> str:
        return f"{self.team}/{self.name}"

    @property
    def client_id(self) -> str:
        """The agent's mailbox on a broker that knows it by these credentials."""
        return _client_id(self.team, self.name, self.password)


@dataclass(frozen=True, slots=True)
class Login:
    """What an agent shows to a broker. client_id: its mailbox's; other connections take random ones."""

    user: str
    password: str | None = field(repr=False)
    client_id: str = field(repr=False)


def for_endpoint(endpoint: Endpoint, credentials: Credentials) -> Login:
    """How the agent that has `credentials` logs in at `endpoint`.

    A login in the endpoint's URL is shared by whoever uses that URL, and is taken as it stands; without one
    the agent shows its own.  The client id of a login without a password can be guessed by anybody.
    """
    if endpoint.user is None:
        return Login(credentials.user, credentials.password, credentials.client_id)
    client_id = _client_id(credentials.team, credentials.name, endpoint.password or "")
    return Login(endpoint.user, endpoint.password, client_id)


class CredentialStore:
    """The directory of credentials. Whoever changes or removes some holds the broker's election lock."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def get(self, team: str, name: str) -> Credentials:
        """The credentials of `name` in `team`; made if there are none yet, by one of those who ask."""
        path = self._path(team, name)
        if not path.exists():
            made = Credentials(level(team), level(name), secrets.token_urlsafe(24))
            with contextlib.suppress(FileExistsError), _explained(path):
                write_private(path, json.dumps(asdict(made)), replace=False)
        return _read(path)

    def find(self, team: str, name: str) -> Credentials | None:
        """The credentials of `name` in `team`, if there are any."""
        path = self._path(team, name)
        return _read(path) if path.exists() else None

    def put(self, credentials: Credentials) -> None:
        """Keep `credentials`, in place of older ones of that agent."""
        path = self._path(credentials.team, credentials.name)
        with _explained(path):
            write_private(path, json.dumps(asdict(credentials)))

    def remove(self, team: str, name: str) -> None:
        """Forget the credentials of `name` in `team`."""
        self._path(team, name).unlink(missing_ok=True)

    def all(self, team: str | None = None) -> Iterator[Credentials]:
        """Everybody's (of `team`), in a stable order."""
        for path in sorted(self._directory.glob("*.json" if team is None else f"{level(team)}.*.json")):
            yield _read(path)

    def _path(self, team: str, name: str) -> Path:
        return self._directory / f"{level(team)}.{level(name)}.json"


@contextlib.contextmanager
def _explained(path: Path) -> Iterator[None]:
    try:
        yield
    except FileExistsError:
        raise
    except OSError as error:
        raise BrokerError(
            f"cannot write credentials to {path}: {error.strerror}. Make room, or make it writable."
        ) from None


def parse(value: Any) -> Credentials:
    """The credentials in a decoded JSON object. Raises ValueError where it holds none."""
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
    except (OSError, ValueError) as error:
        raise BrokerError(f"the credentials in {path} cannot be read ({error}). Delete that file.") from None


def _client_id(team: str, name: str, password: str) -> str:
    """128 bits of it: nobody finds it without the password, nor the password from it."""
    mailbox = f"relay/v1/{team}/{name}".encode()
    return f"relay-{hmac.new(password.encode(), mailbox, hashlib.sha256).hexdigest()[:32]}"
