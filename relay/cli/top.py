"""Show all agents on one screen, those that need you first, and deal with them.

The list has four groups: agents that need you (they ask a question, have failed, are held, or do not answer),
agents at work, agents that wait, and agents that have ended. The chosen agent's screen is shown live. Enter
attaches this terminal to it, and Ctrl-] d comes back; a shows its question, and a choice's number answers it;
m writes a message; r restarts and x stops it, and both ask first; ? lists all keys. The mouse chooses, too.

--host HOST adds the agents of another host to the list, as NAME@HOST. Keys do there what they do here.

Each key does what the command of that name does: `relay attach`, `answer`, `send`, `restart`, `stop`,
`release`, `inbox`. NO_COLOR turns colours off. For a screen reader, `relay inbox --follow` prints what waits
for you line by line, and `relay ps` lists the agents.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import subprocess

from relay.cli import attach
from relay.cli.arguments import add_json, add_team
from relay.control.board import Board, BoardEntry, look, merged
from relay.control.guard import user_only
from relay.control.sessions import find_claim
from relay.errors import UsageError
from relay.home import Home

LOOK_EVERY = 1.0
"""Seconds between two looks with --json."""


def configure(parser: argparse.ArgumentParser) -> None:
    add_team(parser, "only this team")
    how = parser.add_mutually_exclusive_group()
    how.add_argument(
        "--host",
        action="append",
        default=[],
        metavar="HOST",
        help="also the agents of HOST, by ssh, which must find `relay` there; may be repeated",
    )
    add_json(how, "print all of it as a JSON object, again whenever it changes, until standard input ends")


def run(args: argparse.Namespace) -> int:
    home = Home.from_env()
    user_only(home, "top", "an agent may not use other agents. The user can, outside the session.")
    if args.json:
        return _print(home, args.team)
    if not all(map(os.isatty, (0, 1, 2))) or os.environ.get("TERM", "dumb") == "dumb":
        raise UsageError(
            "top needs a terminal. `relay ps` prints the list once, `relay inbox --follow` lines."
        )
    from relay.cli.main import dispatch
    from relay.control.commands import Commands

    commands = Commands(dispatch, quiet=True)  # before anything that starts a thread
    from relay.top.app import Top
    from relay.top.remote import RemoteHost

    if not os.environ.get("NO_COLOR"):
        os.environ.pop("NO_COLOR", None)  # set, but empty: Textual would obey it
    remotes = {host: RemoteHost(host, args.team, home.ensure().run) for host in args.host}
    for remote in remotes.values():
        remote.start()

    def look_everywhere() -> Board:
        known = [remote.board for remote in remotes.values() if remote.board is not None]
        problems = [remote.problem for remote in remotes.values() if remote.problem]
        return merged([look(home, args.team), *known], "; ".join(problems))

    def attach_to(entry: BoardEntry) -> None:
        name, team = entry.agent.name, entry.agent.team
        if entry.host:
            words = ("attach", f"--team={team}", "--", name)
            subprocess.run(remotes[entry.host].command(*words, terminal=True), check=False)
        else:
            attach.to(find_claim(home, name, team), takeover=False)

    top = Top(look_everywhere, attach_to, commands.run, remotes)
    top.run()
    for remote in remotes.values():
        remote.stop()
    commands.close()
    return top.return_code or 0


def _print(home: Home, team: str | None) -> int:
    """Print the board on a line of its own whenever it has changed, until standard input ends."""
    before = ""
    while True:
        now = json.dumps(look(home, team).public())
        if now != before:
            print(now, flush=True)
            before = now
        if select.select([0], [], [], LOOK_EVERY)[0] and not os.read(0, 1 << 10):
            return 0
