"""The set-up of the bridge for one run: the agent's command and environment with relay's hook entries added.

    prepare("claude", ["claude", "-c"], env, DIR, SOCKET)
        →  ["claude", "--settings", "DIR/settings.json", "-c"]

Each kind of agent has its own way (AgentKind.prepare).  Common to all: files are written only into the run's
own directory, the user's configuration keeps working, and `remove` leaves nothing behind.

What the agent calls lies in that directory, too, so the hooks of a running agent keep working while relay is
moved, removed or updated.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from relay.agents import door, hook_client, kinds
from relay.agents.catalog import for_command, load
from relay.agents.hook_client import REASON, refusal
from relay.agents.hook_event import OBSERVED, NativeEvent, NativeName
from relay.agents.hook_guards import GUARDED, path_of
from relay.agents.hook_reply import Reply
from relay.agents.named_transcripts import Named
from relay.agents.transcript_lines import dict_of
from relay.agents.version import numbers
from relay.dataclass import dataclass, field, replace
from relay.errors import ConfigError, RelayError
from relay.home import Home, private_directory

if TYPE_CHECKING:
    from relay.agents.kind import AgentKind

HookEntries = dict[str, list[dict[str, Any]]]
"""Hook entries in the shape of Claude Code's settings: event → [{"matcher": ..., "hooks": [handler]}]."""

TIMEOUT = int(hook_client.LONGEST) + 7
"""Seconds after which an agent stops waiting for its hook: longer than the client itself waits."""

_SHARED = tuple(Path(__file__).parent / "kinds" / name for name in ("bridge.mjs", "door.mjs"))
"""What the plug-ins in agents share."""

DEFAULTS = "system-defaults.json"
"""The run's file of system defaults."""

_RUN = '[ ! -r "$0" ] || . "$0"'
"""Runs the file `hook` of the run's directory, with $0 as its path. Without that file: silence."""

GONE = (
    "relay's hook client cannot run, because its Python is missing, and a rule may forbid this. The user can "
    "install relay again, and restart this agent."
)
"""The reason for a decision if the client cannot run."""


@dataclass(frozen=True, slots=True)
class Run:
    """One run of an agent, as the user asked for it.

    command:   its whole command line; the agent's own begins at index `at` (1 in `nice claude -c`), None if
               that is unknown, because a program of another name was declared to be that kind of agent.
    directory: the run's own; it exists and is private.
    """

    command: tuple[str, ...]
    at: int | None
    env: dict[str, str]
    directory: str
    socket: str

    @property
    def arguments(self) -> tuple[str, ...]:
        return self.command[(self.at or 0) + 1 :]

    def file(self, name: str, content: dict[str, Any]) -> str:
        """Write `content` as JSON into the run's directory. Return the path."""
        return self.write(name, json.dumps(content, indent=1))

    def write(self, name: str, text: str) -> str:
        """Write `text` into the run's directory. Return the path."""
        path = f"{self.directory}/{name}"
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(text.encode("utf-8", "surrogateescape"))  # it may name paths
        return path

    def copy(self, source: Path) -> str:
        """Copy a file of relay's own into the run's directory. Return the path."""
        return self.write(source.name, source.read_text(encoding="utf-8"))

    def flagged(self, *flags: str) -> Run:
        """Return this run with further flags before those of its command line."""
        return replace(self, command=tuple(self.with_flags(flags, self.arguments)))

    def with_flags(self, flags: Sequence[str], arguments: Sequence[str]) -> list[str]:
        """Return the command line with `flags` and then `arguments` in place of the agent's own.

        A program of another name, such as a script or `npx`, gets the flags last: it may need other words
        first.
        """
        if self.at is not None:
            return [*self.command[: self.at + 1], *flags, *arguments]
        end = arguments.index("--") if "--" in arguments else len(arguments)
        return [self.command[0], *arguments[:end], *flags, *arguments[end:]]


