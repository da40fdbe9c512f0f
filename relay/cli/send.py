"""Send a message to an agent.

relay saves the message, then delivers it as soon as it can safely type into the agent. TO is an agent's name,
'#channel', or '*' for every running agent. A message '-' is read from standard input. Outside an agent, the
message comes from you; inside a wrapped agent, from that agent.

  relay send Alice Please review the last commit
  git diff | relay send Alice -
  relay send --wait 30 Bob Are you done?
  relay send --urgent Bob Stop, the tests delete the database
  relay send --reply-to 3f9a Alice Yes

Within a second relay says whether the message was delivered, or why it waits: the receiver works, shows a
dialog, or has your own unsent line in its input; or it is a shell, into which relay does not type. With
--json that is `obstacle`.

--wait prints every step. The exit code is 0 when all receivers got the message (injected), and 1 if one did
not: it was rejected, expired, uncertain, held, or still waiting when the time was up.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from relay import names, settings
from relay.cli.arguments import add_json, add_team, agent_name, seconds
from relay.cli.obstacle import Obstacle, obstacle
from relay.cli.output import print_json, short_id
from relay.control import guard
from relay.control.sessions import call, have_carried, live
from relay.control.team_choice import team_of
from relay.dataclass import asdict, replace
from relay.errors import MessageRefused, ReceiverEnded, ReceiverStarting, RelayError, UnknownRecipient
from relay.home import Home
from relay.hooks.trust import Trust
from relay.message import MAX_BODY, Message, OutgoingMessage, Priority, State
from relay.messaging.doorbell import ring_for
from relay.messaging.ledger import Ledger
from relay.messaging.posting import EVERYBODY, STARTING, post
from relay.messaging.runaway import Limits
from relay.storage.locks import is_held
from relay.text import listed, one_line

_GLANCE = 1.0  # seconds to watch the message without --wait, unless something lasting keeps it waiting
_LEDGER_CHECK_EVERY = 0.01
_REASON = 200  # maximum characters of the reason for a state, which a peer may have given

Row = dict[str, Any]

_ASKED = 20  # maximum receivers to ask why the message waits

_WAITS = {
    State.QUEUED: "is queued, and waits",
    State.SENT: "is on its way, and waits",
    State.STORED: "has arrived, and waits",
}
"""What to say if the obstacle is known."""

_SAYS = {
    State.HELD: "to {to} is held; send it with `relay release`",
    State.QUEUED: "is queued",
    State.SENT: "is on its way; it waits until {to} is running",
    State.STORED: "has arrived; {to} gets it as soon as that is safe: `relay explain {to}`",
    State.INJECTED: "was delivered to {to}",
    State.UNCERTAIN: "may or may not have been delivered to {to}",
    State.REJECTED: "could not be delivered to {to}",
    State.EXPIRED: "was given up",
}


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--from", dest="sender", type=agent_name, metavar="NAME", help="send as NAME (not inside an agent)"
    )
    add_team(parser, "the receiver's team (default: the one that has the receiver)")
    priority = parser.add_mutually_exclusive_group()
    priority.add_argument(
        "--urgent",
        dest="priority",
        action="store_const",
        const=Priority.URGENT,
        default=Priority.NORMAL,
        help="ahead of all other messages, even during the agent's turn if its hooks can deliver it",
    )
    priority.add_argument(
        "--low",
        dest="priority",
        action="store_const",
        const=Priority.LOW,
        help="once the agent has been idle for a while (idle_seconds in relay.toml)",
    )
    parser.add_argument(
        "--reply-to", metavar="ID", help="the message this one answers: its id, or how the id begins"
    )
    parser.add_argument(
        "--thread", help="a word for what the message belongs to (default: that of the message it answers)"
    )
    parser.add_argument(
        "--expires",
        type=seconds,
        metavar="SECONDS",
        help="drop it if it has not arrived by then (0: never; default: expire_seconds in relay.toml)",
    )
    parser.add_argument(
        "--wait",
        type=seconds,
        metavar="SECONDS",
        help="wait until it is delivered, printing each step; exit code 1 if that takes longer than SECONDS",
    )
    add_json(parser, "print the messages as a JSON list")
    parser.add_argument(
        "to", type=_receiver, metavar="TO", help="an agent's name, '#channel', or '*' for every running agent"
    )
    parser.add_argument(
        "words", metavar="MESSAGE", nargs="+", help="the text; '-' reads it from standard input"
    )


def _receiver(text: str) -> str:
    if text.startswith("#"):
        names.channel(text)
    elif text != EVERYBODY:
        agent_name(text)
    return text


def run(args: argparse.Namespace) -> int:
    home = Home.from_env().ensure()
    body = _body(args.words)
    advice = "an agent can send only as itself, within its own team. Leave out --from and --team."
    who = guard.acting_as(home, "send", name=args.sender, team=args.team, advice=advice)
    if who.agent is None and names.is_valid(args.to):
        who = replace(who, team=team_of(home, args.to, args.team, who.team))
    alone = False
    with Ledger(home.ledger) as ledger:
        outgoing = _outgoing(ledger, args, body)
        if who.agent is not None:
            request = {"op": "send", "id": os.urandom(8).hex(), **asdict(outgoing)}
            rows: list[Row] = call(who.agent.socket, request)["messages"]
        else:
            try:
                sent = _post(home, ledger, who.team, who.name, outgoing)
            except UnknownRecipient as error:
                raise _elsewhere(ledger, who.team, outgoing.to) or error from None
            ring_for(home, who.team, sent)
            rows = [message.public() for message in sent]
            alone = not have_carried(home, who.team, who.name)

        if args.to == EVERYBODY and not args.json:
            there = [one_line(row["to"]) for row in rows]
            print(f"Sent to {len(there)}: {listed(there)}.", flush=True)

        def tell(row: Row, *, passing: bool = False) -> None:
            print(_sentence(row, alone=alone, passing=passing), flush=True)

        steps = partial(tell, passing=True) if args.wait is not None and not args.json else None
        rows = _with_obstacles(
            home, who.team, ledger, rows, 0.0 if alone and args.wait is None else args.wait, steps
        )
    waiting = [row for row in rows if not _ended(row)]
    if args.json:
        print_json([{"obstacle": None, **row, "team": who.team} for row in rows])
    elif steps is None:
        for row in rows:
            tell(row)
    if args.wait is None:
        return 0
    if steps is not None and waiting:
        for row in waiting:
            if (not alone) if row["state"] == State.QUEUED else row.get("obstacle"):
                tell(row)
        to = f": {', '.join(one_line(row['to']) for row in waiting)}" if len(rows) > 1 else ""
        print(
            f"Not there after {args.wait:g} s{to}. Follow it with `relay messages`.",
            file=sys.stderr,
        )
    return 0 if all(map(_arrived, rows)) else 1


def limits_here(home: Home) -> Limits:
    """Return the runaway guard's limits for a sender in the working directory without a session."""
    found, _ = settings.load(home, Path.cwd(), Trust(home).covers)  # a session reports a file's mistakes
    return Limits.of(found)


