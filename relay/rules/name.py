"""What a rule is called whose file does not say: after its script, or its program."""

from __future__ import annotations

import re
import shlex

from relay.text import one_line

LENGTH = 60
"""Characters of a name."""

_INTERPRETER = re.compile(r"(?:python[\d.]*|node|ruby|perl|bash|sh|zsh|dash|deno|bun|php|osascript)\Z")
_CODE = frozenset({"-c", "-lc", "-ec", "-e"})
_LAUNCHERS = frozenset({"env", "exec", "command", "nohup", "nice", "time", "npx", "uvx"})
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")


def called(command: str, args: tuple[str, ...] | None) -> str:
    """The name of a rule's script, else of its program: guard.py of `python3 "$DIR"/guard.py -x`."""
    if not command:
        return "prompt"
    words = _first_words(command) if args is None else [command, *args]
    while len(words) > 1 and (_ASSIGNMENT.match(words[0]) or _basename(words[0]) in _LAUNCHERS):
        words = words[1:]
    name = _basename(words[0]) if words else command
    if not _INTERPRETER.match(name):
        return name
    for option, following in zip(words[1:], [*words[2:], ""], strict=True):
        if option == "-m" and following:
            return _basename(following)
        if option in _CODE:
            return name
        if not option.startswith("-"):
            return _basename(option)
    return name


def _first_words(command: str) -> list[str]:
    """The words of a shell's first simple command, their quotes gone."""
    words = shlex.shlex(command, posix=True, punctuation_chars=";&|()<>")
    words.whitespace_split, words.commenters = True, ""
    found = []
    try:
        for word in words:
            if not word.strip(";&|()<>"):
                break
            found.append(word)
    except ValueError:  # a quote that is not closed; a shell will say so
        return found or command.split()
    return found


def _basename(word: str) -> str:
    return one_line(word.rstrip("/").rpartition("/")[2] or word, LENGTH)
