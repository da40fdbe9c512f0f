"""The terminal client: the process that `relay wrap` and `relay attach` leave in the user's foreground.

It hands its terminal over to the agent's shim, and neither reads nor writes it afterwards.  It sets raw mode,
restores the old modes whatever happens, forwards window sizes, signals and job control, and exits with the
agent's exit code.

Client and shim exchange JSON lines over a Unix socket:
    to the shim      {"op": "winch"} {"op": "signal", "number": N} {"op": "hangup"} {"op": "detach"}
                     {"op": "resume", "foreground": BOOL}
    to the client    {"event": "agent", "group": PID} {"event": "modes", "reset": TEXT}
                     {"event": "stopped", "asked": BOOL}
                     {"event": "exit", "code": N, "reset": TEXT, "asked": BOOL, "notices": [TEXT, ...]}
                     {"event": "detached", "reset": TEXT, "asked": BOOL, "notices": [TEXT, ...],
                      "taken": BOOL, "switch": DIRECTION}
PID is 0 between two agents.  asked: answers to the agent's queries may be on their way.
"""

from __future__ import annotations

import os
import select
import sys
import termios
import time

from relay.shim import signals as signal
from relay.shim.modes import UNDO
from relay.shim.pty import raw

TYPE_CHECKING = False
if TYPE_CHECKING:
    import _socket
    from typing import Any

FORWARDED = (
    signal.SIGTERM,
    signal.SIGINT,
    signal.SIGQUIT,
    signal.SIGHUP,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGTSTP,
)
"""Signals that users send to the visible command; forwarded to the agent."""

HANDLED = frozenset({*FORWARDED, signal.SIGWINCH, signal.SIGCONT})
"""Signals that `Client.run` handles; blocked until it does, from before the terminal's modes change."""

FOREGROUND_CHECK_EVERY = 100
"""Milliseconds between a background job's checks for `fg`: a shell sends SIGCONT to a stopped job, but
nothing to a running one."""

FENCE, FENCED = b"\x1b[5n", b"\x1b[0n"
"""A query that every terminal answers, after everything that it reported before, and the answer (DSR)."""

FENCE_TIMEOUT = 0.5
"""Seconds to wait for the answer: more than a slow network takes."""

REPORTING = ("9", "1000", "1002", "1003", "1004", "2031", "2048")
"""DEC private modes in which a terminal reports without being asked: mouse, focus, colours, size."""

SHIM_DIED = 70
"""The exit code when the shim was killed and the agent's exit code is unknown (EX_SOFTWARE of sysexits.h)."""


class SwitchAgent(Exception):
    """The user has left the agent `name` of `team` for another. direction: "next" or "previous"."""

    def __init__(self, direction: str, team: str, name: str) -> None:
        super().__init__(direction)
        self.direction = direction
        self.team = team
        self.name = name


class TerminalMode:
    """The modes of the user's terminal: raw while attached, restored afterwards.

    Raw mode applies only if the terminal is both our input and our output. With redirected output, the user
    keeps the terminal's own line editing and echo.
    """

    def __init__(self, source: int, sink: int) -> None:
        self.source = source
        self.saved: list[Any] | None = list(termios.tcgetattr(source)) if os.isatty(source) else None
        self.interactive = self.saved is not None and os.isatty(sink)
        self._raw = False

    def set_raw(self) -> None:
        """Set raw mode, if the terminal is interactive and still exists."""
        if self.interactive and not self._raw:
            try:
                # Save the modes each time: the user may have changed them while our job was stopped.
                self.saved = list(termios.tcgetattr(self.source))
            except termios.error:
                return  # the terminal is gone
            self._raw = True
            self._set(raw(self.saved))

    def restore(self) -> None:
        """Restore the modes if `set_raw` changed them."""
        if self._raw and self.saved is not None:
            self._raw = False
            self._set(self.saved)

    def in_foreground(self) -> bool:
        """Return True if our job may use the terminal, which it may not after `bg`."""
        if self.saved is None:
            return True
        try:
            return os.tcgetpgrp(self.source) == os.getpgrp()
        except OSError:
            return True  # not our controlling terminal: no job control

    def _set(self, attributes: list[Any]) -> None:
        """Set the modes if the terminal still exists. Ignore SIGTTOU, which would stop a background job."""
        before = signal.signal(signal.SIGTTOU, signal.SIG_IGN)
        try:
            # TCSADRAIN would wait forever on a terminal stopped with Ctrl-S, and TCSAFLUSH would discard
            # type-ahead.
            termios.tcsetattr(self.source, termios.TCSANOW, attributes)
        except termios.error:
            pass
        finally:
            signal.signal(signal.SIGTTOU, before)


