"""The pseudo-terminal, and the agent started in it as the foreground job of our own session.

The caller is a session leader (setsid) without a controlling terminal.  It makes the new terminal its
controlling terminal and starts the agent in its own process group, as a shell starts a foreground job.  So
the agent's group has a parent in its session, and the kernel lets Ctrl-Z stop it.  A child that becomes a
session leader instead (pty.fork, ptyprocess, script) is an orphaned process group, and the kernel discards
its SIGTSTP (POSIX.1-2017, 2.4.3).

This module is on the path to the agent's first byte: it imports little.
"""

from __future__ import annotations

import errno
import fcntl
import os
import select
import sys
import termios

from relay.errors import CommandNotExecutable, CommandNotFound, RelayError
from relay.shim import signals as signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any

COLUMNS, ROWS = 120, 40
"""The size of a detached terminal."""
_IFLAG, _OFLAG, _CFLAG, _LFLAG, _ISPEED, _OSPEED, _CC = range(7)
"""Indices into the list that termios.tcgetattr returns."""
_PEER = 0x5441
"""TIOCGPTPEER of ioctl_tty(2): opens the other end of a pseudo-terminal."""


def resolve(command: str, env: Mapping[str, str]) -> str:
    """Return the path of `command` as execvp(3) finds it. Raise CommandNotFound or CommandNotExecutable."""
    if not command:
        raise CommandNotFound("no command was given. Try `relay wrap bash`.")
    candidates = [command]
    if "/" not in command:
        path = env.get("PATH") or os.defpath
        candidates = [os.path.join(folder or ".", command) for folder in path.split(os.pathsep)]
    exists = None
    for candidate in candidates:
        if os.path.isfile(candidate):
            if os.access(candidate, os.X_OK):
                return candidate
            exists = exists or candidate
        elif "/" in command and os.path.isdir(candidate):
            raise CommandNotExecutable(f"{command!r} is a directory. Name a program to run.")
    if exists:
        raise CommandNotExecutable(f"{exists!r} is not executable. Try `chmod +x {exists}`.")
    where = "no such file" if "/" in command else "it is not in PATH"
    raise CommandNotFound(f"command not found: {command!r}; {where}.")


