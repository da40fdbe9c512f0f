"""The payloads on the wire: JSON with a version, checked against the topic.

A message (`kind` "message") goes to the receiver's inbox, a receipt (`kind` "receipt") to its sender's.
Anything else (another version, a sender that is not its topic's, not JSON) is foreign: `decode` raises, and
its caller counts it and continues.
"""

from __future__ import annotations

import json
import re
from operator import attrgetter
from typing import Any

from relay import names
from relay.dataclass import dataclass
from relay.errors import InvalidName
from relay.message import MAX_BODY, Message, Priority, State
from relay.transport import topics

VERSION = 1
_COPY = re.compile(rb'\{"v":%d,"kind":"message","id":"([0-9a-f]+)","seq":0,' % VERSION)
MAX_PAYLOAD = 6 * MAX_BODY + 8192
"""Maximum bytes; JSON writes a control character as six (RFC 8259 section 7); the other fields are short."""

_REPORTED = {State.STORED, State.INJECTED, State.UNCERTAIN, State.REJECTED, State.EXPIRED}
_ROUTES, _ROLES = frozenset({"typed", "native", "door", "mcp"}), frozenset({"user", "system"})
_LATEST = 253402300799.0  # the last second of the year 9999; also longer than any sensible ttl

_RECEIPT = ("id", "from", "to", "state", "detail", "route", "role")
_of_receipt = attrgetter("id", "receiver", "sender", "state", "detail", "route", "role")

_MESSAGE = (
    *("id", "seq", "base", "origin", "from", "to", "body", "time", "thread", "reply_to"),
    *("priority", "channel", "depth", "ttl", "home", "owner"),
)
_KNOWN = {
    "message": frozenset({"v", "kind", *_MESSAGE}),
    "receipt": frozenset({"v", "kind", *_RECEIPT}),
}
"""The fields of each kind; a new one needs another version."""

_of_message = attrgetter(
    *("message.id", "sequence", "base", "origin", "message.sender", "message.to", "message.body"),
    *("message.time", "message.thread", "message.reply_to"),
    *("message.priority", "message.channel", "message.depth", "ttl", "home", "owner"),
)
_ID = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)

MAX_SHORT = 1024
"""Maximum bytes of UTF-8 in any text but the body."""


def is_id(text: str) -> bool:
    """Return True if `text` could be the id of a message."""
    return _ID.fullmatch(text) is not None


class ForeignPayload(Exception):
    """The payload is not relay's; the error says why, for the log."""


@dataclass(frozen=True, slots=True)
class Envelope:
    """A message in transit, with the data that keeps its stream in order at the receiver.

    origin:   its stream (`origin_of`).
    sequence: its place in the stream, from 1; 0: the receiver's ledger is the sender's, and has the message.
    base:     the lowest sequence that may not be stored yet; missing messages from base up to sequence come
              before this one.
    ttl:      seconds after which it expires; None: never.
    home:     the ledger that the receiver had when it was published; None: any.
    owner:    the owner of the receiver's name when it was sent (relay.messaging.name_owners); None: anybody.
    """

    message: Message
    origin: str
    sequence: int
    base: int
    ttl: float | None = None
    home: str | None = None
    owner: str | None = None


@dataclass(frozen=True, slots=True)
class Receipt:
    """The state of message `id` at its receiver. sender: the message's sender, who gets the receipt.

    route, role: as in Message; None from receivers with an older relay.
    """

    id: str
    receiver: str
    sender: str
    state: State
    detail: str | None = None
    route: str | None = None
    role: str | None = None


def origin_of(ledger: str, priority: Priority, owner: str | None) -> str:
    """Return the origin of messages numbered by `ledger`: its id, the priority unless normal, the owner."""
    parts = (ledger, None if priority is Priority.NORMAL else priority, owner)
    return "/".join(part for part in parts if part is not None)


def copy_of(message: Message, ledger: str) -> Envelope:
    """Return the envelope of a message within the home of `ledger`, for whoever listens on the broker."""
    return Envelope(message, origin_of(ledger, message.priority, None), 0, 0, home=ledger)


def copied(payload: bytes) -> str | None:
    """Return the id of a message within the receiver's home if `payload` is a copy of it (`copy_of`).

    Whoever sent it, a copy says only *look*: nothing else in it is read.
    """
    found = _COPY.match(payload)
    return None if found is None else found[1].decode()


