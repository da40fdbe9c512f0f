"""What a program may leave set in a terminal, and how to reset it.

From xterm's ctlseqs (patch 400), kitty's and iTerm2's pages on their extensions, and tmux(1).  Left out is
what a terminal that does not know the sequence would draw or scroll: S7C1T, G2 and G3, the title modes.
"""

from __future__ import annotations

MODES_OFF = (1, 5, 9, 45, 66, 69, 1000, *range(1002, 1007), 1015, 1016, 1045, 2004, 2026, 2031, 2048)
"""DEC private modes that outlive their program and are off in a terminal at rest.

From "DEC Private Mode Set"; 2004, 2026, 2031 and 2048 are common additions.
"""

MODES_ON = (7, 25)
"""DEC private modes that are on in a terminal at rest: line wrap, the cursor."""

ALTERNATE = (1049, 1047, 47)
"""DEC private modes that switch to the alternate screen."""

ORIGIN = 6
"""The DEC private mode that is off at rest, too, but whose reset moves the cursor."""

POP_KEYBOARD = b"\x1b[<99u"
"""Pops every level that was pushed for the kitty keyboard protocol."""

AT_REST = b"".join(
    [
        b"\x1b7",  # the next ones move the cursor, also in a terminal that takes them for others
        b"\x1b[r",  # the scroll region
        b"\x1b[>4f",  # XTFMTKEYS: formatOtherKeys
        b"\x1b8",
        b"\x1b[>4m\x1b[>m",  # XTMODKEYS: modifyOtherKeys, then all key modifier options
        b"\x1b[?80;1001;1045;1050;1051;1052;1053;1060;1061;5522;9001l",  # sixels, mouse, keyboards, pastes
        b"\x1b[2;4;20l\x1b[12h",  # ANSI modes: the keyboard is locked, insert, line feed; local echo
        b"\x1b[0m",
        b'\x1b[0"q',  # DECSCA: protected characters
        b"\x1b[0'z",  # DECELR: the locator
        b"\x1b[?5W",  # DECST8C: tab stops
        b"\x1b(B\x1b)B\x0f",  # character sets
        b"\x1b>",  # the keypad
        b"\x1b[0 q",  # the cursor's shape
    ]
)
"""Resets what cannot be queried and is harmless to reset."""

OSC_RESETS = {
    4: b"104",  # the palette
    5: b"105",  # special colours
    **{number: b"1%d" % number for number in range(10, 20)},  # text, background, cursor, pointer, ...
    8: b"8;;",  # an open hyperlink
    9: b"9;4;0",  # a progress bar (ConEmu, iTerm2, Ghostty)
    22: b"22;",  # the pointer's shape
}
"""What resets what an OSC sequence with this number has set.

Only what the program has set is reset: shells, too, set colours.
"""

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