class Pty:
    """A running agent: `pid` is also its process group, `master` our end of its terminal, -1 once closed.

    line_feeds_return: the terminal turns the agent's line feeds into CR LF, as terminals do by default.
    leader:            the terminal's session leader; by default this process.
    size:              columns, rows, width and height in pixels, as last set.
    slave:             the agent's end, which we keep open when pipes replace the terminal; -1: closed.
    pipes:             our ends of the pipes that replace the terminal, by the agent's descriptor.
    """

    def __init__(
        self,
        pid: int,
        master: int,
        *,
        line_feeds_return: bool = True,
        leader: int | None = None,
        size: tuple[int, int, int, int] = (COLUMNS, ROWS, 0, 0),
        slave: int = -1,
        pipes: dict[int, int] | None = None,
    ) -> None:
        self.pid = pid
        self.pipes = pipes or {}
        self.slave = slave
        self.size = size
        self.master = master
        self.line_feeds_return = line_feeds_return
        self.leader = os.getpid() if leader is None else leader
        self._report = -1  # a pipe; the child writes to it if it cannot execute the program

    @classmethod
    def spawn(
        cls,
        path: str,
        argv: Sequence[str],
        env: Mapping[str, str],
        *,
        size: tuple[int, int, int, int] = (COLUMNS, ROWS, 0, 0),
        attributes: list[Any] | None = None,
        echo: bool = True,
        line_feeds_return: bool = True,
        defaults: Iterable[int] = (),
        pipes: Sequence[int] = (),
    ) -> Pty:
        """Start `path` with `argv` in a new terminal of `size` (columns, rows, width and height in pixels).

        attributes: termios attributes of the user's terminal, to copy to the new one.
        echo, line_feeds_return: False switches off ECHO and OPOST.
        defaults: signals that we ignore but the agent must not.
        pipes: the agent's descriptors (0, 1, 2) that are pipes, not its terminal.
        The kernel may still refuse to execute `path`: call `await_start`.
        """
        master, slave = os.openpty()
        if attributes is not None:
            termios.tcsetattr(slave, termios.TCSANOW, attributes)
        changed = termios.tcgetattr(slave)
        if not echo:
            changed[_LFLAG] &= ~termios.ECHO
        if not line_feeds_return:
            changed[_OFLAG] &= ~termios.OPOST
        termios.tcsetattr(slave, termios.TCSANOW, changed)
        set_size(master, *size)
        fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
        ours: dict[int, int] = {}
        agents: dict[int, int] = {}
        if pipes:
            ours, agents = _make_pipes(pipes)
        failed, report = os.pipe()
        pid = os.fork()
        if pid == 0:
            standard = [agents.get(number, slave) for number in range(3)]
            _execute(path, argv, env, standard, slave, report, defaults)
        for fd in (report, *agents.values()):
            os.close(fd)
        if not pipes:
            os.close(slave)
            slave = -1
        pty = cls(pid, master, line_feeds_return=line_feeds_return, size=size, slave=slave, pipes=ours)
        pty._report = failed
        return pty

    def await_start(self, command: str) -> None:
        """Wait until the kernel executes `command`, the program of `spawn`.

        If the kernel refuses, close the terminal, and raise CommandNotExecutable or another RelayError.
        """
        with open(self._report, "rb") as stream:
            trouble = stream.read()
        self._report = -1
        if trouble:
            os.waitpid(self.pid, 0)
            self.close()
            for fd in self.pipes.values():
                os.close(fd)
            code = int(trouble)
            if code in {errno.ENOENT, errno.ENOEXEC, errno.EACCES}:
                raise CommandNotExecutable(
                    f"{command!r} cannot be executed: {os.strerror(code)}. Check its first line and format."
                )
            raise RelayError(f"cannot start {command!r}: {os.strerror(code)}.")

    def close(self) -> None:
        """Close our end, which hangs up the agent's terminal; the descriptor may be reused at once."""
        for fd in {self.master, self.slave} - {-1}:
            os.close(fd)
        self.master = self.slave = -1

    def return_line_feeds(self) -> None:
        """Start turning line feeds into CR LF: a terminal is about to show what was redirected so far."""
        if self.line_feeds_return:
            return
        self.line_feeds_return = True
        changed = self.attributes()
        if changed is not None and flags(changed)[0]:  # in raw mode, the program writes its own CRs
            changed[_OFLAG] |= termios.OPOST | termios.ONLCR
            termios.tcsetattr(self.master, termios.TCSANOW, changed)

    def signal(self, number: int, group: int = 0) -> None:
        """Send signal `number` to `group`, by default the agent's process group, if it still exists."""
        try:
            os.killpg(group or self.pid, number)
        except (ProcessLookupError, PermissionError):
            pass

    def hang_up(self, number: int) -> None:
        """Send `number` to every process group of the agent's terminal, and SIGCONT to wake stopped ones."""
        for group in self.groups():
            self.signal(number, group)
            self.signal(signal.SIGCONT, group)

    def groups(self) -> set[int]:
        """Return the living process groups of the agent's terminal session, which may outlive the agent.

        Processes that created their own session (setsid, as daemons do) are not included.
        """
        groups: set[int] = set()
        try:
            entries = os.listdir("/proc")
        except OSError:
            return {self.pid, self.foreground() or self.pid}  # no /proc here; these two may be alive
        for entry in entries:
            if not entry.isdigit():
                continue
            try:
                with open(f"/proc/{entry}/stat", "rb") as stat:
                    # pid (comm) state ppid pgrp session ...: comm may contain spaces and parentheses
                    state, _, group, session = stat.read().rpartition(b")")[2].split()[:4]
            except (OSError, ValueError):
                continue
            if int(session) == self.leader != int(group) and state != b"Z":
                groups.add(int(group))
        return groups

    def output_pending(self) -> bool:
        if self.master < 0:
            return False
        look = select.poll()
        look.register(self.master, select.POLLIN)
        return any(mask & select.POLLIN for _, mask in look.poll(0))

    def foreground(self) -> int:
        """Return the terminal's foreground process group, or 0 if there is none."""
        try:
            return 0 if self.master < 0 else os.tcgetpgrp(self.master)
        except OSError:
            return 0

    def unread_keys(self) -> int:
        """Return the number of bytes in the terminal's input that no program has read; 0 if unknown."""
        try:
            slave = fcntl.ioctl(self.master, _PEER, os.O_RDWR | os.O_NOCTTY)
        except (OSError, ValueError):  # it is gone, or the system is not Linux
            return 0
        try:
            return int.from_bytes(fcntl.ioctl(slave, termios.FIONREAD, bytes(4)), sys.byteorder)
        finally:
            os.close(slave)

    def attributes(self) -> list[Any] | None:
        """Return the termios attributes of the agent's terminal, or None if it is gone."""
        if self.master < 0:
            return None
        try:
            return list(termios.tcgetattr(self.master))
        except termios.error:
            return None


