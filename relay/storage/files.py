"""Private files (0600), written whole or not at all: a new file beside the old one takes its place."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from pathlib import Path

from relay.errors import HomeError
from relay.home import private_directory
from relay.storage.locks import locked


def make_private(path: Path) -> None:
    """Make the file, empty and 0600, if it is not there. Raise OSError."""
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))


def write_private(path: Path, text: str, *, replace: bool = True) -> None:
    """Write `text` to `path`, 0600; its directories are made (0700) where they are missing.

    Raise OSError, FileExistsError among them where one that is there is not to be replaced.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    # Not a file that somebody else has put there, in a directory that others may write to.
    new = path.with_name(f"{path.name}.{secrets.token_hex(8)}.new")
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
    """Write what `text` returns to `path`, while nobody else who uses this function changes the file.

    `text` may read the file. Raise HomeError where it cannot be written.
    """
    private_directory(path.parent)
    with locked(path.with_suffix(".lock")):
        new = text()
        try:
            write_private(path, new)
        except OSError as error:
            raise HomeError(
                f"cannot write {path}: {error.strerror}. Make room or make it writable, then try again."
            ) from None