def _post(home: Home, ledger: Ledger, team: str, sender: str, outgoing: OutgoingMessage) -> list[Message]:
    """Commit `outgoing`; wait a moment for a receiver that is just starting."""

    def is_alive(team: str, name: str) -> bool:
        return is_held(home.agent_lock(team, name))

    ledger.owners.end_gone(is_alive)
    heard = _heard(home, team) if outgoing.to == EVERYBODY else set()
    limits, deadline = limits_here(home), time.monotonic() + STARTING

    def there(name: str) -> bool:
        return names.key(name) in heard or is_alive(team, name)

    while True:
        try:
            return post(ledger, team, sender, outgoing, limits, there=there)
        except (ReceiverEnded, ReceiverStarting):
            if time.monotonic() >= deadline or not is_alive(team, outgoing.to):
                raise
            time.sleep(_LEDGER_CHECK_EVERY)


def _heard(home: Home, team: str) -> set[str]:
    """Return the agents (names.key) that a session of this home knows to be online, on any host."""
    for session in live(home, team):
        with suppress(RelayError, KeyError):
            members = session.ask({"op": "roster"})["members"]
            return {names.key(member["name"]) for member in members if member["online"]}
    return set()


def _elsewhere(ledger: Ledger, team: str, to: str) -> UnknownRecipient | None:
    """Return the error for a receiver that is only in other teams; None for one that is in none."""
    teams = [one_line(each) for each in ledger.registry.teams(to) if each != names.key(team)]
    if not teams:
        return None
    return UnknownRecipient(
        f"{to} is in team {' and in '.join(teams)}, not in {team!r}: `relay send --team {teams[0]} {to} ...`."
    )


def _outgoing(ledger: Ledger, args: argparse.Namespace, body: str) -> OutgoingMessage:
    thread, reply_to = args.thread, None
    if args.reply_to is not None:
        answered = ledger.find(args.reply_to).message
        thread, reply_to = thread or answered.thread or answered.id, answered.id
    return OutgoingMessage(args.to, body, thread, reply_to, args.priority or Priority.NORMAL, args.expires)


