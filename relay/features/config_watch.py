"""Tells the user when a relay.config.py has changed since the session loaded it."""

from __future__ import annotations

from collections.abc import Sequence

from relay.eventbus import EventBus, handles
from relay.hooks import config_file
from relay.lifecycle import SessionBegan
from relay.terminal.events import Notify

FILE_CHECK_EVERY = 2.0
"""Seconds between two checks of a file."""


class ConfigWatch:
    """Tells the user once for each file that it has changed. configs: the files as loaded."""

    def __init__(self, bus: EventBus, configs: Sequence[config_file.ConfigFile]) -> None:
        self._bus = bus
        self._configs = configs

    @handles(SessionBegan)
    def begin(self, _: SessionBegan) -> None:
        # If the file has changed already, its former content is in force, and the user knows.
        for config in self._configs:
            if config_file.changed(config.path, config.digest):
                continue
            self._bus.loop.call_later(FILE_CHECK_EVERY, self._look, config)

    def _look(self, config: config_file.ConfigFile) -> None:
        if not config_file.changed(config.path, config.digest):
            self._bus.loop.call_later(FILE_CHECK_EVERY, self._look, config)
            return
        text = (
            f"{config.path} has changed; this session keeps the version it started with. To use the new one, "
            "read it, then run `relay trust` and `relay reload`."
        )
        self._bus.publish(Notify(text))
