"""relay's own keys in the user's input: Ctrl-] (or another prefix), then a letter.

    d  detach      n, p  next, previous agent      ?  help      the prefix again: the prefix itself

A terminal sends Ctrl-] as one byte unless the program has enabled more precise keys, with the kitty keyboard
protocol (https://sw.kovidgoyal.net/kitty/keyboard-protocol/: CSI code;modifiers:event u) or xterm's
modifyOtherKeys (ctlseqs: CSI 27;modifiers;code ~).  All other input passes through unchanged.
"""

from __future__ import annotations

import re

ESCAPE_TIMEOUT = 1.0
"""Seconds after which a lone prefix goes to the agent."""

SPLIT_TIMEOUT = 0.005
"""Seconds after which a possible start of such a sequence goes to the agent: a terminal writes a key in one
piece, and the Escape key must not lag."""

DETACH, NEXT, PREVIOUS, HELP = "detach", "next", "previous", "help"

# Modifiers are 1 + a sum: 1 is Shift, 4 is Ctrl, 64 and 128 are Caps Lock and Num Lock. Event 3 is a key
# release. Colons may append two more codes: the shifted key's, and the key's on a US keyboard.
_PREFIX = rb"%b|\x1b\[%d(?::\d*)*;(?:5|69|133|197)(?::[12])?u|\x1b\[27;5;%d~"
_LETTER = rb"[%c%c]|\x1b\[%d(?::\d*)*(?:;(?:1|2|65|66|129|130|193|194)?(?::[12])?)?u"
_QUESTION = (
    rb"\?|\x1b\[\d+:63(?::\d*)?;(?:2|66|130|194)(?::[12])?u|\x1b\[(?:63|47;(?:2|66|130|194))(?::[12])?u"
)
_BETWEEN = re.compile(rb"\x1b\[\d+(?::\d*)*;\d*:3u")  # the release of ] or Ctrl
_UNFINISHED = re.compile(rb"\x1b(?:\[[\d:;]{0,32})?\Z")

# Answers to queries (DA, DSR, CPR, DECRPM, XTWINOPS, control strings), focus and mouse reports.
_REPORTS = re.compile(
    rb"(?:\x1b\[[?>=]?[\d;:]*\$?[cnRytIO]|\x1b\[<[\d;]*[Mm]|\x1b[\]PX^_][^\a\x1b]*(?:\a|\x1b\\))*"
)


def _letter(letter: str) -> bytes:
    return _LETTER % (ord(letter), ord(letter.upper()), ord(letter))


_COMMANDS = tuple(
    (re.compile(pattern), command)
    for pattern, command in (
        (_letter("d"), DETACH),
        (_letter("n"), NEXT),
        (_letter("p"), PREVIOUS),
        (_QUESTION, HELP),
    )
)


def split_reports(data: bytes) -> tuple[bytes, bytes]:
    """Return (the terminal's own reports at the start of `data`, the rest, which starts with a typed key)."""
    reports = _REPORTS.match(data)
    end = 0 if reports is None else reports.end()
    return data[:end], data[end:]


def help_text(name: str, prefix: str, unread: int = 0) -> bytes:
    """Return the bytes that clear the screen and show the help.

    prefix: such as "C-]". unread: how many items in the user's inbox are unread.
    """
    key = f"Ctrl-{prefix[2:].upper()}"
    rows = (
        f"relay: {name}",
        "",
        f"{key} d   detach; the agent keeps running",
        f"{key} n   the next agent, by name",
        f"{key} p   the previous agent",
        f"{key} {key}   {key} itself, for the agent",
        "",
        *([f"{unread} unread in your inbox: `relay inbox`", ""] if unread else []),
        f"Press the second key within {ESCAPE_TIMEOUT:g} s. Press any key to continue.",
    )
    return b"\x1b[r\x1b[0m\x1b[H\x1b[2J" + "\r\n".join(rows).encode()


class CommandKeys:
    """Finds the keys in the user's input.

    patience:  seconds until `flush` is due; None if nothing is kept.
    unchanged: what is kept was kept already, so `flush` is due when it was.
    """

    def __init__(self, prefix: str) -> None:
        """`prefix` is "C-" and a letter, "]" or a backslash."""
        code = ord(prefix[2:].lower())
        self._prefix = re.compile(_PREFIX % (re.escape(bytes([code & 0x1F])), code, code))
        self._kept = b""
        self.patience: float | None = None
        self.unchanged = False

    def feed(self, data: bytes) -> tuple[bytes, str]:
        """Return (input for the agent, the command or ""). Drop what follows a command."""
        kept, self._kept, self.patience = self._kept, b"", None
        data, self.unchanged = kept + data, False
        passed = bytearray()
        at = 0
        while found := self._prefix.search(data, at):
            passed += data[at : found.start()]
            second = found.end()
            while between := _BETWEEN.match(data, second):
                second = between.end()
            reports, rest = split_reports(data[second:])  # not typed: the command goes on
            passed += reports
            data = data[:second] + rest
            if second == len(data):
                self.unchanged = data[found.start() :] == kept
                return self._keep(passed, data, found.start(), ESCAPE_TIMEOUT)
            if _UNFINISHED.match(data, second):
                return self._keep(passed, data, found.start(), SPLIT_TIMEOUT)
            for pattern, command in _COMMANDS:
                if pattern.match(data, second):
                    return bytes(passed), command
            passed += data[found.start() : second]
            again = self._prefix.match(data, second)  # pressed twice, the prefix is sent once
            at = again.end() if again else second
        unfinished = _UNFINISHED.search(data, at) if b"\x1b" in data else None
        if unfinished is None:
            return bytes(passed + data[at:]), ""
        return self._keep(passed + data[at : unfinished.start()], data, unfinished.start(), SPLIT_TIMEOUT)

    def flush(self) -> bytes:
        """Return the kept input, which turned out not to be a command."""
        kept, self._kept, self.patience = self._kept, b"", None
        return kept

    def _keep(self, passed: bytearray, data: bytes, start: int, patience: float) -> tuple[bytes, str]:
        self._kept, self.patience = data[start:], patience
        return bytes(passed), ""