def _with_obstacles(
    home: Home,
    team: str,
    ledger: Ledger,
    rows: list[Row],
    wait: float | None,
    tell: Callable[[Row], None] | None,
) -> list[Row]:
    """Follow the messages; return the rows with their latest states, and the obstacles of those that wait.

    wait: as --wait. Without it, a message that waits for something lasting is not watched any longer.
    """
    found: dict[str, Obstacle | None] = {}

    def lasts(row: Row) -> bool:
        if wait is not None or row["state"] != State.STORED:
            return False
        if row["id"] not in found and len(found) < _ASKED:
            found[row["id"]] = obstacle(home, team, row["to"])
        known = found.get(row["id"])
        return known is not None and known.lasts

    rows = _follow(ledger, rows, _GLANCE if wait is None else wait, tell, lasts)
    for row in [row for row in rows if not _ended(row)][:_ASKED]:
        if (known := found.get(row["id"])) is None or not known.lasts:
            found[row["id"]] = obstacle(home, team, row["to"])
    before = {row["id"]: row["state"] for row in rows}
    rows = _follow(ledger, rows, 0.0, None, lasts)  # some have got theirs meanwhile
    for row in rows:
        if tell is not None and row["state"] != before[row["id"]]:
            tell(row)
        if row["id"] in found and not _ended(row):
            known = found[row["id"]]
            row["obstacle"] = known and known.clause
    return rows


def _follow(
    ledger: Ledger,
    rows: list[Row],
    wait: float,
    tell: Callable[[Row], None] | None,
    lasts: Callable[[Row], bool],
) -> list[Row]:
    """Return the rows with their latest states, once all have ended, after `wait` seconds at most.

    tell: called with each row, and again when its state changes. lasts: the row's state will not change soon.
    """
    deadline = time.monotonic() + wait
    seen: object = None
    shown: dict[str, str] = {}
    while True:
        if seen != (version := ledger.data_version()):
            seen = version
            states = {entry.message.id: entry.message for entry in ledger.lookup(row["id"] for row in rows)}
            rows = [states[row["id"]].public() if row["id"] in states else row for row in rows]
        for row in rows:
            if tell is not None and shown.get(row["id"]) != row["state"]:
                shown[row["id"]] = row["state"]
                tell(row)
        if all(_ended(row) or lasts(row) for row in rows) or time.monotonic() >= deadline:
            return rows
        time.sleep(_LEDGER_CHECK_EVERY)


def _ended(row: Row) -> bool:
    """Return True if the state will not change by itself."""
    state = State(row["state"])
    return state.final or state is State.HELD or _arrived(row)


def _arrived(row: Row) -> bool:
    """Return True if it has reached its target: the agent, or the ledger, where the user reads it."""
    return row["state"] == State.INJECTED or _for_person(row)


def _for_person(row: Row) -> bool:
    return bool(row["state"] in {State.STORED, State.READ} and names.same(row["to"], names.PERSON))


def _sentence(row: Row, *, alone: bool, passing: bool = False) -> str:
    """Return a sentence on a message's state. passing: the state will probably change in a moment."""
    if _for_person(row):
        return f"{short_id(row['id'])} is in the user's inbox: `relay inbox`."
    state = State(row["state"])
    if state is State.STORED and "obstacle" in row and not row["obstacle"]:
        to = one_line(row["to"])
        return f"{short_id(row['id'])} is being delivered to {to}: `relay explain {short_id(row['id'])}`."
    unsent = alone and state is State.QUEUED
    why = None if unsent or state.final or state is State.HELD else row.get("obstacle")
    if why:
        return (
            f"{short_id(row['id'])} {_WAITS[state]}: {why}. `relay explain {short_id(row['id'])}` says more."
        )
    text = f"{short_id(row['id'])} {_SAYS[state].format(to=one_line(row['to']))}"
    if state is State.QUEUED and (unsent or not passing):
        text += (
            "; no session of this team is running here, so it is sent when one starts"
            if unsent
            else f"; it is sent as soon as the broker and {one_line(row['to'])} are running"
        )
    if row.get("detail"):
        text += f" ({one_line(row['detail'], _REASON)})"
    return text + "."


def _body(words: list[str]) -> str:
    """Return the text to send. Raise MessageRefused if standard input is unusable."""
    if words != ["-"]:
        return " ".join(words)
    data = sys.stdin.buffer.read(MAX_BODY + 2)
    if len(data) > MAX_BODY + 1:
        raise MessageRefused(
            f"the message is larger than {MAX_BODY} bytes. Write it to a file, and send the file's path."
        )
    try:
        return data.decode().removesuffix("\n")
    except UnicodeDecodeError as error:
        raise MessageRefused(
            f"the message is not UTF-8 (byte {error.start + 1}); convert it first, for example with iconv."
        ) from None
