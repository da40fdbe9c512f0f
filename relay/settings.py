"""relay.toml: the settings of a session, from the person's own file and, within limits, the project's.

CONFIG/relay.toml, then relay.toml of the project (the working directory or a folder above it); the later
one wins.  A project may come from anywhere, so before it is trusted only names and timings of its are taken.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import tomli

from relay.errors import ConfigError
from relay.home import Home

FILE = "relay.toml"


def _setting(default: Any, help: str, *, project: bool = False) -> Any:
    """A setting; `project`: an untrusted project may set it."""
    return field(default=default, metadata={"help": help, "project": project})


@dataclass(frozen=True, slots=True)
class Settings:
    """Every setting, its default and what it does (docs/CONFIG.md lists them; a test compares)."""

    idle_seconds: float = _setting(
        30.0, "seconds without output after which the idle event fires", project=True
    )
    closing_seconds: float = _setting(
        20.0, "seconds that an agent gets to act on a closing prompt when it is stopped", project=True
    )
    stop_seconds: float = _setting(
        5.0, "seconds between the polite and the firm signal when an agent is stopped", project=True
    )
    handler_seconds: float = _setting(
        30.0, "seconds after which a handler of relay.config.py is given up", project=True
    )
    prefix: str = _setting("@", "the character that begins a directive", project=True)
    inject: str = _setting(
        "auto", "'auto', or 'always' to type into shells and language prompts too, or 'never'"
    )
    broker: str = _setting("", "URL of the MQTT broker; empty: the embedded one")


def load(home: Home, directory: Path, trusted: Callable[[Path], bool]) -> tuple[Settings, list[str]]:
    """The settings for an agent in `directory`, and notices about what was not taken.

    trusted: whether a project's file is trusted as it is. Raises ConfigError with file and line.
    """
    settings = Settings()
    notices: list[str] = []
    own = home.config / FILE
    if own.is_file():
        settings = replace(settings, **_read(own))
    project = find(directory)
    if project is not None and project != own:
        values = _read(project)
        if not trusted(project):
            refused = sorted(
                f.name for f in fields(Settings) if f.name in values and not f.metadata["project"]
            )
            values = {name: value for name, value in values.items() if name not in refused}
            if refused:
                notices.append(
                    f"{project}: {', '.join(refused)} not taken, since the file is not trusted; "
                    f"read it, then `relay trust {project}`."
                )
        settings = replace(settings, **values)
    return settings, notices


def find(directory: Path) -> Path | None:
    """The nearest relay.toml in `directory` or above it, not above a project's root or the home folder."""
    for folder in (directory, *directory.parents):
        if (folder / FILE).is_file():
            return folder / FILE
        if (folder / ".git").exists() or folder == Path.home():
            return None
    return None


def _read(path: Path) -> dict[str, Any]:
    try:
        values = tomli.loads(path.read_text(encoding="utf-8"))
    except tomli.TOMLDecodeError as error:
        raise ConfigError(
            f"{error.msg} (column {error.colno}). Mend that line.", path, error.lineno
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot be read: {error}.", path) from None
    known = {f.name: f for f in fields(Settings)}
    for name, value in values.items():
        if name not in known:
            raise ConfigError(
                f"there is no setting {name!a}. The settings are {', '.join(sorted(known))}.", path
            )
        default = known[name].default
        number = isinstance(default, float)
        if number and (isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e9):
            raise ConfigError(f"{name} is a number of seconds, like {default:g}, not {value!r}.", path)
        if isinstance(default, str) and not isinstance(value, str):
            raise ConfigError(f"{name} is a string, like {default or 'mqtt://host'!r}, not {value!r}.", path)
        if name == "prefix" and (len(value) != 1 or value.isalnum() or not value.isprintable()):
            raise ConfigError(f"prefix is one punctuation character, like '@', not {value!r}.", path)
        if name == "inject" and value not in {"auto", "always", "never"}:
            raise ConfigError(f"inject is 'auto', 'always' or 'never', not {value!r}.", path)
    return {name: float(v) if isinstance(known[name].default, float) else v for name, v in values.items()}