@dataclass(frozen=True, slots=True)
class Prepared:
    """The command line and the environment to start instead.

    kind:   the kind of agent that the bridge is for; "" without one.
    note:   a problem to show to the user.
    record: what the agent writes in this run, if no hooks will report it; None: unknown.
    mcp:    it has relay's MCP server.
    """

    command: list[str]
    env: dict[str, str] = field(repr=False)
    kind: str = ""
    note: str = ""
    record: Named | None = None
    mcp: bool = False


def bridge(
    profile: str,
    command: Sequence[str],
    env: dict[str, str],
    home: Home,
    run_dir: str,
    socket: str,
    *,
    mcp: bool = False,
) -> Prepared:
    """Prepare the agent that `command` starts, or that the profile named `profile` declares it to be.

    mcp: with relay's MCP server.
    Raise nothing for a user's mistake: without a bridge, the agent starts as requested.
    """
    try:
        known = load(profile, home) if profile else for_command(command, home)
    except RelayError:
        return Prepared(list(command), env)  # the session's own set-up reports it
    native = known.native
    kind = native.hooks
    if not kind and not kinds.find(native.transcript).events:  # its transcripts are named before it starts
        kind = native.transcript
    if not kind:
        return Prepared(list(command), env)
    at = next((place for place in range(len(command)) if known.recognises(command[place:])), None)
    try:
        return prepare(kind, command, env, run_dir, socket, at=at, mcp=mcp)
    except (RelayError, OSError) as error:
        return Prepared(list(command), env, note=f"{error}".rstrip("."))


def prepare(
    kind: str,
    command: Sequence[str],
    env: dict[str, str],
    run_dir: str,
    socket: str,
    *,
    at: int | None = 0,
    mcp: bool = False,
) -> Prepared:
    """Return the command and the environment with which an agent of `kind` calls relay at `socket`.

    `at` is that of Run. mcp: with relay's MCP server, if the agent calls relay's hooks.
    Raise ConfigError, HomeError or OSError if that is impossible.
    """
    agent = kinds.find(kind)
    private_directory(Path(run_dir).parent)
    private_directory(run_dir)
    try:
        Path(door.path_of(socket)).unlink(missing_ok=True)  # a killed agent's
        run = Run(tuple(command), at, dict(env), run_dir, socket)
        if agent.events:
            _write_hook(run, agent)
        prepared = agent.prepare(run)
        if mcp and prepared.kind:
            prepared = _connected(agent, run, prepared)
    except BaseException:
        remove(run_dir)
        raise
    if not (prepared.kind or prepared.record):
        remove(run_dir)
    return prepared


def _connected(agent: AgentKind, run: Run, prepared: Prepared) -> Prepared:
    """Return `prepared` with relay's MCP server, if the agent takes it."""
    run = replace(run, command=tuple(prepared.command), env=prepared.env)
    if (found := agent.connect(run)) is None:
        return prepared
    return replace(prepared, command=list(found.command), env=found.env, mcp=True)


def remove(run_dir: str) -> None:
    """Remove the files that `prepare` wrote."""
    from shutil import rmtree  # with all archivers, 2 ms

    rmtree(run_dir, ignore_errors=True)


# Shared by the kinds of agents.


def call(directory: str, *words: str) -> list[str]:
    """Return the command line that runs the client with `words`: no PATH, no site. directory: the run's."""
    return ["/bin/sh", "-c", _RUN, f"{directory}/hook", *words]


