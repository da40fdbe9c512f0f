"""The memory settings for a command in a folder: the same as a session there would have."""

from __future__ import annotations

from pathlib import Path

from relay import builtin
from relay.errors import ConfigError
from relay.home import Home
from relay.hooks import config_file
from relay.hooks.registry import Registry
from relay.hooks.trust import Trust
from relay.memory import config as memory_config
from relay.memory.config import MemoryConfig


def load(home: Home, directory: Path, explicit: Path | None = None) -> tuple[MemoryConfig, list[str]]:
    """Return the settings, and notices about files ignored because they are not trusted.

    Execute a trusted relay.config.py.  Raise ConfigError if a file has a mistake: what is saved must not end
    up elsewhere.
    explicit: the relay.config.py given with --config.
    """
    choice = config_file.choose(home, directory, explicit)
    for error in choice.errors.values():
        raise error
    registry = Registry()
    builtin.install(registry)
    loaded = [config_file.load(file, registry).memory for file in choice.files]
    if found := [memory for memory in loaded if memory is not None]:
        return found[-1], [*choice.untrusted.values()]
    settings, untaken = memory_config.load(home, directory, Trust(home).covers)
    if isinstance(settings, ConfigError):
        raise settings
    return settings or MemoryConfig(), [*choice.untrusted.values(), *untaken]
