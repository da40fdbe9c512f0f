"""One run of a rule's command: its process, standard input, output, time limit and end.

                    ┌─ payload ──→ stdin
    run ── sh -c ───┼─ stdout ───→ kept, at most KEEP; of the rest, only the last END
                    └─ stderr ───→ kept, at most KEEP; the rest is discarded

The command leads its own session, so it has no controlling terminal. At its timeout, or when `run` is
cancelled, it is killed with everything that it has started. Processes that it leaves behind when it ends by
itself keep running, as in a shell.

The beginning of each stream is read as it arrives; after that, the pipe is enlarged and drained by a timer,
so that a flood seldom takes the GIL, which the thread that forwards the terminal needs.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import secrets
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from relay.dataclass import dataclass
from relay.rules import process_tree

KEEP = 1 << 20
"""Bytes kept of each stream, from its beginning."""

END = 8_000
"""Bytes kept from the end of standard output, however long it is."""

_GRACE = 0.25  # seconds to wait for EOF after the command has ended: a child may keep a pipe open
_FLOOD = 0.005  # seconds between two reads of a pipe whose contents are discarded
_CHUNK = 1 << 16  # capacity of a pipe in bytes (pipe(7))
_WIDE = 1 << 20  # capacity in bytes that any user may set (/proc/sys/fs/pipe-max-size)
_PAUSE = 0.01  # seconds between two polls for a process's end, if the system does not report it


@dataclass(frozen=True, slots=True)
class CommandResult:
    """The result of one run of a command.

    exit_code: 128 + N if signal N ended it, as in a shell; None if it did not end by itself.
    stdout, stderr: their first KEEP bytes. cut: stdout was longer.
    end:       the last END bytes of stdout.
    duration:  seconds.
    problem:   why it could not be started, or was killed; "" if it ended by itself.
    started:   there was a process.
    """

    exit_code: int | None = None
    stdout: bytes = b""
    stderr: bytes = b""
    cut: bool = False
    end: bytes = b""
    duration: float = 0.0
    problem: str = ""
    started: bool = True


async def run(
    command: str | Sequence[str],
    payload: bytes,
    *,
    cwd: Path,
    env: Mapping[str, str],
    timeout: float,
    clock: Callable[[], float] = time.monotonic,
) -> CommandResult:
    """Run `command` with `payload` on its standard input for at most `timeout` seconds.

    A shell runs a string; a sequence is a program with its arguments. A failure becomes the `problem` of the
    result; only a cancellation is raised.
    """
    began = clock()
    mark = secrets.token_hex(16)
    argv = ["/bin/sh", "-c", command] if isinstance(command, str) else list(command)
    ends: list[int] = []
    try:
        for _ in range(3):
            ends += os.pipe()
        stdin, feed, stdout_pipe, stdout, stderr_pipe, stderr = ends
        process = _start(argv, (stdin, stdout, stderr), cwd, {**env, process_tree.MARK: mark})
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        for end in ends:
            os.close(end)
        return _not_started(argv[0], cwd, error)
    for end in (stdin, stdout, stderr):
        os.close(end)
    ended = asyncio.ensure_future(_ended(process))
    out, err = _Reader(stdout_pipe), _Reader(stderr_pipe)
    writer = _Writer(feed, payload)
    try:
        # Not asyncio.timeout: what it cancels stays cancelled in early releases of Python 3.11.
        done, _ = await asyncio.wait({ended}, timeout=timeout)
        for task in done:
            task.result()
            await asyncio.wait({out.over, err.over}, timeout=_GRACE)
    finally:
        if process.returncode is None:
            try:  # in a thread, which continues if the caller is cancelled
                await asyncio.to_thread(process_tree.kill, process, mark)
            except RuntimeError:  # no thread can be started
                process_tree.kill(process, mark)
        ended.cancel()
        for each in (writer, out, err):
            each.close()
    kept = bytes(out.kept), bytes(err.kept), out.cut, out.end
    if not done:
        problem = f"It took longer than {timeout:g} s, and was killed with everything it had started."
        return CommandResult(None, *kept, clock() - began, problem)
    code = process.returncode
    return CommandResult(128 - code if code < 0 else code, *kept, clock() - began)


_IGNORED = (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGTTIN, signal.SIGTTOU)
"""Signals that a session ignores (relay.session.launch)."""


def _start(
    argv: Sequence[str], streams: tuple[int, int, int], cwd: Path, env: Mapping[str, str]
) -> subprocess.Popen[bytes]:
    """Start the process. No other Python thread runs for a millisecond, since the child borrows our memory.

    The child ignores none of the signals that relay ignores: exec keeps ignored signals ignored, but resets
    handled ones. Tests that a rule runs may need these signals.
    """
    main = threading.current_thread() is threading.main_thread()
    ignored = [each for each in _IGNORED if main and signal.getsignal(each) is signal.SIG_IGN]
    for number in ignored:
        signal.signal(number, lambda *_: None)
    stdin, stdout, stderr = streams
    try:
        return subprocess.Popen(
            argv, stdin=stdin, stdout=stdout, stderr=stderr, cwd=cwd, env=env, start_new_session=True
        )
    finally:
        for number in ignored:
            signal.signal(number, signal.SIG_IGN)


def _not_started(program: str, cwd: Path, error: Exception) -> CommandResult:
    """Return why there is no process, with the exit code that a shell would return."""
    match error:
        case FileNotFoundError() | NotADirectoryError() if not cwd.is_dir():
            return CommandResult(started=False, problem=f"Its directory {cwd} is gone.")
        case FileNotFoundError() | NotADirectoryError():
            return CommandResult(127, started=False, problem=f"There is no program {program}.")
        case PermissionError():
            why = f"{program} is not executable; use `chmod +x` on a script."
            return CommandResult(126, started=False, problem=why)
        case OSError(errno=errno.ENOEXEC):
            why = f"{program} is not a program; does its first line begin with #! and name an interpreter?"
            return CommandResult(126, started=False, problem=why)
        case _:
            return CommandResult(started=False, problem=f"No process could be started for it: {error}.")


async def _ended(process: subprocess.Popen[bytes]) -> None:
    try:
        fd = os.pidfd_open(process.pid)
    except (AttributeError, OSError):  # not Linux, or a system that forbids it
        while process.poll() is None:  # noqa: ASYNC110
            await asyncio.sleep(_PAUSE)
        return
    loop = asyncio.get_running_loop()
    over = asyncio.Event()
    loop.add_reader(fd, over.set)
    try:
        await over.wait()
    finally:
        loop.remove_reader(fd)
        os.close(fd)
    process.wait()


class _Reader:
    """Reads a pipe until EOF: `kept` is the beginning; `over` is done once nothing can write to the pipe."""

    def __init__(self, fd: int) -> None:
        self.kept = bytearray()
        self._rest = b""  # the end of what came after `kept`
        self.cut = False
        self._loop = asyncio.get_running_loop()
        self.over: asyncio.Future[None] = self._loop.create_future()
        self._fd = fd
        self._timer: asyncio.TimerHandle | None = None
        os.set_blocking(fd, False)
        self._loop.add_reader(fd, self._read)

    @property
    def end(self) -> bytes:
        """The last END bytes."""
        return (bytes(self.kept[-END:]) + self._rest)[-END:]

    def close(self) -> None:
        if self._fd < 0:
            return
        self._loop.remove_reader(self._fd)
        if self._timer is not None:
            self._timer.cancel()
        os.close(self._fd)
        self._fd = -1
        if not self.over.done():
            self.over.set_result(None)

    def _read(self) -> None:
        data = self._take(min(_CHUNK, KEEP - len(self.kept)))
        self.kept += data or b""
        if data is not None and len(self.kept) == KEEP:
            self._loop.remove_reader(self._fd)
            _widen(self._fd)
            self._empty()

    def _empty(self) -> None:
        """Discard what is in the pipe but its end; do so again a little later rather than at each byte."""
        self._timer = None
        if data := self._take(_WIDE):
            self.cut = True
            self._rest = (self._rest + data[-END:])[-END:]
        if self._fd >= 0:
            self._timer = self._loop.call_later(_FLOOD, self._empty)

    def _take(self, size: int) -> bytes | None:
        """Return at most `size` bytes, None if there are none now. Close the pipe at EOF."""
        try:
            data = os.read(self._fd, size)
        except BlockingIOError:
            return None
        if not data:
            self.close()
        return data or None


class _Writer:
    """Writes `data` into a pipe and closes it, whether or not the command reads it."""

    def __init__(self, fd: int, data: bytes) -> None:
        self._loop = asyncio.get_running_loop()
        self._fd = fd
        self._left = memoryview(data)
        os.set_blocking(fd, False)
        if len(data) > _CHUNK:
            _widen(fd)
        self._loop.add_writer(fd, self._write)

    def close(self) -> None:
        if self._fd < 0:
            return
        self._loop.remove_writer(self._fd)
        os.close(self._fd)
        self._fd = -1

    def _write(self) -> None:
        try:
            self._left = self._left[os.write(self._fd, self._left) :]
        except BlockingIOError:
            return
        except BrokenPipeError:
            self._left = self._left[:0]
        if not self._left:
            self.close()


def _widen(pipe: int) -> None:
    """Enlarge `pipe`, so that a flood wakes the event loop less often."""
    try:
        fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, _WIDE)
    except (AttributeError, OSError):
        pass  # not Linux, or the user's limit is reached: slower, but it works
