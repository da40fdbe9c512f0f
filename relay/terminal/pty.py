"""The pseudo-terminal, and the agent started in it as the foreground job of our own session.

The caller is a session leader (setsid) without a controlling terminal.  It takes the new terminal as its
controlling one and starts the agent in a process group of its own, as a shell starts a foreground job.  So
the agent's group has a parent in its session, and the kernel lets Ctrl-Z stop it; a child that is made a
session leader instead (pty.fork, ptyprocess, script) is an orphaned group, whose SIGTSTP is discarded
(POSIX.1-2017, 2.4.3).

This module is on the path to the agent's first byte: it imports little.
"""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import sys
import termios

from relay.errors import CommandNotExecutable, CommandNotFound, RelayError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

COLUMNS, ROWS = 120, 40
"""The size of a terminal that nobody looks at."""

_IFLAG, _OFLAG, _CFLAG, _LFLAG, _ISPEED, _OSPEED, _CC = range(7)
"""Where termios.tcgetattr puts things."""


def resolve(command: str, env: Mapping[str, str]) -> str:
    """The path of `command` as execvp(3) would find it; CommandNotFound or CommandNotExecutable."""
    if not command:
        raise CommandNotFound("there is no command to run. Try `relay wrap bash`.")
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
            raise CommandNotExecutable(f"{command!a} is a directory. Name a program to run.")
    if exists:
        raise CommandNotExecutable(f"{exists!a} is not executable. Try `chmod +x {exists}`.")
    where = "there is no such file" if "/" in command else "it is in no directory of PATH"
    raise CommandNotFound(f"command not found: {command!a}; {where}.")


class Pty:
    """A running agent: `pid` is also its process group; `master` is our end of its terminal, -1 once closed.

    line_feeds_return: the agent's line feeds are made CR LF, as terminals do until a program says otherwise.
    """

    __slots__ = ("line_feeds_return", "master", "pid")

    def __init__(self, pid: int, master: int, *, line_feeds_return: bool = True) -> None:
        self.pid = pid
        self.master = master
        self.line_feeds_return = line_feeds_return

    @classmethod
    def spawn(
        cls,
        path: str,
        argv: Sequence[str],
        env: Mapping[str, str],
        *,
        size: tuple[int, int] = (COLUMNS, ROWS),
        attributes: list[Any] | None = None,
        echo: bool = True,
        line_feeds_return: bool = True,
        pixels: tuple[int, int] = (0, 0),
    ) -> Pty:
        """Start `path` with `argv` in a new terminal of `size` (columns, rows).

        attributes: what termios.tcgetattr gave for the person's terminal, copied to the new one.
        Raises CommandNotExecutable (or RelayError) if the kernel refuses to execute it.
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
        set_size(master, *size, *pixels)
        fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
        failed, report = os.pipe()
        pid = os.fork()
        if pid == 0:
            _execute(path, argv, env, slave, report)
        os.close(slave)
        os.close(report)
        with open(failed, "rb") as stream:
            trouble = stream.read()
        if trouble:
            os.waitpid(pid, 0)
            os.close(master)
            code = int(trouble)
            if code in {errno.ENOENT, errno.ENOEXEC, errno.EACCES}:
                raise CommandNotExecutable(
                    f"{argv[0]!a} cannot be executed: {os.strerror(code)}. Check its first line and format."
                )
            raise RelayError(f"cannot start {argv[0]!a}: {os.strerror(code)}.")
        return cls(pid, master, line_feeds_return=line_feeds_return)

    def close(self) -> None:
        """Close our end: the agent's terminal is gone. Its number may be another file's from now on."""
        master, self.master = self.master, -1
        if master >= 0:
            os.close(master)

    def return_line_feeds(self) -> None:
        """A terminal is to show the output that was redirected until now: make its line feeds CR LF."""
        if self.line_feeds_return:
            return
        self.line_feeds_return = True
        changed = self.attributes()
        if changed is not None and flags(changed)[0]:  # in raw mode the program does that itself
            changed[_OFLAG] |= termios.OPOST | termios.ONLCR
            termios.tcsetattr(self.master, termios.TCSANOW, changed)

    def signal(self, number: int, group: int = 0) -> None:
        """Send signal `number` to the agent's process group, or to `group`; nothing if it is gone."""
        try:
            os.killpg(group or self.pid, number)
        except (ProcessLookupError, PermissionError):
            pass

    def hang_up(self, number: int) -> None:
        """Send `number` to every process group of the agent's terminal; wake those that are stopped."""
        for group in self.groups():
            for each in (number, signal.SIGCONT):
                try:
                    os.killpg(group, each)
                except (ProcessLookupError, PermissionError):
                    pass

    def groups(self) -> set[int]:
        """The living process groups of the agent's terminal session; its own may outlive the agent.

        A process that made a session of its own (setsid: a daemon on purpose) is not among them.
        """
        groups: set[int] = set()
        own = os.getpid()
        try:
            entries = os.listdir("/proc")
        except OSError:
            return {self.pid, self.foreground() or self.pid}  # no such list: perhaps they live
        for entry in entries:
            if not entry.isdigit():
                continue
            try:
                with open(f"/proc/{entry}/stat", "rb") as stat:
                    # pid (comm) state ppid pgrp session ...: comm may hold spaces and parentheses
                    state, _, group, session = stat.read().rpartition(b")")[2].split()[:4]
            except (OSError, ValueError):
                continue
            if int(session) == own and int(group) != os.getpgrp() and state != b"Z":
                groups.add(int(group))
        return groups

    def foreground(self) -> int:
        """The foreground process group of the terminal, 0 if there is none."""
        try:
            return 0 if self.master < 0 else os.tcgetpgrp(self.master)
        except OSError:
            return 0

    def attributes(self) -> list[Any] | None:
        """termios attributes of the agent's terminal, None when it is gone."""
        if self.master < 0:
            return None
        try:
            return list(termios.tcgetattr(self.master))
        except termios.error:
            return None


