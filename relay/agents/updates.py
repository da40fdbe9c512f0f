"""Pattern files newer than the shipped ones: each replaces one of them.

    patterns/NAME.toml                    ships with relay
    <config>/patterns/updates/NAME.toml   in force until relay ships another NAME.toml, or `remove`

The last line of an update names the file that it replaces by its SHA-256: with the next release of relay,
whose rules are newer, an old update lapses by itself.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from relay import data
from relay.errors import HomeError
from relay.home import Home
from relay.storage.files import write_private

_REPLACES = "# In place of the file that ships with relay, SHA-256 "


def files(directory: Path) -> dict[str, Path]:
    """Return the pattern files in a directory by the names of their profiles."""
    return {path.stem: path for path in sorted(directory.glob("*.toml"))}


def shipped() -> dict[str, Path]:
    return files(data.directory("patterns"))


def in_force(home: Home) -> dict[str, Path]:
    return {name: path for name, path in _all(home).items() if _counts(name, path)}


def outdated(home: Home) -> list[str]:
    """Return the names of updates that no longer count: relay now ships another file."""
    return [name for name, path in _all(home).items() if not _counts(name, path)]


def take(home: Home, name: str, text: str) -> None:
    """Put `text` in place of the shipped file; the file on disk is always complete. Raise HomeError."""
    path = _folder(home) / f"{name}.toml"
    try:
        write_private(path, f"{plain(text)}\n{_REPLACES}{_digest(name)}\n")
    except OSError as error:
        raise HomeError(
            f"cannot write {path}: {error.strerror}. Free some space, or check who may write there."
        ) from None


def remove(home: Home, name: str) -> bool:
    """Remove an update; return False if there is none. Raise HomeError."""
    path = _folder(home) / f"{name}.toml"
    try:
        path.unlink()
    except FileNotFoundError:
        return False
    except OSError as error:
        raise HomeError(f"cannot remove {path}: {error.strerror}. Check who may write there.") from None
    return True


def plain(text: str) -> str:
    """Return the text of a pattern file without the line that `take` added."""
    return text.partition(_REPLACES)[0].rstrip() + "\n"


def _all(home: Home) -> dict[str, Path]:
    return files(_folder(home))


def _folder(home: Home) -> Path:
    return home.config / "patterns" / "updates"


def _counts(name: str, path: Path) -> bool:
    try:
        return path.read_text("utf-8").rstrip().endswith(f"{_REPLACES}{_digest(name)}")
    except (OSError, UnicodeDecodeError):
        return False


def _digest(name: str) -> str:
    """Return the SHA-256 of the shipped file, or of nothing if there is none."""
    try:
        return hashlib.sha256((data.directory("patterns") / f"{name}.toml").read_bytes()).hexdigest()
    except FileNotFoundError:
        return hashlib.sha256(b"").hexdigest()
