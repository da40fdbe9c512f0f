"""The address of a broker: the embedded one of a home, or one named by a URL."""

from __future__ import annotations

import re
from urllib.parse import unquote, urlsplit

from relay.dataclass import dataclass, field
from relay.errors import BrokerError

_SCHEMES = {"mqtt": 1883, "mqtts": 8883}


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The address of a broker. pid: of the embedded one. user, password: from an external one's URL."""

    kind: str  # "embedded" or "external"
    host: str
    port: int
    pid: int | None = None
    tls: bool = False
    user: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)

    @property
    def url(self) -> str:
        """Return the URL without credentials, safe to show."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'mqtts' if self.tls else 'mqtt'}://{host}:{self.port}"

    @classmethod
    def of(cls, url: str) -> Endpoint:
        """Return the endpoint that `mqtt[s]://[USER[:PASSWORD]@]HOST[:PORT]` names. Raise BrokerError."""
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError:
            parts, port = urlsplit(""), None
        if (
            parts.scheme not in _SCHEMES
            or not parts.hostname
            or "," in parts.hostname
            or parts.path not in {"", "/"}
        ):
            shown = repr(url.rpartition("@")[2])
            raise BrokerError(f"{shown} is not a broker URL; write it like mqtts://user:password@host:8883.")
        return cls(
            kind="external",
            host=parts.hostname,
            port=port or _SCHEMES[parts.scheme],
            tls=parts.scheme == "mqtts",
            user=None if parts.username is None else unquote(parts.username),
            password=None if parts.password is None else unquote(parts.password),
        )


def endpoints(urls: str) -> list[Endpoint]:
    """Return the endpoints in the comma-separated `urls`, without duplicates. Raise BrokerError.

    A comma separates URLs only if another URL follows it, so a password may contain one.
    """
    found = (url.strip() for url in re.split(r",(?=\s*mqtts?://)", urls))
    return list(dict.fromkeys(Endpoint.of(url) for url in found if url))
