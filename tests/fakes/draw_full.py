"""A full-screen TUI on the alternate screen: a transcript that scrolls by repainting only changed cells.

It adds each line of the script (argv[1], a file) to the transcript; the window shows the last rows.
"""

import os
import select
import sys

script = open(sys.argv[1], encoding="utf-8").read().split("\n")  # noqa: SIM115
columns, rows = os.get_terminal_size(1)
shown = [" " * columns for _ in range(rows)]


def out(text: str) -> None:
    os.write(1, text.encode())


def paint(lines: list[str]) -> None:
    """Draw the cells that differ from the screen, run by run."""
    pieces = []
    for y, line in enumerate(lines):
        new, old = line.ljust(columns)[:columns], shown[y]
        x = 0
        while x < columns:
            if new[x] == old[x]:
                x += 1
                continue
            start = x
            while x < columns and new[x] != old[x]:
                x += 1
            pieces.append(f"\x1b[{y + 1};{start + 1}H{new[start:x]}")
        shown[y] = new
    out("".join(pieces) + f"\x1b[{rows};3H")


out("\x1b[?1049h\x1b[2J\x1b[?2004h")
transcript: list[str] = []
for number, line in enumerate(script):
    for end in (len(line) // 2, len(line)):
        window = [*transcript, f"  {line[:end]}"][-(rows - 4) :]
        window += [""] * (rows - 4 - len(window))
        paint([*window, "", f"Working {number}", "─" * 30, "> "])
        select.select([], [], [], 0.02)
    transcript += [f"  {line}", ""]
out("\x1b[?1049l\x1b[?2004l")
