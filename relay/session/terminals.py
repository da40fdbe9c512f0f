"""The person's terminal, from the session's side: who lends one now, and what is said to them.

A client is a connection to a `relay wrap` or `relay attach` process (relay/terminal/client.py says what is
spoken).  There is one at a time; another that attaches takes over.
"""

from __future__ import annotations

import asyncio
import signal
import socket
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from relay.control.server import lines, send
from relay.errors import RelayError
from relay.readers.auto import AutoReader
from relay.session.work import Workers
from relay.terminal.forward import Forwarder
from relay.terminal.lend import Lent
from relay.terminal.pty import Pty, flags
from relay.text import one_line

GOODBYE = 1.0
"""Seconds that a client gets to take our last line."""

MODES_INTERVAL = 0.05
"""Seconds between two looks at which terminal modes the agent has set."""

END_LOOK, MAX_END_LOOK = 0.01, 0.5
"""Seconds between two looks at whether the agent asks for more input than there is; they grow."""

RAW_ENDS = 3
"""How often a program that reads single keys is given a Ctrl-D; it may mean something else to it."""

HANG_UP = 1.0
"""Seconds that an agent has to say its last words after its terminal has gone."""

MAX_UNTOLD = 20
"""Notices kept for a person whose screen must not be written into."""

BELL = b"\a"
"""Written where a notice would spoil the screen: `relay explain` shows it."""

KEYS = frozenset({signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP})
"""Signals that a terminal's keys send: they are for its foreground job."""

NOTICE_LENGTH = 300
"""Characters of a notice that are shown."""


class TerminalClient:
    """One connected client. `owner`: it started the agent, so losing its terminal ends the agent."""

    def __init__(self, channel: socket.socket, *, owner: bool) -> None:
        self.owner = owner
        self._channel = channel
        self._dismissed = False
        channel.setblocking(False)

    async def run(self, on_request: Callable[[dict[str, Any]], None], on_gone: Callable[[], None]) -> None:
        """Pass on what the client asks until it goes; `on_gone` only if it was not dismissed."""
        try:
            with suppress(OSError, ValueError):
                async for fields, _ in lines(self._channel):
                    on_request(fields)
        finally:
            self._channel.close()
        if not self._dismissed:
            on_gone()

    async def tell(self, event: str, **fields: Any) -> None:
        """Send one event; a client that is gone or takes nothing is not waited for."""
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(GOODBYE):
                await send(self._channel, {"event": event, **fields})

    async def dismiss(self, event: str, **fields: Any) -> None:
        """Send a last event and hang up; `run` ends."""
        self._dismissed = True
        await self.tell(event, **fields)
        with suppress(OSError):
            self._channel.shutdown(socket.SHUT_RDWR)


