"""The prompt signs at which a program waits for input, such as `> `.

A program that waits at one may continue in the same row.  Whether it was seen to wait there is a matter of
time alone, so a sign that has been seen once is taken off every line that begins with it.
"""

from __future__ import annotations

from collections.abc import Iterable

_LONGEST, _MOST = 8, 16
"""Characters of a sign, and the number of signs that are remembered."""


class PromptSigns:
    """The signs of one program, in the order in which they were learned."""

    def __init__(self, known: Iterable[str] = ()) -> None:
        self._known = dict.fromkeys(known)

    @property
    def known(self) -> list[str]:
        return list(self._known)

    def learn(self, text: str) -> None:
        """Note that the program waits behind `text`, the end of its output, which may be a sign."""
        if text.strip() and len(text) <= _LONGEST and not any(map(str.isalnum, text)):
            self._known[text] = None
            if len(self._known) > _MOST:
                del self._known[next(iter(self._known))]

    def strip(self, text: str) -> str:
        """Return `text` without the signs that it begins with. A line that is a sign stays; so does `>>>`."""
        while self._known and text.strip() != ">>>":
            sign = next((each for each in self._known if text.startswith(each) and text != each), "")
            if not sign:
                break
            text = text[len(sign) :]
        return text
