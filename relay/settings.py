"""relay.toml: the settings of a session, from the user's own file and, within limits, the project's.

CONFIG/relay.toml is read first, then relay.toml of the project (the working directory or a folder above it),
which wins.  A project may come from anywhere: until the user trusts its file, only harmless settings count.
Other modules read the tables in the same file (`TABLES`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from relay.dataclass import dataclass, field, fields, replace
from relay.errors import ConfigError
from relay.home import Home
from relay.names import channel, did_you_mean
from relay.policy import Policy
from relay.project import folders
from relay.values import TEXT, Spot, ValueKind, checked, choice, parse_toml, plain, several, table

FILE = "relay.toml"

TABLES = ("fleet", "defaults", "agents", "memory", "inbox")
"""The tables of relay.toml, which relay.supervision.fleet_file, relay.memory.config and relay.messaging.sinks
read."""


def _is_prefix(value: str) -> bool:
    """Return True for one printable character that is in none of the words of a directive."""
    return (
        len(value) == 1 and value.isprintable() and not (value.isalnum() or value.isspace() or value in "\\:")
    )


PREFIX = plain(str, "one punctuation character, like '@', but not ':' or '\\'", _is_prefix)

_URLS = several(TEXT, "a string, or a list of strings", alone=True)


def _setting(
    default: Any,
    help: str,
    kind: ValueKind | None = None,
    *,
    project: bool = False,
    own: bool = False,
    most: int = 0,
    choices: tuple[str, ...] = (),
) -> Any:
    """Return the field of a setting.

    kind:    of its values; None: as the default, `most` and `choices` say.
    project: an untrusted project may set it; own: no project may, trusted or not.
    most:    the largest valid number; choices: all valid values.
    """
    kind = kind or _kind(default, most, choices)
    limits = {"project": project, "own": own, "most": most, "choices": choices}
    return field(default=default, metadata={"help": help, **limits, "kind": kind})


def _kind(default: object, most: int, choices: tuple[str, ...]) -> ValueKind:
    if choices:
        return choice(choices)
    if not isinstance(default, int | float):
        return TEXT
    what, types = (
        ("a number of seconds", (int, float)) if isinstance(default, float) else ("a whole number", int)
    )
    form = f"{what} from 0 to {most}, like {default:g}"
    number = plain(types, form, lambda value: 0 <= value <= most)
    return ValueKind(form, lambda value, spot: type(default)(number.read(value, spot)))


@dataclass(frozen=True, slots=True)
class Settings:
    """Every setting, with its default and its help in Markdown (the man page shows them: `make man`)."""

    idle_seconds: float = _setting(
        30.0,
        "seconds without output until the idle event fires and low-priority messages are typed",
        project=True,
        most=3600,
    )
    closing_seconds: float = _setting(
        20.0,
        "seconds an agent has to act on the closing prompt when you stop it",
        project=True,
        most=600,
    )
    stop_seconds: float = _setting(
        5.0, "seconds from asking an agent to stop until it is killed", project=True, most=60
    )
    handler_seconds: float = _setting(30.0, "seconds until a relay.config.py handler times out", most=600)
    prefix: str = _setting(
        "@",
        "the character that starts a directive: one punctuation character, but not `:` or `\\`",
        PREFIX,
        project=True,
    )
    directives: str = _setting(
        "all",
        "which directives count where relay reads the agent's terminal instead of its own record "
        "([why](SECURITY.md#what-a-program-prints)): `all`; `builtin`: only `relay`, `broadcast` and "
        "`memory`; `none`: nor does relay teach them to such an agent",
        choices=("all", "builtin", "none"),
    )
    inject: str = _setting(
        "auto",
        "`auto`: type when it is safe; `always`: also into shells and language prompts; `never`",
        choices=("auto", "always", "never"),
    )
    teach: str = _setting(
        "auto",
        "`auto`: relay tells a joining agent who it is and how to write directives; `never`",
        choices=("auto", "never"),
    )
    mcp: str = _setting(
        "auto",
        "`auto`: an agent gets [relay's tools](MCP.md#in-an-agent) for its run, beside your own MCP servers; "
        "`never`",
        choices=("auto", "never"),
    )
    peers: str = _setting(
        "auto",
        "`auto`: Claude Code and Qwen Code find the other running agents of their team in their own list "
        "of sessions, and write to them there ([MCP.md](MCP.md#peers)); `never`",
        choices=("auto", "never"),
    )
    subagents: str = _setting(
        "ignore",
        "`act`: on the directives of an agent's subagents, in the agent's name; `ignore` them",
        choices=("ignore", "act"),
    )
    continuations: int = _setting(
        3, "how many times in a row a rule can make the agent continue a turn it has ended", most=20
    )
    on_prompt: str = _setting(
        "escalate",
        "when an agent needs a decision: `escalate`: notify you by the bell, the title and the [sinks of "
        "your inbox](#sinks-of-your-inbox); `none`: only list it in `relay inbox`",
        choices=("escalate", "none"),
    )
    title: str = _setting(
        "auto",
        "`auto`: your terminal's title names the attached agent, unless it is a plain program, and shows "
        "when it has a question; detaching restores yours; `never`",
        project=True,
        choices=("auto", "never"),
    )
    detach_key: str = _setting(
        "C-]",
        "the prefix key in an agent's terminal: within a second, `d` detaches, `n` and `p` switch to the "
        "next and the previous agent by name, `?` shows help; otherwise both keys go to the agent. "
        "Pressing the prefix twice sends it once. `C-]` (Ctrl-]), `C-\\` or a letter except c, d, h, i, "
        "j, m and z (`C-a`); `none`: all keys go to the agent (`relay attach --takeover` elsewhere frees "
        "it). `relay reload` applies a new value",
        choices=("C-]", "C-\\", *(f"C-{letter}" for letter in "abefgklnopqrstuvwxy"), "none"),
    )
    on_hangup: str = _setting(
        "detach",
        "when the terminal that started an agent is closed, or its SSH connection is lost: `detach`: an "
        "agent with conversations (Claude Code, Codex, ...) keeps running, as your inbox says, and "
        "`relay attach NAME` brings it back; `end`: it gets SIGHUP, as plain programs and redirected "
        "agents always do",
        choices=("detach", "end"),
    )
    escalate_to: str = _setting("", "the agent that also receives other agents' questions, such as `Lead`")
    injection_budget: int = _setting(
        1000,
        "tokens (4 characters each) that hooks may inject per turn; beyond, relay warns you, but injects "
        "them; 0: no limit",
        most=1_000_000,
    )
    hook_output: str = _setting(
        "preview",
        "how much of rule output and injected text the journal, the audit and the recording keep, "
        "without secrets: `preview`, 500 characters of head and tail; `full`",
        choices=("preview", "full"),
    )
    record: str = _setting(
        "always",
        "`always`: record sessions, for `relay replay` and `relay logs`; `never`",
        choices=("always", "never"),
    )
    record_megabytes: int = _setting(
        50,
        "megabytes after which a recording continues in a new file; a session keeps at most twice that",
        most=10_000,
    )
    record_days: int = _setting(30, "days to keep recordings", most=3650)
    record_total_megabytes: int = _setting(
        1000, "megabytes of all recordings and logs together; the oldest are deleted first", most=1_000_000
    )
    look: str = _setting(
        "itself",
        "which agents may `relay peek` at an agent and read its `relay logs`: `itself` only; `team`: all "
        "in its team",
        choices=("itself", "team"),
    )
    allow: tuple[str, ...] = _setting(
        (),
        'tool calls allowed without asking, if the agent\'s own hooks report them: `"Bash(git status)"` '
        'is exactly that command, `"Bash(git diff *)"` a glob that rejects shell syntax and `..` in '
        'paths, but no option (`--output=FILE`), `"Read"` a tool. The journal records each use',
        several(checked(lambda text: Policy([text]), "a rule"), "a list of strings"),
        own=True,
    )
    channels: tuple[str, ...] = _setting(
        (),
        'the channels that the agent joins when it starts, such as `"#ops"`',
        several(checked(channel, "a channel"), "a list of strings"),
        project=True,
    )
    runaway_rate: int = _setting(
        200,
        "messages from one agent to another in a minute; more are *held* "
        "([runaways](DELIVERY.md#runaways)); 0: no limit",
        most=100_000,
    )
    runaway_depth: int = _setting(
        50,
        "how many messages may lead to one another before you type into one of the agents or `relay "
        "send`; 0: no limit",
        most=100_000,
    )
    runaway_broadcasts: int = _setting(
        30,
        "broadcasts of one agent in a minute, to `*` or a channel; 0: no limit",
        most=100_000,
    )
    queue_limit: int = _setting(
        20_000,
        "messages from one agent that may be waiting; relay refuses more, and tells the agent; 0: no limit",
        most=10_000_000,
    )
    expire_seconds: float = _setting(
        604_800.0,
        "seconds (a week) until an undelivered message expires; 0: never",
        most=31_536_000,
    )
    broker: str = _setting(
        "",
        "URL of the MQTT broker, or those of a cluster's nodes, as a list or separated by commas; empty: "
        "the embedded one",
        ValueKind(_URLS.form, lambda value, spot: ",".join(_URLS.read(value, spot))),
    )


def load(
    home: Home, directory: Path, trusted: Callable[[Path, bytes], bool] = lambda path, content: False
) -> tuple[Settings, list[str]]:
    """Return the settings for an agent in `directory`, and notices about ignored settings.

    A file with mistakes is ignored as a whole; its notices say where they are.
    trusted: returns True if the user trusts a project's file with this content.
    """
    settings = Settings()
    notices: list[str] = []
    own = home.config / FILE
    project = find(directory)
    for path in dict.fromkeys((own, project)):
        if path is None or not path.is_file():
            continue
        try:
            content = read(path)
            parsed, top = parse_toml(path, content)
            values = check(parsed, top)
            top.check()
        except ConfigError as error:
            notices += error.notices("relay ignores the whole file.")
            continue
        if path != own and not trusted(path, content):
            refused = sorted(name for name in values if not _FIELDS[name].metadata["project"])
            values = {name: value for name, value in values.items() if name not in refused}
            if refused:
                notices.append(
                    f"{path}: {', '.join(refused)} ignored, because the file is not trusted. Read it, then "
                    f"run `relay trust {path}`."
                )
        if path != own and (theirs := [name for name in values if _FIELDS[name].metadata["own"]]):
            values = {name: value for name, value in values.items() if name not in theirs}
            notices.append(f"{path}: {', '.join(theirs)} ignored: only your own {own} may set this.")
        settings = replace(settings, **values)
    return settings, notices


def find(directory: Path) -> Path | None:
    """Return the nearest relay.toml (`nearest`)."""
    return nearest(directory, FILE)


def nearest(directory: Path, name: str, exists: Callable[[Path], bool] = Path.is_file) -> Path | None:
    """Return the file `name` in `directory` or above, within the project (relay.project.folders).

    exists: returns True if a path counts.
    """
    paths = (Path(folder, name) for folder in folders(os.fspath(directory)))
    return next((path for path in paths if exists(path)), None)


def read(path: Path) -> bytes:
    """Return the content of the file. Raise ConfigError if it cannot be read."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}. Make it readable.", path) from None


def check(
    values: Mapping[str, Any], top: Spot, elsewhere: Callable[[str], str] = lambda name: ""
) -> dict[str, Any]:
    """Return the valid settings among the `values` of a relay.toml, and add the mistakes to those of `top`.

    elsewhere: returns a sentence that says where a misplaced key belongs, or "".
    """
    given = {name: value for name, value in values.items() if name not in TABLES}
    return table(given, top, _KEYS, lambda name: elsewhere(name) or did_you_mean(name, TABLES), "setting")


_FIELDS = {each.name: each for each in fields(Settings)}
_KEYS = {name: each.metadata["kind"] for name, each in _FIELDS.items()}
