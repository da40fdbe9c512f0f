"""Private files (0600), written completely or not at all: a new file next to the old one replaces it."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable
from pathlib import Path

from relay.errors import HomeError
from relay.home import make_directories, private_directory
from relay.storage.locks import locked


def make_private(path: Path) -> None:
    """Create the file, empty and 0600, if it does not exist. Raise OSError.

    Never open it by its name: closing it would release all locks that this process holds on it, such as
    SQLite's (fcntl(2), "advisory record locking").
    """
    path = path.resolve()
    if path.exists():
        return
    new = _unguessable(path)
    os.close(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
    try:
        with contextlib.suppress(FileExistsError):  # another process was faster
            os.link(new, path)
    finally:
        new.unlink()


def _unguessable(path: Path) -> Path:
    """Return a name beside `path` that nobody can guess and occupy, even where others may write."""
    return path.with_name(f"{path.name}.{os.urandom(8).hex()}.new")


def open_regular(path: str | Path, flags: int = os.O_RDONLY) -> int:
    """Return a descriptor (close-on-exec) of a regular file. Raise OSError for anything else; never block."""
    descriptor = os.open(path, flags | os.O_CLOEXEC | os.O_NONBLOCK)  # a pipe without a writer would block
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    raise OSError(errno.EINVAL, "it is not a regular file")


def write_private(path: Path, text: str, *, replace: bool = True) -> None:
    """Write `text` to `path`, 0600; create its directory (0700) if it is missing. Raise OSError.

    replace: if False, raise FileExistsError if the file exists.
    """
    make_directories(path.parent)
    new = _unguessable(path)
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        if replace:
            new.replace(path)
        else:
            path.hardlink_to(new)
    finally:
        new.unlink(missing_ok=True)


def rewrite(path: Path, text: Callable[[], str]) -> None:
    """Write the result of `text`, which may read the file, to `path`. Raise HomeError if that fails.

    Only one process at a time rewrites the same file.
    """
    private_directory(path.parent)
    with locked(path.with_suffix(".lock")):
        new = text()
        try:
            write_private(path, new)
        except OSError as error:
            raise HomeError(
                f"cannot write {path}: {error.strerror}. Free some space or make it writable, then try again."
            ) from None
