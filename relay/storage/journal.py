"""The journal: the events of the sessions of a home, one JSON object per line.

Every entry has `time` (seconds since the epoch), `event`, `session` and `name`; the rest depends on the
event.  When the file exceeds MAX_BYTES, it is rotated to `events.jsonl.1`, and so on for as many generations
as are kept.  Secrets are redacted in every entry before it is written (relay.redaction).
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from relay.dataclass import dataclass, field
from relay.eventbus import Event, EventBus
from relay.redaction import Redactor
from relay.storage.append import append
from relay.storage.locks import wait_lock

MAX_BYTES = 10 * 1024 * 1024
PREVIEW = 500
"""Maximum characters of a text that an entry shows."""

MAX_TEXT = 256 * 1024
"""Maximum characters of one string of an entry; the middle of a longer one is left out."""

FOLLOW_EVERY = 0.1
"""Seconds between two checks of a followed journal for new entries."""

MARGIN = 4096
"""Characters beyond the shown ones that are searched for the rest of a secret."""


class EntryWritten(Event):
    """The journal has another entry, as it was written."""

    entry: dict[str, Any]


class WritingFailed(Event):
    """A journal cannot be written. `text` is one line for the user."""

    text: str


@dataclass(eq=False, slots=True)
class Journal:
    """Appends entries. A full disk is reported once, and never stops the session.

    bus:         gets EntryWritten for each entry if `publishes`, and WritingFailed once per outage.
    generations: full files that are kept beside the current one.
    redactor:    finds the secrets (default: by their formats only).
    """

    path: Path
    session: str
    name: str
    bus: EventBus | None = None
    publishes: bool = field(default=False, kw_only=True)
    generations: int = field(default=1, kw_only=True)
    redactor: Redactor = field(default_factory=Redactor, kw_only=True)
    _failing: bool = field(default=False, init=False)

    def write(self, event: str, **fields: Any) -> None:
        """Append an entry; never raise."""
        entry = {"time": time.time(), "event": event, "session": self.session, "name": self.name, **fields}
        text = json.dumps(entry, ensure_ascii=False, default=str)
        if len(text) > MAX_TEXT or (self.redactor.suspects(text) and self._suspects_texts(entry)):
            given: dict[str, Any] = json.loads(text)  # its top-level keys are relay's own
            entry = {key: _clean(each, self.redactor, key) for key, each in given.items()}
            text = json.dumps(entry, ensure_ascii=False)
        line = text.encode("utf-8", "backslashreplace") + b"\n"
        try:
            fd = self._open()
            try:
                append(fd, line)
            finally:
                os.close(fd)
        except OSError as error:
            if not self._failing:
                self._failing = True
                why = f"cannot write the journal {self.path}: {error.strerror}. Free some space."
                self._publish(WritingFailed(why))
        else:
            self._failing = False
        if self.publishes:
            self._publish(EntryWritten(entry))

    def _suspects_texts(self, entry: dict[str, Any]) -> bool:
        """Return False if only a number looked like a secret: each injection has `"tokens": 7`."""
        texts = {key: each for key, each in entry.items() if not isinstance(each, int | float | None)}
        return self.redactor.suspects(json.dumps(texts, ensure_ascii=False, default=str))

    def _publish(self, event: Event) -> None:
        if self.bus is not None:
            self.bus.publish(event)

    def _open(self) -> int:
        """Return a descriptor of the file, which is rotated first if it has grown too large."""
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        fd = os.open(self.path, flags, 0o600)
        if os.fstat(fd).st_size <= MAX_BYTES:
            return fd
        try:
            wait_lock(fd)
            with suppress(FileNotFoundError):  # another session is between the same two steps, or was first
                if self.path.stat().st_ino == os.fstat(fd).st_ino:
                    for number in range(self.generations - 1, 0, -1):
                        with suppress(FileNotFoundError):
                            rotated(self.path, number).replace(rotated(self.path, number + 1))
                    self.path.replace(rotated(self.path))
        finally:
            os.close(fd)
        return os.open(self.path, flags, 0o600)


def _clean(value: Any, redactor: Redactor, name: str = "") -> Any:
    """Return the JSON `value` without secrets. name: its key, which may reveal a secret."""
    match value:
        case str():
            shown = value if len(value) <= MAX_TEXT else _shortened(value, MAX_TEXT, redactor)
            before, after = f'"{name}": "', '"'
            whole = redactor.redact(before + shown + after)
            if whole.startswith(before) and whole.endswith(after):
                return whole[len(before) : -len(after)]
            return redactor.redact(shown)
        case dict():
            return {redactor.redact(key): _clean(each, redactor, key) for key, each in value.items()}
        case list():
            return [_clean(each, redactor, name) for each in value]
        case _:
            return value


def preview(text: str) -> str:
    """Return `text`, without its middle if it is longer than PREVIEW characters.

    Secrets are redacted before the cut, since half a secret cannot be recognised.
    """
    return text if len(text) <= PREVIEW else _shortened(text, PREVIEW, Redactor())


def _shortened(text: str, most: int, redactor: Redactor) -> str:
    half = most // 2
    head = redactor.redact(text[: half + MARGIN])[:half]
    tail = redactor.redact(text[-half - MARGIN :])[-half:]
    return f"{head} [... {len(text) - 2 * half} characters ...] {tail}"


def read(path: Path, generations: int = 1) -> Iterator[dict[str, Any]]:
    """Yield the entries, oldest first, with those of rotated files. Skip lines that a crash cut off."""
    for number in range(generations, 0, -1):
        yield from read_file(rotated(path, number))
    yield from read_file(path)


def read_file(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the entries of one file; none if it does not exist."""
    try:
        with open(path, encoding="utf-8", errors="replace") as lines:
            yield from (entry for line in lines if (entry := parse(line)) is not None)
    except FileNotFoundError:
        return


def follow(path: Path, over: Callable[[], bool] = lambda: False) -> Iterator[dict[str, Any] | None]:
    """Yield the entries of `read`, and later ones as they are written, across rotations, until `over`.

    Whenever there are no more for now, yield None, then wait FOLLOW_EVERY seconds.
    """
    yield from read_file(rotated(path))
    while True:
        while not path.exists():
            yield None
            if over():
                return
            time.sleep(FOLLOW_EVERY)
        with open(path, encoding="utf-8", errors="replace") as stream:
            rest, last = "", False
            while not last:
                ended = over()  # before the rest is read
                try:  # before its end is read: nothing comes after a rotation
                    last = path.stat().st_ino != os.fstat(stream.fileno()).st_ino
                except FileNotFoundError:
                    last = True
                while line := stream.readline():
                    rest += line
                    if rest.endswith("\n"):
                        if (entry := parse(rest)) is not None:
                            yield entry
                        rest = ""
                if not last:
                    yield None
                    if ended:
                        return
                    time.sleep(FOLLOW_EVERY)


def rotated(path: Path, number: int = 1) -> Path:
    """Return the path of the rotated file with entries before those of `path`; `number` counts backwards."""
    return path.with_suffix(f".jsonl.{number}")


def parse(line: str) -> dict[str, Any] | None:
    """Return one line as an entry, None if it is not one."""
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return entry if isinstance(entry, dict) and "event" in entry else None
