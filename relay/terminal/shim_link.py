"""The session's link to its shim: the ring, orders, and questions (relay.shim is the other end)."""

from __future__ import annotations

import asyncio
import json
import os
import select
import socket
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from relay.dataclass import dataclass
from relay.shim import process_wait, ring
from relay.shim.process_wait import Wait, Waiting
from relay.shim.pty import Pty
from relay.shim.ring_reader import RingReader

ANSWER_TIMEOUT = 0.3
"""Seconds to wait for the shim's answer to a question."""

RENEWAL = 0.1
"""Seconds between renewals of a keyboard reservation, which the shim ends after LEASE."""


@dataclass(frozen=True, slots=True)
class Hello:
    """A shim's first message to a new session.

    fields:     what the launch passed on.
    generation: counts the sessions that this shim has started, from 1.
    resumed:    this agent had an earlier session.
    skip:       the ring position at which to start reading, after a record that killed two sessions; 0: none.
    listener:   the session's control socket.
    """

    fields: dict[str, Any]
    generation: int
    resumed: bool
    skip: int
    listener: int


@dataclass(slots=True)
class TerminalState:
    """The terminals, as of the last record read.

    attached: one is attached; watched: it shows the agent's output. over: the agent's own is closed.
    """

    attached: bool = False
    watched: bool = False
    over: bool = False


