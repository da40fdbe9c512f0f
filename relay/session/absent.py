"""What stands in for the bus and the memory store where these cannot be opened: the agent runs on without."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from relay.errors import RelayError
from relay.hooks.services import Remembered
from relay.messaging.message import Message, Priority, State
from relay.transport.presence import Presence


class NoBus:
    """A courier that knows nobody and refuses to send, with the reason why it is not a real one."""

    informed = True
    connected = False

    def __init__(self, why: RelayError) -> None:
        self.why = why

    async def run(self) -> None: ...

    def send(
        self,
        to: str,
        body: str,
        *,
        thread: str | None = None,
        reply_to: str | None = None,
        priority: Priority = Priority.NORMAL,
        ttl: float | None = None,
        depth: int = 0,
    ) -> NoReturn:
        raise self.why

    def join(self, channel: str) -> NoReturn:
        raise self.why

    def leave(self, channel: str) -> NoReturn:
        raise self.why

    def channels(self) -> list[str]:
        return []

    def drain(self) -> None: ...

    def waiting(self, limit: int = -1) -> list[Message]:
        return []

    def stored(self) -> NoReturn:
        raise self.why

    def held(self) -> NoReturn:
        raise self.why

    def version(self) -> int:
        return 0

    def injecting(self, id: str) -> NoReturn:
        raise self.why

    def settle(
        self,
        id: str,
        state: State,
        detail: str | None = None,
        *,
        route: str | None = None,
        role: str | None = None,
    ) -> NoReturn:
        raise self.why

    def roster(self) -> list[Presence]:
        return []

    def close(self) -> None: ...


class NoMemory:
    """A memory store every method of which says why there is none."""

    def __init__(self, why: RelayError) -> None:
        self._why = why

    def save(self, text: str, *, shared: bool = False) -> Remembered:
        raise self._why

    def search(self, query: str, limit: int = 10) -> Sequence[Remembered]:
        raise self._why

    def list(self, limit: int = 20) -> Sequence[Remembered]:
        raise self._why

    def forget(self, id: str) -> bool:
        raise self._why

    def close(self) -> None: ...
