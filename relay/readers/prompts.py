"""The prompt signs at which a program waits for input, such as `> `.

A program that waits at a sign may continue in the same row.  Whether relay sees it wait depends on timing
alone, so a sign seen once is stripped from every line that begins with it.
"""

from __future__ import annotations

from collections.abc import Iterable

_LONGEST, _MOST = 8, 16
"""Maximum characters of a sign, and maximum number of signs remembered."""


class PromptSigns:
    """The signs of one program, in the order in which they were learned."""

    def __init__(self, known: Iterable[str] = ()) -> None:
        self._known = dict.fromkeys(known)

    @property
    def known(self) -> list[str]:
        return list(self._known)

    def learn(self, text: str) -> None:
        """Note that the program waits after `text`, the end of its output, which may be a sign."""
        if text.strip() and len(text) <= _LONGEST and not any(map(str.isalnum, text)):
            self._known[text] = None
            if len(self._known) > _MOST:
                del self._known[next(iter(self._known))]

    def strip(self, text: str) -> str:
        """Return `text` without its leading signs. A line that is only a sign stays; so does `>>>`."""
        while self._known and text.strip() != ">>>":
            sign = next((each for each in self._known if text.startswith(each) and text != each), "")
            if not sign:
                break
            text = text[len(sign) :]
        return text
