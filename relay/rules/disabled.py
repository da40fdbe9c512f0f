"""Which rules the person has switched off: their ids, in a file of the home."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterable

from relay.errors import HomeError
from relay.home import Home, private_directory

_KEY = "disabled"


class Disabled:
    """`{"disabled": [ID, ...]}`, for all sessions of a home."""

    def __init__(self, home: Home) -> None:
        self._path = home.disabled_rules

    def read(self) -> frozenset[str]:
        """The ids. Raises HomeError for a file that cannot be read: then every rule is on."""
        try:
            ids = json.loads(self._path.read_bytes())[_KEY]
            if not all(isinstance(each, str) for each in ids):
                raise TypeError
            return frozenset(ids)
        except FileNotFoundError:
            return frozenset()
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            raise HomeError(
                f"{self._path} cannot be read, and every rule is on. Delete it, then disable rules anew."
            ) from None

    def switch(self, ids: Iterable[str], *, off: bool) -> None:
        """Switch rules off or on. Raises HomeError."""
        private_directory(self._path.parent)
        lock = -1
        try:
            lock = os.open(self._path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(lock, fcntl.LOCK_EX)
            now = self.read() | frozenset(ids) if off else self.read() - frozenset(ids)
            temporary = self._path.with_suffix(f".{os.getpid()}.tmp")
            temporary.touch(mode=0o600)
            temporary.write_text(json.dumps({_KEY: sorted(now)}, indent=2) + "\n", encoding="utf-8")
            temporary.replace(self._path)
        except OSError as error:
            raise HomeError(
                f"cannot write {self._path}: {error.strerror}. Make room or make it writable, then try again."
            ) from None
        finally:
            if lock >= 0:
                os.close(lock)
