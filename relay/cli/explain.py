"""Explain an agent's state, and what keeps its messages from being typed.

The state comes from the agent's own hooks and status reports, if it has any, and from its terminal: the
modes, the foreground process, whether the program sleeps while reading it, and the rules of the agent's
profile (`relay agents`) applied to the screen. It names the rule and the lines that decided. It also shows
why the last turn failed, such as a usage limit and when that resets, until a turn succeeds; whether the rules
were checked with this version of the agent; whether the agent is on the bus; which of its messages are held
or waiting; and how far its directives have come: read in its output, passed to their handlers, committed to
the ledger as messages.

The id of a message, or how it begins, shows that message and the agent it is waiting for; if that agent is
not running, since when, and what to do.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

from relay.agents.version import unchecked
from relay.cli.arguments import add_json, add_team, agent_name
from relay.cli.output import day_and_time, print_json, short_id
from relay.control.ended import as_session
from relay.control.resuming import continued
from relay.control.sessions import claims, find
from relay.control.team_choice import fleet_team
from relay.errors import LedgerError, NoSuchMessage, NoSuchSession
from relay.home import Home
from relay.message import OPEN, Message, State
from relay.messaging.ledger import Ledger, LedgerEntry
from relay.names import PERSON, same
from relay.supervision.records import Records
from relay.supervision.restart import describe
from relay.supervision.states import in_words
from relay.text import count, one_line, visible

_LOST = {
    "unknown": "{} started as a session ended, outcome unknown: `relay events {name}`.",
    "passed_over": "{} behind a sign, as in a quotation, ignored: `relay events {name}`.",
    "hidden": "{} in invisible text, ignored: `relay events {name}`.",
    "diff": "{} in the lines of a diff, ignored: `relay events {name}`.",
    "joined": "{} drawn in one line with what follows, ignored: `relay events {name}`.",
    "misspelt": "{} with a misspelt namespace, ignored: `relay events {name}`.",
    "not_heeded": "{} ignored because of `directives` in relay.toml: `relay events {name}`.",
    "not_told_apart": "{} possibly read before, ignored: `relay events {name}`.",
    "missed": "{} of output missed, with any directives in them: ask {name} to repeat what it said.",
}
"""The steps at which directives are lost."""

_SHORTEST = 4  # minimum characters of an id; a shorter word is taken as a name

_TELLS = {
    "hook": "from its hook",
    "transcript": "from its own record",
    "screen": "from its screen",
    "exit": "from its last output",
}
"""The source of a failure (relay.agents.failure)."""

_READS = {"lines": "prints lines", "screen": "draws a screen"}


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "name", type=agent_name, metavar="NAME", help="a session, or the id of a waiting message"
    )
    add_team(parser)
    add_json(parser, "print a JSON object")


def run(args: argparse.Namespace) -> int:
    home = Home.from_env()
    name, public, ours = args.name, {}, False
    team = args.team or fleet_team(home, name)
    try:
        if not any(same(claim.name, name) for claim in claims(home, team)) and (
            known := _message(home, name)
        ):
            entry, ours = known
            name, team, public = entry.message.to, entry.team, {"message": entry.message.public()}
            if not args.json:
                print(_sentence(entry.message))
            if _is_over(entry.message):
                if args.json:
                    print_json(public)
                return 0
        session = find(home, name, team)
    except NoSuchSession as error:
        if not public:
            raise NoSuchSession(f"{_ended(home, name, team) or error}{_waiting(home, name, team)}") from None
        if args.json:
            print_json(public)
        else:
            print(_ended(home, name, team) or f"{one_line(name)} is not running here.")
            print(_ways_out(public["message"]["id"], ours=ours))
        return 0
    answer = session.ask({"op": "explain"})
    if args.json:
        print_json({**answer, **public})
        return 0
    verb = "has" if answer["state"] == "failed" else "is"
    print(f"{session.name} {verb} {in_words(answer['state'])}: {visible(answer['reason'])}.")
    if answer.get("rule"):
        print(f"Decided by the rule {visible(answer['rule'])!r} of its profile, because of:")
        for line in answer.get("lines", ()):
            print(f"    {one_line(line, 100)}")
    if answer.get("failure"):
        print(_failure(answer["failure"]))
    if answer.get("escalation"):
        print(f"It needs you: it {visible(answer['escalation'])}.")
    if answer.get("account_hold"):
        print(f"Account: {visible(answer['account_hold'])}. `relay release --account NAME` ends the hold.")
    if answer.get("idle_dropped"):
        dropped = count(answer["idle_dropped"], "text")
        print(f"{dropped} of idle handlers dropped: only its idle handlers have prompted it for some time.")
    if answer.get("reader"):  # a program that has joined the team has none
        print(f"relay treats it as {answer['profile']}, a program that {_READS[answer['reader']]}.")
    if answer.get("version") and answer.get("checked"):
        told = unchecked(answer["profile"], answer["version"], answer["checked"])
        print(told or f"{answer['profile']} {answer['version']} was checked with these rules.")
    if again := answer.get("restarts"):
        print(f"It was restarted {count(again, 'time')}.")
    if usage := answer.get("usage"):
        print(_usage(usage))
    if steps := answer.get("directives"):
        _print_steps(session.name, steps)
    facts = {
        "bridge": "own hooks",
        "record": "own record",
        "door": "own inbox",
        "conversation": "conversation",
    }
    for key, what in facts.items():
        if answer.get(key):
            print(f"Its {what}: {visible(answer[key])}.")
    if answer.get("mcp"):
        print("It has relay's tools (`relay mcp`).")
    if "peers" in answer:
        why, agents = visible(answer["peers_closed"]), count(answer["peers"], "agent")
        shown = f"relay adds nobody to it, because {why}" if why else f"{agents} of its team"
        print(f"Its own list of sessions: {shown}.")
    if answer.get("rules"):
        print(f"Rules of hooks.json files: {answer['rules']}.")
    if answer.get("waiting"):
        why = f": {visible(answer['obstacle']).rstrip('.')}" if answer["obstacle"] else ""
        print(f"{count(answer['waiting'], 'text').capitalize()} waiting to be given{why}.")
    name = session.name
    if "bus" in answer:
        print(f"Bus: {visible(answer['bus']).rstrip('.')}.")
    if answer.get("stored"):
        print(
            f"{count(answer['stored'], 'message')} waiting until it is ready: "
            f"`relay messages --to {name} --state stored`. `relay drop ID` drops one, `relay retry ID --to "
            "NAME` sends it to another agent."
        )
    if answer.get("held"):
        print(
            f"{count(answer['held'], 'message')} of its own held: "
            f"`relay messages --from {name} --state held` says why. `relay release --from {name}` sends "
            f"them, `relay drop --held --from {name}` drops them."
        )
    if answer.get("viewers"):
        print(f"Viewed by {count(answer['viewers'], 'terminal')}.")
    for mistake in answer.get("configuration", ()):
        print(f"Configuration: {visible(mistake)}")
    for notice in answer.get("notices", ()):
        print(f"Not shown to you yet: {visible(notice)}")
    return 0


def _failure(failure: dict[str, Any]) -> str:
    text = (
        f"Its last failure is {failure['class']}, {_TELLS[failure['source']]}: {visible(failure['text'])!r}."
    )
    if failure["reset_at"] is None:
        return text
    at = time.strftime("%a %d %b %Y, %H:%M %Z", time.localtime(failure["reset_at"]))
    return f"{text} The limit resets on {at}."


def _usage(usage: dict[str, Any]) -> str:
    total, cost, unpriced = usage["tokens"]["total"], usage["cost"], usage["unpriced_tokens"]
    used = f"It has used {count(total, 'token')} in {count(usage['turns'], 'turn')}"
    if not total:
        return "It has used no tokens so far."
    if cost is None:
        return f"{used}; the price of its model is unknown."
    more = f", not counting {count(unpriced, 'token')} of unknown price" if unpriced else ""
    return f"{used}: ${cost:,.2f} at list prices{more}."


def _print_steps(name: str, steps: dict[str, int | None]) -> None:
    """Print the progress of the agent's directives, and what was lost on the way."""
    committed = "?" if steps["committed"] is None else steps["committed"]
    print(
        f"Of {count(steps['read'] or 0, 'byte')} of output, directives: {steps['heard']} read, "
        f"{steps['begun']} passed to handlers, {steps['failed']} failed; {committed} in the ledger."
    )
    for step, what in _LOST.items():
        if number := steps[step]:
            lost = count(number, "byte" if step == "missed" else "directive")
            print(what.format(lost.capitalize(), name=name))


