"""relay.toml: the settings of a session, from the user's own file and, within limits, the project's.

CONFIG/relay.toml is read first, then relay.toml of the project (the working directory or a folder above it),
which wins.  A project may come from anywhere: until the user trusts its file, only harmless settings count.
The tables in the same file are left to others (`TABLES`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import tomli

from relay.errors import ConfigError, RelayError
from relay.home import Home
from relay.names import channel, did_you_mean
from relay.policy import Policy
from relay.project import folders
from relay.toml_lines import TomlLines

FILE = "relay.toml"

TABLES = ("fleet", "defaults", "agents", "memory")
"""The tables of relay.toml that others read: relay.supervision.fleet_file and relay.memory.config."""


def _setting(
    default: Any,
    help: str,
    *,
    project: bool = False,
    own: bool = False,
    most: float = 0,
    choices: tuple[str, ...] = (),
    several: bool = False,
    check: Callable[[Sequence[str]], object] = tuple,
) -> Any:
    """Return the field of a setting.

    project: an untrusted project may set it; own: no project may, trusted or not.
    most:    the largest number; choices: all the values.
    several: a list of strings does, too, instead of one with commas between them.
    check:   raises RelayError for an invalid list of strings.
    """
    limits = {"project": project, "own": own, "most": most, "choices": choices, "several": several}
    return field(default=default, metadata={"help": help, **limits, "check": check})


@dataclass(frozen=True, slots=True)
class Settings:
    """Every setting, with its default and its help (docs/CONFIG.md lists them; a test compares)."""

    idle_seconds: float = _setting(
        30.0,
        "seconds without output after which the idle event fires, and messages of low priority are typed",
        project=True,
        most=3600,
    )
    closing_seconds: float = _setting(
        20.0,
        "seconds that an agent gets to act on a closing prompt when it is stopped",
        project=True,
        most=600,
    )
    stop_seconds: float = _setting(
        5.0, "seconds between the polite and the firm signal when an agent is stopped", project=True, most=60
    )
    handler_seconds: float = _setting(
        30.0, "seconds after which a handler of relay.config.py is given up", project=True, most=600
    )
    prefix: str = _setting("@", "the character that begins a directive", project=True)
    directives: str = _setting(
        "all",
        "which directives count where an agent's words are read from its terminal, not from its own record: "
        "'all', or 'builtin' for relay's own namespaces only, or 'none'",
        choices=("all", "builtin", "none"),
    )
    inject: str = _setting(
        "auto",
        "'auto', or 'always' to type into shells and language prompts too, or 'never'",
        choices=("auto", "always", "never"),
    )
    teach: str = _setting(
        "auto",
        "'auto': an agent that joins is told who it is and how to write directives; or 'never'",
        choices=("auto", "never"),
    )
    subagents: str = _setting(
        "ignore",
        "'act' on the directives of an agent's subagents too, in the agent's name, or 'ignore' them",
        choices=("ignore", "act"),
    )
    continuations: int = _setting(
        3, "how often in a row relay has an agent go on with a turn that it has ended", most=20
    )
    on_prompt: str = _setting(
        "escalate",
        "'escalate': when the agent asks for a decision, tell the user in the terminal and on the desktop; "
        "or 'none'",
        choices=("escalate", "none"),
    )
    title: str = _setting(
        "auto",
        "'auto': the title of your terminal names the agent that is attached, and says when it asks "
        "something; or 'never'",
        project=True,
        choices=("auto", "never"),
    )
    detach_key: str = _setting(
        "C-]",
        "the key that begins relay's own commands in an agent's terminal, and then d, n, p or ? within a "
        "second: 'C-]' is Ctrl-]; or 'none'",
        choices=("C-]", "C-\\", *(f"C-{letter}" for letter in "abefgklnopqrstuvwxy"), "none"),
    )
    escalate_to: str = _setting("", "who is sent what an agent asks, such as 'Lead'; empty: nobody")
    injection_budget: int = _setting(
        1000,
        "tokens (of 4 characters) that hooks may inject in one turn before you are warned; 0: any number",
        most=1_000_000,
    )
    hook_output: str = _setting(
        "preview",
        "of what a rule's command prints, and of what is injected, a 'preview' of 500 characters is written "
        "down, or it in 'full'; secrets are taken out of both",
        choices=("preview", "full"),
    )
    record: str = _setting(
        "always",
        "'always': sessions are recorded for `relay replay`; or 'never'",
        choices=("always", "never"),
    )
    record_megabytes: int = _setting(
        50,
        "megabytes of one recording, after which it goes on in another file; the last two stay",
        most=10_000,
    )
    record_days: int = _setting(30, "days for which recordings are kept", most=3650)
    record_total_megabytes: int = _setting(
        1000, "megabytes of all recordings together; the oldest go first", most=1_000_000
    )
    look: str = _setting(
        "itself",
        "which agents may `relay peek` at an agent and read its `relay logs`: 'itself' only, or its 'team'; "
        "you always may",
        choices=("itself", "team"),
    )
    allow: tuple[str, ...] = _setting(
        (),
        "tool calls that need not be asked for, such as 'Bash(git status)'; your own file only",
        own=True,
        check=Policy,
    )
    channels: tuple[str, ...] = _setting(
        (),
        "the channels that the agent joins when it starts, such as '#ops'",
        project=True,
        check=lambda given: [channel(each) for each in given],
    )
    runaway_rate: int = _setting(
        200,
        "messages from one agent to another in a minute; more are held for the user; 0: any",
        most=100_000,
    )
    runaway_depth: int = _setting(
        50,
        "messages that may lead to one another before the user speaks; more are held; 0: any",
        most=100_000,
    )
    runaway_broadcasts: int = _setting(
        30, "broadcasts of one agent in a minute; more are held for the user; 0: any", most=100_000
    )
    queue_limit: int = _setting(
        20_000, "messages of one agent that may wait; more are refused; 0: any", most=10_000_000
    )
    expire_seconds: float = _setting(
        604_800.0,
        "seconds after which a message that has not arrived is given up; 0: never",
        most=31_536_000,
    )
    broker: str = _setting(
        "",
        "URL of the MQTT broker, or those of a cluster's nodes, as a list or with commas between them; "
        "empty: the embedded one",
        several=True,
    )


def load(
    home: Home, directory: Path, trusted: Callable[[Path], bool] = lambda path: False
) -> tuple[Settings, list[str]]:
    """Return the settings for an agent in `directory`, and notices about settings that were not taken.

    A file with a mistake is ignored, and its notice says where the mistake is.
    trusted: returns True if the user trusts a project's file as it is.
    """
    settings = Settings()
    notices: list[str] = []
    own = home.config / FILE
    project = find(directory)
    for path in dict.fromkeys((own, project)):
        if path is None or not path.is_file():
            continue
        try:
            values = _read(path)
        except ConfigError as error:
            notices.append(f"{error} Nothing of that file is taken.")
            continue
        if path != own and not trusted(path):
            refused = sorted(name for name in values if not _FIELDS[name].metadata["project"])
            values = {name: value for name, value in values.items() if name not in refused}
            if refused:
                notices.append(
                    f"{path}: {', '.join(refused)} not taken, since the file is not trusted; "
                    f"read it, then `relay trust {path}`."
                )
        if path != own and (theirs := [name for name in values if _FIELDS[name].metadata["own"]]):
            values = {name: value for name, value in values.items() if name not in theirs}
            notices.append(f"{path}: {', '.join(theirs)} not taken: it belongs into your own {own} only.")
        settings = replace(settings, **values)
    return settings, notices


def find(directory: Path) -> Path | None:
    """Return the nearest relay.toml (`nearest`)."""
    return nearest(directory, FILE)


def nearest(directory: Path, name: str, exists: Callable[[Path], bool] = Path.is_file) -> Path | None:
    """Return the file `name` in `directory` or above, within the project (relay.project.folders).

    exists: tells if a path counts.
    """
    paths = (Path(folder, name) for folder in folders(os.fspath(directory)))
    return next((path for path in paths if exists(path)), None)


def read(path: Path) -> tuple[dict[str, Any], str]:
    """Return all that the file says, and its text. Raise ConfigError if it is not TOML."""
    try:
        text = path.read_text(encoding="utf-8")
        values = tomli.loads(text)
    except tomli.TOMLDecodeError as error:
        raise ConfigError(
            f"{error.msg} (column {error.colno}). Mend that line.", path, error.lineno
        ) from None
    except RecursionError:
        raise ConfigError("lists or tables are nested too deeply. Nest fewer.", path) from None
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}. Make it readable.", path) from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"is not UTF-8 (byte {error.start + 1}). Save it as UTF-8.", path) from None
    return values, text


def _read(path: Path) -> dict[str, Any]:
    everything, text = read(path)
    values = {name: value for name, value in everything.items() if name not in TABLES}
    for name, value in values.items():
        if wrong := mistake(name, value):
            raise ConfigError(wrong, path, TomlLines(text).of((name,)))
    default = Settings()
    several = {name: ",".join(value) for name, value in values.items() if _is_several(name, value)}
    return {name: type(getattr(default, name))(value) for name, value in (values | several).items()}


def is_prefix(value: str) -> bool:
    """Return True if `value` can begin a directive: one printable character that no word of one contains."""
    return (
        len(value) == 1 and value.isprintable() and not (value.isalnum() or value.isspace() or value in "\\:")
    )


def _is_several(name: str, value: object) -> bool:
    strings = isinstance(value, list) and all(isinstance(item, str) for item in value)
    return strings and bool(_FIELDS[name].metadata["several"])


_FIELDS = {each.name: each for each in fields(Settings)}


def mistake(name: str, value: object) -> str | None:
    """Return the mistake in a setting and what to do about it, None if it is valid."""
    if name not in _FIELDS:
        hint = did_you_mean(name, (*_FIELDS, *TABLES))
        return f"there is no setting {name!a}. {hint}The settings are {', '.join(sorted(_FIELDS))}."
    default, limits = _FIELDS[name].default, _FIELDS[name].metadata
    most, choices = limits["most"], limits["choices"]
    if isinstance(default, tuple):
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            return f"{name} is a list of strings, not {value!r}."
        try:
            limits["check"](value)
        except RelayError as error:
            return f"in {name}, {error}"
    elif isinstance(default, int):
        if isinstance(value, bool) or not (isinstance(value, int) and 0 <= value <= most):
            return f"{name} is a whole number from 0 to {most}, like {default}, not {value!r}."
    elif isinstance(default, float):
        if isinstance(value, bool) or not (isinstance(value, int | float) and 0 <= value <= most):
            return f"{name} is a number of seconds from 0 to {most:g}, like {default:g}, not {value!r}."
    elif _is_several(name, value):
        return None
    elif not isinstance(value, str):
        example = f"like {default or 'mqtt://host'!r}" if not choices else _alternatives(choices)
        what = "a string, or a list of strings" if limits["several"] else "a string"
        return f"{name} is {what}, {example}, not {value!r}."
    elif name == "prefix" and not is_prefix(value):
        return f"prefix is one punctuation character, like '@', but neither ':' nor '\\', not {value!r}."
    elif choices and value not in choices:
        return f"{name} is {_alternatives(choices)}, not {value!a}. {did_you_mean(value, choices)}".rstrip()
    return None


def _alternatives(choices: tuple[str, ...]) -> str:
    return f"{', '.join(map(repr, choices[:-1]))} or {choices[-1]!r}"
