"""Sinks: where else the items of the user's inbox go, as the table [inbox] of their own relay.toml says."""

from __future__ import annotations

import base64
import binascii
import hmac
import json
import re
import sys
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from relay import desktop_notification
from relay.dataclass import dataclass
from relay.errors import ConfigError, ConfigMistakes
from relay.home import Home
from relay.messaging.user_inbox import Item
from relay.redaction import Redactor
from relay.settings import FILE, find, read
from relay.side_process import run
from relay.text import visible
from relay.values import FLAG, TEXT, Spot, checked, parse_toml, plain, record, several

TABLE = "inbox"
"""The table of relay.toml."""

DESKTOP = "desktop"

SECONDS = 10.0
"""Seconds that a sink has to take an item."""

_HTTP_POST = Path(desktop_notification.__file__).with_name("http_post.py")

LONGEST = 3000
"""Characters of an item's text that a sink gets; ntfy takes 4,096 bytes."""


@dataclass(frozen=True, slots=True)
class Sinks:
    """The table [inbox].

    desktop:        show a notification on the desktop.
    ntfy_topic:     publish to this topic of an ntfy server, at ntfy_url; ntfy_token: its access token.
    webhook_url:    POST a JSON object there, signed with webhook_secret (Standard Webhooks).
    command:        run this program, with the text on its standard input.
    """

    desktop: bool = True
    ntfy_topic: str = ""
    ntfy_url: str = "https://ntfy.sh"
    ntfy_token: str = ""
    webhook_url: str = ""
    webhook_secret: str = ""
    command: tuple[str, ...] = ()

    @property
    def names(self) -> list[str]:
        used = {
            DESKTOP: self.desktop,
            "ntfy": self.ntfy_topic,
            "webhook": self.webhook_url,
            "command": self.command,
        }
        return [name for name, value in used.items() if value]


def _is_url(value: str) -> None:
    parts = urlsplit(value)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ValueError("write a URL that begins with https:// or http://.")


def _key(secret: str) -> bytes:
    """Return the key in a secret: base64 after `whsec_`, or else its bytes. Raise ValueError."""
    if not secret.startswith("whsec_"):
        return secret.encode()
    return base64.b64decode(secret.removeprefix("whsec_"), validate=True)


def _is_secret(value: str) -> None:
    try:
        if len(_key(value)) < 16:
            raise ValueError("use at least 16 characters.")
    except binascii.Error:
        raise ValueError("what follows `whsec_` is not base64.") from None


def _consistent(given: dict[str, Any], spot: Spot) -> dict[str, Any]:
    if given.get("webhook_url") and not given.get("webhook_secret"):
        spot.at("webhook_url").wrong(
            "webhook_url needs a webhook_secret, by which its receiver knows that relay has sent an item."
        )
    return given


_URL = checked(_is_url, "a URL")
_TOPIC = plain(
    str,
    "up to 64 letters, digits, - and _",
    lambda value: re.fullmatch(r"[-\w]{1,64}", value, re.ASCII) is not None,
)
_SETTINGS = record(
    {
        "desktop": FLAG,
        "ntfy_topic": _TOPIC,
        "ntfy_url": _URL,
        "ntfy_token": TEXT,
        "webhook_url": _URL,
        "webhook_secret": checked(_is_secret, "a secret"),
        "command": several(TEXT, "a list: the program and its arguments"),
    },
    _consistent,
    "setting",
)


def load(home: Home, directory: Path) -> tuple[Sinks, list[str]]:
    """Return the sinks, and notices about mistakes and about a project's table, which does not count."""
    own, project = home.config / FILE, find(directory)
    sinks, notices = Sinks(), list[str]()
    for path in dict.fromkeys((own, project)):
        if path is None or not path.is_file():
            continue
        try:
            values, top = parse_toml(path, read(path))
        except ConfigError:
            continue  # reported with the settings
        if TABLE not in values:
            continue
        if path != own:
            notices.append(f"{path}: [{TABLE}] ignored: only your own {own} may have it.")
            continue
        found = _SETTINGS.read(values[TABLE], top.at(TABLE))
        if top.mistakes:
            error = ConfigMistakes(path, top.mistakes)
            notices += error.notices(f"relay ignores [{TABLE}].")
        else:
            sinks = Sinks(**found)
    return sinks, notices


async def push(sinks: Sinks, sink: str, item: Item, redactor: Redactor) -> str:
    """Give `item`, without secrets, to one sink. Return "" or, for the user, why that failed."""
    text = redactor.redact(visible(item.text))[:LONGEST]
    match sink:
        case "ntfy":
            body = {"topic": sinks.ntfy_topic, "title": item.title, "message": f"{text}\n{item.next}"}
            token = {"Authorization": f"Bearer {sinks.ntfy_token}"} if sinks.ntfy_token else {}
            return await _post(sinks.ntfy_url, token, body)
        case "webhook":
            body = item.public() | {"title": item.title, "text": text}
            return await _post(sinks.webhook_url, {"webhook-id": item.id}, body, sinks.webhook_secret)
        case "command":
            return await run(sinks.command, f"{item.title}\n{text}\n{item.next}\n", SECONDS)
    return await desktop_notification.notify(item.title, text)


async def _post(url: str, headers: dict[str, str], content: dict[str, Any], secret: str = "") -> str:
    body = json.dumps(content, ensure_ascii=False)
    if secret:  # https://www.standardwebhooks.com: the receiver checks the signature, and refuses old times
        now = str(int(time.time()))
        signed = f"{headers['webhook-id']}.{now}.{body}".encode()
        signature = base64.b64encode(hmac.digest(_key(secret), signed, "sha256")).decode()
        headers = headers | {"webhook-timestamp": now, "webhook-signature": f"v1,{signature}"}
    request = json.dumps([url, {"Content-Type": "application/json", **headers}, body])
    return await run([sys.executable, "-I", str(_HTTP_POST)], request, SECONDS)
