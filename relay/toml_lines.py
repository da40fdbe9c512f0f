"""The line numbers of the keys in a TOML text, which TOML parsers discard.

Each key has a path: the names of the tables around it and its own; a list item has its index for a name.

    [agents.Lead]                               ("agents", "Lead")
    "on_error" = [{ match = "network" }]        ("agents", "Lead", "on_error", 0, "match")
"""

from __future__ import annotations

import re
from bisect import bisect_right

import tomli

KeyPath = tuple[str | int, ...]

_SPACE = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_KEY = re.compile(r"""[A-Za-z0-9_-]+|"(?:\\.|[^"\\\n])*"|'[^'\n]*'""")
_VALUE = re.compile(
    r'''"""(?:\\.|[^\\])*?"{3,5}'''  # up to two of the quotes at the end belong to the string
    r"""|'''.*?'{3,5}"""
    r"""|"(?:\\.|[^"\\\n])*"|'[^'\n]*'"""
    r"""|[^,\]}#\n]+""",  # a number, a boolean or a time
    re.DOTALL,
)


class TomlLines:
    """The lines of `text`, which must be valid TOML."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._breaks = [match.end() for match in re.finditer("\n", text)]
        self._known: dict[KeyPath, int] = {}
        self._lengths: dict[KeyPath, int] = {}  # tables in each array of tables so far
        try:
            self._document()
        except RecursionError:
            pass  # too deep within one value; the line where that value begins will do

    @property
    def paths(self) -> frozenset[KeyPath]:
        """The paths of all keys, tables and items of lists."""
        return frozenset(self._known)

    def of(self, path: KeyPath) -> int:
        """Return the line (1-based) of the key at `path`, else of the innermost known table around it."""
        while path and path not in self._known:
            path = path[:-1]
        return self._known.get(path, 1)

    def _document(self) -> None:
        table: KeyPath = ()
        while first := self._next():
            if first == "[":
                table = self._header()
            else:
                self._pair(table)

    def _header(self) -> KeyPath:
        line = self._line()
        brackets = 2 if self._text.startswith("[[", self._at) else 1
        self._at += brackets
        names = self._names()
        self._at += brackets
        path: KeyPath = ()
        for name in names:
            path = (*path, name)
            self._known.setdefault(path, line)
            if path in self._lengths and (brackets == 1 or len(path) < len(names)):
                path = (*path, self._lengths[path] - 1)  # what follows is within the last table of the array
        if brackets == 2:
            number = self._lengths[path] = self._lengths.get(path, 0) + 1
            path = (*path, number - 1)
        self._known[path] = line  # the line of the table's own header, not of the first that names it
        return path

    def _pair(self, table: KeyPath) -> None:
        line = self._line()
        path = table
        for name in self._names():
            path = (*path, name)
            self._known.setdefault(path, line)
        self._at += 1  # the equals sign
        self._value(path)

    def _value(self, path: KeyPath) -> None:
        match self._next():
            case "{":
                self._at += 1
                while self._next() not in {"}", ""}:
                    self._pair(path)
                    self._comma()
                self._at += 1
            case "[":
                self._at += 1
                number = 0
                while self._next() not in {"]", ""}:
                    item = (*path, number)
                    self._known[item] = self._line()
                    self._value(item)
                    self._comma()
                    number += 1
                self._at += 1
            case _:
                self._skip(_VALUE)

    def _comma(self) -> None:
        if self._next() == ",":
            self._at += 1

    def _names(self) -> list[str]:
        """Return the names of a dotted key, and move past it."""
        names = []
        while True:
            self._next()
            written = self._skip(_KEY)
            names.append(tomli.loads(f"name = {written}")["name"] if written[0] in "\"'" else written)
            if self._next() != ".":
                return names
            self._at += 1

    def _next(self) -> str:
        """Move to the next character that is neither space nor comment, and return it; "" at the end."""
        self._skip(_SPACE)
        return self._text[self._at : self._at + 1]

    def _skip(self, pattern: re.Pattern[str]) -> str:
        found = pattern.match(self._text, self._at)
        if found is None:
            raise ValueError(f"not valid TOML at character {self._at}")
        self._at = found.end()
        return found[0]

    def _line(self) -> int:
        return bisect_right(self._breaks, self._at) + 1
