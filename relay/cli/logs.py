"""Show what an agent said, as text.

This is the text in which relay looks for directives: word for word from the agent's own record if it has one,
otherwise from its terminal. Secrets are removed. For an agent that has ended, shows its last run. -f keeps
printing new lines until the agent ends.

With --json: one object {"time", "text"} per line; the time is when relay read it, in seconds since the epoch.
An agent may read its own logs, and those of agents in its team whose setting `look` is "team".
"""

from __future__ import annotations

import argparse
import sys
import time
from functools import partial
from pathlib import Path

from relay.cli.arguments import LATEST, add_json, add_limit, add_session
from relay.control import guard
from relay.control.sessions import claims, find, find_claim
from relay.control.team_choice import fleet_team
from relay.errors import NoSuchSession, SessionUnresponsive
from relay.home import Home
from relay.names import did_you_mean, same
from relay.recording import agent_log, store
from relay.recording.agent_log import LoggedLine
from relay.recording.store import StoredLog
from relay.storage.locks import is_held
from relay.text import count, printable_json, visible

_ANSWER_TIMEOUT = 2.0  # seconds for the session's answer; the log can be read without one
_ADVICE = "an agent reads only its own logs, unless the other agent's `look` setting allows more."


def configure(parser: argparse.ArgumentParser) -> None:
    add_session(parser)
    add_limit(parser)
    parser.add_argument("-f", "--follow", action="store_true", help="keep printing new lines")
    parser.add_argument("--times", action="store_true", help="print the time of each line")
    add_json(parser, "print one JSON object per line")


def run(args: argparse.Namespace) -> int:
    home = Home.from_env()
    log = _log(home, args.name, args.team)
    if args.follow:
        _follow(home, log, args)
    else:
        _print_latest([*agent_log.read(log.path)], args)
    return 0


def _follow(home: Home, log: StoredLog, args: argparse.Namespace) -> None:
    """Print the latest lines, then new ones until the agent has ended and none follows it."""
    earlier: list[LoggedLine] | None = []
    current: StoredLog | None = log
    while current is not None:
        for line in agent_log.follow(current.path, partial(_is_over, home, current)):
            if line is None and earlier is not None:
                _print_latest(earlier, args)
                earlier = None
            elif line is not None and earlier is not None:
                earlier.append(line)
            elif line is not None:
                _print(line, args)
        latest = _latest(home, current)
        current = None if latest == current else latest


def _is_over(home: Home, log: StoredLog) -> bool:
    return _latest(home, log) != log or not is_held(home.agent_lock(log.team, log.name))


def _latest(home: Home, log: StoredLog) -> StoredLog:
    """Return the latest log of the agent that `log` belongs to: `relay restart` starts another."""
    return next(reversed(store.logs(home.recordings, log.name, log.team)), log)


def _log(home: Home, name: str, team: str | None) -> StoredLog:
    """Return the latest log of the agent. Raise NoSuchSession if there is none, or NotAllowed."""
    team = team or fleet_team(home, name)
    if any(same(claim.name, name) for claim in claims(home, team)):
        claim = find_claim(home, name, team)
        try:
            answer = find(home, name, claim.team, _ANSWER_TIMEOUT).ask({"op": "logs"})
            if (log := store.parse_log(Path(str(answer["path"])))) is not None:
                return log
        except (SessionUnresponsive, NoSuchSession):
            pass  # it hangs, or has just ended
        team = claim.team
    guard.as_itself(home, "logs", name=name, team=team, advice=_ADVICE)
    found = store.logs(home.recordings, name, team)
    teams = sorted({log.team for log in found})
    if len(teams) > 1:
        ran = f"agents called {name!r} ran in several teams ({', '.join(teams)})"
        raise NoSuchSession(f"{ran}. Choose one with --team.")
    if not found:
        known = sorted({log.name for log in store.logs(home.recordings, None, team)})
        raise NoSuchSession(
            f"there is no log of {name!r}. {did_you_mean(name, known)}`relay ps` lists running agents; the "
            "`record` setting in relay.toml decides whether logs are kept."
        )
    return found[-1]


def _print_latest(lines: list[LoggedLine], args: argparse.Namespace) -> None:
    most = args.limit or (None if args.all or args.json else LATEST)
    shown = lines if most is None else lines[-most:]
    if len(shown) < len(lines) and not args.json:
        print(
            f"({count(len(lines) - len(shown), 'earlier line')} omitted; --all shows all.)", file=sys.stderr
        )
    for line in shown:
        _print(line, args)


def _print(line: LoggedLine, args: argparse.Namespace) -> None:
    if args.json:
        text = printable_json({"time": line.time, "text": line.text})
    else:
        text = visible(line.text)
        if args.times:
            text = f"{time.strftime('%H:%M:%S', time.localtime(line.time))}  {text}".rstrip()
    print(text, flush=args.follow)
