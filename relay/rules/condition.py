"""The condition of a rule, `if`: a tool, and what a call of it must be about, as in Claude Code.

    Bash(git push *)   a command of the command line; ` *` at the end also matches nothing
    Write(src/**)      the path of the file, as a pattern of gitignore: `//` begins an absolute one
    Read               every call of the tool

A condition spares the command of a rule for calls that it is not about. It must not be a way around a guard:
if relay cannot tell what a command line runs, or which file a call is about, the condition holds.
"""

from __future__ import annotations

import fnmatch
import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from relay import lazy_re
from relay.dataclass import dataclass
from relay.rules.event import RuleEvent
from relay.rules.tools import claude_names, close_to

FILE_TOOLS = frozenset({"Read", "Write", "Edit", "MultiEdit", "NotebookEdit", "Grep", "Glob", "LS"})
"""Tools whose conditions are about a path."""

_SYNTAX = lazy_re.compile(r"(?P<tool>[A-Za-z_][\w.-]*)(?:\((?P<about>.*)\))?\Z", re.DOTALL)
_PATHS = ("file_path", "notebook_path", "absolute_path", "path")
_LONGEST = 100_000  # characters of a command line; a longer one is not taken apart

Holds = Callable[[Mapping[str, Any], str], bool]
"""Returns True if a condition holds for a tool's input, in an agent's directory."""


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition that was read. about: what is in the parentheses; "" for every call of the tool."""

    tool: str
    about: str
    holds: Holds

    def matches(self, event: RuleEvent) -> bool:
        """Return True if the rule is for this call of a tool. Raise Undecided."""
        tool, given = event.data.get("tool_name"), event.data.get("tool_input")
        if not isinstance(tool, str) or not {*claude_names(self.tool)} & {*claude_names(tool)}:
            return False
        cwd = event.data.get("cwd")
        return self.holds(given if isinstance(given, Mapping) else {}, cwd if isinstance(cwd, str) else "/")


def parse(text: str, directory: Path, searched: Callable[[str], Callable[[str], bool]]) -> Condition:
    """Return the condition in `text`. Raise ValueError, which says what is wrong.

    directory: that of the file it is in, from which relative paths may start.
    searched:  returns the test for a regular expression that must match a whole text.
    """
    match = _SYNTAX.match(text)
    if match is None:
        raise ValueError('write one tool, such as "Read", or "Bash(git push *)".')
    tool, about = match["tool"], (match["about"] or "").strip()
    if about in ("", "*"):
        return Condition(tool, "", lambda given, cwd: True)
    if "Bash" in claude_names(tool):
        return Condition(tool, about, _of_command(about))
    if FILE_TOOLS & {*claude_names(tool)}:
        return Condition(tool, about, _of_path(about, directory, searched))
    if meant := close_to(tool):
        raise ValueError(f"no tool is called {tool}. Did you mean {meant}?")
    raise ValueError(f"only conditions of Bash and of tools for files may say more than {tool}.")


# Command lines.


def _of_command(pattern: str) -> Holds:
    """Return the condition that one of the commands in a command line matches `pattern`."""
    patterns = [pattern]
    if pattern.endswith((":*", " *")):
        patterns = [pattern[:-2], f"{pattern[:-2]} *"]
    # Of fnmatch's syntax only `*`; its translation takes time linear in the text's length.
    tests = [re.compile(fnmatch.translate(re.sub(r"[\[?]", r"[\g<0>]", each))) for each in patterns]
    by_name = re.fullmatch(r"[^\s*]+?(?: |:)?\*", pattern) is not None

    def holds(given: Mapping[str, Any], cwd: str) -> bool:
        line = given.get("command", given.get("cmd"))
        if isinstance(line, list) and all(isinstance(word, str) for word in line):
            inline = len(line) == 3 and line[1] in ("-c", "-lc")
            line = line[2] if inline else " ".join(line)
        if not isinstance(line, str):
            return True
        try:
            found = list(_commands(line))
        except _Unclear:
            return True
        if not by_name and any(command is None for command in found):
            return True
        return any(test.match(command) for command in found if command is not None for test in tests)

    return holds


class _Unclear(Exception):
    """What a command line runs cannot be seen in it."""


_TOKEN = lazy_re.compile(
    r"""(?P<blank>[ \t]+)
      | (?P<unclear><<(?!<)|[<>]\(|\$\(\(|\$[\[{'"]|\(\s*\)|\\\n|[^\s;&|()<>$`'"\\{]*\{[^}\s]*,)
      | (?P<redirection>\d*(?:&>>?|>&|<&|<<<|<>|>>|>\||>|<)&?-?)
      | (?P<end>[;&|()\n]+)
      | (?P<inner>\$\()
      | (?P<ticks>`(?:[^`\\]|\\.)*`)
      | (?P<single>'[^']*')
      | (?P<double>"(?:[^"\\$`]|\\[^\n]|\$(?![({]))*")
      | (?P<variable>\$)
      | (?P<escaped>\\.)
      | (?P<plain>[^\s;&|()<>$`'"\\]+)
    """,
    re.VERBOSE | re.DOTALL,
)
"""One token of a command line (POSIX.1-2017, Shell Command Language, 2.3 and 2.6)."""

_LEADING = frozenset({"if", "then", "elif", "else", "do", "while", "until", "!", "xargs"})
_UNCLEAR = frozenset({"{", "case", "function", "select", "coproc"})
_ASSIGNMENT = lazy_re.compile(r"[A-Za-z_]\w*(?:\[[^\]]*\])?\+?=")


def _commands(line: str) -> Iterator[str | None]:
    """Yield the commands in `line`, each as its words; None for an argument that cannot be seen: a variable.

    Words have no quotes, and no redirections. Raise _Unclear for all that is seldom written.
    """
    if len(line) > _LONGEST:
        raise _Unclear
    words: list[str] = []
    begun = redirected = False  # a word has begun; the next one is a file
    at = 0
    while at < len(line):
        if not begun and line[at] == "#":
            at = line.find("\n", at) if "\n" in line[at:] else len(line)
            continue
        token = _TOKEN.match(line, at)
        if token is None or token.lastgroup == "unclear":
            raise _Unclear
        at, kind, text = token.end(), token.lastgroup, token[0]
        if kind in ("blank", "end", "redirection"):
            if begun and redirected:
                words.pop()
            redirected = redirected and not begun
            begun = False
            if kind == "redirection":
                redirected = not text.endswith("-")
            elif kind == "end":
                yield from _named(words)
                words, redirected = [], False
            continue
        if kind in ("inner", "ticks"):
            text = _inside(line, at) if kind == "inner" else text[1:-1]
            at += len(text) + 1 if kind == "inner" else 0
            yield None
            yield from _commands(text)
            text = "$"
        elif kind == "double":
            text = re.sub(r'\\([$`"\\])', r"\1", text[1:-1])
        elif kind == "single":
            text = text[1:-1]
        elif kind == "escaped":
            text = text[1:]
        if kind in ("variable", "double") and "$" in text:
            yield None
        words = [*words[:-1], words[-1] + text] if begun else [*words, text]
        begun = True
    if begun and redirected:
        words.pop()
    yield from _named(words)


def _inside(line: str, start: int) -> str:
    """Return what is in the parentheses that begin before `start`. Raise _Unclear if that is not plain."""
    depth = 1
    for at in range(start, len(line)):
        depth += {"(": 1, ")": -1}.get(line[at], 0)
        if line[at] in "'\"\\#":
            raise _Unclear
        if not depth:
            return line[start:at]
    raise _Unclear


def _named(words: list[str]) -> Iterator[str]:
    """Yield a simple command without what may precede its name. Raise _Unclear if it has no plain name."""
    while words and (words[0] in _LEADING or _ASSIGNMENT.match(words[0])):
        if words[0] == "xargs":
            yield " ".join(words)
        words = words[1:]
    if words and ("$" in words[0] or words[0] in _UNCLEAR):
        raise _Unclear
    if words:
        yield " ".join(words)


# Paths.


def _of_path(pattern: str, directory: Path, searched: Callable[[str], Callable[[str], bool]]) -> Holds:
    """Return the condition that the file of a call, or a folder that it is in, matches `pattern`."""
    body = pattern.rstrip("/")
    if pattern.startswith("//"):
        tests, bases = searched(_regex(body[1:])), None
    elif pattern.startswith("~/"):
        tests, bases = searched(re.escape(os.path.expanduser("~")) + _regex(body[1:])), None  # noqa: PTH111
    elif "/" in body:
        tests, bases = searched(_regex(body.removeprefix("./").removeprefix("/"))), directory
    else:
        tests, bases = searched(f"(?:.*/)?{_regex(body)}"), None

    def holds(given: Mapping[str, Any], cwd: str) -> bool:
        path = next((given[key] for key in _PATHS if isinstance(given.get(key), str)), None)
        if path is None:
            return True
        whole = os.path.normpath(os.path.join(cwd, path))  # noqa: PTH118
        if bases is None:
            return tests(whole)
        # An agent may go to another directory, and must not evade a rule that way.
        starts = {Path(cwd), *Path(cwd).parents, bases, *bases.parents} - {Path("/")}
        return any(
            tests(str(Path(whole).relative_to(each))) for each in starts if Path(whole).is_relative_to(each)
        )

    return holds


_WILD = lazy_re.compile(r"(?P<any>\*\*/)|(?P<rest>\*\*)|(?P<star>\*)|(?P<one>\?)|\[(?P<class>[!^]?[^\]/]+)\]")


def _regex(pattern: str) -> str:
    """Return the regular expression for a pattern of gitignore, and for all that is below what it matches."""
    found, at = "", 0
    for wild in _WILD.finditer(pattern):
        found += re.escape(pattern[at : wild.start()])
        at = wild.end()
        if wild["class"]:
            found += f"[{wild['class'].replace('!', '^', 1) if wild['class'][0] == '!' else wild['class']}]"
        else:
            found += {"any": "(?:.*/)?", "rest": ".*", "star": "[^/]*", "one": "[^/]"}[str(wild.lastgroup)]
    return f"{found}{re.escape(pattern[at:])}(?:/.*)?"
