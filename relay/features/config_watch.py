"""Tells the user when relay.config.py has changed since the session loaded it."""

from __future__ import annotations

from relay.eventbus import EventBus, handles
from relay.hooks import config_file
from relay.lifecycle import SessionBegan
from relay.terminal.events import Notify

LOOK = 2.0
"""Seconds between two checks of the file."""


class ConfigWatch:
    """Tells the user once that the file has changed. config: the file as loaded; None without one."""

    def __init__(self, bus: EventBus, config: config_file.ConfigFile | None) -> None:
        self._bus = bus
        self._config = config

    @handles(SessionBegan)
    def begin(self, _: SessionBegan) -> None:
        if self._config is not None:
            self._bus.loop.call_later(LOOK, self._look, self._config)

    def _look(self, config: config_file.ConfigFile) -> None:
        if not config_file.changed(config.path, config.digest):
            self._bus.loop.call_later(LOOK, self._look, config)
            return
        text = (
            f"{config.path} has changed; this session keeps the version it started with. To use the new one, "
            "read it, then run `relay trust` and `relay reload`."
        )
        self._bus.publish(Notify(text))
