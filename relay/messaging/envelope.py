"""Messages and receipts on the wire.

A message goes to the receiver's inbox, a receipt to its sender's.  Anything else (another version, a sender
that is not its topic's, not JSON) is foreign: `decode` raises, and its caller counts it and continues.
"""

from __future__ import annotations

from operator import attrgetter
from typing import Any

from relay import names
from relay.dataclass import dataclass
from relay.message import MAX_BODY, Message, Priority, State
from relay.transport import topics, wire
from relay.transport.wire import ForeignPayload, optional

MAX_PAYLOAD = 6 * MAX_BODY + 8192
"""Maximum bytes; JSON writes a control character as six (RFC 8259 section 7); the other fields are short."""

_REPORTED = {State.STORED, State.INJECTED, State.UNCERTAIN, State.REJECTED, State.EXPIRED}


def _party(value: Any) -> str:
    return names.PERSON if value == names.PERSON else wire.name(value)


def _reported(value: Any) -> State:
    if (state := State(value)) in _REPORTED:
        return state
    raise ValueError(value)


def _one_of(*allowed: str) -> Any:
    """Return a check for one of `allowed`, or None: a newer relay may have other values."""
    return lambda value: next((each for each in allowed if each == value), None)


_MESSAGE: wire.Checks = {
    "seq": wire.count,  # first, for `is_copy`
    "id": wire.message_id,
    "base": wire.count,
    "origin": wire.message_id,
    "from": _party,
    "to": _party,
    "body": lambda value: wire.text(value, MAX_BODY),
    "time": wire.seconds,
    "thread": optional(wire.line),
    "reply_to": optional(wire.message_id),
    "priority": optional(Priority, Priority.NORMAL),
    "channel": optional(wire.channel),
    "depth": optional(wire.count, 0),
    "ttl": optional(wire.seconds),
    "home": optional(wire.line),
    "owner": optional(wire.line),
}
_RECEIPT: wire.Checks = {
    "id": wire.message_id,
    "from": _party,
    "to": _party,
    "state": _reported,
    "detail": optional(wire.text),
    "route": _one_of("typed", "native", "door", "mcp", "program"),
    "role": _one_of("user", "system"),
}
_COPY = wire.encode("message", {"seq": 0}).replace(b"}", b",")
_of_message = attrgetter(
    *("sequence", "message.id", "base", "origin", "message.sender", "message.to", "message.body"),
    *("message.time", "message.thread", "message.reply_to"),
    *("message.priority", "message.channel", "message.depth", "ttl", "home", "owner"),
)
_of_receipt = attrgetter("id", "receiver", "sender", "state", "detail", "route", "role")


@dataclass(frozen=True, slots=True)
class Envelope:
    """A message in transit, with the data that keeps its stream in order at the receiver.

    origin:   the ledger that it comes from, which numbers it.
    sequence: its place in its stream, from 1; 0: the receiver's ledger is the sender's, and has the message.
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

    @property
    def stream(self) -> str:
        """The messages between two agents that stay in order: of one ledger, priority and owner."""
        priority = self.message.priority
        parts = (self.origin, None if priority is Priority.NORMAL else priority, self.owner)
        return "/".join(part for part in parts if part is not None)


@dataclass(frozen=True, slots=True)
class Receipt:
    """The state of message `id` at its receiver. sender: the message's sender, who gets the receipt.

    route, role: as in Message.
    """

    id: str
    receiver: str
    sender: str
    state: State
    detail: str | None = None
    route: str | None = None
    role: str | None = None


def copy_of(message: Message, ledger: str) -> Envelope:
    """Return the envelope of a message within the home of `ledger`, for whoever listens on the broker."""
    return Envelope(message, ledger, 0, 0, home=ledger)


def is_copy(payload: bytes) -> bool:
    """Return True for what `copy_of` makes. It costs nothing, where most payloads are copies."""
    return payload.startswith(_COPY)


def encode(item: Envelope | Receipt) -> bytes:
    if isinstance(item, Receipt):
        return wire.encode("receipt", dict(zip(_RECEIPT, _of_receipt(item), strict=True)))
    return wire.encode("message", dict(zip(_MESSAGE, _of_message(item), strict=True)))


def decode(payload: bytes, topic: topics.InboxTopic) -> Envelope | Receipt:
    """Return the message or receipt in `payload`, received on `topic`. Raise ForeignPayload."""
    kind, fields = wire.decode(payload, MAX_PAYLOAD, {"message": _MESSAGE, "receipt": _RECEIPT})
    sender, to = fields.pop("from"), fields.pop("to")
    if topics.level(sender) != topic.sender:
        raise ForeignPayload("its sender is not its topic's")
    if topics.level(to) != topic.to:
        raise ForeignPayload("its receiver is not its topic's")
    if kind == "receipt":
        return Receipt(receiver=sender, sender=to, **fields)
    sequence, base, origin, ttl = (fields.pop(each) for each in ("seq", "base", "origin", "ttl"))
    home, owner = fields.pop("home"), fields.pop("owner")
    message = Message(sender=sender, to=to, state=State.STORED, **fields)
    if base > sequence or (base == 0) != (sequence == 0):
        raise ForeignPayload("its base does not fit its sequence")
    return Envelope(message, origin, sequence, base, ttl, home, owner)
