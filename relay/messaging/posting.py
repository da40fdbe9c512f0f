"""Accepts a message: checks it, and commits it to the ledger."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from relay import names
from relay.dataclass import replace
from relay.errors import MessageRefused, ReceiverStarting, UnknownRecipient
from relay.message import MAX_BODY, Message, OutgoingMessage
from relay.messaging.ledger import Ledger
from relay.messaging.runaway import Limits
from relay.transport.wire import MAX_SHORT, is_id

EVERYBODY = "*"

STARTING = 10.0
"""Seconds for which a message waits for the session of an agent that has just been started."""

MAX_TTL = 10 * 365 * 86400.0
"""The longest time to live of a message, in seconds."""


def post(
    ledger: Ledger,
    team: str,
    sender: str,
    outgoing: OutgoingMessage,
    limits: Limits | None = None,
    *,
    there: Callable[[str], bool],
    copied: bool = False,
) -> list[Message]:
    """Commit `outgoing` from `sender` as one message for each receiver, and return the messages.

    limits: those of the runaway guard for agents (default: Limits()); the user may send anything.
    there:  returns True if an agent has that name now; a broadcast goes to those agents.
    copied: as for `Outbox.send`.

    Names are spelled as their owners spell them.  Raise UnknownRecipient (with a suggestion), InvalidName,
    MessageRefused or LedgerError if nothing was committed; if `there` knows the receiver, ReceiverEnded and
    ReceiverStarting last only until its session has started: retry for STARTING seconds.
    """
    limits = limits or Limits()
    outgoing = replace(
        outgoing,
        thread=outgoing.thread or None,
        reply_to=outgoing.reply_to or None,
        ttl=limits.ttl if outgoing.ttl is None else outgoing.ttl,
    )
    _check(outgoing)
    to = outgoing.to
    send = partial(
        ledger.outbox.send,
        team,
        sender,
        outgoing=outgoing,
        limits=None if names.same(sender, names.PERSON) else limits,
        copied=copied,
    )
    if names.same(to, names.PERSON) and not names.same(sender, names.PERSON):
        return send([names.PERSON])
    if to == EVERYBODY:
        known = ledger.registry.known(team)
        sent = send([name for name in known if not names.same(name, sender) and there(name)], fanout=True)
        if not sent:
            raise UnknownRecipient(
                f"team {team!r} has no other agents, so nothing was sent. Start one with `relay wrap`."
            )
        return sent
    if to.startswith("#"):
        channel = ledger.channels.audience(team, names.channel(to), sender)
        return send(channel.members, channel=channel.name, fanout=True)
    if names.same(to, sender):
        raise MessageRefused(f"{to!r} is the sender. Name another agent.")
    if sent := send([to], known=True):
        return sent
    if names.is_valid(to) and there(to):
        raise ReceiverStarting(
            f"{to} has been started, and its session takes no messages yet; `relay ps` shows when it does."
        )
    gone = {names.key(sender), *ledger.owners.ended(team)}
    others = [name for name in ledger.registry.known(team) if names.key(name) not in gone]
    if (suggestion := names.suggest(to, others)) is not None:
        advice = f"Did you mean {suggestion}?"
    elif others:
        shown = ", ".join(others[:10]) + (", ..." if len(others) > 10 else "")
        advice = f"There {'is' if len(others) == 1 else 'are'} {shown}."
    else:
        advice = "The team has no agents. Start one with `relay wrap`."
    raise UnknownRecipient(f"team {team!r} has no agent called {to!r}. {advice}", suggestion)


def _check(outgoing: OutgoingMessage) -> None:
    """Raise MessageRefused for a message that no receiver would accept: it would be resent for ever."""
    if not outgoing.body.strip():
        raise MessageRefused("the message is empty. Write its text after the receiver's name.")
    try:
        size = len(outgoing.body.encode())
    except UnicodeEncodeError:
        raise MessageRefused("the message contains bytes that are not UTF-8. Convert it first.") from None
    if size > MAX_BODY:
        raise MessageRefused(
            f"the message has {size} bytes; the limit is {MAX_BODY}. "
            "Write it to a file and send that file's path, or send it in parts."
        )
    thread, reply_to, ttl = outgoing.thread, outgoing.reply_to, outgoing.ttl
    if thread is not None and (not thread.isprintable() or len(thread.encode(errors="replace")) > MAX_SHORT):
        raise MessageRefused(
            f"a thread must be one line of at most {MAX_SHORT} bytes. Choose a shorter word."
        )
    if reply_to is not None and not is_id(reply_to):
        raise MessageRefused(f"{reply_to[:40]!r} is not a message id. `relay messages` lists the ids.")
    if ttl is not None and not 0 <= ttl <= MAX_TTL:
        raise MessageRefused(f"a message must expire after 0 (never) to {MAX_TTL:g} seconds, not {ttl:g}.")
