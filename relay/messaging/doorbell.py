"""Doorbells: tell a session that another session of its home has changed the ledger for it.

    ring ─→ RUN/couriers/TEAM/NAME.bell, a FIFO beside the lock of the name ─→ Doorbell

A ring says where to look, or how a message arrived. A lost ring does no harm: a session looks when it starts,
and from time to time.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Self

from relay.dataclass import dataclass
from relay.home import Home, private_directory
from relay.message import Message

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

_MAIL, _ALL, _INJECTED = "mail", "all", "injected "


@dataclass(frozen=True, slots=True)
class Rings:
    """Rings at one time. mail: look for new messages. all: look for everything.

    injected: the messages that were given to their receivers: id, route, role.
    """

    mail: bool
    all: bool
    injected: list[tuple[str, str | None, str | None]]


class Doorbell:
    """The bell of `name`, only for the holder of the name; a context manager."""

    _loop: AbstractEventLoop | None = None

    def __init__(self, home: Home, team: str, name: str) -> None:
        """Create and open the FIFO. Raise OSError."""
        path = Path(home.courier(team, name, "bell"))
        private_directory(path.parent)
        with contextlib.suppress(FileNotFoundError):
            if not stat.S_ISFIFO(path.lstat().st_mode):
                path.unlink()
        with contextlib.suppress(FileExistsError):
            os.mkfifo(path, 0o600)
        self._reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
        # Our own writer prevents end of file, which would make the reader ready for ever.
        self._writer = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._loop is not None:
            self._loop.remove_reader(self._reader)
        os.close(self._reader)
        os.close(self._writer)

    def listen(self, rung: Callable[[Rings], None]) -> None:
        """Call `rung` whenever the bell is rung, and at once if it has been."""
        import asyncio  # commands that only ring do without

        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._reader, lambda: rung(self._read()))

    def _read(self) -> Rings:
        lines: list[str] = []
        with contextlib.suppress(BlockingIOError):
            # Whole lines: as much as a FIFO holds (pipe(7)).
            lines = os.read(self._reader, 1 << 16).decode().splitlines()
        told = [line.split(" ")[1:] for line in lines if line.startswith(_INJECTED)]
        injected = [(id, route or None, role or None) for id, route, role in told]
        return Rings(_MAIL in lines, _ALL in lines, injected)


def ring_for(home: Home, team: str, messages: Iterable[Message]) -> None:
    """Ring the bells of the receivers of `messages`, just sent: some may be of this home."""
    for to in {each.to for each in messages}:
        ring(home, team, to, _MAIL)


def ring_back(
    home: Home, team: str, sender: str, injected: tuple[str, str | None, str | None] | None
) -> None:
    """Tell the `sender` of a message, in this home, that it was settled. injected: as in Rings."""
    what = _ALL if injected is None else _INJECTED + " ".join(word or "" for word in injected)
    ring(home, team, sender, what)


def ring(home: Home, team: str, name: str, what: str = _ALL) -> bool:
    """Ring the bell of `name`; return False if no session of this home has it now. Takes about 10 µs."""
    try:
        descriptor = os.open(home.courier(team, name, "bell"), os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        os.write(descriptor, f"{what}\n".encode())  # atomic: shorter than PIPE_BUF (pipe(7))
    except BlockingIOError:
        pass  # the FIFO is full, so a ring is already pending
    except OSError:
        return False  # the reader has just closed
    finally:
        os.close(descriptor)
    return True
