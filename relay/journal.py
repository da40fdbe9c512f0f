"""The journal: what happened in the sessions of a home, one JSON object a line.

Every entry has `time` (seconds since the epoch), `event`, `session` and `name`; the rest depends on the
event.  The file is rotated once (to `events.jsonl.1`) when it exceeds MAX_BYTES.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

MAX_BYTES = 10 * 1024 * 1024
PREVIEW = 500
"""Characters of a text that an entry shows."""


class Journal:
    """Appends entries; a disk that takes none is no reason to stop, and is said once through `trouble`."""

    def __init__(self, path: Path, session: str, name: str) -> None:
        self.path = path
        self.session = session
        self.name = name
        self.trouble: str | None = None

    def write(self, event: str, **fields: Any) -> None:
        entry = {"time": time.time(), "event": event, "session": self.session, "name": self.name, **fields}
        line = json.dumps(entry, ensure_ascii=False, default=str).encode("utf-8", "backslashreplace") + b"\n"
        try:
            if self.path.exists() and self.path.stat().st_size > MAX_BYTES:
                self.path.replace(self.path.with_suffix(".jsonl.1"))
            # One write to a file opened for appending: entries of several sessions do not mix.
            fd = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                os.write(fd, line)
            finally:
                os.close(fd)
        except OSError as error:
            self.trouble = f"cannot write the journal {self.path}: {error.strerror}"


def preview(text: str) -> str:
    """`text`, its middle left out where it is longer than PREVIEW characters."""
    if len(text) <= PREVIEW:
        return text
    half = PREVIEW // 2
    return f"{text[:half]} [... {len(text) - 2 * half} characters ...] {text[-half:]}"


def read(path: Path) -> Iterator[dict[str, Any]]:
    """The entries, oldest first, the rotated file's before. A line cut off by a crash is passed over."""
    for each in (path.with_suffix(".jsonl.1"), path):
        try:
            with open(each, encoding="utf-8", errors="replace") as lines:
                yield from (entry for line in lines if (entry := parse(line)) is not None)
        except FileNotFoundError:
            continue


def parse(line: str) -> dict[str, Any] | None:
    """One line as an entry, None if it is none."""
    try:
        entry = json.loads(line)
    except ValueError:
        return None
    return entry if isinstance(entry, dict) and "event" in entry else None