class ShimLink:
    """The shim of one agent. All methods but `look` return at once. Use only in the event loop's thread.

    ring:  what has happened at the terminals.
    wake:  a descriptor that becomes readable at the next record after `arm`.
    pty:   the agent's terminal.
    state: the terminals' state.
    kept:  another agent may follow this one.
    """

    def __init__(self, orders: int) -> None:
        """Join the shim at the other end of the socket `orders`. Raise RelayError if this fails."""
        self._lines = _Lines(orders)
        fields = self._lines.next(None) or {}
        fds = fields["fds"]
        for fd in {orders, *fds.values()} - {-1}:
            os.set_inheritable(fd, False)  # the session's child processes must not keep them open
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
        self._hear_soon: Callable[[], object] = lambda: None  # until `listen`

    def listen(
        self,
        loop: asyncio.AbstractEventLoop,
        retire: Callable[[], None],
        gone: Callable[[], None],
        chosen: Callable[[str], None],
    ) -> None:
        """Call `retire` when another session must take over, and `gone` if the shim has died.

        chosen: called with the key that the user has pressed between two agents, r or q.
        """

        def readable() -> None:
            try:
                self._lines.receive(0.0)  # a question may have received it meanwhile
            except OSError:
                loop.remove_reader(self._lines.channel)
                gone()
            hear()

        def hear() -> None:
            while (fields := self._lines.received()) is not None:
                if fields.get("retire"):
                    retire()
                if key := fields.get("chosen"):
                    chosen(str(key))

        loop.add_reader(self._lines.channel, readable)
        self._hear_soon = lambda: loop.call_soon(hear)
        self._hear_soon()  # what came with the hello

    def ready(self) -> None:
        self.ring.words[ring.READY_SINCE] = time.monotonic_ns()
        self.ring.words[ring.READY] = self.hello.generation

    def arm(self) -> None:
        """Make `wake` readable at the next record. Read the ring after calling this."""
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
        """Queue the answer to a query from the agent; it counts as neither typed nor echoed."""
        self._order("reply", data=data.decode("latin-1"))

    def aside(self, data: bytes, undo: bytes | None = None) -> None:
        """Queue `data` that does not move the cursor (a bell, a title) for the attached terminal.

        The shim inserts it where it splits no sequence.
        undo: written to that terminal when it is detached; b"" if there is no longer anything to undo.
        """
        self._order(
            "aside", data=data.decode("latin-1"), undo=None if undo is None else undo.decode("latin-1")
        )

    def report(self, report: bytes) -> None:
        """Send `report` (OSC 7501) to the attached terminal, and to later ones, if they accept reports."""
        self._order("report", data=report.decode("latin-1"))

    def prefix(self, key: str) -> None:
        """Make `key`, such as "C-]", the prefix of commands among the user's keys; "none": no prefix."""
        self._order("prefix", key=key)

    def outlive(self, outlives: bool) -> None:
        """Keep the agent running if the terminal that started it is lost; False: end it."""
        self._order("outlive", outlives=outlives)

    def reserve(self, reserved: bool) -> None:
        """Leave the user's keys in their terminal until they are released; False: read them again.

        When this starts, the shim puts RESERVED into the ring, after everything typed so far.
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
        """Show `data` on the terminal that is waiting for repaint `id` (ring.HELD)."""
        self._order("repaint", id=id, data=data.decode("latin-1"))

    def note_reset(self, reset: bytes, below: bytes, offset: int, *, lines: bool) -> None:
        """Report what restores the user's terminal for their shell after `offset` bytes of output.

        reset: undoes the modes that the agent has set. below: moves the cursor below what it has drawn.
        """
        told = {"reset": reset.decode("ascii"), "below": below.decode("ascii")}
        self._order("parting", **told, offset=offset, lines=lines)

    def notice(self, text: str) -> None:
        """Show a notice: between two lines, or when the terminal is given back."""
        self._order("notice", text=text)

    def forget(self, text: str) -> None:
        """Drop a notice that has not been shown."""
        self._order("forget", text=text)

    def unread(self, number: int) -> None:
        """Say in the help on relay's keys how many unread items are in the user's inbox."""
        self._order("unread", number=number)

    def dismiss(self) -> None:
        """Release the user who asked to detach, after `note_reset`."""
        self._order("dismiss")

    def started(self, text: str) -> None:
        """Release the client that started a detached session."""
        self._order("started", text=text)

    def finish(self) -> None:
        """Discard what the user's terminal has not taken yet, and close the agent's terminal."""
        self._order("finish")

    def goodbye(self) -> None:
        """Return the user to their shell, after `note_reset`: the agent's last output has been processed."""
        self._order("goodbye")

    def keep(self, kept: bool, *, ordered: str = "") -> None:
        """Set whether the shim waits for `start` at the agent's end.

        ordered: how another agent follows, or "stop"; passed on to the next session if one takes over.
        """
        self.kept = kept
        self._order("keep", kept=kept, ordered=ordered)

    def pause(self, text: str) -> None:
        """Make the shim wait for `start` as long as it takes, and keep the user's terminal attached.

        text: says how the agent has ended, and what follows; the shim prepends the agent's name.
        Only after `keep(True)` and OutputEnded.
        """
        self._order("pause", text=text)

    def start(self, order: dict[str, Any]) -> None:
        """Start another agent (relay.shim.shim.AgentOrder) once this one and this session have ended.

        Only after `keep(True)`.
        """
        self._order("start", **order)

    def done(self) -> None:
        """Report that the work of this agent's sessions is done."""
        self._order("over")

    # Questions.

    def output_pending(self) -> bool:
        """Return True if there is unread output of the agent in the ring or the PTY."""
        # Check in the order in which output flows: what leaves the terminal meanwhile appears in the ring.
        return self.pty.output_pending() or bool(self.ring.words[ring.READING]) or self.ring.pending

    @property
    def unwritten(self) -> int:
        """The number of bytes queued for the agent and not yet written to its terminal."""
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
        deadline = time.monotonic() + ANSWER_TIMEOUT
        others: list[dict[str, Any]] = []
        answer: dict[str, Any] | None = None
        while (left := deadline - time.monotonic()) > 0 and answer is None:
            line = self._lines.next(left)
            if line is not None and line.get("id") == self._questions:
                answer = line
            elif line is not None:
                others.append(line)
        self._lines.put_back(others)
        self._hear_soon()
        return None if answer is None else answer["answer"]

    def _order(self, do: str | None, **fields: Any) -> None:
        if do is not None:
            fields["do"] = do
        line = json.dumps(fields, ensure_ascii=False).encode("utf-8", "surrogatepass") + b"\n"
        try:
            self._lines.channel.sendall(line)
        except OSError:
            pass  # the shim has died: `listen` reports it


class _Lines:
    def __init__(self, fd: int) -> None:
        self.channel = socket.socket(fileno=fd)
        self._lines: deque[dict[str, Any]] = deque()
        self._rest = b""

    def next(self, timeout: float | None) -> dict[str, Any] | None:
        """Return the next line, or None after `timeout` seconds. Raise OSError if the shim has died."""
        while not self._lines:
            if not self.receive(timeout):
                return None
        return self._lines.popleft()

    def received(self) -> dict[str, Any] | None:
        """Return the next line that has been received; None if there is none."""
        return self._lines.popleft() if self._lines else None

    def put_back(self, lines: list[dict[str, Any]]) -> None:
        self._lines.extendleft(reversed(lines))

    def receive(self, timeout: float | None) -> bool:
        """Receive what has arrived; return False after `timeout` seconds. Raise OSError as `next` does."""
        if timeout is not None and not select.select([self.channel], [], [], timeout)[0]:
            return False
        data = self.channel.recv(1 << 16)
        if not data:
            raise ConnectionResetError("the shim has died")
        *lines, self._rest = (self._rest + data).split(b"\n")
        self._lines.extend(map(json.loads, lines))
        return True
