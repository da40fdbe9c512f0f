"""Telling what was typed from what the agent said.

A terminal draws what is typed into it.  Each typed line is expected once in the output, as the whole line
or after a prompt; the line that meets the expectation is the echo and is dropped, and with it the
expectation, so that `cat`, which then says the same line, is heard.  An expectation that nothing meets
expires.
"""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass

_MAX_EXPECTED = 4096
"""Typed lines that may wait for their echo: more than a paste of a thousand lines."""

# What a terminal sends (xterm ctlseqs): mouse reports, answers that are strings, function keys, text.
_KEY = re.compile(
    r"\x1b(?:\[M.{3}|\[[0-?]*[ -/]*[@-~]|O.|[\]P^_X][^\x07\x1b]*(?:\x07|\x1b\\)?|.)?"
    r"|[\x00-\x1f\x7f]|[^\x00-\x1f\x7f\x1b]+",
    re.DOTALL,
)
_WORD = re.compile(r"\S*\s*\Z")


@dataclass(frozen=True, slots=True)
class _Typed:
    text: str
    deadline: float


class Echo:
    """The typed lines whose echo has not been seen yet.

    marker:  what begins a directive; a line that begins as one is no prompt with typed text after it.
    seconds: how long an echo may take.
    """

    def __init__(self, marker: str = "@", seconds: float = 5.0) -> None:
        self.seconds = seconds
        self._expected: deque[_Typed] = deque(maxlen=_MAX_EXPECTED)
        self._draft = ""
        self._directive = re.compile(rf"\W*?{re.escape(marker)}[A-Za-z][\w-]*:\S")

    @property
    def expecting(self) -> bool:
        return bool(self._expected)

    @property
    def draft(self) -> str:
        """What was typed since the last Enter, without blanks."""
        return squeeze(self._draft)

    def typed(self, data: bytes, now: float, *, echo: bool) -> None:
        """Note keys or a paste. Editing keys that move the cursor are not followed."""
        for match in _KEY.finditer(data.decode("utf-8", "replace")):
            key = match[0]
            if key in "\r\n":
                text = squeeze(self._draft)
                if text and echo:
                    self._expected.append(_Typed(text, now + self.seconds))
                self._draft = ""
            elif key in "\x7f\x08":
                self._draft = self._draft[:-1]
            elif key in "\x03\x15":  # interrupt, kill line
                self._draft = ""
            elif key == "\x17":  # kill word
                self._draft = _WORD.sub("", self._draft)
            elif key == "\t" or (key[0] >= " " and key != "\x7f"):
                self._draft += key if echo else ""

    def heard(self, text: str, now: float) -> bool:
        """Whether `text` is the echo of a typed line, which is then no longer expected."""
        while self._expected and self._expected[0].deadline < now:
            self._expected.popleft()
        if not self._expected:
            return False
        line = squeeze(text)
        for index, typed in enumerate(self._expected):
            if line.endswith(typed.text) and self._after_prompt(text, line, typed.text):
                # Echoes come in the order of typing: what was typed before this one had none.
                for _ in range(index + 1):
                    self._expected.popleft()
                return True
        return False

    def continues(self, above: str, text: str) -> bool:
        """Whether `text`, below `above`, is the next piece of a typed line that the program has wrapped."""
        upper, part = squeeze(above), squeeze(text)
        for typed in self._expected:
            at = typed.text.find(part, 1)
            if at > 0 and upper.endswith(typed.text[max(0, at - 12) : at]):
                return True
        return False

    def before_draft(self, text: str) -> str:
        """`text` without what was typed since the last Enter, if that is its end."""
        draft = self.draft
        if not draft or not squeeze(text).endswith(draft):
            return text
        at, left = len(text), len(draft)
        while left:
            at -= 1
            left -= not text[at].isspace()
        return text[:at]

    def drafted(self, text: str) -> bool:
        """Whether `text` shows, after a prompt's sign at most, what was typed since the last Enter."""
        if not self._draft:
            return False
        line, draft = squeeze(text), self.draft
        if not line.endswith(draft):
            return False
        return not any(character.isalnum() for character in line[: len(line) - len(draft)])

    def _after_prompt(self, text: str, line: str, typed: str) -> bool:
        prompt = line[: len(line) - len(typed)]
        if not prompt:
            return True
        if self._directive.match(prompt):
            return False
        # A word that merely ends like the typed text is not its echo: a blank or a sign stands between.
        return not prompt[-1].isalnum() or text.rstrip()[: -len(typed)].endswith(" ")


def squeeze(text: str) -> str:
    """`text` without blanks: how a line looks the same wherever it was wrapped."""
    return "".join(text.split())