def flags(attributes: list[Any] | None) -> tuple[bool, bool, bool]:
    """Return (ICANON, ECHO, ICRNL) of termios `attributes`; all False for None."""
    if attributes is None:
        return False, False, False
    local, input_ = int(attributes[_LFLAG]), int(attributes[_IFLAG])
    return bool(local & termios.ICANON), bool(local & termios.ECHO), bool(input_ & termios.ICRNL)


def end_of_file(attributes: list[Any] | None) -> bytes:
    """Return VEOF, which ends the input of a canonical terminal; b"" in raw mode."""
    if not flags(attributes)[0] or attributes is None:
        return b""
    control: list[bytes] = attributes[_CC]
    return bytes(control[termios.VEOF])


def raw(attributes: list[Any]) -> list[Any]:
    """Return a copy of `attributes` in raw mode, as set by cfmakeraw(3)."""
    new = list(attributes)
    new[_CC] = list(attributes[_CC])
    off_input = termios.IGNBRK | termios.BRKINT | termios.PARMRK | termios.ISTRIP
    off_input |= termios.INLCR | termios.IGNCR | termios.ICRNL | termios.IXON
    off_local = termios.ECHO | termios.ECHONL | termios.ICANON | termios.ISIG | termios.IEXTEN
    new[_IFLAG] &= ~off_input
    new[_OFLAG] &= ~termios.OPOST
    new[_LFLAG] &= ~off_local
    new[_CFLAG] = (new[_CFLAG] & ~(termios.CSIZE | termios.PARENB)) | termios.CS8
    new[_CC][termios.VMIN] = 1
    new[_CC][termios.VTIME] = 0
    return new


def get_size(fd: int) -> tuple[int, int, int, int] | None:
    """Return (columns, rows, width, height in pixels) of the terminal `fd`; None if unknown."""
    try:
        packed = fcntl.ioctl(fd, termios.TIOCGWINSZ, bytes(8))
    except (OSError, ValueError):
        return None
    rows, columns, width, height = (int.from_bytes(packed[at : at + 2], sys.byteorder) for at in (0, 2, 4, 6))
    return (columns, rows, width, height) if columns and rows else None


def set_size(fd: int, columns: int, rows: int, width: int = 0, height: int = 0) -> None:
    """Set the size of a terminal. If it changed, the kernel sends SIGWINCH to the foreground group."""
    packed = b"".join(value.to_bytes(2, sys.byteorder) for value in (rows, columns, width, height))
    try:
        fcntl.ioctl(fd, termios.TIOCSWINSZ, packed)
    except OSError:
        pass  # the agent has just ended


def _execute(
    path: str,
    argv: Sequence[str],
    env: Mapping[str, str],
    standard: Sequence[int],
    slave: int,
    report: int,
    defaults: Iterable[int],
) -> None:
    """Become the terminal's foreground job and execute `path`, in the child. Never return."""
    try:
        os.setpgid(0, 0)
        signal.signal(signal.SIGTTOU, signal.SIG_IGN)
        os.tcsetpgrp(slave, os.getpid())
        signal.pthread_sigmask(signal.SIG_SETMASK, ())  # relay blocks signals while it starts
        # Python ignores SIGPIPE and SIGXFSZ, and ignored signals stay ignored across exec.
        for number in (signal.SIGTTOU, signal.SIGPIPE, signal.SIGXFSZ, *defaults):
            signal.signal(number, signal.SIG_DFL)
        for number, fd in enumerate(standard):
            os.dup2(fd, number)
        try:
            os.execve(path, list(argv), env)
        except OSError as error:
            if error.errno != errno.ENOEXEC:
                raise
            # A script without a shebang line: execvp(3) and shells run it this way.
            os.execve("/bin/sh", ["sh", path, *argv[1:]], env)
    except OSError as error:
        os.write(report, str(error.errno or errno.EIO).encode())
    finally:
        os._exit(127)


def _make_pipes(descriptors: Iterable[int]) -> tuple[dict[int, int], dict[int, int]]:
    """Make a pipe for each of the agent's `descriptors`. Return (our ends, the agent's), by descriptor."""
    ours, agents = {}, {}
    for number in descriptors:
        read, write = os.pipe()
        ours[number], agents[number] = (write, read) if number == 0 else (read, write)
        os.set_blocking(ours[number], False)
    return ours, agents
