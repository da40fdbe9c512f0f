"""JSON whose values know their line, so that a warning can say where a mistake is."""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Iterator
from json import JSONDecodeError
from typing import Any

from relay.dataclass import dataclass

_DEPTH = 100  # levels of nested lists and objects; no hand-written file has that many

_PLAIN = {
    "Expecting value": (
        "expected a string in double quotes, a number, true, false, null, a list or an object"
    ),
    "Unterminated string starting at": "the string that begins here has no end",
    "Invalid control character at": (
        "a string contains a line break or another control character; for a line break write \\n"
    ),
    "Invalid \\escape": "a backslash in a string; write two",
    "Invalid \\uXXXX escape": "\\u needs four hexadecimal digits",
}
"""The messages of Python's JSON parser, in plain words."""

_QUOTES = "\u2018\u2019\u201a\u201c\u201d\u201e\u00ab\u00bb'`"

_SPACE = re.compile(r"[ \t\n\r]*")


@dataclass(frozen=True, slots=True)
class Node:
    """A value, and the line (1-based) where it begins; the items of a list or an object are nodes, too.

    repeated: keys that appear more than once in an object; the last one counts.
    """

    value: Any
    line: int
    repeated: tuple[str, ...] = ()

    def plain(self) -> Any:
        """Return the value without lines."""
        if isinstance(self.value, dict):
            return {key: node.plain() for key, node in self.value.items()}
        if isinstance(self.value, list):
            return [node.plain() for node in self.value]
        return self.value


def parse(text: str) -> Node:
    """Return the value in `text`. Raise JSONDecodeError, with line and column."""
    parser = _Parser(text)
    node = parser.value(0)
    if parser.peek():
        raise parser.wrong("there is text after the end")
    return node


# Python refuses to read very long integers; as a float, such a number is infinite, and refused for that.
_DECODER = json.JSONDecoder(parse_int=lambda digits: (int if len(digits) < 400 else float)(digits))


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._lines = [match.end() for match in re.finditer("\n", text)]

    def value(self, depth: int) -> Node:
        first = self.peek()
        line = bisect_right(self._lines, self._at) + 1
        if not first:
            raise self.wrong("it ends too early")
        if first not in "{[":
            return Node(self._simple(), line)
        if depth == _DEPTH:
            raise self.wrong("lists and objects are nested too deeply")
        if first == "[":
            return Node([self.value(depth + 1) for _ in self._items("]")], line)
        members: dict[str, Node] = {}
        repeated = []
        for _ in self._items("}"):
            if self.peek() != '"':
                raise self.wrong("a name in double quotes is missing")
            key = self._simple()
            if self.peek() != ":":
                raise self.wrong("a ':' is missing after the name")
            self._at += 1
            if key in members:
                repeated.append(key)
            members[key] = self.value(depth + 1)
        return Node(members, line, tuple(repeated))

    def _items(self, end: str) -> Iterator[None]:
        """Yield before each item, then move past `end`."""
        self._at += 1
        if self.peek() == end:
            self._at += 1
            return
        while True:
            yield
            mark = self.peek()
            if mark not in (",", end):
                raise self.wrong(f"a ',' or '{end}' is missing")
            self._at += 1
            if mark == end:
                return
            if self.peek() == end:
                raise self.wrong(f"there is an extra ',' before '{end}'")

    def _simple(self) -> Any:
        try:
            value, self._at = _DECODER.raw_decode(self._text, self._at)
        except JSONDecodeError as error:
            self._at = error.pos
            plain = (plain for message, plain in _PLAIN.items() if error.msg.startswith(message))
            raise self.wrong(next(plain, error.msg)) from None
        return value

    def peek(self) -> str:
        """Skip whitespace, and return the next character; "" at the end."""
        space = _SPACE.match(self._text, self._at)
        self._at = space.end() if space else self._at
        return self._text[self._at : self._at + 1]

    def wrong(self, what: str) -> JSONDecodeError:
        here = self._text[self._at : self._at + 2]
        if here in ("//", "/*") or here[:1] == "#":
            what = "JSON has no comments; remove this one"
        elif here and here[0] in _QUOTES:
            what = f'JSON strings need straight double quotes (") instead of {here[0]}'
        return JSONDecodeError(what, self._text, self._at)