def encode(item: Envelope | Receipt) -> bytes:
    value: dict[str, Any]
    if isinstance(item, Receipt):
        value = {"v": VERSION, "kind": "receipt", **dict(zip(_RECEIPT, _of_receipt(item), strict=True))}
    else:
        value = {"v": VERSION, "kind": "message", **dict(zip(_MESSAGE, _of_message(item), strict=True))}
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def decode(payload: bytes, topic: topics.InboxTopic) -> Envelope | Receipt:
    """Return the message or receipt in `payload`, received on `topic`. Raise ForeignPayload."""
    if len(payload) > MAX_PAYLOAD:
        raise ForeignPayload(f"{len(payload)} bytes")
    try:
        value = json.loads(payload)
    except (ValueError, RecursionError):
        raise ForeignPayload("not JSON") from None
    if not isinstance(value, dict) or value.get("v") != VERSION:
        raise ForeignPayload(f"not version {VERSION}")
    kind = value.get("kind")
    if not isinstance(kind, str) or kind not in _KNOWN:
        raise ForeignPayload("an unknown kind")
    if not value.keys() <= _KNOWN[kind]:
        raise ForeignPayload("unknown fields")
    fields = _Fields(value)
    sender, to = fields.name("from"), fields.name("to")
    if topics.level(sender) != topic.sender:
        raise ForeignPayload("its sender is not its topic's")
    if topics.level(to) != topic.to:
        raise ForeignPayload("its receiver is not its topic's")
    if kind == "message":
        return _message(fields, sender, to)
    try:
        state = State(fields.text("state"))
    except ValueError:
        raise ForeignPayload("an unknown state") from None
    if state not in _REPORTED:
        raise ForeignPayload(f"a receipt cannot say {state}")
    how = (fields.one_of("route", _ROUTES), fields.one_of("role", _ROLES))
    return Receipt(fields.id("id"), sender, to, state, fields.optional("detail"), *how)


def _message(fields: _Fields, sender: str, to: str) -> Envelope:
    try:
        priority = Priority(fields.optional("priority") or Priority.NORMAL)
    except ValueError:
        raise ForeignPayload("an unknown priority") from None
    message = Message(
        id=fields.id("id"),
        sender=sender,
        to=to,
        body=fields.text("body", MAX_BODY),
        time=fields.seconds("time"),
        state=State.STORED,
        thread=fields.line("thread"),
        reply_to=None if fields.absent("reply_to") else fields.id("reply_to"),
        priority=priority,
        channel=fields.channel(),
        depth=0 if fields.absent("depth") else fields.count("depth"),
    )
    sequence, base = fields.count("seq"), fields.count("base")
    if base > sequence or (base == 0) != (sequence == 0):
        raise ForeignPayload("its base does not fit its sequence")
    origin, owner = fields.text("origin"), fields.line("owner")
    ledger = origin.partition("/")[0]
    if not is_id(ledger) or origin != origin_of(ledger, priority, owner):
        raise ForeignPayload("its origin is not that of a stream of its priority and owner")
    ttl = None if fields.absent("ttl") else fields.seconds("ttl")
    return Envelope(message, origin, sequence, base, ttl, fields.line("home"), owner)


class _Fields:
    """Typed access to the fields of a decoded object. Every method raises ForeignPayload."""

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

    def line(self, name: str) -> str | None:
        """Return one line of printable text; None if there is none."""
        value = self.optional(name)
        if value is not None and not value.isprintable():
            raise ForeignPayload(f"{name} is not one line")
        return value

    def id(self, name: str) -> str:
        """Return an id, safe to use in commands and to show to the user."""
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
        """Return one of `allowed`, or None: a newer relay may have other values."""
        value = self._value.get(name)
        return value if isinstance(value, str) and value in allowed else None

    def channel(self) -> str | None:
        name = self.optional("channel")
        try:
            return None if name is None else names.validate(name, "channel")
        except InvalidName:
            raise ForeignPayload("its channel is no name") from None

    def seconds(self, name: str) -> float:
        value = self._value.get(name)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= _LATEST:
            raise ForeignPayload(f"{name} is not a number from 0 to {_LATEST:g}")
        return float(value)

    def count(self, name: str) -> int:
        value = self._value.get(name)
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 53:
            raise ForeignPayload(f"{name} is not a count")
        return value
