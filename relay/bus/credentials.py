"""Each agent's own credentials on the broker, one file (0600) each, made on first use."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

from relay.bus.topics import level
from relay.errors import BrokerError


@dataclass(frozen=True, slots=True)
class Credentials:
    """client_id is a secret too: whoever connects with it can take over or wipe the agent's mailbox."""

    team: str
    name: str
    user: str
    password: str = field(repr=False)
    client_id: str = field(repr=False)


class CredentialStore:
    """The directory of credentials. Callers hold the broker's election lock while they make new ones."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def get(self, team: str, name: str) -> Credentials:
        """The credentials of `name` in `team`; made if there are none yet."""
        path = self._directory / f"{level(team)}.{level(name)}.json"
        if path.exists():
            return _read(path)
        made = Credentials(
            team=level(team),
            name=level(name),
            user=f"{level(team)}/{level(name)}",
            password=secrets.token_urlsafe(24),
            client_id=f"relay-{secrets.token_hex(16)}",
        )
        try:
            write_private(path, json.dumps(asdict(made)))
        except OSError as error:
            raise BrokerError(
                f"cannot write credentials to {path}: {error.strerror}. Make room, or make it writable."
            ) from None
        return made

    def all(self) -> Iterator[Credentials]:
        """Everybody's, in a stable order."""
        for path in sorted(self._directory.glob("*.json")):
            yield _read(path)


def write_private(path: Path, text: str) -> None:
    """Write `text` to `path`, 0600, whole or not at all."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    new = path.with_name(f"{path.name}.{os.getpid()}.new")
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        new.replace(path)
    except OSError:
        new.unlink(missing_ok=True)
        raise


def _read(path: Path) -> Credentials:
    try:
        return Credentials(**json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError) as error:
        raise BrokerError(f"the credentials in {path} cannot be read ({error}). Delete that file.") from None