def _write_hook(run: Run, agent: AgentKind) -> None:
    """Write the client, and the file `hook` that runs it, or decides if there is no Python to run it."""
    client = shlex.quote(run.write("hook_client.py", client_for(agent.name)))
    base = getattr(sys, "_base_executable", "") or sys.executable  # that of a virtual environment
    pythons = " ".join(map(shlex.quote, dict.fromkeys((sys.executable, base))))
    guards = shlex.quote(path_of(run.socket))
    rows = refusals(agent.name)
    gone = [
        f"'decide {event} '*' {name} '*) printf '%s' {shlex.quote(refusal(question, GONE))};;"
        for event, name, _, question in rows
    ]
    lines = [
        f"for python in {pythons}; do",
        f'[ -x "$python" ] && [ -r {client} ] &&',
        f'exec "$python" -I -S {client} hook "$@" {shlex.quote(run.socket)} {agent.name}',
        "done",
        "cat > /dev/null",
        "guarded=",
        f"if [ -e {guards} ]; then",
        f"read -r name guarded < {guards} || guarded='{' '.join(sorted(GUARDED))}'",
        "fi 2> /dev/null",
        'case "$*  $guarded " in',
        *gone,
        "esac",
        "exit 0",
    ]
    run.write("hook", "\n".join(lines) + "\n")


def client_for(kind: str) -> str:
    """Return the program that an agent of `kind` calls as its hook: hook_client with its own words."""
    source = Path(hook_client.__file__).read_text(encoding="utf-8")
    if first := kinds.find(kind).known(NativeName.SESSION_START):
        source = source.replace('_FIRST = "SessionStart"', f"_FIRST = {first[0]!r}")
    empty = 'REFUSALS: "list[Refusal]" = []'
    return source.replace(empty, f"{empty[:-2]}{refusals(kind)!r}")


def refusals(kind: str) -> list[tuple[str, str, str, str]]:
    """Return how an agent of `kind` is refused what a guard may forbid, for hook_client.

    Each row has the event by its own name and by relay's, the reply that denies it, and the one that makes
    the agent ask its user, if it can; both have REASON in place of the reason. An unknown kind has the rows
    of all: an event belongs to the first that reports it.
    """
    names = [kind] if kind in kinds.names() else ["relay", *kinds.names()]
    rows: list[tuple[str, str, str, str]] = []
    for agent in map(kinds.find, names):
        for event, name in agent.events.items():
            if name in GUARDED:
                native, denial = NativeEvent(name, agent.name, event=event), Reply(deny=REASON)
                asks = name is NativeName.TOOL_PRE and "ask" in agent.carries(name)
                question = Reply(ask=REASON) if asks else denial
                rows.append((event, name.value, agent.render(native, denial), agent.render(native, question)))
    return rows


def handler(command: list[str], timeout: int = TIMEOUT) -> dict[str, Any]:
    """Return the handler for an agent that runs its hooks in a shell; `timeout` is in the agent's unit."""
    return {"type": "command", "command": shlex.join(command), "timeout": timeout}


def entries(
    agent: AgentKind, directory: str, handle: Callable[[list[str]], dict[str, Any]] = handler
) -> HookEntries:
    """Return relay's entries: each event's decider, and the silent prompt observer. directory: the run's."""
    found: HookEntries = {
        event: [{"hooks": [handle(call(directory, "decide", event))]}]
        for event, name in agent.events.items()
        if name not in agent.unasked
    }
    if "PreToolUse" in found:
        observer = {"matcher": OBSERVED, "hooks": [handle(call(directory, "pretooluse"))]}
        found["PreToolUse"].insert(0, observer)
    return found


def installed(run: Run, package: str) -> tuple[int, ...]:
    """Return the version of the agent's program; () if that is unknown.

    It is in a package.json above the program whose name ends with `package`, or is the program's own name.
    """
    from shutil import which

    found = which(run.command[run.at or 0], path=run.env.get("PATH"))
    if found is None:
        return ()
    program = Path(os.path.realpath(found))
    if re.fullmatch(r"\d+\.\d+\.\d+", program.name):
        return numbers(program.name)
    for folder in program.parents:
        try:
            manifest = json.loads((folder / "package.json").read_text(encoding="utf-8"))
            if manifest["name"].endswith(package):
                return numbers(manifest["version"])
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            continue
    return ()