class Client:
    """Serves the shim's channel and signals until the agent `name` of `team` ends or the user detaches."""

    def __init__(self, channel: _socket.socket, mode: TerminalMode, team: str, name: str) -> None:
        self.channel = channel
        self._agent = team, name
        self.mode = mode
        self.group = 0
        self.reset = ""
        self._foreground = mode.in_foreground()
        self._received = bytearray()
        self._signals: list[int] = []

    def run(self) -> int:
        """Return the exit code for the shell: the agent's, or 0 after detaching. Raise SwitchAgent.

        Restore the signal handlers: the caller may be a program that goes on.
        """
        wake_read, wake_write = os.pipe()
        os.set_blocking(wake_write, False)
        wakeup = signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        # nohup: the agent ignores the signal, too
        handled = [number for number in HANDLED if signal.getsignal(number) != signal.SIG_IGN]
        handlers = {
            number: signal.signal(number, lambda number, _: self._signals.append(number))
            for number in handled
        }
        signal.pthread_sigmask(signal.SIG_UNBLOCK, HANDLED)
        poll = select.poll()
        poll.register(self.channel.fileno(), select.POLLIN)
        poll.register(wake_read, select.POLLIN)
        try:
            while True:
                if not self._foreground and self.mode.in_foreground():
                    self._resume()
                for fd, _ in poll.poll(None if self._foreground else FOREGROUND_CHECK_EVERY):
                    if fd == wake_read:
                        os.read(wake_read, 512)
                        self._on_signals()
                    elif (code := self._on_channel()) is not None:
                        return code
        finally:
            self.mode.restore()
            signal.set_wakeup_fd(wakeup)
            for number, handler in handlers.items():
                signal.signal(number, handler or signal.SIG_DFL)  # None: not set from Python
            os.close(wake_read)
            os.close(wake_write)

    def _on_signals(self) -> None:
        numbers, self._signals = self._signals, []
        for number in dict.fromkeys(numbers):
            if number == signal.SIGWINCH:
                self._send('{"op": "winch"}')
            elif number == signal.SIGCONT:
                self._resume()
            elif number == signal.SIGHUP:
                self._send('{"op": "hangup"}')
            else:
                self._send(f'{{"op": "signal", "number": {number}}}')

    def _send(self, line: str) -> None:
        try:
            self.channel.sendall(line.encode() + b"\n")
        except OSError:
            pass  # the shim has ended: the channel reports this next

    def _on_channel(self) -> int | None:
        import json  # 5 ms: not before the agent has started

        try:
            data = self.channel.recv(1 << 16)
        except ConnectionResetError:
            data = b""
        if not data:
            return self._shim_died()
        self._received += data
        *lines, rest = self._received.split(b"\n")
        self._received = bytearray(rest)
        for line in lines:
            if (code := self._on_event(json.loads(line))) is not None:
                return code
        return None

    def _on_event(self, event: dict[str, Any]) -> int | None:
        match event["event"]:
            case "agent":
                self.group = event["group"]
            case "modes":
                self.reset = event["reset"]
            case "stopped":
                self._stop(asked=event.get("asked", False))
            case "exit" | "detached":
                self.reset = event.get("reset", "")
                self._give_back(asked=event.get("asked", False))
                for notice in event["notices"]:
                    self._say(notice)
                if event.get("taken"):
                    self._wait_for_enter()
                if direction := event.get("switch"):
                    raise SwitchAgent(direction, *self._agent)
                return int(event.get("code", 0))
        return None

    def _wait_for_enter(self) -> None:
        """Until the user presses Enter, keep keys meant for the agent from reaching their shell."""
        if not (self.mode.interactive and self.mode.in_foreground()):
            return
        self.mode.set_raw()  # first: once users have read the line, nothing they type may echo
        self._say("what you type now goes nowhere; press Enter to continue.\r")
        try:
            while {*self._signals} <= {signal.SIGWINCH, signal.SIGCONT}:  # the others end the wait
                if select.select([self.mode.source], [], [], FOREGROUND_CHECK_EVERY / 1000)[0]:
                    keys = os.read(self.mode.source, 1024)
                    if not keys or {*keys} & {*b"\r\n\x03\x04"}:
                        break
        except OSError:
            pass  # the terminal has gone
        finally:
            self.mode.restore()

    def _stop(self, *, asked: bool) -> None:
        """Stop our whole job, as the agent stopped with Ctrl-Z would have."""
        self._give_back(asked=asked)
        before = signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        os.killpg(os.getpgrp(), signal.SIGTSTP)  # returns after fg or bg
        signal.signal(signal.SIGTSTP, before)
        # Don't leave this to SIGCONT: in an orphaned process group, the kernel discards SIGTSTP, and nothing
        # would continue the agent.
        self._signals = [number for number in self._signals if number != signal.SIGCONT]
        self._resume()

    def _resume(self) -> None:
        """Continue the agent after `fg` or `bg`; in the background, it has no keyboard."""
        self._foreground = self.mode.in_foreground()
        if self._foreground:
            self.mode.set_raw()
        self._send(f'{{"op": "resume", "foreground": {"true" if self._foreground else "false"}}}')

    def _shim_died(self) -> int:
        """Restore the terminal and end the agent after its shim was killed. Return the exit code."""
        # The last reported modes may be outdated, and we don't know where the agent's drawing ends.
        self.reset += UNDO.decode() + "\x1b[999B\r\n"
        self._give_back(asked=True)
        if self.group:
            for number in (signal.SIGHUP, signal.SIGCONT, signal.SIGTERM, signal.SIGKILL):
                try:
                    os.killpg(self.group, number)
                except (ProcessLookupError, PermissionError):
                    break
                # We cannot wait for a process that is not our child; this pause suffices for most.
                select.select([], [], [], 0.2)
        self._say("relay ended unexpectedly; its agent was stopped.")
        return SHIM_DIED

    def _give_back(self, *, asked: bool) -> None:
        """Undo the modes that the agent has set (mouse, alternate screen, ...); restore the terminal's own.

        asked: answers to the agent's queries may be on their way.
        """
        reporting = any(f"\x1b[?{mode}l" in self.reset for mode in REPORTING)
        fenced = self.mode.interactive and self.mode.in_foreground() and (asked or reporting)
        if fenced and not select.select([], [1], [], FENCE_TIMEOUT)[1]:
            fenced = False  # stopped with Ctrl-S: the write below waits, in the terminal's own modes
        if fenced:
            self._write(self.reset.encode() + FENCE)
            self._drop_reports()
        self.mode.restore()
        if not fenced and self.reset and self.mode.interactive:
            self._write(self.reset.encode())

    def _drop_reports(self) -> None:
        """Read what the terminal reports until it answers FENCE: the next reader would take it for typing."""
        dropped, deadline = b"", time.monotonic() + FENCE_TIMEOUT
        while FENCED not in dropped and (left := deadline - time.monotonic()) > 0:
            try:
                if select.select([self.mode.source], [], [], left)[0]:
                    read = os.read(self.mode.source, 1024)
                    if not read:
                        return
                    dropped += read
            except OSError:
                return  # the terminal has gone

    def _write(self, data: bytes) -> None:
        try:
            os.write(1, data)
        except OSError:
            pass

    def _say(self, text: str) -> None:
        try:
            sys.stderr.write(f"relay: {text}\n")
            sys.stderr.flush()
        except OSError:
            pass
