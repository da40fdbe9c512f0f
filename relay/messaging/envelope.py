"""What travels: JSON payloads with a version, and the check that a payload is what its topic says.

A message (`kind` "message") goes to the receiver's inbox, a receipt (`kind` "receipt") to its sender's.
Anything else that arrives (another version, another sender than its topic's, not JSON) is foreign: `decode`
says why, and the caller counts it and goes on.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from relay import names
from relay.errors import InvalidName
from relay.message import MAX_BODY, Message, Priority, State
from relay.transport import topics

VERSION = 1
MAX_PAYLOAD = 6 * MAX_BODY + 8192
"""Bytes; JSON writes a control character as six (RFC 8259 section 7), and the rest is short."""

_REPORTED = {State.STORED, State.INJECTED, State.UNCERTAIN, State.REJECTED, State.EXPIRED}
_ROUTES, _ROLES = frozenset({"typed", "native"}), frozenset({"user", "system"})
_LATEST = 253402300799.0  # the last second of the year 9999, and a length of time that is longer than any
_ID = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)

MAX_SHORT = 1024
"""Bytes of UTF-8 in any text but the body."""


def is_id(text: str) -> bool:
    """Whether `text` can be the id of a message."""
    return _ID.fullmatch(text) is not None


class ForeignPayload(Exception):
    """Not a payload of ours; str() says why, for the log."""


@dataclass(frozen=True, slots=True)
class Envelope:
    """A message on its way, with what the receiver needs to keep the order of its stream.

    origin: the ledger that numbered it, with the priority where that is not normal: one stream of the pair.
    sequence: its place in the stream, from 1. base: the lowest sequence that may not be stored yet; whatever
    lies between base and sequence and has not arrived comes before this message.
    ttl: seconds after which it is given up; None: never.
    home: the ledger for which it is, where its receiver was when it was published; None: whichever it has.
    """

    message: Message
    origin: str
    sequence: int
    base: int
    ttl: float | None = None
    home: str | None = None


@dataclass(frozen=True, slots=True)
class Receipt:
    """What became of message `id` at its receiver. sender: the message's sender, to whom this goes.

    route, role: as in Message; receivers with an older relay do not say.
    """

    id: str
    receiver: str
    sender: str
    state: State
    detail: str | None = None
    route: str | None = None
    role: str | None = None


def encode(item: Envelope | Receipt) -> bytes:
    value: dict[str, Any]
    if isinstance(item, Receipt):
        value = {
            "v": VERSION,
            "kind": "receipt",
            "id": item.id,
            "from": item.receiver,
            "to": item.sender,
            "state": item.state.value,
            "detail": item.detail,
            "route": item.route,
            "role": item.role,
        }
    else:
        message = item.message
        value = {
            "v": VERSION,
            "kind": "message",
            "id": message.id,
            "seq": item.sequence,
            "base": item.base,
            "origin": item.origin,
            "from": message.sender,
            "to": message.to,
            "body": message.body,
            "time": message.time,
            "thread": message.thread,
            "reply_to": message.reply_to,
            "priority": message.priority.value,
            "channel": message.channel,
            "depth": message.depth,
            "ttl": item.ttl,
            "home": item.home,
        }
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def decode(payload: bytes, topic: topics.InboxTopic) -> Envelope | Receipt:
    """The message or receipt in `payload`, which came in at `topic`. Raises ForeignPayload."""
    if len(payload) > MAX_PAYLOAD:
        raise ForeignPayload(f"{len(payload)} bytes")
    try:
        value = json.loads(payload)
    except (ValueError, RecursionError):
        raise ForeignPayload("not JSON") from None
    if not isinstance(value, dict) or value.get("v") != VERSION:
        raise ForeignPayload(f"not version {VERSION}")
    fields = _Fields(value)
    sender, to = fields.name("from"), fields.name("to")
    if topics.level(sender) != topic.sender:
        raise ForeignPayload("its sender is not its topic's")
    if topics.level(to) != topic.to:
        raise ForeignPayload("its receiver is not its topic's")
    match value.get("kind"):
        case "message":
            return _message(fields, sender, to)
        case "receipt":
            try:
                state = State(fields.text("state"))
            except ValueError:
                raise ForeignPayload("an unknown state") from None
            if state not in _REPORTED:
                raise ForeignPayload(f"a receipt cannot say {state}")
            how = (fields.one_of("route", _ROUTES), fields.one_of("role", _ROLES))
            return Receipt(fields.id("id"), sender, to, state, fields.optional("detail"), *how)
    raise ForeignPayload("an unknown kind")


def _message(fields: _Fields, sender: str, to: str) -> Envelope:
    body = fields.text("body", MAX_BODY)
    try:
        priority = Priority(fields.optional("priority") or Priority.NORMAL)
    except ValueError:
        raise ForeignPayload("an unknown priority") from None
    message = Message(
        id=fields.id("id"),
        sender=sender,
        to=to,
        body=body,
        time=fields.number("time", _LATEST),
        state=State.STORED,
        thread=fields.optional("thread"),
        reply_to=None if fields.absent("reply_to") else fields.id("reply_to"),
        priority=priority,
        channel=fields.channel(),
        depth=0 if fields.absent("depth") else fields.count("depth", least=0),
    )
    sequence, base = fields.count("seq"), fields.count("base")
    if base > sequence:
        raise ForeignPayload("its base is above its sequence")
    ttl = None if fields.absent("ttl") else fields.number("ttl", _LATEST)
    return Envelope(message, fields.text("origin"), sequence, base, ttl, fields.optional("home"))


class _Fields:
    """Typed access to a decoded object."""

    def __init__(self, value: dict[str, Any]) -> None:
        self._value = value

    def text(self, name: str, limit: int = MAX_SHORT) -> str:
        value = self._value.get(name)
        if not isinstance(value, str) or not value:
            raise ForeignPayload(f"{name} is not a text")
        try:
            size = len(value.encode())
        except UnicodeEncodeError:
            raise ForeignPayload(f"{name} holds lone surrogates") from None
        if size > limit:
            raise ForeignPayload(f"{name} is too long")
        return value

    def absent(self, name: str) -> bool:
        return self._value.get(name) is None

    def optional(self, name: str) -> str | None:
        return None if self.absent(name) else self.text(name)

    def id(self, name: str) -> str:
        """An id: it stands in commands, and is shown to people."""
        value = self.text(name)
        if not is_id(value):
            raise ForeignPayload(f"{name} is no id")
        return value

    def name(self, name: str) -> str:
        value = self.text(name)
        try:
            return value if value == names.PERSON else names.validate(value)
        except InvalidName:
            raise ForeignPayload(f"{name} is no name") from None

    def one_of(self, name: str, allowed: frozenset[str]) -> str | None:
        """One of `allowed`, or nothing: a later relay may know more."""
        value = self._value.get(name)
        return value if isinstance(value, str) and value in allowed else None

    def channel(self) -> str | None:
        name = self.optional("channel")
        try:
            return None if name is None else names.validate(name, "channel")
        except InvalidName:
            raise ForeignPayload("its channel is no name") from None

    def number(self, name: str, most: float) -> float:
        """A number from 0 to `most`."""
        value = self._value.get(name)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= most:
            raise ForeignPayload(f"{name} is not a number from 0 to {most:g}")
        return float(value)

    def count(self, name: str, least: int = 1) -> int:
        value = self._value.get(name)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value < 1 << 53:
            raise ForeignPayload(f"{name} is not a count")
        return value