def check_version(run: Run, package: str, oldest: str, needs: str) -> None:
    """Raise ConfigError if the agent's program is known to be older than `oldest`.

    needs: says what needs that version, such as "relay's extension needs pi".
    """
    if () < installed(run, package) < numbers(oldest):
        raise ConfigError(f"{needs} {oldest} or later; for this version, relay reads the screen instead")


def plugin_options(run: Run) -> dict[str, Any]:
    """Copy what our plugins in agents share; return the options of one."""
    for module in _SHARED:
        run.copy(module)
    hook = call(run.directory, "decide", "EVENT")
    doors = {"socket": door.path_of(run.socket), "working": working(run.directory)}
    return {"hook": hook, "transcript": transcript(run), "timeout": TIMEOUT, "door": doors}


def working(directory: str) -> str:
    """Return the path of the file that exists while an agent with a door of ours works."""
    return f"{directory}/working"


def transcript(run: Run) -> str:
    """Return the path of the transcript that is written for relay; it does not exist yet."""
    return f"{run.directory}/transcript.jsonl"


def merged(settings: dict[str, Any], ours: HookEntries) -> dict[str, Any]:
    """Return the user's `settings` with our hooks after theirs. Raise ConfigError for an unknown shape."""
    theirs = settings.get("hooks", {})
    if not isinstance(theirs, dict):
        raise ConfigError('"hooks" in its settings is not an object')
    together = dict(theirs)
    for event, added in ours.items():
        before = together.get(event, [])
        together[event] = [*(before if isinstance(before, list) else [before]), *added]
    return {**settings, "hooks": together}


def expanded(path: str) -> Path:
    """Return `path` with `~` expanded; as in a shell, the `~` of an unknown user stays."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        return Path(path)


def read(path: str | Path) -> dict[str, Any]:
    """Return the settings in the file `path`. Raise ConfigError if that is not a readable JSON object."""
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
    except OSError as error:
        why = f"cannot be read ({error.strerror}). Check that it exists and that you may read it."
        raise ConfigError(f"{path} {why}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8 (byte {error.start + 1}). Save it as UTF-8.") from None
    return parsed(text, str(path))


def parsed(text: str, where: str) -> dict[str, Any]:
    """Return the settings in `text`. Raise ConfigError if they are not a JSON object."""
    try:
        settings = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{where} is not JSON ({error})") from None
    if not isinstance(settings, dict):
        raise ConfigError(f"{where} is not a JSON object")
    return settings


def with_defaults(
    run: Run,
    kind: str,
    ours: HookEntries,
    prefix: str,
    *,
    linux: str,
    macos: str,
    agents: dict[str, Any] | None = None,
) -> Prepared:
    """Return the command of `run` with an environment that names a file of system defaults with `ours`.

    prefix: of the agent's variables; linux, macos: names of the folder of the system's settings.
    agents: further defaults, of the group `agents`.

        defaults < the user's settings < the project's < the administrator's    each adds its hooks

    The administrator's own defaults are copied into ours.  The system *settings* have a variable, too, but
    using it would displace the administrator's settings and the defaults beside them.
    Raise ConfigError or OSError if the administrator's defaults cannot be read.
    """
    variable = f"{prefix}_SYSTEM_DEFAULTS_PATH"
    settings = run.env.get(f"{prefix}_SYSTEM_SETTINGS_PATH")
    system = f"/Library/Application Support/{macos}" if sys.platform == "darwin" else f"/etc/{linux}"
    folder = Path(settings).parent if settings else Path(system)
    path = Path(run.env.get(variable) or folder / DEFAULTS)
    defaults = merged(read(path) if path.exists() else {}, ours)
    if agents:
        defaults["agents"] = {**agents, **dict_of(defaults.get("agents"))}
    return Prepared(list(run.command), {**run.env, variable: run.file(DEFAULTS, defaults)}, kind)
