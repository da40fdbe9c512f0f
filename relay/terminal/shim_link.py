"""The session's link to its shim: the ring, orders, and questions (relay.shim has the other end)."""

from __future__ import annotations

import asyncio
import json
import os
import select
import signal
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from relay.shim import process_wait, ring
from relay.shim.process_wait import Wait, Waiting
from relay.shim.pty import Pty
from relay.shim.ring_reader import RingReader

PATIENCE = 0.3
"""Seconds to wait for the shim's answer to a question."""

RENEWAL = 0.1
"""Seconds after which a reservation of the keyboard is renewed; the shim ends it after LEASE."""


@dataclass(frozen=True, slots=True)
class Hello:
    """A shim's first words to a new session.

    fields:     what the launch passed on.
    generation: counts the sessions that this shim has started, from 1.
    resumed:    there was another one beside this agent.
    skip:       the place of the ring before which nothing is read: two sessions died there; 0: none did.
    listener:   the socket at which others ask the session.
    """

    fields: dict[str, Any]
    generation: int
    resumed: bool
    skip: int
    listener: int


@dataclass(slots=True)
class TerminalState:
    """The terminals, as of the last record that was read.

    lent: the user has lent one; watched: it shows the agent's output. over: the agent's own is closed.
    """

    lent: bool = False
    watched: bool = False
    over: bool = False


