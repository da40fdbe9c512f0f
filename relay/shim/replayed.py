"""Finds queries in the agent's output, whose answers the terminal sends as if they were typed.

In replayed output they would be typed into the agent, and after the user has left, at the shell's prompt.
"""

from __future__ import annotations

import re

_ASKING = re.compile(
    rb"""
      \x1b\[ [<=>?]? [\d;:]* (?: c | n | x | \$p | \$w | \*y )   # attributes, reports, modes, checksums
    | \x1b\[ (?:1[1-9]|2[01]) (?:;\d*)* t                        # reports about the window
    | \x1b\[ > [\d;]* q | \x1b\[ \? u | \x1b\[ \? [\d;]* S      # version, keyboard, graphics
    | \x1bP [$+] q [^\x1b]* \x1b\\                               # settings, termcap
    | \x1b\] (?: [^\a\x1b]* ; )? \? [^\a\x1b]* (?: \a | \x1b\\ ) # colours and the like
    | \x1b\] (?:9|52|99|777) ; [^\a\x1b]* (?: \a | \x1b\\ )      # notifications, the clipboard
    | \x1b_G [^\x1b]* \x1b\\                                     # graphics, which are acknowledged
    | \x05                                                       # ENQ
    """,
    re.VERBOSE,
)


def harmless(data: bytes) -> bytes:
    """Return `data` without queries, notifications and clipboard writes."""
    return _ASKING.sub(b"", data)


def asks(data: bytes) -> bool:
    """Return True if `data` contains something that `harmless` removes."""
    return _ASKING.search(data) is not None
