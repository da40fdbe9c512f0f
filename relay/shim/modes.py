"""The modes that a program may leave set in a terminal, and how to reset them blindly."""

from __future__ import annotations

MODES_OFF = (1, 5, 9, 66, 1000, 1002, 1003, 1004, 1005, 1006, 1015, 1016, 2004, 2026, 2031, 2048)
"""DEC private modes that outlive their program and are off in a terminal at rest.

From xterm's ctlseqs, "DEC Private Mode Set"; 2004, 2026, 2031 and 2048 are its successors' common additions.
"""

MODES_ON = (7, 25)
"""DEC private modes that are on in a terminal at rest: line wrap, the cursor."""

ALTERNATE = (1049, 1047, 47)
"""DEC private modes that switch to the alternate screen."""

POP_KEYBOARD = b"\x1b[<99u"
"""Pops every level that was pushed for the kitty keyboard protocol."""

AT_REST = b"\x1b7\x1b[r\x1b8\x1b[0m\x1b(B\x0f\x1b>\x1b[0 q"
"""Resets what cannot be queried and is cheap to reset: the scroll region (which homes the cursor, so the
cursor is saved and restored), attributes, character set, keypad, cursor shape."""

UNDO = b"".join(
    [
        POP_KEYBOARD,
        *(b"\x1b[?%dl" % number for number in MODES_OFF),
        *(b"\x1b[?%dh" % number for number in MODES_ON),
        # Leaving the alternate screen restores the cursor, even while the main screen is shown.
        b"\x1b7\x1b[?1049l",
        POP_KEYBOARD,  # each screen has its own stack
        AT_REST,
    ]
)
"""Resets everything that a program may have set."""
