"""Files that git does not track, for a new worktree: copies from another worktree, or links to it."""

from __future__ import annotations

import filecmp
import os
import secrets
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path, PurePath

from relay.errors import WorktreeError


def fill(
    source: Path, worktree: Path, copy: Sequence[str], link: Sequence[str], progress: Callable[[str], None]
) -> None:
    """Copy and link the files that `copy` and `link` name from `source`; keep those that exist already.

    Raise WorktreeError for a path that leads out of either worktree, or does not exist.
    """
    for name in copy:
        _place(source, worktree, name, "copy", _copied, progress)
    for name in link:
        _place(source, worktree, name, "link", _linked, progress)


def is_ours(source: Path, worktree: Path, name: str) -> bool:
    """Return True if `name` in the worktree is the link to `source` that `fill` makes."""
    path = worktree / name
    return path.is_symlink() and path.readlink() == source / name


def changed(source: Path, worktree: Path, copy: Sequence[str]) -> list[str]:
    """Return the copied paths that now differ between the two."""
    return [name for name in copy if not _equal(source / name, worktree / name)]


def refusal(name: str) -> str | None:
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


def _place(
    source: Path,
    worktree: Path,
    name: str,
    key: str,
    make: Callable[[Path, Path], None],
    progress: Callable[[str], None],
) -> None:
    if why := refusal(name):
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
        make(old, new)
    except (OSError, shutil.Error) as error:
        raise WorktreeError(f"cannot {key} {old} to {new}: {_reason(error)}") from None
    progress(f"{'linked' if key == 'link' else 'copied'} {name}")


def _inside(path: Path, folder: Path) -> bool:
    """Return True if `path`, with all links resolved, is in `folder`."""
    return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder))


def _linked(old: Path, new: Path) -> None:
    new.symlink_to(old)


def _copied(old: Path, new: Path) -> None:
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


def _reason(error: OSError | shutil.Error) -> str:
    if isinstance(error, shutil.Error) and error.args and isinstance(error.args[0], list):
        return f"{error.args[0][0][2]}."
    return f"{error.strerror or error}."
