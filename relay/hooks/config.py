"""`RelayConfig`: handlers and settings as one value, a table in place of decorators."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from relay import names
from relay.dataclass import dataclass, field
from relay.errors import ConfigError, InvalidName
from relay.hooks.events import event_names
from relay.hooks.registry import Function, Pattern, Registry
from relay.memory.config import MemoryConfig
from relay.text import one_line

BUILTIN = "builtin"

PLUGINS = "relay.handlers"
"""The group of entry points by which installed packages add handlers."""

_OPTIONS = ("body", "override", "priority")


@dataclass(frozen=True, slots=True)
class RelayConfig:
    """The handlers and settings that a relay.config.py may assign to `config`.

    patterns: pattern → "builtin" | function | {"handler": function} with any of body, override, priority
    hooks:    event → function | list of functions
    memory:   settings of MemoryConfig, or None for those of relay.toml
    channels: those that the agent joins when it starts, such as "#ops"
    plugins:  installed packages whose patterns and hooks are added, by their entry points in the group
              `relay.handlers`, each of which names a RelayConfig

    Raise ConfigError for anything else at once, so that the line in the file is known.
    """

    patterns: Mapping[str, Any] = field(default_factory=dict)
    hooks: Mapping[str, Any] = field(default_factory=dict)
    memory: Mapping[str, Any] | MemoryConfig | None = None
    channels: Sequence[str] = ()
    plugins: Sequence[str] = ()

    def __post_init__(self) -> None:
        for name in ("patterns", "hooks"):
            if not isinstance(getattr(self, name), Mapping):
                raise ConfigError(f"{name} must be a dict, not {getattr(self, name)!r}.")
        self._register(Registry())  # a dry run
        for pattern in self._builtins():
            Pattern.parse(pattern)
        self.memory_config()
        for name, example in (("channels", "['#ops']"), ("plugins", "['deploy']")):
            given = getattr(self, name)
            if not isinstance(given, list | tuple) or not all(isinstance(each, str) for each in given):
                raise ConfigError(f"{name} must be a list such as {example}, not {given!r}.")
        try:
            for each in self.channels:
                names.channel(each)
        except InvalidName as error:
            raise ConfigError(f"channels: {error}") from None

    def memory_config(self, folder: str = "") -> MemoryConfig | None:
        """Return the memory settings, None if there are none. folder: that of the file with this value."""
        return None if self.memory is None else MemoryConfig.from_mapping(self.memory, folder)

    def apply(self, registry: Registry, built_in: Registry) -> None:
        """Register the handlers in `registry`.

        Raise ConfigError if "builtin" is given for a namespace without a handler in `built_in`, or a plug-in
        cannot be loaded.
        """
        for name in self.plugins:
            _plugin(name)._register(registry)
        for pattern in self._builtins():
            if not built_in.has_builtin(Pattern.parse(pattern).namespace):
                raise ConfigError(f"patterns: there is no built-in handler for {pattern!r}; give a function.")
        self._register(registry)

    def _register(self, registry: Registry) -> None:
        for pattern, function, options in self._pattern_handlers():
            registry.add_pattern(pattern, function, **options)
        for event, function in self._event_handlers():
            registry.add_event(event, function)

    def _builtins(self) -> list[str]:
        return [pattern for pattern, value in self.patterns.items() if value == BUILTIN]

    def _pattern_handlers(self) -> Iterator[tuple[str, Function, dict[str, Any]]]:
        for pattern, value in self.patterns.items():
            if value == BUILTIN:
                continue
            if not isinstance(value, Mapping) and not callable(value):
                raise ConfigError(f"patterns: {pattern!r} must be a function or 'builtin', not {value!r}.")
            options = dict(value) if isinstance(value, Mapping) else {"handler": value}
            function = options.pop("handler", None)
            unknown = [key for key in options if key not in _OPTIONS]
            if function is None or unknown:
                wrong = "has no 'handler'" if function is None else f"has the key {unknown[0]!r}"
                keys = ", ".join(("handler", *_OPTIONS))
                raise ConfigError(f"patterns: {pattern!r} {wrong}; its keys are {keys}.")
            yield pattern, function, options

    def _event_handlers(self) -> Iterator[tuple[str, Function]]:
        for event, value in self.hooks.items():
            event_names(event)
            for function in value if isinstance(value, list | tuple) else [value]:
                yield event, function


def _plugin(name: str) -> RelayConfig:
    """Return what the entry point `name` of an installed package names. Raise ConfigError."""
    from importlib.metadata import entry_points  # it takes 20 ms, and few use plug-ins

    installed = entry_points(group=PLUGINS)
    for found in installed.select(name=name):
        try:
            config = found.load()
        except Exception as error:  # another package's code may raise anything
            why = one_line(f"{type(error).__name__}: {error}", 200)
            raise ConfigError(f"plugins: {name!r} ({found.value}) cannot be loaded: {why}.") from error
        if not isinstance(config, RelayConfig):
            raise ConfigError(
                f"plugins: {name!r} is {found.value}, which is no RelayConfig, but {config!r:.40}."
            )
        return config
    hint = names.did_you_mean(name, installed.names, "{!r}")
    raise ConfigError(
        f"plugins: no installed package has handlers called {name!r}. {hint}Install it where relay runs: "
        f"{sys.executable} -m pip install ..."
    )
