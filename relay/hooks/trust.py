"""Trust in files that came with a project: by path and content, as direnv does it.

What is trusted is one file with exactly these bytes; after any change it is not trusted any more.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from relay.errors import HomeError
from relay.home import Home, private_directory


def digest(content: bytes) -> str:
    """The SHA-256 of a file's content, in hexadecimal."""
    return hashlib.sha256(content).hexdigest()


class Trust:
    """The trusted files of one home: `{"files": {PATH: {"sha256": HEX, "time": SECONDS}}}`."""

    def __init__(self, home: Home) -> None:
        self._path = home.trust

    def covers(self, path: Path, content: bytes) -> bool:
        """Whether `path` is trusted with `content`, the very bytes that the caller will use."""
        entry = self._read().get(str(path.resolve()))
        return isinstance(entry, dict) and entry.get("sha256") == digest(content)

    def covers_file(self, path: Path) -> bool:
        """Whether `path` is trusted as it is now; for those who read it once more only to get data."""
        try:
            return self.covers(path, path.read_bytes())
        except OSError:
            return False

    def grant(self, path: Path, content: bytes) -> str:
        """Trust `path` with `content` from now on, instead of what it held before; return the digest."""
        value = digest(content)
        with self._locked():
            files = self._read()
            files[str(path.resolve())] = {"sha256": value, "time": time.time()}
            self._write(files)
        return value

    def _read(self) -> dict[str, Any]:
        try:
            files = json.loads(self._path.read_bytes())["files"]
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return {}  # what cannot be read trusts nothing; the next grant writes it anew
        return files if isinstance(files, dict) else {}

    def _write(self, files: dict[str, Any]) -> None:
        temporary = self._path.with_suffix(f".{os.getpid()}.tmp")
        try:
            temporary.touch(mode=0o600)
            temporary.write_text(json.dumps({"files": files}, indent=2) + "\n", encoding="utf-8")
            temporary.replace(self._path)
        except OSError as error:
            raise self._unusable(error) from None

    @contextmanager
    def _locked(self) -> Iterator[None]:
        private_directory(self._path.parent)
        try:
            lock = os.open(self._path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise self._unusable(error) from None
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)

    def _unusable(self, error: OSError) -> HomeError:
        return HomeError(
            f"cannot write {self._path}: {error.strerror}. Make room or make it writable, then try again."
        )
