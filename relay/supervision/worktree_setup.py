"""The contents that git does not give a new worktree: copies of files or links to them, and a setup.

The setup is commands for /bin/sh, with their output in a log file.
"""

from __future__ import annotations

import filecmp
import os
import secrets
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path, PurePath

from relay.errors import SetupFailed, WorktreeError
from relay.home import private_directory
from relay.text import visible

TAIL = 20
"""How many of the last lines of output an error shows."""

LIMIT = 16 << 20
"""Bytes of a command's output that the log keeps: half of them from its beginning, the rest from its end."""

LEFT_OUT = b"[relay: part of the output is left out here]\n"

MARK = "RELAY_WORKTREE_SETUP"
"""The environment variable that marks the processes of a setup; its value is the worktree."""

_PIECE = 65536  # bytes told between two looks at the clock
_TAIL_BYTES = 8192
_COMMAND_POLL_EVERY = 0.05  # seconds between two polls of a running command
_MERCY = 2.0  # seconds between SIGTERM and SIGKILL

Progress = Callable[[str], None]
Started = Callable[[int, str], None]


def fill(source: Path, worktree: Path, copy: Sequence[str], link: Sequence[str], progress: Progress) -> None:
    """Copy and link the files that `copy` and `link` name from `source`; keep those that exist already.

    Raise WorktreeError for a path that leads out of either worktree, or does not exist.
    """
    for name in copy:
        _place(source, worktree, name, "copy", progress)
    for name in link:
        _place(source, worktree, name, "link", progress)


def is_ours(source: Path, worktree: Path, name: str) -> bool:
    """Return True if `name` in the worktree is the link to `source` that `fill` makes."""
    path = worktree / name
    return path.is_symlink() and path.readlink() == source / name


def changed(source: Path, worktree: Path, copy: Sequence[str]) -> list[str]:
    """Return the copied paths that now differ between the two."""
    return [name for name in copy if not _equal(source / name, worktree / name)]


def _refusal(name: str) -> str | None:
    """Return why `name` cannot be copied or linked, None if its form allows it."""
    path = PurePath(name)
    if not path.parts:
        return "it is empty"
    if path.is_absolute() or name.startswith("~"):
        return "it is not relative to the repository"
    if ".." in path.parts:
        return "it leaves the repository with '..'"
    if path.parts[0].casefold() == ".git":
        return "it is git's own"
    return None


def _place(source: Path, worktree: Path, name: str, key: str, progress: Progress) -> None:
    if why := _refusal(name):
        raise WorktreeError(f"{name!r} in {key!r} of the worktree: {why}. Name a path inside the repository.")
    old, new = source / name, worktree / name
    if os.path.lexists(new):
        progress(f"kept the existing {name}")
        return
    if not _inside(old, source):
        raise WorktreeError(
            f"{name!r} in {key!r} of the worktree is a link to outside {source}. Name a path inside the "
            "repository, or create the link in `setup`."
        )
    if not old.exists():
        raise WorktreeError(f"there is no {name} in {source} to {key}. Create it, or remove it from {key!r}.")
    if worktree.is_relative_to(old):
        raise WorktreeError(f"{name!r} in {key!r} of the worktree contains the worktree itself. Remove it.")
    if not _inside(new.parent, worktree):
        raise WorktreeError(
            f"{name!r} in {key!r} of the worktree: a link in {worktree} leads outside. Remove it."
        )
    try:
        new.parent.mkdir(parents=True, exist_ok=True)
        if key == "link":
            new.symlink_to(old)
        else:
            _copy(old, new)
    except OSError as error:
        reason = error.strerror or error
        if isinstance(error, shutil.Error) and error.args and isinstance(error.args[0], list):
            reason = error.args[0][0][2]
        raise WorktreeError(f"cannot {key} {old} to {new}: {reason}.") from None
    progress(f"{'linked' if key == 'link' else 'copied'} {name}")


def _inside(path: Path, folder: Path) -> bool:
    return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder))


