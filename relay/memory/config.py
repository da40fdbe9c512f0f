"""The settings of memory: which backend keeps the memories, and what a session does with it.

They come from relay.config.py (`RelayConfig(memory=...)`) or from the table [memory] of relay.toml; only the
first one that is given counts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from relay.errors import ConfigError
from relay.home import Home
from relay.names import did_you_mean
from relay.settings import FILE, find, read
from relay.values import parse_toml

TABLE = "memory"
"""The table of relay.toml."""

OWN = ("embedded", "custom")
"""The backends that need no plug-in (relay.memory.plugins)."""

DEFAULT_TIMEOUT = 10.0
MAX_TIMEOUT = 600.0

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
        if self.backend not in OWN:
            self._check_installed()
        for name in ("auto_save", "prompt_on_end"):
            if not isinstance(getattr(self, name), bool):
                raise ConfigError(f"memory: {name} is {getattr(self, name)!r}; use True or False.")
        number = isinstance(self.timeout, int | float) and not isinstance(self.timeout, bool)
        if not number or not 0 < self.timeout <= MAX_TIMEOUT:
            raise ConfigError(
                f"memory: timeout must be a number of seconds up to {MAX_TIMEOUT:g}, not {self.timeout!r}."
            )
        if not isinstance(self.config, Mapping):
            raise ConfigError(
                f"memory: config must be a dict of the backend's settings, not {self.config!r}."
            )
        if self.backend == "embedded" and self.config:
            raise ConfigError(
                "memory: the embedded backend has no settings. Leave config out, or name another backend."
            )
        self._check_factory()

    def _check_installed(self) -> None:
        from relay.memory.plugins import installed  # it takes 20 ms, and the embedded store does not need it

        known = ("embedded", *sorted(installed().names), "custom")
        if self.backend not in known:
            hint = did_you_mean(str(self.backend), known)
            raise ConfigError(
                f"memory: there is no backend {self.backend!r}. {hint}The backends are {', '.join(known)}."
            )

    def _check_factory(self) -> None:
        if self.backend != "custom":
            if self.factory is not None:
                raise ConfigError(
                    f"memory: factory belongs only to the backend 'custom', not to {self.backend!r}."
                )
        elif self.factory is None:
            raise ConfigError(
                "memory: the backend 'custom' needs a factory: a class, a function, or 'package.module:name'."
            )
        elif isinstance(self.factory, str):
            if not _REFERENCE.fullmatch(self.factory):
                raise ConfigError(f"memory: factory must be 'package.module:name', not {self.factory!r}.")
        elif not callable(self.factory):
            raise ConfigError(
                f"memory: factory must be a class, a function or 'package.module:name', not {self.factory!r}."
            )

    @classmethod
    def from_mapping(cls, given: object, folder: str = "") -> MemoryConfig:
        """Return the settings in `given`, whose keys may be in camelCase. Raise ConfigError for mistakes."""
        if isinstance(given, MemoryConfig):
            return given
        if not isinstance(given, Mapping):
            raise ConfigError(f"memory must be a dict such as {{'backend': 'embedded'}}, not {given!r}.")
        known = [each.name for each in fields(cls) if each.name != "folder"]
        settings: dict[str, Any] = {"folder": folder}
        for key, value in given.items():
            name = snake(str(key))
            if name not in known:
                hint = did_you_mean(name, known)
                raise ConfigError(
                    f"memory has no setting {key!r}. {hint}The settings are {', '.join(known)}."
                )
            if name in settings and name != "folder":
                raise ConfigError(f"memory: {name} is given twice.")
            settings[name] = value
        return cls(**settings)


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
        try:
            return MemoryConfig.from_mapping(values[TABLE], str(path.parent)), notices
        except ConfigError as error:
            mistake = ConfigError(str(error), path, top.line((TABLE,)))
            return mistake, [*notices, f"{mistake} The agent keeps running without memory."]
    return None, notices
