"""Whether the commands of rules can start: their programs and scripts are looked up, and nothing is run.

Only what is certain is reported: nothing about a command whose first word is a shell's own (`[`, `cd`), or
has a variable other than those of the project and the home folder.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
from collections.abc import Iterable, Sequence
from pathlib import Path

from relay.agents.launchers import without_launchers
from relay.rules.engine import PROJECT
from relay.rules.rule import Rule, RuleWarning, first_words

_SHELLS_OWN = frozenset(
    {
        *("!", ".", ":", "[", "[[", "{", "case", "cd", "command", "do", "echo", "eval", "exec", "exit"),
        *("export", "false", "for", "function", "if", "printf", "read", "return", "set", "source", "test"),
        *("trap", "true", "ulimit", "umask", "unset", "until", "wait", "while"),
    }
)
_FETCHED = frozenset({"npx", "uvx", "sudo"})  # what they run need not be on PATH
_INTERPRETER = re.compile(r"(?:python[\d.]*|node|ruby|perl|bash|sh|zsh|dash|php)\Z")
_NO_VALUE = re.compile(r"-[BEIOSeusvx]+\Z")  # an option of an interpreter after which its script may follow
_UNKNOWN = re.compile(r"[$`*?\[{(<>]")


def unstartable(rules: Iterable[Rule], directory: Path) -> list[RuleWarning]:
    """Return a warning for each rule whose command cannot start for an agent in `directory`."""
    found = []
    for rule in rules:
        if why := _missing(rule, directory):
            denied = (
                " Until it can, relay denies the calls that it is for." if rule.event == "PreToolUse" else ""
            )
            text = f"its command cannot start: {why}{denied}"
            found.append(RuleWarning(rule.path, text, rule.line, rule.event))
    return found


def _missing(rule: Rule, directory: Path) -> str:
    """Return why the command of `rule` cannot start, and what to do; "" if it can, or nobody can tell."""
    if not rule.command:
        return ""
    project = str(rule.path.parent if rule.origin == "project" else directory)
    if rule.args is not None:
        words = [word.replace(PROJECT, project) for word in (rule.command, *rule.args)]
        return _program(words[0], directory) or _script(words, directory)
    command = rule.command.strip()
    if command.startswith(("(", "#")) or "\n" in command or "()" in command:
        return ""
    given = [_expanded(word, project) for word in first_words(command)]
    if not given or given[0] in _SHELLS_OWN or not _FETCHED.isdisjoint(given):
        return ""
    words = without_launchers(given)
    if not words or words[0] in _SHELLS_OWN or _UNKNOWN.search(words[0]):
        return ""
    return _program(words[0], directory) or _script(words, directory)


def _expanded(word: str, project: str) -> str:
    for name, value in (("CLAUDE_PROJECT_DIR", project), ("HOME", os.path.expanduser("~"))):  # noqa: PTH111
        word = re.sub(rf"\$(?:{name}\b|\{{{name}\}})", value.replace("\\", r"\\"), word)
    return os.path.expanduser(word) if word.startswith("~") else word  # noqa: PTH111


def _program(word: str, directory: Path) -> str:
    if "/" not in word:
        return "" if shutil.which(word) else f"there is no program {word} on PATH."
    path = directory / word
    if why := _no_file(path):
        return why
    if not os.access(path, os.X_OK):
        return f"{path} is not executable; use `chmod +x`."
    return ""


def _script(words: Sequence[str], directory: Path) -> str:
    """Look for the script of an interpreter."""
    if not _INTERPRETER.match(words[0].rpartition("/")[2]):
        return ""
    script = next((word for word in words[1:] if not _NO_VALUE.match(word)), "")
    if not script or script.startswith("-") or _UNKNOWN.search(script):
        return ""
    return _no_file(directory / script)


def _no_file(path: Path) -> str:
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return f"there is no file {path}."
    except OSError:
        return ""
    return f"{path} is a folder." if stat.S_ISDIR(mode) else ""