def _copy(old: Path, new: Path) -> None:
    """Copy a file or a folder atomically. Links in a folder stay links."""
    part = new.with_name(f".{new.name}.{secrets.token_hex(4)}.part")
    try:
        if old.is_dir():
            shutil.copytree(old, part, symlinks=True)
        else:
            shutil.copy2(old, part)
        part.rename(new)
    except BaseException:
        if part.is_dir():
            shutil.rmtree(part, ignore_errors=True)
        else:
            part.unlink(missing_ok=True)
        raise


def _equal(one: Path, other: Path) -> bool:
    if one.is_symlink() or other.is_symlink():
        return one.is_symlink() and other.is_symlink() and one.readlink() == other.readlink()
    if one.is_dir() and other.is_dir():
        names = {each.name for folder in (one, other) for each in folder.iterdir()}
        return all(_equal(one / name, other / name) for name in names)
    if one.is_file() and other.is_file():
        return filecmp.cmp(one, other, shallow=False)
    return not (other.exists() or other.is_symlink())  # a file that the agent has removed is not work


def run(
    commands: Sequence[str],
    directory: Path,
    env: Mapping[str, str],
    log: Path,
    *,
    limit: float,
    progress: Progress = lambda line: None,
    started: Started = lambda pid, start: None,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Run `commands` in `directory` in order until one fails, each for at most `limit` seconds.

    Their output goes to `log` (0600) and, line by line, to `progress`; if it is longer than LIMIT, its middle
    is dropped. Each command is a separate process group, which is ended as a whole if the command takes too
    long or fails, and at an exception such as KeyboardInterrupt.
    started: called with each process id and its start time (`start_of`).
    Raise SetupFailed if a command fails, and WorktreeError if the log cannot be written.
    """
    try:
        private_directory(log.parent)
        with suppress(FileNotFoundError):
            log.replace(log.with_name(log.name + ".1"))
        file = os.open(log, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o600)
        output = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
    except OSError as error:
        raise WorktreeError(
            f"cannot write {log}: {error.strerror}. Free some space, or make it writable."
        ) from None
    try:
        for command in commands:
            progress(f"$ {command}")
            os.write(file, f"$ {command}\n".encode("utf-8", "surrogateescape"))
            begin = os.fstat(file).st_size
            running = _Command(command, directory, env, file, output, progress)
            code = running.run(limit, started, clock)
            if code != 0:
                size = os.fstat(file).st_size
                end = os.pread(file, _TAIL_BYTES, max(begin, size - _TAIL_BYTES)).decode("utf-8", "replace")
                lines = tuple(visible(line) for line in end.split("\n") if line.strip())[-TAIL:]
                raise _failed(command, code, lines, log, limit)
    finally:
        os.close(file)
        os.close(output)


class _Command:
    """One running command. log: the descriptor of its log. output: another one of it, with its own offset."""

    def __init__(
        self, command: str, directory: Path, env: Mapping[str, str], log: int, output: int, progress: Progress
    ) -> None:
        self._log = log
        self._begin = self._read = os.fstat(log).st_size
        self._kept = 0  # where the part that is left out begins
        self._part = b""
        self._progress = progress
        self._process = subprocess.Popen(
            ["/bin/sh", "-c", command],
            cwd=directory,
            env={**env, MARK: str(directory)},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )

    def run(self, limit: float, started: Started, clock: Callable[[], float]) -> int | None:
        """Wait for the command. Return its exit code, 128+N for signal N; None if it took too long."""
        deadline = clock() + limit
        pid = self._process.pid
        behind = False
        try:
            started(pid, start_of(pid))
            while (code := self._wait(0 if behind else _COMMAND_POLL_EVERY)) is None and clock() < deadline:
                self._shorten()
                behind = self._tell()
        except BaseException:  # including the user's Ctrl-C
            self._end()
            raise
        if code != 0:
            self._end()
        end = self._shorten()  # what the command leaves running may still write
        while code is not None and self._read < end and self._tell():
            pass
        if self._part:
            self._progress(visible(self._part.decode("utf-8", "replace")))
        return code if code is None or code >= 0 else 128 - code

    def _wait(self, seconds: float) -> int | None:
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None

    def _tell(self) -> bool:
        """Tell the next lines; return False if there is no more output yet."""
        data = os.pread(self._log, _PIECE, self._read)
        self._read += len(data)
        *lines, self._part = (self._part + data).split(b"\n")
        self._part = self._part[-_PIECE:]
        for line in lines:
            self._progress(visible(line.decode("utf-8", "replace")))
        return bool(data)

    def _shorten(self) -> int:
        """Drop the middle of a long output, told or not; return the size of the log.

        The command, which appends to the file, continues after what is kept. What it writes meanwhile may be
        dropped, or come before LEFT_OUT.
        """
        size = os.fstat(self._log).st_size
        if size <= self._begin + LIMIT:
            return size
        if self._kept == 0:
            half = self._begin + LIMIT // 2
            self._kept = half - len(os.pread(self._log, _TAIL_BYTES, half - _TAIL_BYTES).rpartition(b"\n")[2])
        tail = os.pread(self._log, LIMIT // 4, size - LIMIT // 4)
        tail = tail[tail.find(b"\n") + 1 :]
        os.ftruncate(self._log, self._kept)
        os.write(self._log, LEFT_OUT + tail)
        end = os.lseek(self._log, 0, os.SEEK_CUR)
        if size - self._read <= len(tail):
            self._read += end - size
        elif self._read > self._kept:
            self._read, self._part = end - len(tail) - len(LEFT_OUT), b""
        return end

    def _end(self) -> None:
        end_group(self._process.pid, lambda: self._wait(_COMMAND_POLL_EVERY) is not None)


def end_group(group: int, over: Callable[[], bool]) -> None:
    """End a process group: send SIGTERM, then SIGKILL after 2 s or once its leader is `over`."""
    deadline = time.monotonic() + _MERCY
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGTERM)
        while not over() and time.monotonic() < deadline:
            pass
        os.killpg(group, signal.SIGKILL)
    while not over():
        pass


def end_interrupted(pid: int, start: str, directory: Path) -> bool:
    """End the process group of a setup whose relay was killed; return True if it was still running.

    Do nothing unless the process `pid` is a setup in `directory` that started at `start`: the process id may
    have been reused, and whoever may write into the repository chooses these numbers.
    """
    if pid <= 1 or not start or start_of(pid) != start or not _is_setup(pid, directory):
        return False

    def over() -> bool:
        time.sleep(_COMMAND_POLL_EVERY)
        return start_of(pid) != start

    end_group(pid, over)
    return True


def _is_setup(pid: int, directory: Path) -> bool:
    mark = os.fsencode(f"{MARK}={directory}")
    if Path("/proc/self/environ").exists():  # Linux
        try:
            return mark in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        except OSError:
            return False
    shown = subprocess.run(["ps", "-wwE", "-o", "command=", "-p", str(pid)], capture_output=True, check=False)
    return mark in shown.stdout


def start_of(pid: int) -> str:
    """Return the start time of the process `pid`, in the system's own format; "" if it is not running."""
    if Path("/proc/self/stat").exists():  # Linux
        try:
            fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
        except OSError:
            return ""
        return "" if fields[0] in "ZX" else fields[19]  # proc_pid_stat(5): state, and starttime in ticks
    done = subprocess.run(
        ["ps", "-o", "stat=,lstart=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    state, _, start = done.stdout.strip().partition(" ")
    return "" if state.startswith("Z") else start.strip()


def _failed(command: str, code: int | None, lines: tuple[str, ...], log: Path, limit: float) -> SetupFailed:
    why = f"took longer than {limit:g} s (setup_timeout)" if code is None else f"exited with {code}"
    end = ", and ends with:" + "".join(f"\n    {line}" for line in lines) if lines else "."
    message = f"the setup command `{visible(command)}` {why}. Its output is in {log}{end}"
    return SetupFailed(message, command, code, lines, log)