class ShimLink:
    """The shim of one agent. Every method returns at once, but for `look`. For the event loop's thread only.

    ring:  what has happened at the terminals.
    wake:  a descriptor that becomes readable at the next record after `arm`.
    pty:   the agent's terminal.
    state: of the terminals.
    kept:  another agent may follow this one.
    """

    def __init__(self, orders: int) -> None:
        """Join the shim at the other end of the socket `orders`. Raise RelayError if that is not possible."""
        self._lines = _Lines(orders)
        fields = self._lines.next(None) or {}
        fds = fields["fds"]
        for fd in {orders, *fds.values()} - {-1}:
            os.set_inheritable(fd, False)  # nothing that the session starts keeps them open
        self.hello = Hello(
            fields,
            int(fields["generation"]),
            bool(fields["resumed"]),
            int(fields["skip"]),
            int(fds["listener"]),
        )
        self.ring = RingReader(int(fds["ring"]))
        self.wake = int(fds["wake"])
        self.pty = Pty(
            int(fields["agent"]),
            int(fds["master"]),
            line_feeds_return=bool(fields["line_feeds_return"]),
            leader=int(fields["shim"]),
        )
        self.state = TerminalState()
        self.kept = fields.get("kept") != "stop" and bool(fields.get("kept") or fields.get("supervised"))
        self._offered = self.ring.words[ring.ACCEPTED]
        self._questions = 0
        self._renewing: asyncio.TimerHandle | None = None
        self._asks_shim = False
        self._chosen: Callable[[str], None] = lambda key: None

    def listen(
        self,
        loop: asyncio.AbstractEventLoop,
        retire: Callable[[], None],
        gone: Callable[[], None],
        chosen: Callable[[str], None],
    ) -> None:
        """Call `retire` when another session is to take over, and `gone` if the shim has died.

        chosen: called with the key, r or q, that the user has pressed between two agents.
        """

        self._chosen = chosen

        def readable() -> None:
            try:
                fields = self._lines.next(0.0)
            except OSError:
                loop.remove_reader(self._lines.channel)
                gone()
                return
            if fields is not None and fields.get("retire"):
                retire()
            if fields is not None and (key := fields.get("chosen")):
                chosen(str(key))

        loop.add_reader(self._lines.channel, readable)

    def ready(self) -> None:
        """Tell the shim that this session is able to work."""
        self.ring.words[ring.READY_SINCE] = time.monotonic_ns()
        self.ring.words[ring.READY] = self.hello.generation

    def arm(self) -> None:
        """Make `wake` readable at the next record. The caller reads the ring after this."""
        self.disarm()
        self.ring.arm()

    def disarm(self) -> None:
        """Make `wake` unreadable until `arm`."""
        self.ring.disarm()
        try:
            while os.read(self.wake, 512):
                pass
        except BlockingIOError:
            pass

    def close(self) -> None:
        """Leave the shim."""
        self._lines.channel.close()
        self.ring.close()
        self.pty.close()
        os.close(self.wake)

    # Orders.

    def write(self, data: bytes) -> None:
        """Queue `data` for the agent's terminal, after what the user has typed so far."""
        self._offered += len(data)
        self._order("write", data=data.decode("latin-1"))

    def reply(self, data: bytes) -> None:
        """Queue the answer to a query of the agent's, which is neither typing nor echoed."""
        self._order("reply", data=data.decode("latin-1"))

    def aside(self, data: bytes, undo: bytes | None = None) -> None:
        """Queue what moves no cursor (a bell, a title) for the lent terminal, where it splits no sequence.

        undo: written to that terminal when it is withdrawn; b"" if there is nothing to undo any more.
        """
        self._order(
            "aside", data=data.decode("latin-1"), undo=None if undo is None else undo.decode("latin-1")
        )

    def report(self, report: bytes) -> None:
        """Give this `report` (OSC 7501) to the lent terminal, and to each later one, if it takes reports."""
        self._order("report", data=report.decode("latin-1"))

    def prefix(self, key: str) -> None:
        """Have `key`, such as "C-]", begin the commands among the user's keys; "none": no key does."""
        self._order("prefix", key=key)

    def reserve(self, reserved: bool) -> None:
        """Leave the user's keys in their terminal until they are released, or read them again.

        As they are left there, RESERVED is put into the ring, behind all that was typed until then.
        """
        if self._renewing is not None:
            self._renewing.cancel()
            self._renewing = None
        self._order("reserve", reserved=reserved)
        if reserved:
            self._renewing = asyncio.get_running_loop().call_later(RENEWAL, self._renew)

    def _renew(self) -> None:
        self._order("renew")
        self._renewing = asyncio.get_running_loop().call_later(RENEWAL, self._renew)

    def repaint(self, id: int, data: bytes) -> None:
        """Show `data` on the terminal that waits for the repaint `id` (ring.HELD)."""
        self._order("repaint", id=id, data=data.decode("latin-1"))

    def parting(self, reset: bytes, below: bytes, offset: int, *, lines: bool) -> None:
        """Tell what puts the user's terminal right for their shell after `offset` bytes of output.

        reset: undoes the modes that the agent has set. below: moves the cursor below what it has drawn.
        """
        told = {"reset": reset.decode("ascii"), "below": below.decode("ascii")}
        self._order("parting", **told, offset=offset, lines=lines)

    def notice(self, text: str) -> None:
        """Have a notice shown: between two lines, or when the terminal is given back."""
        self._order("notice", text=text)

    def forget(self, text: str) -> None:
        """Forget a notice that has not been shown."""
        self._order("forget", text=text)

    def dismiss(self) -> None:
        """Let the user who asked to detach go, after `parting`."""
        self._order("dismiss")

    def started(self, text: str) -> None:
        """Let the client go that started a detached session."""
        self._order("started", text=text)

    def finish(self) -> None:
        """Lose what the user's terminal has not taken by now; the agent's terminal ends."""
        self._order("finish")

    def goodbye(self) -> None:
        """Give the user's shell back, after `parting`: all that the agent said last has been acted on."""
        self._order("goodbye")

    def keep(self, kept: bool, *, ordered: str = "") -> None:
        """Have the shim wait, at the agent's end, for `start`; or not any more.

        ordered: how another agent is to follow, or "stop"; the next session is told, if one takes over.
        """
        self.kept = kept
        self._order("keep", kept=kept, ordered=ordered)

    def pause(self, text: str) -> None:
        """Have the shim wait for `start` for as long as it takes, and serve the user between two agents.

        text: says how the agent has ended, and what follows; its name is put before it.
        For a shim that was told to wait (`keep`), after OutputEnded.
        """
        self._order("pause", text=text)

    def start(self, order: dict[str, Any]) -> None:
        """Have another agent started (relay.shim.shim.AgentOrder), once this one and this session are done.

        For a shim that was told to wait (`keep`).
        """
        self._order("start", **order)

    def done(self) -> None:
        """Say that the work of this agent's sessions is done."""
        self._order("over")

    # Questions.

    def output_pending(self) -> bool:
        """Return True if output of the agent waits in the ring or the PTY."""
        # In the order of its way: what leaves the terminal meanwhile is seen in the ring.
        return self.pty.output_pending() or bool(self.ring.words[ring.READING]) or self.ring.pending

    @property
    def unwritten(self) -> int:
        """The number of bytes queued for the agent that its terminal has not taken yet."""
        words = self.ring.words
        return max(self._offered - words[ring.ACCEPTED], 0) + words[ring.QUEUED]

    def look(self, group: int) -> Waiting:
        """Return what a process group of the agent's terminal waits for."""
        if not self._asks_shim:
            looked = process_wait.look(group)
            if looked.wait is not Wait.UNKNOWN or not process_wait.may_be_hidden():
                return looked
            self._asks_shim = True  # only the agent's ancestors may look (Yama, ptrace_scope 1)
        try:
            kind, nap, alone = self._ask("look", group=group)
        except (OSError, TypeError, ValueError):
            return process_wait.UNKNOWN
        return Waiting(Wait(kind), tuple(nap) if nap else None, alone)

    def notices(self) -> list[str]:
        """Return the notices that have not been shown."""
        try:
            return list(map(str, self._ask("notices") or ()))
        except OSError:
            return []

    def _ask(self, question: str, **fields: Any) -> Any:
        self._questions += 1
        self._order(None, ask=question, id=self._questions, **fields)
        deadline = time.monotonic() + PATIENCE
        while (left := deadline - time.monotonic()) > 0:
            answer = self._lines.next(left)
            if answer is not None and answer.get("id") == self._questions:
                return answer["answer"]
            if answer is not None and answer.get("retire"):
                signal.raise_signal(signal.SIGUSR2)
            elif answer is not None and (key := answer.get("chosen")):
                asyncio.get_running_loop().call_soon(self._chosen, str(key))
        return None

    def _order(self, do: str | None, **fields: Any) -> None:
        if do is not None:
            fields["do"] = do
        line = json.dumps(fields, ensure_ascii=False).encode("utf-8", "surrogatepass") + b"\n"
        try:
            self._lines.channel.sendall(line)
        except OSError:
            pass  # the shim has died: `listen` says so


class _Lines:
    """The lines from the shim."""

    def __init__(self, fd: int) -> None:
        self.channel = socket.socket(fileno=fd)
        self._received = bytearray()

    def next(self, timeout: float | None) -> dict[str, Any] | None:
        """Return the next line, None after `timeout` seconds. Raise OSError if the shim has died."""
        while (end := self._received.find(b"\n")) < 0:
            if timeout is not None and not select.select([self.channel], [], [], timeout)[0]:
                return None
            data = self.channel.recv(1 << 16)
            if not data:
                raise ConnectionResetError("the shim has died")
            self._received += data
        line = bytes(self._received[:end])
        del self._received[: end + 1]
        fields: dict[str, Any] = json.loads(line)
        return fields
