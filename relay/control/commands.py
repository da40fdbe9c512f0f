"""Runs relay's own commands for `relay web` and `relay top`, each in a process of its own.

    relay web ─ socket ─→ launcher ─ fork ─→ `relay COMMAND`

A command is the same code as in a terminal, with the same guard, limits and journal. What it is given stands
on no command line. The launcher is forked before there are threads, connections or secrets.
"""

from __future__ import annotations

import asyncio
import io
import json
import os
import signal
import socket
import sys
import traceback
from collections.abc import Callable
from typing import Any, NoReturn

from relay.control.sessions import error_from
from relay.dataclass import dataclass
from relay.errors import RelayError
from relay.text import visible

Dispatch = Callable[[list[str]], int]
"""Runs a command line of relay, and returns its exit code. Raises RelayError for a mistake by the user."""

MAX_OUTPUT = 32 << 20
"""Maximum bytes of a command's outcome."""

AT_ONCE = 32
"""Commands that run at a time; more wait."""

_DIED = "relay failed to do that: its process has ended."


@dataclass(frozen=True, slots=True)
class CommandEnd:
    """The end of a command. out, err: what it printed."""

    code: int
    out: str
    err: str

    @property
    def sentence(self) -> str:
        """Its result in one line: the last one of its output, or else what is wrong."""
        said = self.out if self.out.strip() and self.code == 0 else self.err.strip() or self.out
        return visible(said.strip().rpartition("\n")[2]).removeprefix("relay: ")

    def value(self) -> Any:
        """Return the JSON that it printed. Raise RelayError if it printed none."""
        try:
            return json.loads(self.out)
        except ValueError:
            raise RelayError(self.err.strip() or _DIED) from None


class Commands:
    """Starts commands. Create it while the process has one thread.

    quiet: what they report of relay's own defects is not for this terminal, which shows something else.
    """

    def __init__(self, dispatch: Dispatch, *, quiet: bool = False) -> None:
        self._launcher, its = socket.socketpair()
        self._pid = os.fork()
        if self._pid == 0:
            self._launcher.close()
            _launch(its, dispatch, quiet)
        its.close()
        self._room = asyncio.Semaphore(AT_ONCE)

    def close(self) -> None:
        """End the launcher. Commands that run already go on."""
        self._launcher.close()
        os.waitpid(self._pid, 0)

    async def run(self, *argv: str, input: str = "") -> CommandEnd:
        """Run a command to its end; raise the RelayError that it raises. input: its standard input."""
        async with self._room:
            said = await self._run({"argv": argv, "input": input})
        if "error" in said:
            raise error_from(said)
        return CommandEnd(**said)

    async def _run(self, request: dict[str, Any]) -> dict[str, Any]:
        loop = asyncio.get_running_loop()
        mine, its = socket.socketpair()
        with mine:
            with its:
                try:
                    socket.send_fds(self._launcher, [b"!"], [its.fileno()])
                except OSError:
                    raise RelayError("no command can be run any more. Start relay again.") from None
            mine.setblocking(False)
            outcome = bytearray()
            try:
                await loop.sock_sendall(mine, json.dumps(request).encode() + b"\n")
                while data := await loop.sock_recv(mine, 1 << 16):
                    outcome += data
                    if len(outcome) > MAX_OUTPUT:
                        raise RelayError("that is too much to be shown here. Use the command in a terminal.")
            except ConnectionError:
                pass
        try:
            said: dict[str, Any] = json.loads(outcome)
        except ValueError:
            raise RelayError(_DIED) from None
        return said


def _launch(requests: socket.socket, dispatch: Dispatch, quiet: bool) -> NoReturn:
    """Fork a process for each request, until `requests` is closed at the other end."""
    try:
        os.setsid()  # Ctrl-C in the terminal is not for commands
        null = os.open(os.devnull, os.O_RDWR)
        for fd in (0, 1, 2) if quiet else (0, 1):
            os.dup2(null, fd)
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for them
        while True:
            more, passed, _, _ = socket.recv_fds(requests, 1, 1)
            if not more:
                break
            with socket.socket(fileno=passed[0]) as channel:
                if os.fork() == 0:
                    requests.close()
                    _carry_out(channel, dispatch)
    finally:
        os._exit(0)


def _carry_out(channel: socket.socket, dispatch: Dispatch) -> NoReturn:
    """Run the command that comes over `channel`, and send its outcome."""
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        with channel.makefile("rb") as stream:
            request = json.loads(stream.readline())
        sys.stdin = io.TextIOWrapper(io.BytesIO(request["input"].encode("utf-8", "replace")))
        sys.stdout, sys.stderr = out, err = io.StringIO(), io.StringIO()
        channel.sendall(json.dumps(_outcome(request["argv"], dispatch, out, err)).encode())
    finally:
        os._exit(0)


def _outcome(argv: list[str], dispatch: Dispatch, out: io.StringIO, err: io.StringIO) -> dict[str, Any]:
    try:
        return {"code": dispatch(argv), "out": out.getvalue(), "err": err.getvalue()}
    except RelayError as mistake:
        return {"error": str(mistake), "type": type(mistake).__name__}
    except SystemExit:  # argparse has said why
        return {"error": err.getvalue().strip().rpartition("error: ")[2], "type": "UsageError"}
    except Exception as defect:  # noqa: BLE001 (logged with its traceback, answered, contained)
        traceback.print_exc(file=sys.__stderr__)
        text = f"relay failed to do that: {type(defect).__name__}. `relay {argv[0]}` in a terminal says more."
        return {"error": text, "type": "RelayError"}
