"""Distinguishes the echo of typed text from the agent's words.

A terminal echoes the text typed into it.  Each typed line is expected once in the output, as a whole line or
after a prompt.  The line that meets the expectation is the echo; both are dropped, so the same line counts
when `cat` prints it next.  Expectations expire.
"""

from __future__ import annotations

import re
from collections import deque
from typing import Any

from relay.readers.prompts import PromptSigns

_MAX_EXPECTED = 4096
"""Maximum typed lines that wait for their echo; pastes of a thousand lines exist."""

_MAX_QUOTED = 1024
"""Maximum remembered typed lines with a directive after a sign."""

# What a terminal sends (xterm ctlseqs): mouse reports, string replies, function keys, text.
_KEY = re.compile(
    r"\x1b(?:\[M.{3}|\[[0-?]*[ -/]*[@-~]|O.|[\]P^_X][^\x07\x1b]*(?:\x07|\x1b\\)?|.)?"
    r"|[\x00-\x1f\x7f]|[^\x00-\x1f\x7f\x1b]+",
    re.DOTALL,
)
_WORD = re.compile(r"\S*\s*\Z")


class Echo:
    """The typed lines whose echo has not been seen yet.

    marker:  begins a directive; a line that begins with one is not a prompt followed by typed text.
    prompts: the signs that may precede an echo.
    seconds: maximum delay of the echo of text typed from now on.
    """

    def __init__(self, marker: str = "@", seconds: float = 5.0) -> None:
        self.seconds = seconds
        self.prompts = PromptSigns()
        self._expected: deque[tuple[str, float]] = deque(maxlen=_MAX_EXPECTED)  # (text, deadline)
        self._draft = ""
        self._line = ""  # typed since the last Enter, even if never drawn
        self._quoted: deque[str] = deque(maxlen=_MAX_QUOTED)
        self._directive = re.compile(rf"(?P<lead>\W*?){re.escape(marker)}[A-Za-z][\w-]*:\S")

    def state(self) -> dict[str, Any]:
        return {
            "seconds": self.seconds,
            "expected": list(self._expected),
            "draft": self._draft,
            "line": self._line,
            "quoted": list(self._quoted),
            "prompts": self.prompts.known,
        }

    def restore(self, state: dict[str, Any]) -> None:
        self.seconds = state["seconds"]
        self._expected.extend((text, deadline) for text, deadline in state["expected"])
        self._draft, self._line = state["draft"], state["line"]
        self._quoted.extend(state["quoted"])
        self.prompts = PromptSigns(state["prompts"])

    def typed(self, data: bytes, now: float, *, echo: bool) -> None:
        """Note keys or a paste; ignore keys that move the cursor. echo: the text will be drawn."""
        for match in _KEY.finditer(data.decode("utf-8", "replace")):
            key = match[0]
            if key in "\r\n":
                text = squeeze(self._draft)
                if text and echo:
                    self._expected.append((text, now + self.seconds))
                if (quoted := self._directive.match(line := squeeze(self._line))) and quoted.end("lead"):
                    self._quoted.append(line[quoted.end("lead") :])
                self._draft = self._line = ""
            elif key in "\x7f\x08":
                self._draft = self._draft[:-1]
            elif key in "\x03\x15":  # interrupt, kill line
                self._draft = ""
            elif key == "\x17":  # kill word
                self._draft = _WORD.sub("", self._draft)
            elif key == "\t" or (key[0] >= " " and key != "\x7f"):
                self._draft += key if echo else ""
                self._line += key

    def consume(self, text: str, now: float) -> bool:
        """Return True if `text` is the echo of a typed line, and stop expecting that line."""
        while self._expected and self._expected[0][1] < now:
            self._expected.popleft()
        line = squeeze(text) if self._expected else ""
        for index, (typed, _) in enumerate(self._expected):
            if line.endswith(typed) and self._after_prompt(text, line, typed):
                # Echoes come in the order of typing: lines typed before this one had none.
                for _ in range(index + 1):
                    self._expected.popleft()
                return True
        return False

    def behind_prompt(self, text: str) -> str:
        """Return `text` without its leading prompt signs, unless it was once typed with them.

        relay quotes the directives in the text it types, and its quote sign may look like the program's
        prompt: a program that prints such a line again gives no directive.
        """
        behind = self.prompts.strip(text)
        said = squeeze(behind) if behind != text else ""
        return text if said and any(_begins(said, each) for each in self._quoted) else behind

    def continues(self, above: str, text: str) -> bool:
        """Return True if `text`, below `above`, is the next piece of a wrapped typed line."""
        if not self._expected:
            return False
        upper, part = squeeze(above), squeeze(text)
        return any(
            (at := typed.find(part, 1)) > 0 and upper.endswith(typed[max(0, at - 12) : at])
            for typed, _ in self._expected
        )

    def before_draft(self, text: str) -> str:
        """Return `text` without the draft (typed since the last Enter) at its end."""
        draft = squeeze(self._draft)
        if not draft or not squeeze(text).endswith(draft):
            return text
        at, left = len(text), len(draft)
        while left:
            at -= 1
            left -= not text[at].isspace()
        return text[:at]

    def drafted(self, text: str) -> bool:
        """Return True if `text` is the draft (typed since the last Enter), perhaps after a prompt sign."""
        if not self._draft:
            return False
        line, draft = squeeze(text), squeeze(self._draft)
        return line.endswith(draft) and not any(map(str.isalnum, line[: len(line) - len(draft)]))

    def _after_prompt(self, text: str, line: str, typed: str) -> bool:
        prompt = line[: len(line) - len(typed)]
        if not prompt:
            return True
        if self._directive.match(prompt):
            return False
        # A word that merely ends like the typed text is not its echo: an echo follows a blank or a sign.
        return not prompt[-1].isalnum() or text.rstrip()[: -len(typed)].endswith(" ")


def _begins(a: str, b: str) -> bool:
    return a.startswith(b) or b.startswith(a)


def squeeze(text: str) -> str:
    """Return `text` without blanks, and so independent of where it was wrapped."""
    return "".join(text.split())