class Terminals:
    """Which client is served, and what becomes of the agent when its terminal goes."""

    def __init__(
        self, forwarder: Forwarder, pty: Pty, reader: AutoReader, workers: Workers, name: str
    ) -> None:
        self._forwarder = forwarder
        self._pty = pty
        self._reader = reader
        self._workers = workers
        self._name = name
        self._client: TerminalClient | None = None
        self._reset = ""
        self._modes_timer: asyncio.TimerHandle | None = None
        self._untold: deque[str] = deque(maxlen=MAX_UNTOLD)
        self._waiting: Lent | None = None
        self._holds = 0
        self._background = False

    @property
    def untold(self) -> list[str]:
        """What the person has not been shown: it comes when the terminal is given back."""
        return list(self._untold)

    def adopt(self, client: TerminalClient) -> None:
        """Serve `client`, whose terminal is lent already or will be."""
        self._client = client
        self._background = False
        if self._reader.screen is not None:
            self._reader.screen.on_reply = None  # the person's terminal answers queries from now on
        self._workers.spawn(
            client.run(lambda fields: self._asked(client, fields), lambda: self._gone(client)), "the terminal"
        )
        self._workers.spawn(client.tell("agent", group=self._pty.pid), "the terminal")
        self._update_modes()
        self._workers.spawn(client.tell("modes", reset=self._reset), "the terminal")
        self._fit()  # it may have changed while nobody told us

    async def take_over(self, client: TerminalClient, lent: Lent) -> None:
        """Serve another terminal instead of the one served now; it is repainted.

        Raises RelayError, having closed `lent`, when the agent has no terminal any more.
        """
        while self._client is not None and not self._forwarder.over:  # two at once come here in turn
            await self._dismiss(f"another terminal has attached; `relay attach {self._name}` takes it back")
        if self._forwarder.over:
            lent.close()
            raise RelayError(
                f"{self._name} has no terminal any more: it has ended, or ignores that it was taken from it. "
                f"`relay stop {self._name}` ends what is left of it."
            )
        self._pty.return_line_feeds()
        self._waiting = lent
        self.adopt(client)  # it takes the size of the new terminal before the screen is held for the repaint
        self._holds += 1
        self._forwarder.hold()

    def held(self) -> None:
        """All output until here is on the screen, and no more comes: show it to who has attached."""
        self._holds -= 1
        lent = self._waiting
        if lent is None or self._holds:
            return  # it has gone meanwhile, and perhaps another has come
        self._waiting = None
        if self._forwarder.over:
            lent.close()
            return
        screen = self._reader.screen
        self._forwarder.lend(lent, b"" if screen is None else screen.repaint())

    def answer_queries(self) -> None:
        """With no person's terminal to do it, answer the agent's queries from the virtual screen."""
        if self._client is None and self._reader.screen is not None:
            self._reader.screen.on_reply = self._forwarder.reply

    def detach(self) -> None:
        """The person asked to: give the terminal back, the agent runs on."""
        self._workers.spawn(
            self._dismiss(f"{self._name} runs on; `relay attach {self._name}` brings it back"), "the terminal"
        )

    def lost(self, what: str) -> None:
        """The terminal has gone. Its owner's agent ends as it would have alone; another's runs on."""
        if self._client is not None and self._client.owner:
            if what == "pipe":
                self._pty.signal(signal.SIGPIPE)
            else:
                self._pty.hang_up(signal.SIGHUP)
                # What ignores that finds, as it would alone, that its terminal gives an end of file.
                asyncio.get_running_loop().call_later(HANG_UP, self._end_terminal, self._client)
        else:
            self.detach()

    def _end_terminal(self, owner: TerminalClient) -> None:
        """Unless somebody else has lent it another one meanwhile."""
        if self._client is None or self._client is owner:
            self._forwarder.finish()

    async def end_input(self, waits_for_input: Callable[[], bool]) -> None:
        """What was piped into us is over: whenever the agent asks for more it gets an end of file.

        Only then: typed ahead, it would reach a program that switches to raw mode as another character.
        """
        delay, raw_ends = END_LOOK, 0
        while raw_ends < RAW_ENDS:
            await asyncio.sleep(delay)
            delay = min(delay * 1.5, MAX_END_LOOK)
            if waits_for_input():
                canonical, _, _ = flags(self._pty.attributes())
                raw_ends += not canonical
                self._forwarder.end_of_file()

    def agent_stopped(self) -> bool:
        """Ctrl-Z: the person's job stops with the agent; where nobody is, nobody could continue it.

        Whether the agent stays stopped.
        """
        if self._client is None:
            self._pty.signal(signal.SIGCONT)
            return False
        self._forwarder.pause(True)
        self._forwarder.settle()
        return True

    def settled(self) -> None:
        """What the agent said before it stopped is on the screen: now the person's job may stop."""
        if self._client is not None:
            self._workers.spawn(self._client.tell("stopped"), "the terminal")

    def screen_changed(self) -> None:
        """Keep the client informed of the modes it must undo if we are killed: at once, then at intervals."""
        if self._modes_timer is None:
            self._look_at_modes()
            loop = asyncio.get_running_loop()
            self._modes_timer = loop.call_later(MODES_INTERVAL, self._look_at_modes)

    def tell(self, text: str) -> None:
        """Show one line, at once where that spoils no screen, else when the terminal is given back."""
        text = one_line(text, NOTICE_LENGTH)
        screen = self._reader.screen
        canonical, _, _ = flags(self._pty.attributes())
        if not self._forwarder.watched or not canonical or screen is None or screen.alternate:
            self._untold.append(text)
            self._forwarder.aside(BELL)
            return
        start = "\r\n" if screen.cursor[0] else ""
        self._forwarder.show(f"{start}relay: {text}\r\n".encode())

    def forget(self, text: str) -> None:
        """What `tell` was given is not so any more: who has not been shown it need not be."""
        past = one_line(text, NOTICE_LENGTH)
        self._untold = deque((each for each in self._untold if each != past), maxlen=MAX_UNTOLD)

    async def goodbye(self, code: int) -> None:
        """The agent has ended: give the terminal back with its exit code."""
        client, self._client = self._client, None
        if client is not None:
            self._update_modes()
            reset = self._reset + (self._below() if self._untold else "")
            await client.dismiss("exit", code=code, reset=reset, notices=list(self._untold))

    async def _dismiss(self, text: str) -> None:
        client, self._client = self._client, None
        self._update_modes()
        self._withdraw()
        if client is not None:
            notices = [*self._untold, text]
            self._untold.clear()
            await client.dismiss("detached", reset=self._reset + self._below(), notices=notices)

    def _below(self) -> str:
        """What moves the cursor below all that the agent has drawn beside the person's shell."""
        screen = self._reader.screen
        if screen is None or screen.alternate:
            return ""
        column, row = screen.cursor
        down = max((y for y, drawn in enumerate(screen.rows()) if drawn.text), default=0) - row
        return (f"\x1b[{down}B" if down > 0 else "") + ("\r\n" if column or down > 0 else "")

    def _withdraw(self, restore: bool = False) -> None:
        self._forwarder.withdraw(restore)
        if self._waiting is not None:
            self._waiting.close()
            self._waiting = None
        self.answer_queries()

    def _asked(self, client: TerminalClient, fields: dict[str, Any]) -> None:
        if client is not self._client:
            return
        match fields:
            case {"op": "winch"}:
                self._fit()
            case {"op": "signal", "number": int(number)} if number in signal.valid_signals():
                group = self._pty.foreground() if number in KEYS else self._pty.pid
                self._pty.signal(number, group)
            case {"op": "hangup"}:
                self._pty.hang_up(signal.SIGHUP) if client.owner else self.detach()
            case {"op": "resume", "foreground": bool(foreground)}:
                self._background = not foreground
                self._fit()  # first: what the person types now is meant for a screen of this size
                self._forwarder.pause(self._background)
                screen = self._reader.screen
                if foreground and screen is not None and screen.alternate:
                    # It was stopped without warning: nobody but us draws again what it had drawn.
                    self._forwarder.show(screen.repaint())
                self._pty.signal(signal.SIGCONT)

    def _fit(self) -> None:
        """Give the agent's terminal the size of the person's."""
        size = self._forwarder.lent_size() if self._waiting is None else self._waiting.size()
        if size:
            self._forwarder.resize(*size)

    def _gone(self, client: TerminalClient) -> None:
        """The client was killed: its terminal gets its modes back, and the agent runs on without one."""
        if client is self._client:
            self._client = None
            self._update_modes()
            self._forwarder.show(self._reset.encode())
            self._withdraw(restore=True)

    def _look_at_modes(self) -> None:
        self._modes_timer = None
        canonical, _, _ = flags(self._pty.attributes())
        if self._background and not canonical:
            # Alone, it would have been stopped for changing the modes of a terminal that is another job's.
            self._pty.signal(signal.SIGTTOU)
        if self._update_modes() and self._client is not None:
            self._workers.spawn(self._client.tell("modes", reset=self._reset), "the terminal")

    def _update_modes(self) -> bool:
        screen = self._reader.screen
        reset = "" if screen is None else screen.modes_reset().decode("ascii", "replace")
        changed, self._reset = reset != self._reset, reset
        return changed
