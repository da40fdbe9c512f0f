"""Release held messages, agents or accounts. An agent can release an agent that it started.

relay holds what looks like a runaway: agents that keep answering each other, or a storm of broadcasts. The
limits are in relay.toml: runaway_depth, runaway_rate, runaway_broadcasts. `relay messages --state held` lists
held messages and the reasons. Released messages are sent in their original order and count as your own
input: the agents may send as many again before relay holds them. `relay drop` drops held messages instead.

relay holds an agent that exceeds a limit of its supervision or repeats itself, and gives it nothing until
you prompt or release it. relay holds an account when its limit is reached or nobody is logged in; until then
its agents are not nudged or restarted (docs/FLEET.md).

Inside an agent, `relay release NAME` stops the agent NAME, which it has started with `relay spawn`.

  relay release 3f9a
  relay release --from Alice --to Bob
  relay release --all
  relay release --agent Alice
  relay release --account work
"""

from __future__ import annotations

import argparse

from relay import names
from relay.cli import stop
from relay.cli.arguments import add_json, add_team, agent_name
from relay.cli.output import Outcomes, short_id
from relay.cli.spawn import ask_session
from relay.control import guard
from relay.control.caller import caller
from relay.control.sessions import SESSION_TIMEOUT, claims, find, have_carried
from relay.dataclass import replace
from relay.errors import LedgerError, NotAllowed, UsageError
from relay.home import Home
from relay.message import State
from relay.messaging.doorbell import ring_for
from relay.messaging.ledger import Ledger, LedgerEntry
from relay.storage.journal import Journal
from relay.supervision.accounts import Accounts
from relay.supervision.records import Records
from relay.text import count, listed, one_line


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("ids", metavar="ID", nargs="*", help="a message's id, or how it begins")
    parser.add_argument("--all", action="store_true", help="all held messages")
    parser.add_argument(
        "--from", dest="sender", type=agent_name, metavar="NAME", help="held messages from NAME"
    )
    parser.add_argument("--to", type=agent_name, metavar="NAME", help="held messages to NAME")
    parser.add_argument("--agent", type=agent_name, metavar="NAME", help="let the held agent NAME continue")
    parser.add_argument("--account", metavar="NAME", help="release the hold on the account NAME")
    add_team(parser, "only in this team (default: all teams)")
    add_json(parser, "print what was released as a JSON list")
    parser.add_argument(
        "--by", type=agent_name, metavar="NAME", help=argparse.SUPPRESS
    )  # how NAME's session runs it


def run(args: argparse.Namespace) -> int:
    home = Home.from_env().ensure()
    chosen = args.all or args.sender or args.to or args.agent or args.account or args.by
    own = caller(home) if len(args.ids) == 1 and not chosen else None
    if own is not None and (said := ask_session(own, {"op": "dismiss", "name": args.ids[0]})) is not None:
        with Outcomes(args) as report:
            report.done(said, name=args.ids[0], team=own.team, outcome="released")
        return 0
    guard.user_only(home, "release", "held messages wait for the user. An agent cannot release them.")
    with Outcomes(args) as report:
        if args.by is not None:
            _end(home, args.ids[0], args.team, args.by, report)
        elif args.agent is not None or args.account is not None:
            _supervised(home, args, report)
        else:
            _messages(home, args, report)
    return 1 if report.failed else 0


def _end(home: Home, name: str, team: str, by: str, report: Outcomes) -> None:
    """End the agent `name` as `relay stop` does. Raise NotAllowed unless the agent `by` started it."""
    records = Records(home)
    own = [record for record in records.all(team) if names.same(record.parent, by)]
    record = next((record for record in own if names.same(record.name, name)), None)
    if record is None:
        yours = f"Those are {listed([each.name for each in own])}." if own else "You have started no agents."
        raise NotAllowed(f"{one_line(name, 40)} is not an agent you started. {yours}")
    if not any(names.same(claim.name, name) for claim in claims(home, team)):
        report.done(f"{record.name} had ended before.", name=record.name, team=team, outcome="not running")
        return
    stop.end(home, [stop.chosen(home, record.name, team, now=False)], report, now=False)
    if not report.failed:
        records.change(
            team, record.name, lambda last: replace(last, wanted="down", by="release", reported=True)
        )


def _supervised(home: Home, args: argparse.Namespace, report: Outcomes) -> None:
    if args.ids or args.all or args.sender or args.to:
        raise UsageError("--agent and --account cannot be combined with options that select messages.")
    session = None if args.agent is None else find(home, args.agent, args.team)
    if args.account is not None:
        _release_account(Accounts(home), args.account, report)
    if session is not None:
        try:
            held = session.ask({"op": "release"}, SESSION_TIMEOUT)["held"]
        except UsageError:  # it is not supervised, so nothing holds it
            held = False
        said = f"{session.name} {'continues' if held else 'is not held'}."
        report.done(said, name=session.name, team=session.team, outcome="released" if held else "not held")


def _release_account(accounts: Accounts, account: str, report: Outcomes) -> None:
    held = [each.account for each in accounts.all()]
    if accounts.release(account) is not None:
        report.done(f"The account {account} is no longer held.", account=account, outcome="released")
        return
    said = f"The account {account} is not held. Held: {', '.join(held)}." if held else "No account is held."
    report.done(said, account=account, outcome="not held")


def _messages(home: Home, args: argparse.Namespace, report: Outcomes) -> None:
    with Ledger(home.ledger) as ledger:
        entries = _held(ledger, args)
        released = ledger.outbox.release(entry.message.id for entry in entries)
    journal = Journal(home.journal, "", names.PERSON)
    teams = {entry.message.id: entry.team for entry in entries}
    for message in released:
        journal.write("released", id=message.id, sender=message.sender, to=message.to)
        ring_for(home, teams[message.id], [message])
        report.add(id=message.id, **{"from": message.sender}, to=message.to, was="held", outcome="released")
    carried = True
    for team, sender in {(entry.team, entry.message.sender) for entry in entries}:
        carried = have_carried(home, team, sender) and carried
    if not released:
        report.say("Nothing is held.")
        return
    done = f"{count(len(released), 'message')} released"
    away = "; no session of its team is running here, so it is sent when one starts"
    report.say(f"{done}{'' if carried else away}.")


def _held(ledger: Ledger, args: argparse.Namespace) -> list[LedgerEntry]:
    """Return the chosen messages. Raise UsageError, or LedgerError for one that is not held."""
    chosen = bool(args.all or args.sender or args.to)
    if chosen and args.ids:
        raise UsageError("use either IDs or --all, --from and --to, not both.")
    if not chosen and not args.ids:
        raise UsageError("give the ids of messages, or --all, --from NAME or --to NAME.")
    if chosen:
        return ledger.lookup(ledger.held(team=args.team, sender=args.sender, to=args.to))
    entries = [ledger.find(id) for id in args.ids]
    for entry in entries:
        if entry.message.state is not State.HELD:
            raise LedgerError(
                f"message {short_id(entry.message.id)} is not held: it is {entry.message.state}. "
                "`relay messages --state held` lists those that are."
            )
    return entries