def flags(attributes: list[Any] | None) -> tuple[bool, bool, bool]:
    """(ICANON, ECHO, ICRNL) of what tcgetattr gave; all false without a terminal."""
    if attributes is None:
        return False, False, False
    local, input_ = int(attributes[_LFLAG]), int(attributes[_IFLAG])
    return bool(local & termios.ICANON), bool(local & termios.ECHO), bool(input_ & termios.ICRNL)


def end_of_file(attributes: list[Any] | None) -> bytes:
    """The character that ends the input of a canonical terminal (VEOF); empty in raw mode."""
    if not flags(attributes)[0] or attributes is None:
        return b""
    control: list[bytes] = attributes[_CC]
    return bytes(control[termios.VEOF])


def raw(attributes: list[Any]) -> list[Any]:
    """A copy of `attributes` in raw mode, as cfmakeraw(3) does it."""
    new = list(attributes)
    new[_CC] = list(attributes[_CC])
    off_input = (
        termios.IGNBRK
        | termios.BRKINT
        | termios.PARMRK
        | termios.ISTRIP
        | termios.INLCR
        | termios.IGNCR
        | termios.ICRNL
        | termios.IXON
    )
    off_local = termios.ECHO | termios.ECHONL | termios.ICANON | termios.ISIG | termios.IEXTEN
    new[_IFLAG] &= ~off_input
    new[_OFLAG] &= ~termios.OPOST
    new[_LFLAG] &= ~off_local
    new[_CFLAG] = (new[_CFLAG] & ~(termios.CSIZE | termios.PARENB)) | termios.CS8
    new[_CC][termios.VMIN] = 1
    new[_CC][termios.VTIME] = 0
    return new


def get_size(fd: int) -> tuple[int, int, int, int] | None:
    """(columns, rows, width, height in pixels) of the terminal `fd`; None if it has none or says 0."""
    try:
        packed = fcntl.ioctl(fd, termios.TIOCGWINSZ, bytes(8))
    except OSError:
        return None
    rows, columns, width, height = (int.from_bytes(packed[at : at + 2], sys.byteorder) for at in (0, 2, 4, 6))
    return (columns, rows, width, height) if columns and rows else None


def set_size(fd: int, columns: int, rows: int, width: int = 0, height: int = 0) -> None:
    """Set the size of a terminal; the kernel sends SIGWINCH to its foreground group if it changed."""
    packed = b"".join(value.to_bytes(2, sys.byteorder) for value in (rows, columns, width, height))
    try:
        fcntl.ioctl(fd, termios.TIOCSWINSZ, packed)
    except OSError:
        pass  # the agent has just ended


def _execute(path: str, argv: Sequence[str], env: Mapping[str, str], slave: int, report: int) -> None:
    """In the child: become the foreground job of the terminal and execute. Never returns."""
    try:
        os.setpgid(0, 0)
        signal.signal(signal.SIGTTOU, signal.SIG_IGN)
        os.tcsetpgrp(slave, os.getpid())
        signal.pthread_sigmask(signal.SIG_SETMASK, ())  # relay blocks signals while it starts
        # Python ignores these two, and ignored signals stay ignored across exec.
        for number in (signal.SIGTTOU, signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        for fd in (0, 1, 2):
            os.dup2(slave, fd)
        try:
            os.execve(path, list(argv), env)
        except OSError as error:
            if error.errno != errno.ENOEXEC:
                raise
            # A script without a first line naming its interpreter: execvp(3) and shells run it so.
            os.execve("/bin/sh", ["sh", path, *argv[1:]], env)
    except OSError as error:
        os.write(report, str(error.errno or errno.EIO).encode())
    finally:
        os._exit(127)