def _message(home: Home, id: str) -> tuple[LedgerEntry, bool] | None:
    """Return the message with an id beginning with `id`, and whether it was sent here. Raise LedgerError."""
    if len(id) < _SHORTEST or not home.ledger.exists():
        return None
    with Ledger(home.ledger) as ledger:
        try:
            entry = ledger.find(id)
            return entry, bool(ledger.lookup([entry.message.id]))
        except NoSuchMessage:
            return None


def _is_over(message: Message) -> bool:
    """Return True if the message no longer depends on its receiver, or does not yet."""
    return message.state.final or message.state is State.HELD or same(message.to, PERSON)


def _sentence(message: Message) -> str:
    why = f" ({one_line(message.detail, 200)})" if message.detail else ""
    names = f"from {one_line(message.sender)} to {one_line(message.to)}"
    until = ""
    if not _is_over(message):
        until = "; it never expires"
        if message.expires is not None:
            until = f"; it expires at {day_and_time(message.expires)}"
    sent = f"sent at {day_and_time(message.time)}"
    return f"Message {short_id(message.id)} {names}, {sent}, is {message.state}{why}{until}."


def _ended(home: Home, name: str, team: str | None) -> str:
    """Return sentences on when an agent has ended, and how to start it again; "" if that is not known."""
    found = [record for record in Records(home).all(team) if same(record.name, name)]
    if len(found) != 1 or any(same(claim.name, name) for claim in claims(home, team)):
        return ""
    (record,) = found
    agent, shown = as_session(home, record), one_line(record.name)
    since = f"has not run since {day_and_time(record.at)}" if record.at else "is not running"
    how = agent.reason or ("" if record.exit_code is None else describe(record.exit_code))
    text = f"{shown} {since}{f' ({one_line(visible(how), 200)})' if how else ''}."
    if record.command and continued(home, record, record.command, Path(record.cwd)) is not None:
        return f"{text} `relay resume {shown}` starts it again, with its conversation."
    if record.fleet:
        return f"{text} `relay up {shown}` in {one_line(str(Path(record.fleet).parent))} starts it again."
    return f"{text} `relay wrap -n {shown} COMMAND` in {one_line(record.cwd)} starts it again."


def _ways_out(id: str, *, ours: bool) -> str:
    """Return a sentence on what to do about a message to an absent agent. ours: sent from this home."""
    other = f"`relay retry {short_id(id)} --to NAME` sends it to another agent, and " if ours else ""
    return f"The message waits until it runs again; {other}`relay drop {short_id(id)}` drops it."


def _waiting(home: Home, name: str, team: str | None) -> str:
    """Return a sentence about the messages that wait for an absent agent; "" if none are known."""
    if not home.ledger.exists() or any(same(session.name, name) for session in claims(home, team)):
        return ""
    try:
        with Ledger(home.ledger) as ledger:
            waiting = len(ledger.messages(team=team, to=name, states=OPEN))
    except LedgerError:
        return ""
    verb = "waits" if waiting == 1 else "wait"
    return f" {count(waiting, 'message')} for it {verb}: `relay messages --to {name}`." if waiting else ""
