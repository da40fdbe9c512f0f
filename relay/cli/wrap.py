"""Run an agent as a member of the team.

The agent uses your terminal as if it ran alone, and the command ends with the agent's exit code (128+N if
signal N ended it; 127: no such command; 126: not executable).  In addition, relay acts on lines of the agent
in the form `@namespace:target message`: `@relay:Bob hello` sends Bob a message, `@memory:save ...` saves a
memory, and relay.config.py adds your own namespaces.  All output of a program without its own record counts,
even that of `cat README`; `directives = "builtin"` or "none" in relay.toml limits that.

Ctrl-] and then d, within a second, detaches: the agent keeps running, and `relay attach NAME` brings it back.
Ctrl-] n and Ctrl-] p switch to the next and the previous agent, Ctrl-] ? shows help; the setting detach_key
chooses another key.

If standard input or output is redirected, the agent gets the pipe or the file itself, as it would alone:
`relay wrap claude -p hi --output-format json | jq` passes on its standard output, byte for byte, and nothing
else; standard error stays separate; /dev/tty is your terminal; relay types nothing into the agent.  If only
standard error is redirected, the agent keeps its terminal for all three, unless you add --pipe.
"""

from __future__ import annotations

import itertools
import os

from relay.agents import kinds
from relay.errors import CommandNotFound, RelayError, UsageError
from relay.session import launch
from relay.session.options import Options
from relay.shim.pty import resolve
from relay.terminal.client import SwitchAgent

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from typing import Any

USAGE = "relay wrap [options] [--] COMMAND [ARG...]"

# option → (attribute of Options, metavar or "" for a switch, help)
OPTIONS = {
    "-n": ("name", "NAME", "the agent's name (default: derived from the command)"),
    "-t": ("team", "TEAM", "its team (default: RELAY_TEAM, else 'default')"),
    "--agent": ("profile", "PROFILE", "treat it as this kind of agent (default: by its command's name)"),
    "--task": ("task", "TEXT", "what it works on; handlers see it as ctx.task"),
    "-d": ("detached", "", "run it detached; `relay attach NAME` connects a terminal"),
    "--restart": (
        "restart",
        "POLICY",
        "start it again when it ends: 'no' (the default), 'on-failure' or 'always'",
    ),
    "--supervision": (
        "supervision",
        "JSON",
        "all its supervision keys as JSON, as in a fleet file (docs/FLEET.md)",
    ),
    "--stdin": (
        "stdin",
        "",
        "read further options and the command, as a JSON list, from standard input, as `relay up` passes "
        "them: other users of the machine can read command lines",
    ),
    "--pipe": ("pipe", "", "keep your redirections, including standard error alone (see above)"),
    "--tty": ("terminal", "", "give it a terminal even if its input or output is redirected"),
    "--broker": (
        "broker",
        "URL",
        "an MQTT broker, mqtt(s)://USER@HOST:PORT (default: the embedded one); for a cluster, give several, "
        "separated by commas or each with --broker",
    ),
    "--config": ("config", "FILE", "read this relay.config.py (it must be trusted)"),
    "--rules": ("rules", "FILE", "also use the rules in this hooks.json (repeatable)"),
    "--worktree": (
        "worktree",
        "BRANCH",
        "run it in its own git worktree, ../REPO-worktrees/BRANCH, on this branch (if missing, it is "
        "created from a remote's branch of that name, else from HEAD)",
    ),
}
RESTART = ("no", "on-failure", "always")
LONG = {"--name": "-n", "--team": "-t", "--detach": "-d"}


def quick(argv: list[str]) -> int:
    """Parse `argv`, the words after `wrap`, without loading argparse, and run. Return the exit code."""
    options = parse(argv)
    if (hint := misplaced(options)) and os.isatty(2):
        from relay.text import visible  # 10 ms

        os.write(2, f"relay: {visible(hint)}\n".encode())
    try:
        return launch.wrap(options)
    except SwitchAgent as switch:
        from relay.cli import attach

        return attach.follow(switch)
    except CommandNotFound as error:
        raise CommandNotFound(f"{error}{_unquoted(options.command)}") from None


def misplaced(options: Options) -> str:
    """Return a hint if relay's --name is among the options of an agent that relay knows; else ""."""
    program, *words = options.command
    kind = os.path.basename(program)
    if options.name or not any(known in kind for known in kinds.names()):
        return ""
    for at, (word, name) in enumerate(itertools.pairwise(words)):
        if word == "--":
            break
        if word in {"-n", "--name"}:
            line = " ".join([program, *words[:at], *words[at + 2 :]])
            named = f"`relay wrap -n {name} {line}`"
            return f"{word} {name} is passed to {kind}. To name the agent in relay: {named}."
    return ""


