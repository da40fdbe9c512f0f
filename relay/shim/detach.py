"""The keys that detach: Ctrl-] and then d, in every form in which a terminal may send them.

A terminal sends Ctrl-] as one byte, until the program has asked for more exact keys: by the kitty keyboard
protocol (https://sw.kovidgoyal.net/kitty/keyboard-protocol/: CSI code;modifiers:event u) or by xterm's
modifyOtherKeys (ctlseqs: CSI 27;modifiers;code ~).  Everything else passes unchanged.
"""

from __future__ import annotations

import re

ESCAPE_PATIENCE = 0.5
"""Seconds after which a lone Ctrl-] goes to the agent."""

SPLIT_PATIENCE = 0.005
"""Seconds after which a possible beginning of such a sequence goes to the agent: a terminal writes a key at
once, and the Escape key must not lag."""

# Modifiers are 1 + a sum: 4 is Ctrl, 64 and 128 are Caps Lock and Num Lock. The event 3 is a key's release.
# A code may be followed by others, after colons: that of the key with Shift, and that on a US keyboard.
_ESCAPE = re.compile(rb"\x1d|\x1b\[93(?::\d*)*;(?:5|69|133|197)(?::[12])?u|\x1b\[27;5;93~")
_D = re.compile(rb"[dD]|\x1b\[100(?::\d*)*(?:;(?:1|2|65|66|129|130|193|194)?(?::[12])?)?u")
_BETWEEN = re.compile(rb"\x1b\[\d+(?::\d*)*;\d*:3u")  # the release of ], of Ctrl
_UNFINISHED = re.compile(rb"\x1b(?:\[[\d:;]{0,32})?\Z")


class DetachKeys:
    """Finds the keys in the user's input. patience: seconds until `flush` is due, None: nothing is kept."""

    def __init__(self) -> None:
        self._kept = b""
        self.patience: float | None = None

    def feed(self, data: bytes) -> tuple[bytes, bool]:
        """Return (input that goes to the agent now, True if the user detaches: what follows is dropped)."""
        data, self._kept, self.patience = self._kept + data, b"", None
        passed = bytearray()
        at = 0
        while found := _ESCAPE.search(data, at):
            passed += data[at : found.start()]
            second = found.end()
            while between := _BETWEEN.match(data, second):
                second = between.end()
            if second == len(data):
                return self._keep(passed, data, found.start(), ESCAPE_PATIENCE)
            if _UNFINISHED.match(data, second):
                return self._keep(passed, data, found.start(), SPLIT_PATIENCE)
            if _D.match(data, second):
                return bytes(passed), True
            passed += data[found.start() : second]
            again = _ESCAPE.match(data, second)  # pressed twice, it is sent once
            at = again.end() if again else second
        unfinished = _UNFINISHED.search(data, at)
        if unfinished is None:
            return bytes(passed + data[at:]), False
        return self._keep(passed + data[at : unfinished.start()], data, unfinished.start(), SPLIT_PATIENCE)

    def flush(self) -> bytes:
        """Return the kept input, which has not become the keys."""
        kept, self._kept, self.patience = self._kept, b"", None
        return kept

    def _keep(self, passed: bytearray, data: bytes, start: int, patience: float) -> tuple[bytes, bool]:
        self._kept, self.patience = data[start:], patience
        return bytes(passed), False
