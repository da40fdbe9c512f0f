"""Zero-width joiners that an agent draws, and leaves out of its own record (AgentKind.omits_joiners).

Without them, a family of one character becomes several persons.
"""

from __future__ import annotations

import re

JOINER = "\N{ZERO WIDTH JOINER}"

_KEPT = 500
"""Maximum number of different words with joiners that are remembered."""

_LONGEST = 4096
"""Maximum bytes of a word."""

_LETTERS = rb"[\x80-\xff]*"  # ASCII, such as that of a control sequence, ends a word
_ENDS = re.compile(_LETTERS)
_WORD = re.compile(_LETTERS + JOINER.encode() + _LETTERS)


class DrawnJoiners:
    """The words with joiners that one agent has drawn."""

    def __init__(self) -> None:
        self._words: dict[str, str] = {}  # by what the record has instead, the latest last
        self._unfinished = b""

    def drawn(self, output: bytes) -> None:
        """Remember the words in the next bytes of the agent's output."""
        data = self._unfinished + output
        end = len(data) - len(_ENDS.match(data[::-1])[0])  # type: ignore[index]  # it always matches
        self._unfinished = data[end:][-_LONGEST:]
        for found in _WORD.findall(data, 0, end):
            word = found.decode(errors="ignore").strip(JOINER)
            without = word.replace(JOINER, "")
            if without != word:
                self._words.pop(without, None)
                self._words[without] = word
        while len(self._words) > _KEPT:
            del self._words[next(iter(self._words))]

    def restored(self, text: str) -> str:
        """Return `text` from the record with the joiners of the words that were drawn."""
        for without in sorted(self._words, key=len, reverse=True):
            text = text.replace(without, self._words[without])
        return text
