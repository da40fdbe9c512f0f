"""Compare a newer pattern file with the old one: lines, recognition of dialogs, verdicts on screens.

A recorded screen is a file `screens/NAME/STATE-WHAT.txt`, or `prompting-KIND-WHAT.txt`, next to the pattern
files, in the form that `relay inspect --screen` reads. Those that ship with relay come from real agents.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from pathlib import Path

from relay.agents.profile import Profile
from relay.cli.inspect import inspect_screen
from relay.dataclass import dataclass
from relay.errors import ConfigError
from relay.text import visible

CONTEXT = 1
"""Unchanged lines shown around each change."""


@dataclass(frozen=True, slots=True)
class Change:
    """The verdicts on one recorded screen, before and after an update. was: the state it was recorded in."""

    screen: str
    was: str
    before: str
    after: str

    @property
    def unsafe(self) -> bool:
        """True if relay would type where it must not."""
        return self.after == "ready" != self.was

    def __str__(self) -> str:
        before = self.before or "nothing"
        return f"{self.screen}: recorded as {self.was}; detected as {before} before, as {self.after} now"


def lines(name: str, old: str, new: str) -> list[str]:
    """Return the lines that differ, as `diff -u` prints them, safe to show."""
    found = difflib.unified_diff(
        old.splitlines(), new.splitlines(), "in force", f"{name}.toml", "", "", CONTEXT
    )
    return [visible(line.rstrip("\n")) for line in found]


def of_dialogs(old: Profile | None, new: Profile) -> list[str]:
    """Return a line for each change to when relay types, and to what counts as a dialog."""
    if old is None:
        return [f"a new profile, for {', '.join(map(visible, new.commands)) or 'no program by its name'}"]
    found = []
    if old.inject != new.inject:
        found.append(f'inject changes from "{old.inject}" to "{new.inject}"')
    if (old.commands, old.interactive) != (new.commands, new.interactive):
        found.append("it applies to other programs")
    if old.input != new.input:
        found.append("it recognises the input box differently")
    if (old.menu_keys, old.text_options) != (new.menu_keys, new.text_options):
        found.append("it recognises the options of a menu differently")
    if old.resume.words != new.resume.words:
        found.append("it resumes conversations with other arguments")
    rules = {rule.name: rule for rule in new.states}
    for rule in old.states:
        if rule.state == "prompting" and rules.get(rule.name) != rule:
            done = "is changed" if rule.name in rules else "is gone"
            found.append(f"the rule {visible(rule.name)!r}, which recognises a dialog, {done}")
    known = {rule.name: rule for rule in old.states}
    found += [
        f"the rule {visible(rule.name)!r} detects that it is ready"
        for rule in new.states
        if rule.state == "ready" and known.get(rule.name) != rule
    ]
    found += [
        f"the rule {visible(rule.name)!r} names a key that dismisses a dialog"
        for rule in new.states
        if rule.dismiss and rule.name not in known
    ]
    for key in ("decisions", "questions", "dialogs", "executes"):
        gone = set(getattr(old, key)) - set(getattr(new, key))
        found += [f"{key} no longer has {visible(rule.pattern)!r}" for rule in gone]
    return found


def on_screens(folders: Sequence[Path], old: Profile | None, new: Profile) -> tuple[int, list[Change]]:
    """Return the number of recorded screens of the agent, and those that `new` judges worse than `old`.

    folders: each has a folder of screens named after the profile. Raise ConfigError for an unreadable screen.
    """
    number, worse = 0, []
    for path, was, text in _recorded(folders, new.name):
        number += 1
        before = "" if old is None else str(inspect_screen(text, old).state)
        change = Change(f"{new.name}/{path.name}", was, before, str(inspect_screen(text, new).state))
        if change.unsafe or (change.after != was and before in {was, ""}):
            worse.append(change)
    return number, worse


def _recorded(folders: Sequence[Path], name: str) -> Iterator[tuple[Path, str, str]]:
    for path in (path for folder in folders for path in sorted((folder / name).glob("*.txt"))):
        try:
            yield path, path.stem.partition("-")[0], path.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"cannot read this screen: {error}. Fix it or remove it.", path) from None
