"""One rule of a hooks.json file, its default name, and a mistake in such a file."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Literal

from relay.agents.launchers import without_launchers
from relay.dataclass import dataclass
from relay.rules.event import RuleKind, Shape
from relay.rules.matcher import EVERYTHING, Matcher
from relay.text import one_line

Origin = Literal["user", "project", "named"]

TIMEOUT = 60.0
"""Default timeout of a rule's command, in seconds."""

NAME_LENGTH = 60
"""Maximum length of a rule's name, in characters; the rest is cut."""

_INTERPRETER = re.compile(r"(?:python[\d.]*|node|ruby|perl|bash|sh|zsh|dash|deno|bun|php|osascript)\Z")
_CODE = frozenset({"-c", "-lc", "-ec", "-e"})


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule. It keeps its `id` when it moves within its file.

    name:       for people, and for the heading above injected text: its `name`, else its script's, else the
                first word of its command.
    shape:      "group" as in Claude Code, or "flat" without the list around the handlers; it decides which
                payload the command gets.
    command:    for a shell; with `args`, a program that is run without one. "" for a prompt.
    prompt:     the text that a prompt injects.
    timeout:    seconds. background: nothing waits for it, and its answer has no effect.
    path, line: where it is. origin: the kind of that file.
    """

    id: str
    name: str
    event: str
    kind: RuleKind
    shape: Shape
    path: Path
    line: int
    origin: Origin = "user"
    command: str = ""
    args: tuple[str, ...] | None = None
    prompt: str = ""
    matcher: Matcher = EVERYTHING
    timeout: float = TIMEOUT
    background: bool = False

    @property
    def place(self) -> str:
        """`hooks.json:12`, with the whole path."""
        return f"{self.path}:{self.line}"

    @property
    def work(self) -> object:
        """Its work: of the rules with equal work, only one runs for an event."""
        return (self.shape, self.kind, self.command, self.args, self.prompt)


@dataclass(frozen=True, slots=True)
class RuleWarning:
    """One mistake in a file of rules, and what to do about it; the other rules are still in force.

    line:    1-based; 0 if it concerns the whole file.
    event:   as written there; "" if it is in none.
    unread:  the file as a whole cannot be read, so its rules are unknown.
    skipped: a rule that was meant to run does not.
    stays:   the rules that were loaded from the file before stay in force.
    """

    path: Path
    text: str
    line: int = 0
    event: str = ""
    unread: bool = False
    skipped: bool = False
    stays: bool = False

    def __str__(self) -> str:
        place = f"{self.path}:{self.line}" if self.line else str(self.path)
        return f"{place}: {self.event}: {self.text}" if self.event else f"{place}: {self.text}"


def default_name(command: str, args: tuple[str, ...] | None) -> str:
    """Return the name of a rule's script, else of its program: guard.py for `python3 "$DIR"/guard.py -x`.

    A rule without a command is a prompt.
    """
    if not command:
        return "prompt"
    words = first_words(command) if args is None else [command, *args]
    words = without_launchers(words) or words
    name = _basename(words[0]) if words else command
    if not _INTERPRETER.match(name):
        return name
    for option, following in zip(words[1:], [*words[2:], ""], strict=False):
        if option == "-m" and following:
            return _basename(following)
        if option in _CODE:
            return name
        if not option.startswith("-"):
            return _basename(option)
    return name


def first_words(command: str) -> list[str]:
    """Return the words of a shell's first simple command, without their quotes."""
    words = shlex.shlex(command, posix=True, punctuation_chars=";&|()<>")
    words.whitespace_split, words.commenters = True, ""
    found = []
    try:
        for word in words:
            if not word.strip(";&|()<>"):
                break
            found.append(word)
    except ValueError:  # an unclosed quote; the shell will report it
        return found or command.split()
    return found


def _basename(word: str) -> str:
    return one_line(word.rstrip("/").rpartition("/")[2] or word, NAME_LENGTH)
