"""The tail of a growing file of lines: the lines written since the last read, in bounded steps.

    Tail(path).read(budget)  ──→  complete lines, each once, with their places

The file belongs to another program: it may not exist yet, contain half a line or a line of many megabytes, be
truncated or be replaced. No file stays open and nothing is raised.
"""

from __future__ import annotations

import os
from pathlib import Path

from relay.storage.files import open_regular

MAX_LINE = 4 << 20
"""Maximum bytes of a line that is kept: a tool's result may be longer, a model's answer never is."""

_CHUNK = 256 << 10
_WITNESS = 64  # bytes before the offset: if they differ, the file was rewritten under the same name


class Tail:
    """One file, read from an offset on.

    at_end:  start after its current contents; else at `offset`, up to which the file was read.
    problem: why the last read failed; None if it did not, or the file does not exist yet.
    behind:  the last read left something unread because its budget was spent.
    """

    def __init__(self, path: Path, at_end: bool = False, offset: int = 0) -> None:
        self.path = path
        self.problem: str | None = None
        self._part: list[bytes] = []  # the unfinished line
        self._skipping = False  # within a line that is too long
        self._seen: tuple[int, int, int, int] | None = None  # the file as it was at the last read
        self.behind = False
        self.offset = offset
        self._witness = b""
        if at_end:
            self._start_at_end()

    @property
    def cut_off(self) -> bool:
        """True if the file ends in mid-line: the rest is being written, or could not be."""
        return (bool(self._part) or self._skipping) and not self.behind

    @property
    def changed(self) -> int:
        """When the file had last changed as of the last read, in nanoseconds since the epoch; 0: no file."""
        return self._seen[3] if self._seen is not None else 0

    def read(self, budget: int) -> tuple[list[tuple[bytes, int]], int]:
        """Return the lines completed since the last read, and the number of bytes read: at most `budget`.

        Each line comes without its newline, and with the offset after it.  An unchanged file costs stat(2).
        """
        try:
            if _look(self.path.stat()) == self._seen and not self.behind:
                return [], 0
            with open(self.path, "rb", buffering=0, opener=open_regular) as file:
                now = _look(os.fstat(file.fileno()))
                other = self._seen is not None and now[:2] != self._seen[:2]
                before = self.offset - len(self._witness)
                if other or os.pread(file.fileno(), len(self._witness), before) != self._witness:
                    self.offset, self._witness, self._part, self._skipping = 0, b"", [], False
                lines, used = self._take(file.fileno(), budget)
        except FileNotFoundError:
            self._seen, self.behind, self.problem = None, False, None
            return [], 0
        except OSError as error:
            self.behind, self.problem = False, f"cannot read {self.path}: {error.strerror}"
            return [], 0
        self._seen, self.problem = now, None
        self.behind = self.offset < now[2]
        return lines, used

    def _take(self, fd: int, budget: int) -> tuple[list[tuple[bytes, int]], int]:
        lines: list[tuple[bytes, int]] = []
        used = 0
        while used < budget and (data := os.pread(fd, min(_CHUNK, budget - used), self.offset)):
            used += len(data)
            end = self.offset
            self.offset += len(data)
            self._witness = (self._witness + data)[-_WITNESS:]
            *whole, rest = data.split(b"\n")
            for line in whole:
                end += len(line) + 1
                self._keep(line)
                if not self._skipping:
                    lines.append((b"".join(self._part), end))
                self._part, self._skipping = [], False
            self._keep(rest)
        return lines, used

    def _keep(self, part: bytes) -> None:
        if not part or self._skipping:
            return
        self._part.append(part)
        if sum(map(len, self._part)) > MAX_LINE:
            self._part, self._skipping = [], True

    def _start_at_end(self) -> None:
        """Start after the last complete line: half a line there is being written now."""
        try:
            with open(self.path, "rb", buffering=0, opener=open_regular) as file:
                self._seen = _look(os.fstat(file.fileno()))
                size = self._seen[2]
                back = os.pread(file.fileno(), _CHUNK, max(0, size - _CHUNK))
        except OSError:
            self._seen = None
            return
        whole = back.rfind(b"\n") + 1
        self._skipping = not whole and size > len(back)  # inside a long line
        self.offset = size if self._skipping else size - len(back) + whole
        self._witness = back[-_WITNESS:] if self._skipping else back[:whole][-_WITNESS:]
        self.behind = self.offset < size


def _look(status: os.stat_result) -> tuple[int, int, int, int]:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns
