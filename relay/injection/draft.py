"""The draft: what the user's keys have left in the agent's input, as far as keys alone can tell.

                 text ───────────→ TEXT ─ any other editing key ─→ UNKNOWN
    EMPTY ───────┴─ recall, Tab, Esc, Alt, a click ──────────────────↑
      ↑                              Enter; erased; `clear`: the screen shows an empty input

In canonical mode the kernel edits the line.  Programs have line editors of their own, with modes, kill rings,
histories and key bindings: only text, Backspace at its end, Ctrl-U in a short line and Enter mean the same in
each.  Erasing leaves an empty input empty.  After any other key the draft is unknown until Enter, or until
the screen shows the input empty.  The terminal's answers to queries do not count.

Some programs take a key without Enter: `y` at a question, a digit in a dialog.  Such keys stop being a draft
once they are no longer on the screen (`taken`).
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Sequence

from relay import lazy_re
from relay.state.agent_terminal import INPUT_BORDER

ESCAPE_TIMEOUT = 0.05
"""Seconds after which a lone ESC was the Esc key, not the start of a sequence (vim's ttimeoutlen)."""

MAX_DRAFT = 4_096
"""Characters to keep; a longer draft is still a draft."""

SHORT = 40
"""Characters of a text that surely fits in one row, which Ctrl-U erases."""

_INPUT = lazy_re.compile(r"[\s│┃|║▏▕]*[>❯›»]")  # the start of an input's row
_PASTE_END = "\x1b[201~"
_CSI = lazy_re.compile("\x1b\\[([0-?]*)[ -/]*([@-~])")
_SS3 = lazy_re.compile("\x1bO.", re.DOTALL)
_STRING = lazy_re.compile("\x1b(?:\\]\\d|[P_^X])[^\x07\x1b]*(?:\x07|\x1b\\\\)")  # OSC, DCS, APC, PM, SOS
_STRING_START = lazy_re.compile("\x1b(?:\\](?:\\d|\\Z)|[P_^X])")
_MAX_STRING = 4_096  # characters of an incomplete answer; anything longer is not an answer
_UNFINISHED = lazy_re.compile("\x1b(?:\\[[0-?]{0,64}[ -/]{0,16}|O)?")
_ALT_ENTER = ("\x1b\r", "\x1b\n")
# Terminals' answers by their final characters: DA, CPR and DSR, DECRPM, window reports, kitty's flags.
_ANSWER = lazy_re.compile("\x1b\\[(?:[?>=][0-?]*[ -/]*[A-Za-z]|[0-9;]*\\$y|[0-9;]*[Rnct])\\Z")
_FOCUS = ("\x1b[I", "\x1b[O")
_ERASE = ("\x7f", "\x08")
_CTRL_C, _CTRL_D, _CTRL_U, _CTRL_W, _CTRL_Z, _CTRL_BACKSLASH = "\x03", "\x04", "\x15", "\x17", "\x1a", "\x1c"
# Erasing leaves an empty input empty: Ctrl with D, K, L, W; Delete. Motion may accept a suggestion.
_STAYS_EMPTY = ("\x04", "\x0b", "\x0c", "\x17", "\x1b[3~")
_LITERAL = "\x16"  # VLNEXT (termios(3))
_QUOTES = ("\x11", "\x16")  # Ctrl-Q, Ctrl-V: line editors insert the next key
_PREFIXES = ("\x1b", "\x18", *_QUOTES)  # Esc and Ctrl-X: the next key is a command
_BUTTON = lazy_re.compile(
    "\x1b\\[(?:<(?:[12]?\\d|3[01]);[0-9;]*M|M[ -?])"
)  # a button was pressed, not a wheel


class Draft:
    """The draft of one terminal. Feed it the user's input in order; it is not thread-safe."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._pending = ""  # an unfinished escape sequence
        self._typed_before = float("-inf")  # `last_typed` before the pending sequence
        self._text = ""
        self._known = True  # the input holds `_text`
        self._last = ""  # the last key or sequence
        self.edited = False
        """True if an unknown key came since the last Enter: it may have changed what keys mean, as in vi."""
        self._pasting = False
        self._raw = False  # the whole text was typed while the terminal was not canonical
        self._edited = float("-inf")  # when the text last changed
        self.answers = False
        """True if the whole draft was typed while the program was asking something."""
        self.last_typed = float("-inf")
        """The time of the user's last key or mouse movement (seconds, on the clock of `type`)."""

    @property
    def empty(self) -> bool:
        """True if the keys prove that the input is empty."""
        return self._known and not self._text and not self._pending

    @property
    def typed(self) -> bool:
        """True if keys have put text into the input, which is perhaps still there."""
        return bool(self._text)

    @property
    def last_line(self) -> str:
        return self._text.rstrip().rpartition("\n")[2].strip()

    @property
    def multiline(self) -> bool:
        return "\n" in self._text

    @property
    def prefixed(self) -> bool:
        """True if a line editor may take the next key for a command: the last one was Esc, for example."""
        return (self._pending or self._last) in _PREFIXES

    def doubt(self) -> None:
        """Note that something else than the known keys may have changed the input."""
        self._known, self.edited = False, True

    def type(self, data: bytes, now: float, *, canonical: bool, asking: bool = False) -> None:
        """Process bytes that the user typed at `now` (seconds).

        canonical: the terminal edits the line itself; asking: the program asks for a decision or a secret.
        """
        before = self._text
        self._keys(data, now, canonical)
        if self._text != before:
            self._edited = now
        self._raw = not canonical and (not before or self._raw)
        self.answers = asking and (not before or self.answers)

    def clear(self) -> None:
        self._text, self._known, self._pending = "", True, ""

    def taken(self, last_output: float, unfinished: str, rows: Sequence[str], *, canonical: bool) -> bool:
        """Return True if the program has consumed the draft's keys one by one.

        It has if it has printed since then and the keys are not on the screen.  Several keys count only if
        the program reads single keys: in canonical mode, the kernel might still hold the rest of them.

        last_output (seconds), unfinished (the cursor's row), rows (the screen's), canonical: current values.
        """
        if not self._known or last_output <= self._edited:
            return False
        if self._shown(unfinished, [] if canonical else rows):
            return False
        if len(self._text) == 1:
            return self.answers or self._raw
        return self.answers and self._raw and not canonical

    def _shown(self, unfinished: str, rows: Sequence[str]) -> bool:
        """Return True if the draft's end is before the cursor, or alone in a row as in an input box."""
        last = self._text.strip().rpartition("\n")[2].strip()
        if not last:
            return False
        if unfinished.rstrip(INPUT_BORDER).endswith(last):
            return True
        texts = [text for row in rows if (text := row.strip(INPUT_BORDER))]
        if any(last.endswith(text) or (len(last) > 2 and last in text) for text in texts):
            return True
        box = next((row for row in reversed(rows) if _INPUT.match(row)), "")
        return box.strip(INPUT_BORDER).startswith(last)  # followed by a suggestion

    def _keys(self, data: bytes, now: float, canonical: bool) -> None:
        if self._pending == "\x1b" and now - self.last_typed > ESCAPE_TIMEOUT:
            self._escape()
        elif self._pending:
            self.last_typed = self._typed_before  # the sequence may be a terminal's answer, not typed
        text = self._pending + self._decoder.decode(data)
        self._pending = ""
        place = 0
        while place < len(text):
            size = self._paste(text, place) if self._pasting else self._key(text, place, now, canonical)
            if not size:
                self._pending = text[place:]
                self._typed_before, self.last_typed = self.last_typed, now
                return
            place += size

    def _paste(self, text: str, place: int) -> int:
        """Process pasted text from `place`. Return its length, or 0 if more must arrive first."""
        end = text.find(_PASTE_END, place)
        if end >= 0:
            self._pasting = False
            self._add(text[place:end])
            return end - place + len(_PASTE_END)
        kept = next((n for n in range(len(_PASTE_END) - 1, 0, -1) if text.endswith(_PASTE_END[:n], place)), 0)
        size = len(text) - place - kept
        self._add(text[place : place + size])
        return size

    def _key(self, text: str, place: int, now: float, canonical: bool) -> int:
        """Process one key or sequence at `place`. Return its length, or 0 if it is incomplete."""
        if text[place] != "\x1b":
            self.last_typed = now
            self._press(text[place], canonical)
            return 1
        if match := _STRING.match(text, place):
            return len(match[0])
        if match := _CSI.match(text, place):
            # X10 mouse reports carry three more bytes (xterm ctlseqs, "Normal tracking mode").
            size = len(match[0]) + (3 if match[0] == "\x1b[M" else 0)
            if place + size > len(text):
                return 0
            self._sequence(text[place : place + size], match[1], match[2], now, canonical)
            return size
        if match := _SS3.match(text, place):
            self.last_typed = now
            self._edit(match[0], canonical)
            return len(match[0])
        rest = text[place : place + _MAX_STRING]
        if _UNFINISHED.fullmatch(rest) or (_STRING_START.match(rest) and len(rest) < _MAX_STRING):
            return 0
        self.last_typed = now
        if rest.startswith(_ALT_ENTER):
            self._add("\n")
        else:
            self._edit(rest[:2], canonical)  # Alt with a key: a line editor's command
        return 2

    def _sequence(self, whole: str, parameters: str, final: str, now: float, canonical: bool) -> None:
        if _ANSWER.match(whole):
            return
        self.last_typed = now
        if whole == "\x1b[200~":
            self._pasting, self._last = True, whole
        elif final == "u" or (final == "~" and parameters.startswith("27;")):
            if final == "~":  # xterm's modifyOtherKeys, `27;modifiers;code`
                fields = parameters.split(";")
                parameters = f"{fields[2]};{fields[1]}" if len(fields) == 3 else ""
            self._encoded(parameters, canonical)
        elif final in "Mm" and whole.startswith(("\x1b[<", "\x1b[M")):
            if not canonical and _BUTTON.match(whole):
                self.doubt()
        elif whole not in _FOCUS:
            self._edit(whole, canonical)

    def _edit(self, whole: str, canonical: bool) -> None:
        """Process a sequence with which programs edit their input, or an Alt key."""
        self._last = whole
        if canonical:
            self._add(whole)  # no line editor: the kernel keeps the sequence in the line
        elif self._text or whole not in _STAYS_EMPTY:
            self.doubt()

    def _escape(self) -> None:
        self._pending, self._last = "", "\x1b"
        self.doubt()

    def _encoded(self, parameters: str, canonical: bool) -> None:
        """Process a key of the kitty keyboard protocol: `code[:...];modifiers[:event];text`."""
        fields = [field.split(":") for field in parameters.split(";")]
        try:
            code = int(fields[0][0])
            modifiers = int(fields[1][0] or 1) - 1 if len(fields) > 1 else 0
            released = len(fields) > 1 and len(fields[1]) > 1 and fields[1][1] == "3"
        except ValueError:
            return
        if released or not 0 < code < 0x110000 or 0xE000 <= code <= 0xF8FF:
            return
        if code == 13 and modifiers & 0b11:
            self._add("\n")  # Shift or Alt with Enter
        elif modifiers & 0b100 and 64 <= (code & ~0x20) < 96:
            self._press(chr(code & 0x1F), canonical)
        elif not modifiers & 0b110:
            if code == 27:
                self._escape()
            else:
                self._press(chr(code), canonical)
        else:
            self.doubt()

    def _press(self, key: str, canonical: bool) -> None:
        if canonical:
            self._press_canonical(key)
        elif self._last in _QUOTES or (key == "\r" and self._text.endswith("\\")):
            self._add("\n")  # agents' input boxes treat backslash and Enter as a newline
        elif key == "\r":
            self._text, self._known, self.edited = "", True, False
        elif self._last in _PREFIXES:
            self.doubt()
        elif key in _ERASE:
            self._text = self._text[:-1]
        elif key == _CTRL_U and "\n" not in self._text and len(self._text) <= SHORT:
            self._text = ""
        elif key == "\n" or (key >= " " and key != "\x7f"):
            self._add(key)
        elif self._text or key not in _STAYS_EMPTY:
            self.doubt()
        self._last = key

    def _press_canonical(self, key: str) -> None:
        """Process a key as the kernel does (termios(3), "Canonical and noncanonical mode")."""
        if self._last == _LITERAL:
            self._add(key)
        elif key == _CTRL_D and self._text:
            self.doubt()  # the program gets the part before, and may keep it
        elif key in ("\r", "\n", _CTRL_U, _CTRL_C, _CTRL_BACKSLASH, _CTRL_D, _CTRL_Z):
            self._text, self._known = "", True
        elif key in _ERASE:
            self._text = self._text[:-1]
        elif key == _CTRL_W:
            self._text = re.sub(r"\S+\s*\Z|\s+\Z", "", self._text)
        elif key == "\t" or key >= " ":
            self._add(key)
        self._last = "" if self._last == _LITERAL else key

    def _add(self, text: str) -> None:
        self._text += text
        if len(self._text) > MAX_DRAFT:
            self._text = self._text[-MAX_DRAFT:]
            self.doubt()
