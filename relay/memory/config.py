"""The settings of memory: which backend keeps the memories, and what a session does with it.

They come from relay.config.py (`RelayConfig(memory=...)`) or from the table [memory] of relay.toml; only the
first one that is given counts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from relay.dataclass import dataclass, field
from relay.errors import ConfigError, ConfigMistakes
from relay.home import Home
from relay.settings import FILE, find, read
from relay.values import FLAG, Spot, ValueKind, choice, parse_toml, plain, record, shown

TABLE = "memory"
"""The table of relay.toml."""

OWN = ("embedded", "custom")
"""The backends that need no plug-in (relay.memory.plugins)."""

DEFAULT_TIMEOUT = 10.0
MAX_TIMEOUT = 600.0

_FACTORY = "a class, a function or 'package.module:name'"
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_REFERENCE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")


def snake(key: str) -> str:
    """Return `key` in snake_case: `collection_name` for `collectionName`, `base_url` for `baseURL`."""
    return _HUMP.sub("_", key).lower()


@dataclass(frozen=True, slots=True)
class MemoryConfig:
    """The settings of memory in a session.

    backend:       the store: `embedded` (SQLite in relay's own home), `custom`, or an installed one, such as
                   `mem0` and `qdrant`.
    config:        the backend's own settings; `embedded` has none.
    factory:       for `custom`: makes the backend: a class, a function or "package.module:name".
    timeout:       seconds that the backend may take to answer; `embedded` ignores it.
    auto_save:     when a session ends, save the agent's last answer. False: the agent decides what is saved.
    prompt_on_end: ask the agent, when the session ends, to save what it has learned.
    folder:        where to look for the module that `factory` names; set from the file with the settings.
    """

    backend: str = "embedded"
    config: Mapping[str, Any] = field(default_factory=dict)
    factory: Callable[[Mapping[str, Any]], Any] | str | None = None
    timeout: float = DEFAULT_TIMEOUT
    auto_save: bool = False
    prompt_on_end: bool = False
    folder: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        _of_program({name: getattr(self, name) for name in _KEYS})

    @classmethod
    def from_mapping(cls, given: object, folder: str = "") -> MemoryConfig:
        """Return the settings in `given`, whose keys may be in camelCase. Raise ConfigError for mistakes."""
        return given if isinstance(given, MemoryConfig) else cls(**_of_program(given), folder=folder)


def _of_program(given: object) -> dict[str, Any]:
    spot = Spot(Path(), lambda keys: 0, (TABLE,))
    found = read_settings(given, spot)
    if spot.mistakes:
        raise ConfigError(" ".join(map(str, spot.mistakes)))
    return found


def read_settings(given: object, spot: Spot) -> dict[str, Any]:
    """Return the settings in the table at `spot`, and add its mistakes to those of the spot."""
    if not isinstance(given, Mapping):
        spot.wrong(f"memory must be a dict such as {{'backend': 'embedded'}}, not {shown(given)}.")
        return {}
    settings: dict[str, Any] = {}
    for key, value in given.items():
        name = snake(str(key))
        if name in settings:
            spot.at(str(key)).wrong(f"memory: {name} is given twice.")
        settings[name] = value
    return _SETTINGS.read(settings, spot) or {}


def _backend(value: Any, spot: Spot) -> Any:
    if value in OWN:
        return value
    from relay.memory.plugins import installed  # it takes 20 ms, and the embedded store does not need it

    return choice(("embedded", *sorted(installed().names), "custom")).read(value, spot)


def _consistent(given: dict[str, Any], spot: Spot) -> dict[str, Any]:
    backend, factory = given.get("backend", "embedded"), given.get("factory")
    if backend == "embedded" and given.get("config"):
        spot.wrong("memory: the embedded backend has no settings. Leave config out, or name another backend.")
    if backend == "custom" and factory is None:
        spot.wrong(f"memory: the backend 'custom' needs a factory: {_FACTORY}.")
    if backend != "custom" and factory is not None:
        spot.wrong(f"memory: factory belongs only to the backend 'custom', not to {backend!r}.")
    return given


_KEYS = {
    "backend": ValueKind("a backend", _backend),
    "config": plain(Mapping, "a dict of the backend's settings"),
    "factory": plain(
        object,
        _FACTORY,
        lambda value: value is None or callable(value) or bool(_REFERENCE.fullmatch(str(value))),
    ),
    "timeout": plain(
        (int, float), f"a number of seconds up to {MAX_TIMEOUT:g}", lambda value: 0 < value <= MAX_TIMEOUT
    ),
    "auto_save": FLAG,
    "prompt_on_end": FLAG,
}
_SETTINGS = record(_KEYS, _consistent, "setting")


def load(
    home: Home, directory: Path, trusted: Callable[[Path, bytes], bool]
) -> tuple[MemoryConfig | ConfigError | None, list[str]]:
    """Return the settings of relay.toml, the project's or the user's own, and notices about ignored ones.

    None: no file that counts has the table.  A ConfigError: the table has a mistake, so nothing may be saved
    elsewhere; the error is in the notices, too.
    trusted: returns True if the user trusts a project's file with this content. A backend may be anybody's
    server.
    """
    own = home.config / FILE
    notices: list[str] = []
    for path in dict.fromkeys((find(directory), own)):
        if path is None or not path.is_file():
            continue
        try:
            content = read(path)
            values, top = parse_toml(path, content)
        except ConfigError:
            continue  # reported with the settings
        if TABLE not in values:
            continue
        if path != own and not trusted(path, content):
            notices.append(
                f"{path}: [{TABLE}] ignored, because the file is not trusted. Read it, then run `relay trust "
                f"{path}`."
            )
            continue
        found = read_settings(values[TABLE], top.at(TABLE))
        if not top.mistakes:
            return MemoryConfig(**found, folder=str(path.parent)), notices
        error = ConfigMistakes(path, top.mistakes)
        return error, [*notices, *error.notices("The agent keeps running without memory.")]
    return None, notices
