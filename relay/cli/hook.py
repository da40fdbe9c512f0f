"""Pass an event from an agent's own hooks to its session: the command in the agent's settings.

`relay hook pretooluse` observes and prints nothing; `relay hook decide EVENT` prints the session's answer,
such as a refusal or a waiting message.  The event is the JSON on standard input, in the agent's own format
(docs/AGENTS.md).  `relay wrap` sets this up for every agent that has hooks.

The exit code is 0, or 1 for a wrong command line; agents read a hook's 2 as a refusal. The command never
makes an agent wait for a session that has gone.
"""

from __future__ import annotations

import os

from relay.agents import hook_client, kinds
from relay.errors import InvalidName, RelayError, UsageError
from relay.home import Home
from relay.names import DEFAULT_TEAM, key, well_formed

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

USAGE = "relay hook [--name NAME] [--team TEAM] [--agent KIND] [decide] EVENT"
OPTIONS = {
    "--name": ("NAME", "the agent's name (default: RELAY_NAME)"),
    "--team": ("TEAM", "its team (default: RELAY_TEAM, else 'default')"),
    "--agent": (
        "KIND",
        f"the agent whose hook this is: {', '.join(kinds.names())} (default: from its profile)",
    ),
}


def quick(argv: list[str]) -> int:
    """Parse `argv`, the words after `hook`, without loading argparse, and run.

    Return 0. Raise RelayError, never UsageError: agents read its exit code 2 as a refusal.
    """
    given: dict[str, str] = {}
    words: list[str] = []
    rest = list(argv)
    while rest:
        word = rest.pop(0)
        flag, joined, value = word.partition("=")
        if not word.startswith("-"):
            words.append(word)
        elif flag not in OPTIONS:
            raise RelayError(f"hook has no option {word!r}. Usage: {USAGE}")
        elif joined or rest:
            given[flag] = value if joined else rest.pop(0)
        else:
            raise RelayError(f"{flag} needs a {OPTIONS[flag][0]}. Usage: {USAGE}")
    decide = words[:1] == ["decide"]
    if len(words) != 1 + decide:
        raise RelayError(f"hook takes one event. Usage: {USAGE}")
    try:
        for flag, what in (("--name", "name"), ("--team", "team")):
            if flag in given:
                well_formed(given[flag], what)
    except InvalidName as error:
        raise RelayError(str(error)) from None
    agent = given.get("--agent", "")
    hook_client.hook(words[-1], _socket(given), agent, lambda: _refusals(agent), decide=decide)
    return 0


def _refusals(agent: str) -> list[hook_client.Refusal]:
    from relay.agents import hook_setup  # rarely needed

    return hook_setup.refusals(agent)


def _socket(given: dict[str, str]) -> str:
    """Return the path of the session's socket; one that does not exist if no session is named."""
    env = os.environ
    if "--name" not in given and "--team" not in given and (socket := env.get("RELAY_SOCKET")):
        return socket
    team = given.get("--team") or env.get("RELAY_TEAM") or DEFAULT_TEAM
    name = given.get("--name") or env.get("RELAY_NAME") or ""
    return f"{Home.from_env().run_dir}/sessions/{key(team)}/{key(name)}.sock"


def configure(parser: argparse.ArgumentParser) -> None:
    """Describe the options for `--help` only: `quick` parses."""
    parser.usage = USAGE
    for flag, (metavar, text) in OPTIONS.items():
        parser.add_argument(flag, metavar=metavar, help=text)
    parser.add_argument(
        "event", nargs="+", metavar="[decide] EVENT", help="the agent's own name of the event"
    )


def run(args: argparse.Namespace) -> int:
    raise UsageError(f"Usage: {USAGE}")  # `quick` runs everything but `--help`