def _unquoted(command: list[str]) -> str:
    """Return advice for a command that was quoted as a single argument; "" for others."""
    words = command[0].split() if len(command) == 1 else []
    if len(words) < 2:
        return ""
    try:
        resolve(words[0], os.environ)
    except RelayError:
        return ""
    return f" Remove the quotes around it: `relay wrap {' '.join(words)}`."


def parse(argv: list[str]) -> Options:
    """Return the options before COMMAND, and the words from COMMAND on unchanged. Raise UsageError."""
    given: dict[str, str] = {}
    supervision: dict[str, Any] = {}
    rules: list[str] = []
    switches: dict[str, bool] = {}
    rest = list(argv)
    while rest and rest[0].startswith("-") and rest[0] != "-":
        word = rest.pop(0)
        if word == "--":
            break
        flag, has_value, value = word.partition("=") if word.startswith("--") else (word, "", "")
        if len(word) > 2 and not word.startswith("--") and word[:2] in OPTIONS:  # -nAlice
            flag, has_value, value = word[:2], "=", word[2:]
        flag = LONG.get(flag, flag)
        if flag not in OPTIONS:
            raise UsageError(f"wrap has no option {word!r}. Usage: {USAGE}; `relay wrap --help` lists them.")
        attribute, metavar, _ = OPTIONS[flag]
        if not metavar:
            if has_value:
                raise UsageError(f"{flag} takes no value. Usage: {USAGE}")
            if attribute == "stdin":
                rest = [*_from_stdin(), *rest]
                continue
            switches[attribute] = True
            continue
        if not has_value:
            value = rest.pop(0) if rest else ""
        if not value:
            raise UsageError(f"{flag} needs a {metavar}. Usage: {USAGE}")
        if attribute == "restart" and value not in RESTART:
            raise UsageError(f"{flag} must be one of {', '.join(RESTART)}, not {value!r}.")
        if attribute == "supervision":
            supervision |= _supervision(value)
        elif attribute in {"rules", "config"}:
            if not os.path.isfile(value):  # an agent must not run without the rules that guard it
                raise UsageError(f"there is no file {value!r}. Check the path given to {flag}.")
            path = os.path.abspath(value)  # the agent may run elsewhere, in a worktree
            if attribute == "rules":
                rules.append(path)
            else:
                given[attribute] = path
        elif attribute == "broker" and "broker" in given:
            given["broker"] += f",{value}"
        else:
            given[attribute] = value
    if not rest:
        raise UsageError(f"no command was given. Usage: {USAGE}, for example `relay wrap bash`.")
    if len(switches) > 1:
        raise UsageError(
            "-d, --pipe and --tty cannot be combined: a detached agent has no output to redirect."
        )
    if restart := given.pop("restart", ""):
        if "pipe" in switches:
            raise UsageError("--restart and --pipe cannot be combined: a pipe cannot be read twice.")
        supervision["restart"] = restart
    return Options(rest, supervision=supervision or None, rules=tuple(rules), **switches, **given)  # type: ignore[arg-type]


def _from_stdin() -> list[str]:
    """Return the words on standard input, which the agent does not get."""
    import json
    import sys

    try:
        words = json.load(sys.stdin)
    except (ValueError, RecursionError):
        words = None
    if not isinstance(words, list) or not all(isinstance(word, str) and "\0" not in word for word in words):
        raise UsageError('--stdin reads a JSON list, such as ["--task", "Write tests.", "--", "claude"].')
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    return words


def _supervision(value: str) -> dict[str, Any]:
    import json

    try:
        fields = json.loads(value)
    except (ValueError, RecursionError):
        fields = None
    if not isinstance(fields, dict):
        raise UsageError('--supervision takes a JSON object, such as \'{"restart": "always"}\'.')
    return fields


def configure(parser: argparse.ArgumentParser) -> None:
    """Describe the options for `--help` only: `quick` parses."""
    import argparse

    parser.usage = USAGE
    long = {short: name for name, short in LONG.items()}
    for flag, (attribute, metavar, text) in OPTIONS.items():
        flags = [flag, long[flag]] if flag in long else [flag]
        if metavar:
            parser.add_argument(*flags, dest=attribute, metavar=metavar, help=text)
        else:
            parser.add_argument(*flags, dest=attribute, action="store_true", help=text)
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="COMMAND [ARG...]")


def run(args: argparse.Namespace) -> int:
    raise UsageError(f"Usage: {USAGE}")  # `quick` runs everything but `--help`
